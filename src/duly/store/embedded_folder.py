"""The data folder: what lies in it, who holds it, and how it comes to be.

    data/            0700, ours
      lock           locked by the process that runs the server; says which
      postgres/      0700, PGDATA, owned by the account that runs the server; its socket is in here if the path is short
      postgres.log   what the server says
      postgres.new-… a first start under way, or one that was killed; becomes `postgres` when it is complete

Nothing here ever removes or initialises a folder that may hold data: a cluster is made beside its place and then renamed.
"""

from __future__ import annotations

import fcntl
import os
import pwd
import secrets
import shutil
from datetime import UTC, datetime
from pathlib import Path

from duly.store.embedded_binaries import Account, Binaries
from duly.store.embedded_errors import DataFolderHeld, DataFolderRefused
from duly.store.embedded_processes import command_of

ROLE = "duly"
DATABASE = "duly"
_MARKER = "made-by-duly"

# There is no superuser login: what needs one is done here, before the server first starts, in single-user mode.
_FIRST_STATEMENTS = f"""\
create role {ROLE} login createdb;
grant pg_read_all_stats to {ROLE};
create database {DATABASE} owner {ROLE};
"""

# The kernel tells the server who is calling, so there is no password to keep, to leak, or to be overruled by PGPASSWORD.
# The server may run under another account than its clients, so the callers' account is mapped to the role by name.
_HBA = f"# Written by Duly at each start.\nlocal all {ROLE} peer map={ROLE}\n"
_IDENT = '# Written by Duly at each start.\n{role} "{user}" {role}\n'


class Folder:
    """One data folder."""

    def __init__(self, data: Path) -> None:
        self.data = data.absolute()
        self.pgdata = self.data / "postgres"
        self.log = self.data / "postgres.log"

    def hold(self) -> int:
        """Lock the folder for this process, and give the descriptor whose end ends the lock."""
        descriptor = os.open(self.data / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise DataFolderHeld(self._who_holds_it()) from None
        os.ftruncate(descriptor, 0)
        os.write(descriptor, str(os.getpid()).encode())
        return descriptor

    def _who_holds_it(self) -> str:
        lock = self.data / "lock"
        pid = lock.read_text().strip() or "unknown"
        since = datetime.fromtimestamp(lock.stat().st_mtime, UTC)
        command = command_of(int(pid)) if pid.isdigit() else ""
        return (
            f"{self.data} is in use by process {pid} since {since:%Y-%m-%d %H:%M:%S} UTC"
            f"{f' ({command})' if command else ''}: stop that one, or choose another data folder"
        )

    def prepare(self) -> None:
        """Create the folder if it is missing, and see that nobody else can write in it."""
        self.data.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self.data.stat().st_mode & 0o022:
            raise DataFolderRefused(f"others can write in {self.data}: run `chmod go-w {self.data}`")

    def initialise(self, binaries: Binaries, *, durable: bool) -> None:
        """Make a new cluster beside its place, and rename it when it is complete."""
        new = self.data / f"postgres.new-{secrets.token_hex(8)}"
        new.mkdir(mode=0o700)
        (new / _MARKER).write_text(new.name)
        pgdata = new / "postgres"
        pgdata.mkdir(mode=0o700)
        os.chown(pgdata, binaries.account.uid, binaries.account.gid)
        try:
            make_cluster(pgdata, binaries, durable=durable)
            pgdata.rename(self.pgdata)
        finally:
            shutil.rmtree(new, ignore_errors=True)
        synchronise(self.data)

    def remove_leftovers(self) -> None:
        """Remove first starts that were killed, by the mark we left in them; no cluster in them was ever started."""
        for new in self.data.glob("postgres.new-*"):
            marker = new / _MARKER
            if marker.is_file() and marker.read_text() == new.name and not new.is_symlink():
                shutil.rmtree(new, ignore_errors=True)

    def check(self, binaries: Binaries) -> None:
        """Refuse to start on anything but a cluster of the programs' own major version."""
        try:
            found = (self.pgdata / "PG_VERSION").read_text().strip()
        except (FileNotFoundError, NotADirectoryError):
            raise DataFolderRefused(
                f"{self.pgdata} is not a PostgreSQL data folder, and is left as it is: move it away, "
                "or choose another data folder"
            ) from None
        if found != binaries.major:
            raise DataFolderRefused(
                f"{self.pgdata} was made by PostgreSQL {found}, and the programs in {binaries.folder} are version "
                f"{binaries.version}: start it with programs of version {found}, or move its content with pg_dump"
            )

    def admit_callers(self, account: Account) -> None:
        """Write who may connect: the account we run under, as the engine's role, over the socket."""
        user = pwd.getpwuid(os.geteuid()).pw_name
        write_for(account, self.pgdata / "pg_hba.conf", _HBA)
        write_for(account, self.pgdata / "pg_ident.conf", _IDENT.format(role=ROLE, user=user))


def make_cluster(pgdata: Path, binaries: Binaries, *, durable: bool) -> None:
    """Initialise a cluster with the engine's role and database, and bring it to the disk."""
    superuser = f"bootstrap_{secrets.token_hex(4)}"
    options = ("--no-sync", "--data-checksums", "--locale=C", "--encoding=UTF8", "--auth=reject")
    binaries.run("initdb", "--username", superuser, *options, pgdata=pgdata)
    single = ("--single", "-F", "-c", "exit_on_error=on", "postgres")
    binaries.run("postgres", *single, pgdata=pgdata, stdin=_FIRST_STATEMENTS)
    if durable:
        binaries.run("initdb", "--sync-only", pgdata=pgdata)


def write_for(account: Account, path: Path, text: str) -> None:
    """Put a file of `account` in the place of `path`."""
    new = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w") as file:
        os.fchown(descriptor, account.uid, account.gid)
        file.write(text)
    new.rename(path)


def synchronise(folder: Path) -> None:
    """Bring the names in `folder` to the disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
