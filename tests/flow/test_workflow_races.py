"""Many workers settle the parents of the same children at once, in any order: no deadlock, no release lost or made twice."""

import asyncio
import random

from duly.domain.runs.outcome import Failed, Succeeded
from duly.moves.settle import Settled, settle
from duly.store.boxes import history
from duly.store.connection.database import Database
from tests.builders import RNG, a_worker, claimed
from tests.graphs import FAILS, a_workflow, node_of, state_of, states_of

WORKFLOWS = 12
PARENTS = 10
SHAPE = (
    " ".join(f"p{number}" for number in range(PARENTS))
    + " " + " ".join(f"c{number}:" + ",".join(f"p{parent}" for parent in range(PARENTS)) for number in range(4))
    + " z:c0?,c1?,c2?,c3?"
)  # fmt: skip
DEADLOCKS = "select deadlocks from pg_stat_database where datname = current_database()"


async def test_story_25_batches_in_opposite_orders_meet_and_none_is_a_deadlock(database, database_url, clock):
    workflow_ids = [await a_workflow(database, SHAPE) for _ in range(WORKFLOWS)]
    worker_id = await a_worker(database)
    before = await database.fetchval(DEADLOCKS)
    chance = random.Random(7)

    async with Database(database_url, size_max=4, clock=clock) as others:
        while held := await claimed(database, worker_id, limit=1000):
            chance.shuffle(held)
            batches = [held[start::6] for start in range(6)]
            await asyncio.gather(
                *(
                    settle(others, worker_id, [_ended(run, clock.at, chance) for run in batch], RNG)
                    for batch in batches
                    if batch
                )
            )

    await database.execute("select pg_stat_force_next_flush()")
    assert await database.fetchval(DEADLOCKS) == before
    for workflow_id in workflow_ids:
        states = await states_of(database, workflow_id)
        failed = any(states[f"p{number}"] == "failed" for number in range(PARENTS))
        assert {states[f"c{number}"] for number in range(4)} == ({"skipped"} if failed else {"succeeded"})
        assert states["z"] == "succeeded"
        assert await state_of(database, workflow_id) == ("failed" if failed else "succeeded")
    assert await history.verify(database) == []


def _ended(run, at, chance) -> Settled:
    outcome: Succeeded | Failed = FAILS if node_of(run).startswith("p") and chance.random() < 0.02 else Succeeded()
    return Settled(run, at, at, outcome)
