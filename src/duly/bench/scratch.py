"""The database of a scenario: a temporary PostgreSQL of its own, removed at the end, or a scratch database that was
given.

A given database is refused when it holds a schema `duly` that no benchmark made: its jobs may be in use.
"""

from __future__ import annotations

import os
import platform
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import time
from typing import Any

import asyncpg

from duly import __version__
from duly.bench.progress import Steps
from duly.domain.errors import Refused
from duly.postgres import embedded
from duly.postgres.settings import MEBIBYTE, memory_of_machine
from duly.store.boxes import history
from duly.store.connection.database import Database
from duly.store.schema.migrate import migrate

CONNECTIONS_MAX = 4
BASELINE_SCHEMA = "duly_bench_baseline"
_CLOCK_READINGS = 20
_MARK = "made by duly bench, to be thrown away"
_MOUNTS = Path("/proc/self/mounts")


class Scratch:
    """A database to throw away."""

    def __init__(self, url: str, config: dict[str, Any], server_pid: int | None) -> None:
        self.url = url
        self.config = config
        self.server_pid = server_pid

    def database(self, size_max: int = CONNECTIONS_MAX, command_timeout: float = 600.0) -> Database:
        """Give a pool, to be opened."""
        return Database(self.url, size_max=size_max, command_timeout=command_timeout, application="duly bench")

    async def clock_offset(self) -> float:
        """Say by how much the database's clock is ahead of ours, at least; nothing when it may be the same clock."""
        readings = []
        async with self.database() as database:
            for _ in range(_CLOCK_READINGS):
                requested = time()
                read: float = await database.fetchval("select date_part('epoch', clock_timestamp())")
                answered = time()
                readings.append((answered - requested, read - answered, read - requested))
        _, low, high = min(readings)
        return 0.0 if low <= 0 <= high else high

    async def renew(self) -> None:
        """Throw everything away and make the schema anew."""
        await self.clear()
        async with self.database() as database:
            await migrate(database)
            await history.create_partitions(database, 2)
            await database.execute(f"comment on schema duly is '{_MARK}'")

    async def clear(self) -> None:
        """Throw everything away. Raises Refused when it is not ours to throw."""
        if not self.url:
            return
        connection = await asyncpg.connect(self.url)
        try:
            found = await connection.fetchrow(
                "select obj_description(oid, 'pg_namespace') as mark from pg_namespace where nspname = 'duly'"
            )
            if found is not None and found["mark"] != _MARK:
                raise Refused(
                    "this database holds a schema `duly` that no benchmark made; give an empty scratch database"
                )
            await connection.execute("set client_min_messages = warning")
            await connection.execute(f"drop schema if exists duly, {BASELINE_SCHEMA} cascade")
        finally:
            await connection.close()


@contextmanager
def nowhere() -> Iterator[Scratch]:
    """Use no database."""
    yield Scratch("", _machine(), None)


@contextmanager
def given(url: str, steps: Steps) -> Iterator[Scratch]:
    """Use a scratch database, and leave it empty."""
    steps.say("on the given database: its schema `duly` is made anew, and dropped at the end")
    yield Scratch(url, {"database": "given"} | _machine(), None)


@contextmanager
def temporary(folder: Path | None, steps: Steps) -> Iterator[Scratch]:
    """Start a PostgreSQL in a temporary folder, as durable as the real one, and remove it at the end."""
    data = Path(tempfile.mkdtemp(prefix="duly-bench-", dir=folder))
    try:
        with embedded.start(data, durable=True) as server:
            filesystem = filesystem_of(data)
            steps.say(
                f"on a temporary PostgreSQL {server.version} of its own: fsync on, {filesystem}, removed at the end"
            )
            if filesystem in ("tmpfs", "ramfs"):
                steps.say("its folder is in memory, so fsync costs nothing: name one on a disk with --folder")
            yield Scratch(
                server.url,
                {"database": "temporary", "postgres": server.version, "fsync": True, "filesystem": filesystem}
                | _machine(),
                server.pid,
            )
    finally:
        shutil.rmtree(data, ignore_errors=True)


def filesystem_of(folder: Path) -> str:
    """Name the kind of file system that `folder` lies on, where the system tells."""
    try:
        mounts = [line.split()[1:3] for line in os.fsdecode(_MOUNTS.read_bytes()).splitlines()]
    except OSError:
        return "unknown file system"
    above = [(point, kind) for point, kind in mounts if folder.resolve().is_relative_to(point)]
    return max(above, key=lambda mount: len(mount[0]), default=("", "unknown file system"))[1]


def _machine() -> dict[str, Any]:
    return {
        "duly": __version__,
        "python": platform.python_version(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_mib": memory_of_machine() // MEBIBYTE,
    }
