"""The sandbox of a command: what it sees of the machine, its user, and its limits.

With bubblewrap a command has its own user, PID, mount, IPC and network namespaces: a read-only root that shows the
system's programs and nothing of the server's, a small `/tmp` of its own, and no network unless both the job and the
operator say so. Without it, which the operator must ask for, a command only has another user, an empty environment and
its limits.
"""

from __future__ import annotations

import math
import os
import pwd
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import msgspec

from duly.domain.errors import Refused
from duly.domain.targets.target import Command
from duly.worker.targets.process import FILE_FD, FILTER_FD, SCRATCH_FOLDERS, STATUS_FD, Account, Launch
from duly.worker.targets.seccomp import filter_of
from duly.worker.targets.view import view_of

MEBIBYTE = 1_048_576
FILE_BYTES = 64 * MEBIBYTE  # default of what a command may write
OPEN_FILES_MAX = 1_024
_NAMESPACES = ("--unshare-all", "--unshare-user", "--disable-userns", "--die-with-parent", "--new-session")
# The launcher of the sandbox counts as one of the sandbox's processes.
_PROCESSES_OF_OURS = 1


class Ceiling(msgspec.Struct, frozen=True):
    """The most that any job may ask for, and the default."""

    memory_bytes: int
    processes: int


class Sandbox(msgspec.Struct, frozen=True):
    """The sandbox of a worker's commands."""

    bubblewrap: str | None  # None: no sandbox
    prlimit: str
    account: Account | None
    paths: tuple[Path, ...] = ()  # visible besides the system's programs
    hidden: tuple[Path, ...] = ()  # never visible, wherever they lie

    def launch_of(self, target: Command, environment: Mapping[str, str], ceiling: Ceiling, *, network: bool) -> Launch:
        """Return how a command is started."""
        limits = tuple(self._limits_of(target, ceiling))
        if self.bubblewrap is None:
            return Launch((self.prlimit, *limits, "--", *target.argv), environment, self.account)
        view = view_of(Path(target.argv[0]), self.paths, self.hidden, SCRATCH_FOLDERS, network=network)
        words = (*_NAMESPACES, *(("--share-net",) if network else ()), *view, "--clearenv", *_variables(environment))
        # The arguments go through a file, because everyone on the machine may read a command line.
        descriptors = ("--args", str(FILE_FD), "--json-status-fd", str(STATUS_FD), "--seccomp", str(FILTER_FD))
        wrapped = (self.bubblewrap, *descriptors, "--", self.prlimit)
        return Launch(
            (*wrapped, *limits, "--", *target.argv),
            account=self.account,
            file="".join(f"{word}\0" for word in words).encode(),
            seccomp=filter_of(),
            scratch_bytes=target.file_bytes or FILE_BYTES,
            is_wrapped=True,
            reports_start=True,
        )

    def _limits_of(self, target: Command, ceiling: Ceiling) -> Iterator[str]:
        yield f"--as={target.memory_bytes or ceiling.memory_bytes}"
        yield f"--fsize={target.file_bytes or FILE_BYTES}"
        yield f"--nofile={OPEN_FILES_MAX}"
        yield "--core=0"
        if target.cpu_seconds is not None:
            seconds = max(1, math.ceil(target.cpu_seconds))
            yield f"--cpu={seconds}:{seconds + 1}"
        if self.bubblewrap is not None:
            yield f"--nproc={(target.processes or ceiling.processes) + _PROCESSES_OF_OURS}"
        elif self.account is not None:  # otherwise the worker itself and everything else of its user would count
            yield f"--nproc={target.processes or ceiling.processes}"


def find_sandbox(*, required: bool, user: str | None, paths: Iterable[Path], hidden: Iterable[Path]) -> Sandbox:
    """Return the sandbox of this machine. Raises Refused, naming what is missing."""
    prlimit = shutil.which("prlimit")
    if prlimit is None:
        raise Refused("commands need prlimit, which is not installed; install the package util-linux")
    bubblewrap = shutil.which("bwrap") if required else None
    if required and bubblewrap is None:
        raise Refused(
            "commands need a sandbox, and bubblewrap is not installed; install the package bubblewrap,"
            " or set command_sandbox = none to do without, which lets a command see what its user may see"
        )
    real = tuple(dict.fromkeys(path.resolve() for path in hidden))
    return Sandbox(bubblewrap, prlimit, account_of(user), tuple(map(_checked, paths)), real)


def account_of(name: str | None) -> Account | None:
    """Return the user that commands run as; None: the worker's own, which is not root. Raises Refused."""
    if os.geteuid() != 0:
        if name is not None:
            raise Refused(f"command_user = {name}: only a worker that runs as root can start commands as another user")
        return None
    name = name or "nobody"
    try:
        entry = pwd.getpwnam(name) if not name.isdigit() else pwd.getpwuid(int(name))
    except KeyError:
        raise Refused(f"command_user = {name}: there is no such user; add it, or name another") from None
    if entry.pw_uid == 0:
        raise Refused(f"command_user = {name}: commands never run as root; name another user")
    return Account(entry.pw_name, entry.pw_uid, entry.pw_gid)


def _checked(path: Path) -> Path:
    if path != path.resolve() or path == Path("/") or not path.exists():
        raise Refused(f"command_paths: {path} is not the real path of something below /; name it by `realpath {path}`")
    return path


def _variables(environment: Mapping[str, str]) -> Iterator[str]:
    for name, value in environment.items():
        yield from ("--setenv", name, value)
