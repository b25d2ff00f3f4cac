"""Dependencies read only the runs concerned, however much is stored: by the server's own counters."""

import pytest

from duly.moves.claim import claim
from duly.moves.submit import submit_many
from duly.moves.waiting import check_dependents
from duly.store.boxes import leased
from duly.store.tables import dependencies
from tests.builders import HANDLER, QUEUE, a_key, a_ready_run, a_submission, a_waiting_run, a_worker

COUNTERS = """
select coalesce(sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0)), 0) from pg_stat_xact_user_tables
 where schemaname = 'duly' and relname = any ($1)
"""
GROWING = [
    "dependencies",
    "dependents",
    "ended_dependencies",
    "dependency_checks",
    "blocked",
    "ready",
    "leased",
    "timers",
    "dead",
]
FIRST = "explain (format json) select from duly.dependencies order by parent limit 1"
MANY = 2000


async def fetched(database, query, *args):
    """Run a statement with what would be done at its commit, and count the rows it fetches."""
    async with database.transaction() as connection:
        before = await connection.fetchval(COUNTERS, GROWING)
        await connection.fetch(query, *args)
        await connection.execute("set constraints all immediate")
        return await connection.fetchval(COUNTERS, GROWING) - before


def finishing(worker_id, run):
    """Give the statement that finishes a run."""
    return leased.SQL["finish"], worker_id, [run.tid], [run.fence], *[[run.due_at.timestamp()]] * 2, ["1"]


@pytest.fixture(params=["few", "many"])
async def one(database, request):
    """A run in a worker's hands that one other follows, among few or many that follow others."""
    worker_id = await a_worker(database)
    parent = await a_ready_run(database)
    [run] = await claim(database, worker_id, [QUEUE], [HANDLER], 10)
    await a_ready_run(database, depends_on=[parent])
    await check_dependents(database)
    if request.param == "many":
        others = [await a_waiting_run(database) for _ in range(20)]
        jobs = [a_submission(depends_on=[others[number % 20]]) for number in range(MANY)]
        await submit_many(database, jobs, key=a_key())
        await check_dependents(database)
    return worker_id, run


async def test_end_of_a_run_reads_only_its_dependents(database, one):
    worker_id, run = one

    assert await fetched(database, *finishing(worker_id, run)) < 25


async def test_end_of_a_run_without_dependents_reads_no_other(database, one):
    worker_id, _ = one
    await a_ready_run(database)
    [alone] = await claim(database, worker_id, [QUEUE], [HANDLER], 10)

    assert await fetched(database, *finishing(worker_id, alone)) < 6


async def test_a_check_reads_those_it_looks_at(database, one):
    _, run = one
    await a_ready_run(database, depends_on=[run.run_id])

    assert await fetched(database, dependencies.SQL["check"], 100) < 25
    assert await fetched(database, dependencies.SQL["check"], 100) < 3


async def test_check_for_any_dependency_reads_the_index(database, one):
    plan = str(await database.fetchval(FIRST))

    assert "dependencies_pkey" in plan
    assert "Seq Scan" not in plan
    assert "Sort" not in plan
