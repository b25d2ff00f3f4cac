"""A claim reads only what it takes, however many unroutable runs are in front: by the server's own counters."""

from datetime import timedelta

import pytest

from duly.moves.unroutable import UnroutableLimits, mark_unroutable
from duly.store.boxes import ready
from duly.store.connection.database import Database
from duly.store.reads import explain, maintenance_tasks
from duly.store.tables import overloads, remote_workers
from tests.builders import HANDLER, QUEUE, a_ready_run, a_worker, many_ready_runs

TOUCHED = """
select coalesce(sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0)), 0) from pg_stat_xact_user_tables
 where schemaname = 'duly' and relname = 'ready'
"""
TYPO = "app:typo"
MANY = 10_000
BATCH = 50


async def touched(database: Database, query: str, *args: object) -> int:
    """Run a statement until it is planned for good, and undo it. Gives the rows of `ready` that it fetched at last."""
    rows = 0
    async with database.transaction() as connection:
        for _ in range(7):
            await connection.execute("savepoint before")
            before = await connection.fetchval(TOUCHED)
            await connection.fetch(query, *args)
            rows = await connection.fetchval(TOUCHED) - before
            await connection.execute("rollback to before")
    return int(rows)


async def all_aside(database: Database) -> int:
    """Set aside whatever there is, from the first line on."""
    moved = total = (await mark_unroutable(database, UnroutableLimits()))[0]
    while moved:
        moved = (await mark_unroutable(database, UnroutableLimits()))[0]
        total += moved
    return total


@pytest.fixture(params=["planned on few", "planned on many"])
async def crowded(own_database, request):
    """A worker, and many runs that it does not know in front of those it does."""
    worker_id = await a_worker(own_database)
    await many_ready_runs(own_database, MANY, handler=TYPO, late=1)
    await many_ready_runs(own_database, 2 * BATCH)
    if request.param == "planned on many":
        await own_database.execute("analyze duly.ready")
    return own_database, worker_id


async def test_claim_reads_only_runs_that_it_takes_behind_an_unroutable_backlog(crowded):
    database, worker_id = crowded
    claim = (ready.SQL["claim"], worker_id, [QUEUE], [1], [HANDLER], BATCH)
    assert await touched(database, *claim) >= MANY, "as long as they are in line"

    assert await all_aside(database) == MANY

    assert await touched(database, *claim) <= 4 * BATCH
    assert await touched(database, ready.SQL["claim"], worker_id, ["idle"], [1], [HANDLER], BATCH) <= 1
    knowing = await a_worker(database, handlers=[TYPO])
    # Those that are brought back are found, locked and put in line, twice as many as it takes; then it takes its own.
    assert (
        await touched(database, ready.SQL["claim"], knowing, [QUEUE], [1], [TYPO], BATCH) <= 4 * 2 * BATCH + 4 * BATCH
    )


async def test_maintenance_reads_few_rows_to_find_unroutable_runs(crowded):
    database, _ = crowded
    step = (ready.SQL["mark_unroutable"], "", 0, 0, 500, 1_000, 100, 2_000)
    assert await touched(database, *step) <= 3 * 2_000, "a batch"
    assert await touched(database, maintenance_tasks.SQL["look"]) <= 1
    await all_aside(database)

    assert await touched(database, *step) <= 4
    assert await touched(database, maintenance_tasks.SQL["look"]) <= 1
    assert await touched(database, ready.SQL["restore_routable"], BATCH) <= 4
    assert await touched(database, overloads.SQL["record"], timedelta(minutes=1), 2_000) <= 2 * 100 + 4
    await a_worker(database, handlers=[TYPO])
    assert await touched(database, ready.SQL["restore_routable"], BATCH) <= 4 * BATCH


async def test_position_query_counts_routable_runs_up_to_its_bound(crowded):
    database, _ = crowded
    await all_aside(database)
    run_id = await a_ready_run(database)

    assert await touched(database, explain.SQL["beyond"], run_id, 40) <= 4 * 40


async def test_a_remote_worker_foresees_by_a_few_rows(crowded):
    database, _ = crowded
    await all_aside(database)
    for handlers in ([TYPO], [HANDLER]):
        worker_id = await a_worker(database, handlers=handlers)
        await database.execute("update duly.workers set tenant = 1 where worker_id = $1", worker_id)
        assert await touched(database, remote_workers.SQL["foresee"], worker_id, 1) <= 4
