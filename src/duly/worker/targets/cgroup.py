"""A control group for each command, where control groups (version 2) are ours to use.

In it a command's whole tree is killed at once, however it forks, and its usage is counted; and with the controllers,
its limits apply to all its processes together. `look` says how much of that is available, and what is missing for the
rest. Groups left by a killed worker are ended by the next one: a group's name says whose it is.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from duly.worker.targets.launch import below
from duly.worker.targets.orphans import started_of

CONTROLLERS = ("memory", "pids")  # CPU time is counted without one
_PREFIX = "duly"
_OWN = "duly-worker"  # the group of the worker itself: one with controllers below it may hold no process
_DELEGATED = ("user.delegate", "trusted.delegate")  # how systemd marks delegated groups
_PROCESSES_OF_OURS = 2  # of a sandbox: the one outside, and the first inside


class Ground(msgspec.Struct, frozen=True):
    """The folder in which groups can be created, if any; the controllers; and what is missing, in words."""

    folder: Path | None = None
    controllers: frozenset[str] = frozenset()
    missing: str | None = None


class Limits(msgspec.Struct, frozen=True):
    """The limits of all processes of a command together."""

    memory_bytes: int
    processes: int


class Group(msgspec.Struct, frozen=True):
    """The group of one attempt."""

    folder: Path

    def remove(self) -> None:
        """Kill what is left in it, and remove it; its launcher has done so before, unless it was killed."""
        with contextlib.suppress(OSError):
            (self.folder / "cgroup.kill").write_text("1")
        with contextlib.suppress(OSError):
            self.folder.rmdir()


class Groups:
    """The groups of one worker's commands."""

    def __init__(self, ground: Ground) -> None:
        assert ground.folder is not None
        self._folder = ground.folder
        self._controllers = ground.controllers
        pid = os.getpid()
        self._name = f"{_PREFIX}.{_namespace()}.{pid}.{started_of(pid) or 0}"

    def create(self, number: int, limits: Limits) -> Group:
        """Create a group with limits, as far as there are controllers; the number is that of a fence. Raises OSError."""
        group = Group(self._folder / f"{self._name}.{number}")
        group.folder.mkdir()
        try:
            for name, value in self._settings(limits):
                (group.folder / name).write_text(value)
        except OSError:
            group.remove()
            raise
        return group

    def end_orphans(self) -> int:
        """End the groups of workers that no longer exist. Returns how many."""
        orphans = [folder for folder in self._folder.glob(f"{_PREFIX}.*") if _is_orphan(folder.name)]
        for folder in orphans:
            Group(folder).remove()
        return len(orphans)

    def _settings(self, limits: Limits) -> Iterator[tuple[str, str]]:
        if "memory" in self._controllers:
            yield "memory.max", str(limits.memory_bytes)
            yield "memory.oom.group", "1"
            if (self._folder / "memory.swap.max").exists():  # where the kernel swaps at all; the root has none
                yield "memory.swap.max", "0"
        if "pids" in self._controllers:
            yield "pids.max", str(limits.processes + _PROCESSES_OF_OURS)


def look() -> Ground:
    """Return which control groups we may use. Changes nothing."""
    folder = _own_folder()
    if folder is None:
        return Ground(missing="control groups of version 2 are not mounted; mount cgroup2 at /sys/fs/cgroup")
    if not _is_delegated(folder):
        return Ground(missing=f"the control group {folder} is not ours to divide; with systemd, set Delegate=yes")
    if not _can_create(folder):
        return Ground(missing=f"no control group can be created in {folder}; let this user write there")
    there = frozenset(_words(folder / "cgroup.controllers")) & frozenset(CONTROLLERS)
    lacking = [name for name in CONTROLLERS if name not in there]
    if lacking:
        return Ground(
            folder, there, f"{folder} has no controller {', '.join(lacking)}; let the one above it hand it down"
        )
    return Ground(folder, there)


def prepare() -> Ground:
    """Enable the controllers, once no process of ours is in the way."""
    ground = look()
    folder = ground.folder
    if folder is None:
        return ground
    wanted = ground.controllers - frozenset(_words(folder / "cgroup.subtree_control"))
    try:
        _hand_down(folder, wanted)
    except OSError as error:
        held = ground.controllers - wanted
        why = f"{folder} cannot hand down {', '.join(sorted(wanted))}: {error.strerror}"
        remedy = f"with systemd, set Delegate=yes and DelegateSubgroup={_OWN}"
        return Ground(folder, held, f"{why}; {remedy}")
    return ground


def _hand_down(folder: Path, controllers: frozenset[str]) -> None:
    if not controllers:
        return
    order = " ".join(f"+{name}" for name in sorted(controllers))
    try:
        (folder / "cgroup.subtree_control").write_text(order)
    except OSError as error:
        if error.errno != errno.EBUSY or not _move_into_own(folder):
            raise
        (folder / "cgroup.subtree_control").write_text(order)


def _move_into_own(folder: Path) -> bool:
    """Move into a group of our own, with all our processes. False: there are others, which we must not move."""
    ours = {os.getpid(), *below(os.getpid())}
    found = set(map(int, _words(folder / "cgroup.procs")))
    if not found <= ours:
        return False
    own = folder / _OWN
    own.mkdir(exist_ok=True)
    for pid in found:
        with contextlib.suppress(ProcessLookupError):
            (own / "cgroup.procs").write_text(str(pid))
    return True


def _own_folder() -> Path | None:
    """Return the folder of this process's group; for a worker in a group of its own, the one above."""
    own = next((line[3:] for line in _lines("/proc/self/cgroup") if line.startswith("0::")), None)
    if own is None or ".." in own:
        return None
    for line in _lines("/proc/self/mountinfo"):
        about, _, what = line.partition(" - ")
        root, mounted_at = about.split()[3:5]
        if what.split()[0] == "cgroup2" and Path(own).is_relative_to(root):
            folder = Path(mounted_at) / Path(own).relative_to(root)
            return folder.parent if folder.name == _OWN else folder
    return None


def _is_delegated(folder: Path) -> bool:
    """Return whether it was delegated to us: by its owner, by systemd's mark, or because we see nothing above it."""
    if os.geteuid() != 0:
        return os.access(folder, os.W_OK) and os.access(folder / "cgroup.procs", os.W_OK)
    if not (folder.parent / "cgroup.procs").exists():
        return True
    for name in _DELEGATED:
        with contextlib.suppress(OSError):
            if os.getxattr(folder, name) == b"1":
                return True
    return False


def _can_create(folder: Path) -> bool:
    """Try to create a group, and to kill it as a whole."""
    probe = folder / f"{_PREFIX}.try.{_namespace()}.{os.getpid()}"
    try:
        probe.mkdir(exist_ok=True)
        can_kill = (probe / "cgroup.kill").exists()
        probe.rmdir()
    except OSError:
        return False
    return can_kill


def _is_orphan(name: str) -> bool:
    """Return whether a group's worker has certainly ended; if its processes cannot be seen from here, it has not."""
    match name.split("."):
        case [_, namespace, pid, started, _] if namespace == _namespace() and pid.isdigit() and started.isdigit():
            return started_of(int(pid)) != int(started)
    return False


def _namespace() -> str:
    return Path("/proc/self/ns/pid").readlink().name.partition("[")[2].rstrip("]")


def _words(file: Path) -> list[str]:
    return file.read_text().split()


def _lines(file: str) -> list[str]:
    try:
        return Path(file).read_text().splitlines()
    except OSError:
        return []
