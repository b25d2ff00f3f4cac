"""How fast a day goes into the archive, what its drop costs others, and how long `duly verify` takes.

[ATTEMPTS=1000000] pytest -m proof --timeout 0 -s tests/moves/test_archive_figures.py
"""

import asyncio
import os
import resource
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from duly.clock import Rng
from duly.domain.archive import ArchivePlace
from duly.domain.jobs.filter import RUNS, parse
from duly.log import Log
from duly.moves.archive.cold import ColdHistory
from duly.moves.archive.export import Exporter
from duly.moves.submit import submit
from duly.outbound.archive_files import ArchiveFiles
from duly.store.boxes import history
from duly.store.connection.database import Database
from duly.store.reads.lists import Page
from duly.store.tables import archive
from tests.builders import a_key, a_submission, a_worker, claimed, settled
from tests.clock import START

ATTEMPTS = int(os.environ.get("ATTEMPTS", "10000000"))
AT_ONCE = 500_000
TENANTS = 7
FILL = f"""
insert into duly.attempts (run_id, job_id, scheduled_at, due_at, started_at, finished_at, fence, tenant, attempt, outcome, became,
                           queue, handler, worker_id, result, metadata, priority, payload)
select duly.run_id(at, 'run/' || n), duly.run_id($3::timestamptz, 'job/' || n % 500), at, at, at + interval '3 ms',
       at + interval '31 ms', n, 1 + n % {TENANTS}, 1, 'succeeded', 'succeeded', 'default', 'app:handler',
       '5b2f1c3a-0000-4000-8000-00000000000a', '{{"rows": 42}}', '{{"tags": ["import"], "request_id": "req-1"}}', 5,
       jsonb_build_object('customer', n, 'name', 'somebody')
  from (select n, $3::timestamptz + n * ($4::interval / $5) as at from generate_series($1::int, $2::int) as n) as made
"""


class Figures(msgspec.Struct):
    """The figures of one archive."""

    rows_per_second: float
    bytes_per_row: float
    drop_seconds: float  # until the partition is gone for everybody
    files_seconds: float  # until the server has removed its files, too: it holds no lock then
    lock_seconds: float  # the longest wait of another session for its lock on attempts
    claim_seconds: float  # the slowest round of submit, claim and settle beside the drop
    page_seconds: float
    memory_bytes: int
    verify_seconds: float  # `duly verify`, before the export


async def measured(database: Database, clock: Any, files: ArchiveFiles, attempts: int) -> Figures:
    """Fill a day, archive and drop it, and read a page of it."""
    await history.create_partitions(database, 1)
    await database.execute("alter table duly.attempts disable trigger user")
    for first in range(1, attempts + 1, AT_ONCE):
        async with database.transaction() as connection:
            last = min(first + AT_ONCE - 1, attempts)
            await connection.execute(FILL, first, last, START, timedelta(hours=14), attempts, timeout=600)
    await database.execute("alter table duly.attempts enable trigger user")
    await database.execute("vacuum analyze duly.attempts_succeeded_20261102")
    verify_seconds = await verified(database)
    await clock.advance(timedelta(days=9))
    await history.create_partitions(database, 1)
    exporter = Exporter(database, files, rng=Rng(1), log=Log("test"))

    dropping, beside = list[float](), list[float]()
    real = archive.drop

    async def timed(*arguments: Any) -> str:
        entered = time.monotonic()
        async with claiming(database) as rounds, watching(database) as seen:
            await asyncio.sleep(1.0)
            began = time.monotonic()
            done = await real(*arguments)
            files_seconds = time.monotonic() - began
            await asyncio.sleep(1.0)
        dropping[:] = (seen.gone_at - began, files_seconds, max(seen.waits), max(rounds))
        beside.append(time.monotonic() - entered)
        return done

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(archive, "drop", timed)
        began = time.monotonic()
        await exporter.export_before("succeeded", clock.at.date() - timedelta(days=7))
        elapsed = time.monotonic() - began - sum(beside)
    [record] = await archive.page(database, "", 10)
    assert (record.state, record.rows) == ("dropped", attempts)

    began = time.monotonic()
    page = await ColdHistory(files).beside(
        Page([], None), database, 3, parse('finished_at>="2026-11-01" AND tag:import', RUNS), 50, None
    )
    page_seconds = time.monotonic() - began
    assert len(page.rows) == 50
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    gone, removed, lock, claim = dropping
    rate, size = attempts / elapsed, (record.bytes or 0) / attempts
    return Figures(rate, size, gone, removed, lock, claim, page_seconds, memory, verify_seconds)


async def verified(database: Database) -> float:
    """Check all promises, and return how long it took."""
    unhurried = database.beside(1, command_timeout=3_600)
    began = time.monotonic()
    try:
        assert await history.verify(unhurried) == []
    finally:
        await unhurried.close()
    return time.monotonic() - began


@asynccontextmanager
async def claiming(database: Database) -> AsyncIterator[list[float]]:
    """Submit, claim and settle one run after the other, until the end of the block."""
    rounds: list[float] = []
    worker_id = await a_worker(database)

    async def go_on() -> None:
        while True:
            began = time.monotonic()
            await submit(database, a_submission(), key=a_key())
            for run in await claimed(database, worker_id, limit=1):
                await settled(database, worker_id, run)
            rounds.append(time.monotonic() - began)

    task = asyncio.create_task(go_on())
    yield rounds
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


class Seen(msgspec.Struct):
    """The waits of another session during a drop."""

    gone_at: float = 0.0
    waits: list[float] = []


@asynccontextmanager
async def watching(database: Database) -> AsyncIterator[Seen]:
    """Lock attempts as a reader does, again and again, and look whether the partition is gone, until the end of the block."""
    seen = Seen()

    async def go_on() -> None:
        while True:
            began = time.monotonic()
            async with database.transaction() as connection:
                await connection.execute("lock table duly.attempts in access share mode")
            seen.waits.append(time.monotonic() - began)
            [record] = await archive.page(database, "", 10)
            if record.state == "dropped" and not seen.gone_at:
                seen.gone_at = time.monotonic()
            await asyncio.sleep(0.005)

    task = asyncio.create_task(go_on())
    yield seen
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_day_goes_into_the_archive(own_database, clock, tmp_path):
    """The short form: the same, of few rows, and without a limit of time."""
    files = ArchiveFiles(ArchivePlace(False, str(tmp_path)))

    assert (await measured(own_database, clock, files, 5_000)).bytes_per_row > 0


@pytest.mark.proof
async def test_a_day_of_ten_million_attempts_goes_into_the_archive(own_database, clock, tmp_path):
    files = ArchiveFiles(ArchivePlace(False, str(tmp_path)))

    found = await measured(own_database, clock, files, ATTEMPTS)

    print(f"\n{found}")
    assert found.rows_per_second >= 150_000
    assert found.drop_seconds <= 1.0
    assert found.lock_seconds <= 1.0
    assert found.verify_seconds <= 60.0
    assert found.claim_seconds <= 1.0
