"""Where the server's Unix socket lies, and the address that follows.

In PGDATA itself, which is 0700, as long as its path fits into the 107 bytes the kernel gives a socket's name; otherwise in a
short private folder of its own, whose name follows from that of the data folder. The server writes the place into its
`postmaster.pid`, so that another process finds it there.
"""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
from pathlib import Path
from urllib.parse import quote

from duly.store.embedded_binaries import Account
from duly.store.embedded_errors import DataFolderRefused

SOCKET = ".s.PGSQL.5432"
IN_PGDATA = "."
# With the closing zero the kernel takes 108 bytes on Linux and 104 elsewhere.
_PATH_BYTES_MAX = 103
_SHARED = Path("/tmp")  # noqa: S108 - what we make in it is private and verified


def choose_socket_folder(pgdata: Path, account: Account) -> str:
    """Choose the socket's folder, as the server is told it, and make it if it is not PGDATA."""
    if fits(pgdata):
        return IN_PGDATA
    name = f"duly-{hashlib.sha256(os.fsencode(pgdata)).hexdigest()[:16]}"
    folder = next(parent / name for parent in short_folders(account) if fits(parent / name))
    make_private(folder, account)
    return str(folder)


def fits(folder: Path) -> bool:
    """Say whether a socket in `folder` can be named; a comma would be read as the end of a host's name."""
    return len(os.fsencode(folder / SOCKET)) <= _PATH_BYTES_MAX and "," not in str(folder)


def short_folders(account: Account) -> list[Path]:
    """List where a private folder may be made, the best first: it has to be reachable for `account` too."""
    if not account.is_ours:
        candidates = [Path("/run"), _SHARED]
    else:
        candidates = [Path(f"/run/user/{account.uid}"), Path(tempfile.gettempdir()), _SHARED]
    return [folder for folder in candidates if os.access(folder, os.W_OK)] or [_SHARED]


def make_private(folder: Path, account: Account) -> None:
    """Make `folder` for `account` alone, or see that it is so already."""
    try:
        folder.mkdir(mode=0o700)
        os.chown(folder, account.uid, account.gid)
    except FileExistsError:
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != account.uid or stat.S_IMODE(found.st_mode) != 0o700:
            raise DataFolderRefused(
                f"{folder} is needed for the socket, but is not a private folder of uid {account.uid}: remove it"
            ) from None


def address(pgdata: Path, socket_folder: str, *, role: str, database: str) -> str:
    """Write the address of the server whose socket lies in `socket_folder`."""
    host = pgdata / socket_folder  # An absolute one replaces PGDATA.
    return f"postgresql:///{database}?host={quote(str(host))}&port=5432&user={role}"
