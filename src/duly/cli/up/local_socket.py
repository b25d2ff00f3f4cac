"""The socket of a `duly up` in its data folder, through which the commands of its account reach it without a key.

Its owner alone can open it. It is removed at the end; one that a killed `duly up` left behind does not answer, and is replaced
by the next. Where a path is too long for a socket there is none, and commands go to the database instead.
"""

from __future__ import annotations

import os
import socket
import stat
from contextlib import suppress
from pathlib import Path

from duly.domain.errors import Refused

FILE = "api.sock"
_PATH_BYTES_MAX = 100  # Systems differ: 108 with its end on Linux, 104 elsewhere.
_PROBE_SECONDS = 1.0
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def listen_locally(data: Path | None) -> socket.socket | None:
    """Listen in a data folder that we hold; None where that cannot be."""
    if data is None or _is_too_long(data):
        return None
    path = data / FILE
    with suppress(FileNotFoundError):
        path.unlink()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    path.chmod(0o600)  # The folder keeps others out until then.
    listener.listen(128)
    return listener


def close_locally(listener: socket.socket | None) -> None:
    """Stop listening, and remove the socket."""
    if listener is not None:
        Path(listener.getsockname()).unlink(missing_ok=True)
        listener.close()


def answering(data: Path) -> Path | None:
    """Find the socket of the `duly up` of a folder; None where none answers. Raises Refused for one that others can open."""
    path = data / FILE
    try:
        seen = path.lstat()
    except OSError:
        return None
    if _is_too_long(data) or not stat.S_ISSOCK(seen.st_mode) or seen.st_uid != os.geteuid():
        return None
    if stat.S_IMODE(seen.st_mode) & _OTHERS:
        raise Refused(f"other accounts can open {path}; take that away: chmod 600 {path}")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_PROBE_SECONDS)  # A process that is stopped takes in no more than its backlog.
        try:
            probe.connect(str(path))
        except OSError:
            return None
    return path


def _is_too_long(data: Path) -> bool:
    return len(os.fsencode(data / FILE)) > _PATH_BYTES_MAX
