"""The data folder: its content, its lock, and its creation.

data/                0700
    lock             locked by the process that runs the server; says which
    postgres/        0700, PGDATA, of the account that runs the server; the socket is in it, if the path is short enough
    postgres.log     what the server says
    postgres.new-…/  a first start or a reset under way, or one that was killed

Nothing here initialises or removes a folder that may hold data: a cluster is created in a new folder, and renamed when it
is complete. Only a new folder that carries our mark is removed: it was never a server's, or it was given up.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from duly.postgres.account import Account, name_of
from duly.postgres.binaries import Binaries
from duly.postgres.errors import DataFolderHeld, DataFolderRefused
from duly.postgres.processes import command_of, wait_until

ROLE = "duly"
DATABASE = "duly"
API_ROLE = "duly_api"
_MARK = "made-by-duly"
_ROLES_MARK = "duly-roles"  # in PGDATA: the roles below exist
_LET_GO_SECONDS = 2.0

# No superuser can ever log in. What needs one is done here, in single-user mode, before the server first starts.
_FIRST_STATEMENTS = f"""\
create role {ROLE} login createdb;
grant pg_read_all_stats to {ROLE};
create database {DATABASE} owner {ROLE};
"""
# For a folder of an older version too. One line each: in single-user mode a line is a statement.
_ROLES = f"""\
do $$ begin if not exists (select from pg_roles where rolname = '{API_ROLE}') then create role {API_ROLE} nologin; end if; end $$;
grant {API_ROLE} to {ROLE};
"""
_SINGLE_USER = ("--single", "-F", "-c", "exit_on_error=on", "postgres")

# The kernel tells the server who calls, so there is no password to keep, to leak, or to be overruled by PGPASSWORD.
# The server may run under another account than its callers, so theirs is mapped to the role by name.
_WRITTEN_BY_US = "# Written by Duly at each start.\n"
_HBA = f"{_WRITTEN_BY_US}local all {ROLE} peer map={ROLE}\n"
_IDENT = f'{_WRITTEN_BY_US}{ROLE} "{{caller}}" {ROLE}\n'


class Folder:
    """One data folder."""

    def __init__(self, data: Path) -> None:
        self.data = data.resolve()
        self.pgdata = self.data / "postgres"
        self.log = self.data / "postgres.log"

    def lock(self) -> int:
        """Take the folder for this process, created if it is missing; returns the descriptor that holds the lock."""
        try:
            self.data.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(self.data / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise DataFolderRefused(f"{self.data} cannot be used: {error}: choose another data folder") from error
        try:
            self._lock(descriptor)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def _lock(self, descriptor: int) -> None:
        if self.data.stat().st_mode & 0o022:
            raise DataFolderRefused(f"others can write in {self.data}: run `chmod go-w {self.data}`")
        # A program that a killed holder was starting has its lock too, until it has become another program.
        seconds = 0.0 if self._holder_lives() else _LET_GO_SECONDS
        if not wait_until(lambda: takes(descriptor), seconds):
            raise DataFolderHeld(self._in_use_by())
        os.ftruncate(descriptor, 0)
        os.write(descriptor, str(os.getpid()).encode())

    def _holder_lives(self) -> bool:
        pid = (self.data / "lock").read_text(encoding="utf-8")
        return pid.isdigit() and command_of(int(pid)) != ""

    def _in_use_by(self) -> str:
        lock = self.data / "lock"
        pid = lock.read_text(encoding="utf-8") or "unknown"  # It is taking it at this moment.
        since = datetime.fromtimestamp(lock.stat().st_mtime, UTC)
        command = command_of(int(pid)) if pid.isdigit() else ""
        return (
            f"{self.data} is in use by process {pid} since {since:%Y-%m-%d %H:%M:%S} UTC"
            f"{f' ({command})' if command else ''}: stop that one, or choose another data folder"
        )

    def major(self) -> str | None:
        """Return the major version that created the cluster in here; None when the folder is empty or missing."""
        if not os.path.lexists(self.pgdata):
            return None
        try:
            ours = (self.pgdata / "pg_hba.conf").read_text(encoding="utf-8").startswith(_WRITTEN_BY_US)
            version = (self.pgdata / "PG_VERSION").read_text(encoding="utf-8").strip()
        except (FileNotFoundError, NotADirectoryError):
            ours, version = False, ""
        except OSError as error:
            raise DataFolderRefused(
                f"{self.pgdata} cannot be read: {error}: run as the account that created it"
            ) from error
        if not ours:
            raise DataFolderRefused(
                f"{self.pgdata} is not a PostgreSQL data folder made by Duly, and is left as it is: "
                "move it away, or choose another data folder"
            )
        return version

    def refuse_other_version(self, found: str, binaries: Binaries) -> None:
        """Refuse programs of another major version than the data."""
        if found != binaries.major:
            raise DataFolderRefused(
                f"{self.pgdata} was made by PostgreSQL {found}, and the programs in {binaries.folder} are version "
                f"{binaries.version}: start it with programs of version {found}, or start with a new data folder"
            )

    def initialise(self, binaries: Binaries, *, durable: bool) -> None:
        """Create a new cluster beside its final path, and rename it when it is complete."""
        new = self._new()
        try:
            (new / _MARK).touch(mode=0o600)
            make_cluster(new / "postgres", binaries, durable=durable)
            (new / "postgres").rename(self.pgdata)
        finally:
            remove_leftover(new)
        if durable:
            synchronise(self.data)

    def remove_cluster(self) -> None:
        """Remove the data for good. Raises DataFolderRefused when Duly has not created it."""
        if self.major() is None:
            return
        # It leaves its path whole: half a cluster in there would be taken for another's, and kept.
        given_up = self._new()
        (given_up / _MARK).touch(mode=0o600)
        self.pgdata.rename(given_up / "postgres")
        remove_leftover(given_up)

    def _new(self) -> Path:
        new = self.data / f"postgres.new-{secrets.token_hex(8)}"
        new.mkdir(mode=0o700)
        return new

    def remove_leftovers(self) -> None:
        """Remove first starts and resets that were killed, known by the mark in them."""
        for new in self.data.glob("postgres.new-*"):
            if not new.is_symlink():
                remove_leftover(new)


def takes(descriptor: int) -> bool:
    """Take the lock, and say whether it was free."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def remove_leftover(new: Path) -> None:
    """Remove an unfinished or given-up cluster, known by our mark beside it; the mark goes last, and a folder only when empty."""
    if (new / _MARK).is_file():
        shutil.rmtree(new / "postgres", ignore_errors=True)
        if not (new / "postgres").exists():
            (new / _MARK).unlink()
    with suppress(OSError):
        new.rmdir()


def make_cluster(pgdata: Path, binaries: Binaries, *, durable: bool) -> None:
    """Create a cluster with the engine's role and database, and bring it to the disk."""
    pgdata.mkdir(mode=0o700)
    os.chown(pgdata, binaries.account.uid, binaries.account.gid)
    superuser = f"bootstrap_{secrets.token_hex(4)}"
    options = ("--no-sync", "--data-checksums", "--locale=C", "--encoding=UTF8", "--auth=reject")
    binaries.run("initdb", "--username", superuser, *options, pgdata=pgdata)
    admit_callers(pgdata, binaries.account)
    binaries.run("postgres", *_SINGLE_USER, pgdata=pgdata, stdin=_FIRST_STATEMENTS + _ROLES)
    (pgdata / _ROLES_MARK).touch(mode=0o600)
    if durable:
        binaries.run("initdb", "--sync-only", pgdata=pgdata)


def make_roles(pgdata: Path, binaries: Binaries) -> None:
    """Create the roles that a folder of an older version lacks, while no server runs on it. A mark says that they are there."""
    if not (pgdata / _ROLES_MARK).exists():
        durably = tuple(option for option in _SINGLE_USER if option != "-F")
        binaries.run("postgres", *durably, pgdata=pgdata, stdin=_ROLES)
        (pgdata / _ROLES_MARK).touch(mode=0o600)


def admit_callers(pgdata: Path, account: Account) -> None:
    """Write down who may connect: the account we run under, as the engine's role, over the socket."""
    replace(pgdata / "pg_hba.conf", _HBA, account)
    replace(pgdata / "pg_ident.conf", _IDENT.format(caller=name_of(os.geteuid())), account)


def replace(path: Path, text: str, account: Account) -> None:
    """Let `path` hold `text` and belong to `account`; at no moment is there less than a whole file."""
    if path.read_text(encoding="utf-8") == text:
        return
    new = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fchown(descriptor, account.uid, account.gid)
        os.fsync(descriptor)
    new.rename(path)


def synchronise(folder: Path) -> None:
    """Bring the names in `folder` to the disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
