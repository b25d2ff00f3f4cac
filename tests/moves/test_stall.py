"""A beat of a worker that stands still: what it has not started goes back, by fence, and its row says what holds it."""

from uuid import UUID

import msgspec
import pytest

from duly.domain.runs.run import Run
from duly.store.connection.database import Database
from duly.store.tables import workers
from duly.worker.heartbeat.stall import Report
from tests.builders import a_leased_run, a_ready_run, a_waiting_run, a_worker, claimed, settled


async def stall(database: Database, worker_id: UUID, *kept: Run, holder: Run | None = None, gives_back: bool = True):
    """Beat as the heartbeat of a stalled worker does. Gives how many went back."""
    holders = [] if holder is None else [(holder.run_id, holder.fence)]
    handles = [(run.run_id, run.fence) for run in kept] if gives_back else None
    safe_until = await database.fetchval("select safe_until from duly.workers where worker_id = $1", worker_id)
    return await told(database, worker_id, Report(9.0, holders, handles, False, safe_until))


async def told(database: Database, worker_id: UUID, report: Report):
    row = await database.fetchrow(workers.SQL["stall"], worker_id, *report.arguments)
    return "gone" if row is None else row["returned"]


@pytest.fixture
async def held(database) -> tuple[UUID, list[Run]]:
    worker_id = await a_worker(database)
    for _ in range(3):
        await a_ready_run(database)
    return worker_id, await claimed(database, worker_id)


async def test_stalled_worker_returns_runs_not_started_with_no_attempt_used(database, held):
    worker_id, [started, *others] = held

    assert await stall(database, worker_id, started, holder=started) == 2

    again = await claimed(database, await a_worker(database))
    assert {run.run_id for run in again} == {run.run_id for run in others}
    assert {run.attempt for run in again} == {1}
    assert await database.fetchval("select array_agg(run_id) from duly.leased where worker_id = $1", worker_id) == [
        started.run_id
    ]


async def test_stall_renews_the_lease_and_stores_its_start_and_handler(database, held, clock):
    worker_id, [started, *_] = held
    before = (await workers.live(database))[0]
    await clock.advance(5)

    await stall(database, worker_id, started, holder=started)

    [row] = await workers.live(database)
    assert row.until > before.until
    assert row.stalled_at is not None
    assert (row.read_at - row.stalled_at).total_seconds() == 9.0
    assert row.stalled_in == [started.handler]

    await workers.heartbeat(database, worker_id)
    [row] = await workers.live(database)
    assert (row.stalled_at, row.stalled_in) == (None, [])


async def test_stall_returns_no_runs_before_the_heartbeat_permits_it(database, held):
    worker_id, _ = held

    assert await stall(database, worker_id, gives_back=False) == 0


async def test_outdated_stall_report_returns_no_run(database, held, clock):
    """Meanwhile a beat has allowed starts again: what the statement does not know may have started."""
    worker_id, _ = held
    late = Report(9.0, [], [], False, await database.fetchval("select safe_until from duly.workers"))
    await clock.advance(1)
    await workers.heartbeat(database, worker_id)

    assert await told(database, worker_id, late) is None
    assert await database.fetchval("select count(*) from duly.leased") == 3


async def test_start_report_of_an_older_lease_keeps_no_run(database, held):
    worker_id, [first, *_] = held
    stale = msgspec.structs.replace(first, fence=first.fence - 1)

    assert await stall(database, worker_id, stale) == 3


async def test_returned_run_is_not_settled_by_the_stalled_worker(database, held):
    worker_id, [first, *_] = held
    await stall(database, worker_id)

    await settled(database, worker_id, first)

    assert await database.fetchval("select count(*) from duly.ready") == 3


async def test_stall_report_shows_a_missing_lease(database):
    assert await stall(database, (await a_leased_run(database))[1].run_id) == "gone"


async def test_a_stalled_worker_s_runs_read_ready_but_for_those_that_have_started(database, held, clock):
    worker_id, [started, *_] = held
    coming = await a_waiting_run(database, delay=4)
    await claimed(database, worker_id)
    await clock.advance(6)

    await told(database, worker_id, Report(5.0, [], None, False, started=[(started.run_id, started.fence)]))
    assert await state_of(database, coming) == "ready"
    assert await state_of(database, started.run_id) == "running"

    await workers.heartbeat(database, worker_id)
    assert await state_of(database, coming) == "running", "it goes on, and starts what is due"


async def state_of(database: Database, run_id: UUID) -> str:
    return str(await database.fetchval("select state from duly.live_runs where run_id = $1", run_id))
