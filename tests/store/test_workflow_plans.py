"""Workflows read only the nodes concerned, however much is stored: by the server's own counters."""

from datetime import timedelta
from uuid import UUID

import pytest

from duly.moves.claim import claim
from duly.store.boxes import leased
from duly.store.reads import lists
from duly.store.reads.workflow_ends import SQL as ends_sql
from duly.store.tables import workflows
from tests.builders import HANDLER, QUEUE, a_worker
from tests.graphs import a_graph, a_workflow, names, taken

WIDTH = 20
MANY = 60
SHAPE = "a " + " ".join(f"m{number}:a" for number in range(WIDTH)) + " z:" + ",".join(f"m{n}" for n in range(WIDTH))
COUNTERS = """
select relname, coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0) as rows from pg_stat_xact_user_tables
 where schemaname = 'duly' and relname = any ($1)
"""
GROWING = ["workflows", "workflow_nodes", "workflow_edges", "blocked", "ready", "leased", "timers", "dead"]


async def fetched(database, *calls):
    """Run statements in one transaction, with what would be done at its end, and count the rows they fetch."""
    async with database.transaction() as connection:
        before = dict(await connection.fetch(COUNTERS, GROWING))
        for query, *args in calls:
            await connection.fetch(query, *args)
        await connection.execute("set constraints all immediate")
        depends_on = dict(await connection.fetch(COUNTERS, GROWING))
    return sum(depends_on.values()) - sum(before.values())


def finishing(worker_id, runs):
    """Give the statement that finishes runs."""
    moments = [run.due_at.timestamp() for run in runs]
    return (
        leased.SQL["finish"],
        worker_id,
        [run.tid for run in runs],
        [run.fence for run in runs],
        moments,
        moments,
        ["1"] * len(runs),
    )


@pytest.fixture(params=["few", "many"])
async def one(database, request):
    """A workflow among few others, or among many; plans are made before there are many."""
    workflow_id = await a_workflow(database, SHAPE)
    worker_id = await a_worker(database)
    held = await taken(database, worker_id)
    for _ in range(MANY if request.param == "many" else 0):
        await a_workflow(database, SHAPE)
    return workflow_id, worker_id, list(held.values())


async def test_a_settle_reads_the_nodes_it_ends_and_those_behind_them(database, one):
    _, worker_id, held = one

    # The node, its edges, its children in two tables, and the workflow, each a few times; never another workflow's.
    assert await fetched(database, finishing(worker_id, held)) < 20 * WIDTH


async def test_settle_does_not_read_node_ends_recorded_by_others(database, one, monkeypatch):
    """A row that was noted and seen to is there until it is vacuumed; here it stands for good, so that it can be counted."""
    _, worker_id, held = one
    await database.execute(
        "insert into duly.ended_nodes (workflow_id, node, run_id, became, is_first, recorded_in)"
        " select gen_random_uuid(), 'a', gen_random_uuid(), 'succeeded', false, '3' from generate_series(1, 1000)"
    )
    monkeypatch.setitem(globals(), "GROWING", ["ended_nodes"])

    assert await fetched(database, finishing(worker_id, held)) < 20
    assert await database.fetchval("select count(*) from duly.ended_nodes") == 1000


async def test_a_fan_in_reads_its_own_edges_alone(database, one):
    _, worker_id, held = one
    await fetched(database, finishing(worker_id, held))
    middle = [run for run in await claim(database, worker_id, [QUEUE], [HANDLER], 1000) if "m" in names([run])[0]]

    assert await fetched(database, finishing(worker_id, middle[:WIDTH])) < 20 * WIDTH


@pytest.mark.parametrize("name", ["cancel_workflow", "pause_workflow", "resume_workflow"])
async def test_change_of_a_workflow_reads_that_workflow_alone(database, one, name):
    workflow_id, _, _ = one
    more = ("enough",) if name == "cancel_workflow" else ()

    assert await fetched(database, (workflows.SQL[name], 1, workflow_id, *more)) < 30 * WIDTH


async def test_query_of_a_workflow_reads_that_workflow_alone(database, one):
    workflow_id, _, _ = one
    asked = [workflow_id] * WIDTH, [f"m{number}" for number in range(WIDTH)]

    assert await fetched(database, (workflows.SQL["handed"], *asked, [], [], [], 1)) < 6 * WIDTH
    assert await fetched(database, (workflows.SQL["nodes"], 1, workflow_id)) < 6 * WIDTH
    assert await fetched(database, (workflows.SQL["edges"], 1, workflow_id)) < 6 * WIDTH
    ends = UUID(int=(1 << 128) - 1), UUID(int=0)
    assert await fetched(database, (lists.SQL["workflows"], 1, *ends, *[None] * 7, 3, 10)) < 12
    assert await fetched(database, (workflows.SQL["run_workflow_task"],)) < 5


async def test_the_runs_of_one_are_found_by_its_nodes(database, one):
    workflow_id, _, _ = one
    ends = UUID(int=(1 << 128) - 1), UUID(int=0)
    asked = (1, *ends, workflow_id, lists._BOXES_ALL, *[None] * 12, 10, 500)

    # Each node, and its run in whatever box it stands.
    assert await fetched(database, (lists.SQL["workflow_runs"], *asked)) < 6 * WIDTH
    assert await fetched(database, (lists.SQL["workflow_runs"], 2, *asked[1:])) < 3 * WIDTH


async def test_ends_are_found_by_their_transaction_and_by_their_moment(database, one):
    await database.execute(
        "update duly.workflows set state = 'succeeded', open_nodes = 0, ended_at = submitted_at - number * interval '1 minute',"
        " ended_xid = (pg_current_xact_id()::text::bigint - number)::text::xid8"
        " from (select workflow_id as id, row_number() over () as number from duly.workflows) as numbered where workflow_id = id"
    )
    end = await database.fetchval("select max(ended_xid)::text::bigint - 1 from duly.workflows")
    since = await database.fetchval("select max(ended_at) from duly.workflows")

    by_index = ("set local enable_seqscan = off",)  # They are so few that the whole table is read as fast.

    assert await fetched(database, by_index, (ends_sql["look"], str(end), [str(end - 1)], 100, [1])) < 12
    assert await fetched(database, by_index, (ends_sql["recent"], 1, since - timedelta(minutes=2), 100)) < 12


class Recorder:
    """Notes what would be asked."""

    def __init__(self):
        self.call = ()

    async def fetch(self, query, *args):
        self.call = (query, *args)
        return [(UUID(int=1), False, "running")]


async def test_submitting_reads_nothing_of_others(database, one):
    recorder = Recorder()
    await workflows.submit(recorder, 1, "key", b"x", a_graph(SHAPE), timedelta(seconds=5))

    assert await fetched(database, recorder.call) < 4 * WIDTH
