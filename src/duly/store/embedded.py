"""A PostgreSQL of our own, for those who have none: started by us on one data folder, and stopped by us.

It can be reached only over a Unix socket in a private folder, and only by the account that started it, as a role without
special rights. It is stopped when the process that started it dies in any way; if it should survive even so, the next start
on the same folder stops it first and starts anew, because its settings and its socket are then those of today.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from duly.store.embedded_binaries import Binaries, account_for, find_binaries
from duly.store.embedded_errors import DataFolderHeld, ServerFailed
from duly.store.embedded_folder import DATABASE, ROLE, Folder
from duly.store.embedded_processes import PidFile, is_alive, is_attached, lives_on, living_on, read_pid_file
from duly.store.embedded_settings import memory_of_machine, server_settings
from duly.store.embedded_socket import SOCKET, address, choose_socket_folder

OnWait = Callable[[float, str], None]

_STOP_SECONDS = 8.0
_POLL_SECONDS = 0.005
_LOG_BYTES_MAX = 1_000_000
_LOG_LINES_SHOWN = 10


class Embedded:
    """One running server on one data folder."""

    def __init__(self, url: str, version: str, server: subprocess.Popen[bytes], lock: int) -> None:
        self.url = url
        self.version = version
        self._server = server
        self._lock = lock

    @property
    def pid(self) -> int:
        """The number of the server's first process."""
        return self._server.pid

    def stop(self) -> None:
        """Stop the server in good order; if it takes too long, at once, and it recovers at its next start."""
        if self._lock < 0:
            return
        end(self._server)
        os.close(self._lock)
        self._lock = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def start(
    data: Path,
    *,
    binaries: Path | None = None,
    durable: bool = True,
    settings: Mapping[str, str] | None = None,
    on_wait: OnWait | None = None,
) -> Embedded:
    """Start a server on `data`, made if it is new; returns when it takes connections, however long its recovery.

    A server left over from a process that was killed is stopped first. Raises an `EmbeddedError` that names the remedy.
    """
    folder = Folder(data)
    folder.prepare()
    lock = folder.hold()
    try:
        programs = find_binaries(binaries, account_for(folder.pgdata))
        make_ready(folder, programs, durable=durable)
        chosen = server_settings(durable=durable, memory=memory_of_machine()) | dict(settings or {})
        server, socket_folder = serve(folder, programs, chosen, on_wait)
    except BaseException:
        os.close(lock)
        raise
    url = address(folder.pgdata, socket_folder, role=ROLE, database=DATABASE)
    return Embedded(url, programs.version, server, lock)


def attach(data: Path) -> str | None:
    """Give the address of the server that runs on `data`, if one does."""
    pgdata = Folder(data).pgdata
    found = read_pid_file(pgdata)
    if found is None or found.status != "ready" or not lives_on(found.pid, pgdata):
        return None
    return address(pgdata, found.socket_folder, role=ROLE, database=DATABASE)


def make_ready(folder: Folder, programs: Binaries, *, durable: bool) -> None:
    """Bring the folder into a state in which the server can start on it."""
    folder.remove_leftovers()
    if not os.path.lexists(folder.pgdata):
        folder.initialise(programs, durable=durable)
    folder.check(programs)
    folder.admit_callers(programs.account)
    clear_away(folder.pgdata)


def clear_away(pgdata: Path) -> None:
    """Stop a server that outlived the process that started it, and remove a pid file that names a stranger."""
    found = read_pid_file(pgdata)
    if found is None:
        return
    stop_orphans(pgdata, found.pid)
    if (pgdata / "postmaster.pid").exists() and is_alive(found.pid):
        refuse_if_in_use(pgdata, found)
        (pgdata / found.socket_folder / f"{SOCKET}.lock").unlink(missing_ok=True)
        (pgdata / "postmaster.pid").unlink()


def refuse_if_in_use(pgdata: Path, found: PidFile) -> None:
    """Refuse when somebody answers on the socket or uses the shared memory, though we cannot see who."""
    if is_attached(found.shared_memory_id) or answers(pgdata / found.socket_folder / SOCKET):
        raise DataFolderHeld(
            f"{pgdata} is in use by a PostgreSQL that cannot be seen from here, perhaps in another container: stop it there"
        )


def answers(path: Path) -> bool:
    """Say whether anybody listens on the socket at `path`."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
        return True


def stop_orphans(pgdata: Path, first: int) -> None:
    """Stop the PostgreSQL processes on `pgdata`: through the first of them if it lives, else each of them at once."""
    if lives_on(first, pgdata):
        os.kill(first, signal.SIGINT)
    if wait_until(lambda: not living_on(pgdata), _STOP_SECONDS):
        return
    for pid in living_on(pgdata):
        os.kill(pid, signal.SIGQUIT)
    if not wait_until(lambda: not living_on(pgdata), _STOP_SECONDS):
        raise DataFolderHeld(f"{pgdata} is in use by PostgreSQL processes that do not stop: {living_on(pgdata)}")


def serve(
    folder: Folder, programs: Binaries, settings: Mapping[str, str], on_wait: OnWait | None
) -> tuple[subprocess.Popen[bytes], str]:
    """Start the server and wait for it; gives it and the folder of its socket."""
    socket_folder = choose_socket_folder(folder.pgdata, programs.account)
    with open_log(folder.log) as log:
        said_before = log.tell()
        chosen = {**settings, "unix_socket_directories": socket_folder}
        server = programs.serve(chosen, pgdata=folder.pgdata, log=log, parent=parent_to_die_with())
    try:
        wait_until_ready(server, folder, said_before, on_wait)
    except BaseException:
        end(server)
        raise
    return server, socket_folder


def parent_to_die_with() -> int:
    """Name this process, or 0 where the kernel would mistake the end of a mere thread for its death."""
    is_main = threading.current_thread() is threading.main_thread()
    return os.getpid() if is_main and sys.platform == "linux" else 0


def open_log(path: Path) -> IO[bytes]:
    """Open the server's log at its end; one that has grown large is put aside first."""
    if path.exists() and path.stat().st_size > _LOG_BYTES_MAX:
        path.rename(path.with_suffix(".log.1"))
    log = os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600), "ab")
    log.seek(0, os.SEEK_END)
    return log


def wait_until_ready(server: subprocess.Popen[bytes], folder: Folder, said_before: int, on_wait: OnWait | None) -> None:
    """Wait until the server takes connections, as long as it lives; a recovery takes its time."""
    begun, told = time.monotonic(), 0.0
    while not is_ready(server, folder.pgdata):
        if server.poll() is not None:
            words = "\n".join(last_lines(folder.log, said_before))
            raise ServerFailed(f"PostgreSQL did not start on {folder.pgdata}; it said:\n{words}")
        waited = time.monotonic() - begun
        if on_wait and waited - told >= 1.0:
            told = waited
            on_wait(waited, "".join(last_lines(folder.log, said_before)[-1:]))
        time.sleep(_POLL_SECONDS)


def is_ready(server: subprocess.Popen[bytes], pgdata: Path) -> bool:
    """Say whether the server has declared itself ready."""
    found = read_pid_file(pgdata)
    return found is not None and found.pid == server.pid and found.status == "ready"


def last_lines(log: Path, offset: int) -> list[str]:
    """Give the last lines of the log, none from before `offset`."""
    with log.open("rb") as file:
        file.seek(max(offset, file.seek(0, os.SEEK_END) - 8192))
        return file.read().decode(errors="replace").splitlines()[-_LOG_LINES_SHOWN:]


def end(server: subprocess.Popen[bytes]) -> None:
    """Stop the server: in good order, then at once, but never so that it could not clean up."""
    for request in (signal.SIGINT, signal.SIGQUIT):
        server.send_signal(request)
        try:
            server.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            continue
        return
    raise ServerFailed(f"PostgreSQL, process {server.pid}, does not stop")


def wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    """Wait for `condition`, at most so long; says whether it came."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return True
