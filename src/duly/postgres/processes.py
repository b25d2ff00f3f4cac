"""Processes of a data folder, read from the operating system and not from a file.

`postmaster.pid` survives a `kill -9`, and by then its number may belong to another process. PostgreSQL's processes all
have the data folder as their working directory, and that is what we look for. Where there is no /proc, the file is
believed.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

POLL_SECONDS = 0.005
_PROC = Path("/proc")
_SHARED_MEMORY = Path("/proc/sysvipc/shm")


@dataclass(frozen=True, slots=True)
class PidFile:
    """The content of the server's `postmaster.pid`."""

    pid: int
    socket_folder: str
    shared_memory_id: int | None
    status: str


def read_pid_file(pgdata: Path) -> PidFile | None:
    """Read the pid file; None when there is none, or one too short to mean anything."""
    try:
        lines = os.fsdecode((pgdata / "postmaster.pid").read_bytes()).split("\n")
    except (FileNotFoundError, NotADirectoryError):
        return None
    lines += [""] * (8 - len(lines))
    if not lines[0].isdigit():
        return None
    shared_memory_id = lines[6].rpartition(" ")[2]
    return PidFile(
        pid=int(lines[0]),
        socket_folder=lines[4],
        shared_memory_id=int(shared_memory_id) if shared_memory_id.isdigit() else None,
        status=lines[7].strip(),
    )


def living_on(pgdata: Path) -> list[int]:
    """List the PostgreSQL processes that work in `pgdata`."""
    home = pgdata.stat()
    return [pid for pid in all_pids() if is_postgres_in(pid, home)]


def lives_on(pid: int, pgdata: Path) -> bool:
    """Return whether `pid` is a PostgreSQL process that works in `pgdata`."""
    return is_postgres_in(pid, pgdata.stat()) if _PROC.is_dir() else is_alive(pid)


def all_pids() -> Iterator[int]:
    """List all processes we can see."""
    entries = _PROC.iterdir() if _PROC.is_dir() else iter(())
    return (int(entry.name) for entry in entries if entry.name.isdigit())


def is_postgres_in(pid: int, home: os.stat_result) -> bool:
    """Return whether `pid` runs the program `postgres` with `home` as its working directory."""
    process = _PROC / str(pid)
    try:
        # A program whose file was replaced since is called `postgres (deleted)`.
        return os.path.samestat((process / "cwd").stat(), home) and (process / "exe").readlink().name.startswith(
            "postgres"
        )
    except OSError:
        return False  # Gone, a zombie, or another account's; PostgreSQL runs as the one that owns its data.


def command_of(pid: int) -> str:
    """Return the command line of `pid`, or "" when it cannot be read."""
    try:
        return (_PROC / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""


def is_alive(pid: int) -> bool:
    """Return whether a process has this number, of any owner."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def is_attached(shared_memory_id: int | None) -> bool:
    """Return whether any process still uses the shared memory of that id."""
    try:
        rows = [line.split() for line in _SHARED_MEMORY.read_text(encoding="utf-8").splitlines()[1:]]
    except OSError:
        return False
    return any(int(row[1]) == shared_memory_id and int(row[6]) > 0 for row in rows)


def answers(path: Path) -> bool:
    """Return whether a process listens on the socket at `path`."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
        return True


def wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    """Wait for `condition`, at most so long; says whether it came."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True
