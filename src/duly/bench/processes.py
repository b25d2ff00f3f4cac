"""Costs of processes: CPU and memory of a process and all below it, from `/proc`. Elsewhere there is nothing to read."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import msgspec

from duly.domain.errors import Refused

_PROC = Path("/proc")
MEBIBYTE = 1024 * 1024


class Process(msgspec.Struct, frozen=True):
    """A process at one moment."""

    pid: int
    parent: int
    name: str
    cpu_seconds: float  # with that of its children that have ended
    resident_bytes: int


def can_look() -> bool:
    """Return whether this system reports them."""
    return (_PROC / "self" / "stat").exists()


def check_can_look(scenario: str) -> None:
    """Raise Refused where this system does not tell."""
    if not can_look():
        raise Refused(f"this system does not tell what its processes cost: `duly bench {scenario}` needs /proc")


def family(roots: Iterable[int]) -> list[Process]:
    """Read the processes `roots` and everything below them."""
    everyone = {process.pid: process for process in _everyone()}
    children = defaultdict(list)
    for process in everyone.values():
        children[process.parent].append(process.pid)
    found, waiting = {}, [pid for pid in roots if pid in everyone]
    while waiting:
        pid = waiting.pop()
        if pid not in found:
            found[pid] = everyone[pid]
            waiting += children[pid]
    return list(found.values())


def cpu_seconds(processes: Iterable[Process]) -> float:
    """Sum the CPU up."""
    return sum(process.cpu_seconds for process in processes)


def mebibytes(processes: Iterable[Process]) -> float:
    """Sum the memory up; what processes share counts in each."""
    return round(sum(process.resident_bytes for process in processes) / MEBIBYTE, 1)


def cpu_of(pid: int | None) -> float:
    """Read the CPU of one process, to the nanosecond where the kernel keeps it so; 0 where it cannot be read."""
    if pid is None or not can_look():
        return 0.0
    try:
        return int((_PROC / str(pid) / "schedstat").read_text(encoding="utf-8").split()[0]) / 1e9
    except FileNotFoundError:
        return _parsed((_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")).cpu_seconds


def _everyone() -> Iterable[Process]:
    for entry in _PROC.iterdir() if can_look() else ():
        if entry.name.isdigit():
            try:
                yield _parsed((entry / "stat").read_text(encoding="utf-8", errors="replace"))
            except OSError:  # It has ended meanwhile.
                continue


def _parsed(stat: str) -> Process:
    """Read a line of `/proc/PID/stat`; the name may hold spaces and brackets."""
    head, _, tail = stat.rpartition(")")
    pid, _, name = head.partition(" (")
    fields = tail.split()
    ticks = sum(map(int, fields[11:15]))
    pages = int(fields[21])
    return Process(int(pid), int(fields[1]), name, ticks / os.sysconf("SC_CLK_TCK"), pages * os.sysconf("SC_PAGE_SIZE"))
