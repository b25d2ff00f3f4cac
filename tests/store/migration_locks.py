"""How long migrations keep their locks: `python -m tests.store.migration_locks --jobs 10000000 --attempts 50000000`.

It fills a database of its own, lets every function, view and trigger be written anew and a migration of each kind be applied,
and watches from outside: which locks the migrating session had that writers wait for, how long each stood, and how long the
slowest of many short writes took meanwhile. `--url` measures a database that is there, with the migrations that it lacks.
"""

import argparse
import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import msgspec

from duly.postgres import embedded
from duly.store.boxes import history
from duly.store.connection.database import Database
from duly.store.schema import state
from duly.store.schema.migrate import migrate
from duly.store.schema.state import Migration, known
from tests.dashboard.figures import ATTEMPTS, JOBS, TIMERS

STEP = 100_000
SAMPLE_SECONDS = 0.005
FILLED = ("attempts", "jobs", "timers")
# Those for which a claim, a submit or a settle would wait.
HELD = """
select relation::regclass::text as name, mode, pid from pg_locks join pg_class on pg_class.oid = relation
 where granted and locktype = 'relation' and relnamespace = to_regnamespace('duly') and relkind in ('r', 'p') and pid <> all ($1)
   and mode in ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
"""
WRITES = (
    "insert into duly.ready select (jsonb_populate_record(null::duly.ready, '{}')).* where false",
    "update duly.jobs set updated_at = updated_at where job_id = (select job_id from duly.jobs where state = 'active' limit 1)",
    "delete from duly.timers where run_id = gen_random_uuid()",
    "delete from duly.leased where run_id = gen_random_uuid()",
    "insert into duly.attempts select * from duly.attempts where false",
)
EXPANDS = """
alter table duly.attempts add column measured text not null default 'x';
alter table duly.jobs add column measured integer;
alter table duly.timers add column measured text not null default '';
alter table duly.timers add constraint timers_measured check (measured <> 'never') not valid;
create table duly.measured (id bigint primary key);
"""
CONCURRENTLY = """-- concurrently
create index concurrently jobs_measured on duly.jobs (queue, updated_at);
update duly.jobs set measured = 1
 where job_id in (select job_id from duly.jobs where measured is null and state = 'paused' limit 20000);
alter table duly.timers validate constraint timers_measured;
"""


class Measured(msgspec.Struct):
    """The observations of sessions while migrations ran."""

    seconds: float = 0.0
    held: dict[str, float] = {}  # seconds that a lock stood, the longest of each table and mode
    write_seconds: float = 0.0  # of the slowest write
    writes: int = 0

    @property
    def longest(self) -> float:
        """The longest that a lock stood."""
        return max(self.held.values(), default=0.0)


async def measured(database: Database) -> Measured:
    """Migrate, and watch it."""
    found = Measured()
    async with _beside(_watch(database.url, found), _write(database.url, found)):
        began = time.monotonic()
        await migrate(database)
        found.seconds = time.monotonic() - began
    return found


@asynccontextmanager
async def _beside(*parts: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(part) for part in parts]
    await asyncio.sleep(0.3)
    try:
        yield
    finally:
        await asyncio.sleep(0.1)
        for task in tasks:
            task.cancel()
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(result, Exception):
                raise result


async def _watch(url: str, found: Measured) -> None:
    """Note each lock that stands, from when it was first seen to when it was last."""
    connection = await asyncpg.connect(url)
    since: dict[tuple[str, str, int], float] = {}
    try:
        while True:
            now = time.monotonic()
            rows = {tuple(row) for row in await connection.fetch(HELD, [connection.get_server_pid()])}
            since = {key: since.get(key, now) for key in rows}
            for (name, mode, _), first in since.items():
                key = f"{name} {mode}"
                found.held[key] = max(found.held.get(key, 0.0), time.monotonic() - first)
            await asyncio.sleep(SAMPLE_SECONDS)
    finally:
        await connection.close()


async def _write(url: str, found: Measured) -> None:
    """Write a little, again and again, into each table that a run passes."""
    connection = await asyncpg.connect(url)
    try:
        while True:
            for statement in WRITES:
                began = time.monotonic()
                await connection.execute(statement)
                found.write_seconds = max(found.write_seconds, time.monotonic() - began)
                found.writes += 1
            await asyncio.sleep(SAMPLE_SECONDS)
    finally:
        await connection.close()


async def fill(database: Database, jobs: int, attempts: int) -> None:
    """Put jobs with their next fires, and history, into a database, without what it does beside."""
    await history.create_partitions(database, 2)
    for table in FILLED:
        await database.execute(f"alter table duly.{table} disable trigger user")

    async def insert(statement: str, total: int, part: int) -> None:
        connection = await asyncpg.connect(database.url)
        for first in range(1 + part * STEP, total + 1, STEP * 2):
            last = min(total, first + STEP - 1)
            await connection.execute(statement, first, last, *([total] if statement is JOBS else []))
        await connection.close()

    for statement, total in ((ATTEMPTS, attempts), (JOBS, jobs)):
        await asyncio.gather(insert(statement, total, 0), insert(statement, total, 1))
    connection = await asyncpg.connect(database.url)
    await connection.execute(TIMERS, timeout=7_200)
    await connection.execute("analyze", timeout=7_200)
    await connection.close()
    for table in FILLED:
        await database.execute(f"alter table duly.{table} enable trigger user")


@asynccontextmanager
async def more_to_do(database: Database) -> AsyncIterator[None]:
    """Let every file of functions be written anew, and carry a migration that adds and one that runs concurrently."""
    number = state.newest()
    more = [*known(), Migration(number + 1, "adds", EXPANDS), Migration(number + 2, "concurrent", CONCURRENTLY)]
    await database.execute("update duly.functions set digest = ''")
    before, state.known = state.known, lambda: more
    try:
        yield
    finally:
        state.known = before


def written(found: Measured) -> str:
    """Write what was seen."""
    lines = [f"{seconds * 1000:8.0f} ms  {name}" for name, seconds in sorted(found.held.items())]
    return "\n".join(
        [
            f"migrated in {found.seconds:.1f} s beside {found.writes:,} writes",
            f"slowest write: {found.write_seconds * 1000:.0f} ms",
            f"longest lock that writers wait for: {found.longest * 1000:.0f} ms",
            *lines,
        ]
    )


async def _main(url: str | None, jobs: int, attempts: int) -> None:
    if url is not None:
        async with Database(url) as database:
            print(written(await measured(database)))
            async with more_to_do(database):
                print(written(await measured(database)))
        return
    with tempfile.TemporaryDirectory() as folder:
        settings = {"shared_buffers": "2GB", "autovacuum": "off", "max_wal_size": "20GB"}
        with embedded.start(Path(folder) / "postgres", durable=False, settings=settings) as server:
            async with Database(server.url) as database:
                await migrate(database)
                began = time.monotonic()
                await fill(database, jobs, attempts)
                stored = await database.fetchval("select pg_database_size(current_database())")
                print(f"filled in {time.monotonic() - began:.0f} s: {stored / 1e9:.1f} GB", flush=True)
                async with more_to_do(database):
                    print(written(await measured(database)))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--attempts", type=int, default=5_000_000)
    parser.add_argument("--url", help="a database that is there and may be changed")
    given = parser.parse_args()
    asyncio.run(_main(given.url, given.jobs, given.attempts))
