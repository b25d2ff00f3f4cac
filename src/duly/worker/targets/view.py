"""A command's view of the machine: the system's programs, a little of `/etc`, and what the operator adds; all of it
read-only.

Only listed paths are visible. Hidden paths within them are covered: a folder by an empty folder, a file by an empty
file.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

_SYSTEM = tuple(map(Path, ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")))
# Paths that programs need to start, to tell the time, to name users and to trust certificates.
_ETC = (
    *("alternatives", "ca-certificates", "group", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime"),
    *("nsswitch.conf", "passwd", "pki", "ssl/certs", "ssl/openssl.cnf", "timezone"),
)
_ETC_NETWORK = ("gai.conf", "host.conf", "hosts", "protocols", "resolv.conf", "services")
_SCRATCH = ("/tmp", "/dev/shm")  # noqa: S108 - the sandbox's own
_KEYS = (Path("/proc/keys"), Path("/proc/key-users"))  # they list the user's keys, in any namespace
_NOTHING = Path(os.devnull)


def view_of(
    program: Path, paths: Sequence[Path], hidden: Iterable[Path], scratch: Sequence[str], *, network: bool
) -> Iterator[str]:
    """Return the view as bubblewrap's arguments, each covering those before it."""
    shown = [*(path for path in _SYSTEM if path.exists()), *paths]
    etc = [Path("/etc", name) for name in (*_ETC, *(_ETC_NETWORK if network else ()))]
    covered = list(dict.fromkeys(_covered(hidden, shown, etc)))
    for path in shown:
        yield from ("--symlink", str(path.readlink()), str(path)) if path.is_symlink() else _bound(path)
    for path in etc:
        yield from ("--ro-bind-try", str(path), str(path))
    for path in covered:
        yield from ("--tmpfs", str(path)) if path.is_dir() else _bound(_NOTHING, path)
    yield from _program(program, shown, covered)
    for path in filter(Path.is_dir, covered):  # files written to a cover would be in memory, without a limit
        yield from ("--remount-ro", str(path))
    yield from ("--proc", "/proc", "--dev", "/dev", "--remount-ro", "/dev")
    for path in filter(Path.exists, _KEYS):
        yield from _bound(_NOTHING, path)
    for source, name in zip(scratch, _SCRATCH, strict=True):
        yield from ("--bind", source, name)
    yield from ("--remount-ro", "/", "--chdir", _SCRATCH[0])


def lies_in(path: Path, folders: Iterable[Path]) -> bool:
    """Return whether a path is one of these folders, or below one."""
    return any(path.is_relative_to(folder) for folder in folders)


def _covered(hidden: Iterable[Path], shown: Sequence[Path], etc: Sequence[Path]) -> Iterator[Path]:
    """Return the paths at which something hidden would be visible."""
    for path in filter(Path.exists, hidden):
        if lies_in(path, shown):
            yield path
        for entry in etc:
            real = entry.resolve()  # an entry may be a link, and shows its target under its own name
            if path.is_relative_to(real):
                yield entry / path.relative_to(real)


def _program(program: Path, shown: Sequence[Path], covered: Sequence[Path]) -> Iterator[str]:
    """Add the program itself, under its name and where it really is, when it lies elsewhere."""
    real = program.resolve()
    for path in dict.fromkeys((real, program)):
        if not lies_in(path, shown) or lies_in(path, covered):
            yield from _bound(real, path)


def _bound(path: Path, at: Path | None = None) -> tuple[str, str, str]:
    return "--ro-bind", str(path), str(at or path)
