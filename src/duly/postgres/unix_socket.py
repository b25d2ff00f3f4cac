"""The server's Unix socket, and its address.

It lies in PGDATA itself, which is 0700, as long as its path fits into the bytes the kernel gives a socket's name;
otherwise in a short private folder of its own, whose name follows from that of the data folder. The server writes the
path into its `postmaster.pid`, and there another process finds it.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import tempfile
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

from duly.postgres.account import Account
from duly.postgres.errors import DataFolderRefused

SOCKET = ".s.PGSQL.5432"
IN_PGDATA = "."
# With the closing zero the kernel takes 108 bytes on Linux and 104 elsewhere.
_PATH_BYTES_MAX = 103
_SHARED = Path("/tmp")  # noqa: S108 - what we create in it is private, and verified.


def make_socket_folder(pgdata: Path, account: Account) -> str:
    """Choose the socket's folder, as the server gets it, and create it if it is not PGDATA."""
    if fits(pgdata):
        return IN_PGDATA
    name = f"duly-{hashlib.sha256(os.fsencode(pgdata)).hexdigest()[:16]}"
    folder = next(parent / name for parent in short_folders(account) if fits(parent / name))
    make_private(folder, account)
    return str(folder)


def remove_socket_folder(socket_folder: str) -> None:
    """Remove a folder created for the socket, unless anything is left in it."""
    if socket_folder != IN_PGDATA:
        with suppress(OSError):
            Path(socket_folder).rmdir()


def fits(folder: Path) -> bool:
    """Return whether a socket in `folder` can be named in an address, where a comma would end a host's name."""
    return len(os.fsencode(folder / SOCKET)) <= _PATH_BYTES_MAX and "," not in str(folder)


def short_folders(account: Account) -> list[Path]:
    """List where a private folder may be created, the best first; `account` has to reach it too."""
    preferred = [Path(f"/run/user/{account.uid}"), Path(tempfile.gettempdir())] if account.is_ours else [Path("/run")]
    return [folder for folder in preferred if os.access(folder, os.W_OK)] + [_SHARED]


def make_private(folder: Path, account: Account) -> None:
    """Make `folder` for `account` alone, or see that it is so already."""
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    is_private = stat.S_ISDIR(found.st_mode) and stat.S_IMODE(found.st_mode) == 0o700
    if not is_private or found.st_uid not in (account.uid, os.geteuid()):
        raise DataFolderRefused(
            f"{folder} is needed for the server's socket, but is not a private folder of uid {account.uid}: remove it"
        )
    os.chown(folder, account.uid, account.gid, follow_symlinks=False)


_WRITTEN = re.compile(r"postgresql:///\w+\?host=[^&]+&port=5432&user=\w+")


def address(pgdata: Path, socket_folder: str, *, role: str, database: str) -> str:
    """Write the address of the server whose socket lies in `socket_folder`."""
    host = pgdata / socket_folder  # An absolute one takes the place of PGDATA.
    return f"postgresql:///{database}?host={quote(str(host))}&port=5432&user={role}"


def is_our_own(url: str) -> bool:
    """Return whether `url` is one that we have written, and so leads to an embedded server that no setting names."""
    return _WRITTEN.fullmatch(url) is not None
