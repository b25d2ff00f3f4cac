"""A scheduler and a worker, one step at a time, so that a story told over HTTP can go on."""

from uuid import UUID

from duly.domain.runs.outcome import Outcome
from duly.domain.runs.run import Run
from duly.moves.claim import claim
from duly.store.connection.database import Database
from tests.api.front import A_TARGET
from tests.builders import a_worker, settled, staged

HANDLER = A_TARGET["handler"]


async def stage(database: Database) -> None:
    """Let one scheduler stage what is due."""
    await database.execute("delete from duly.schedulers")
    await staged(database)


async def take(database: Database, queue: str = "default", handler: str = HANDLER) -> tuple[UUID, list[Run]]:
    """Let a worker take what is ready. Gives it and the runs."""
    worker_id = await a_worker(database, queues=[queue], handlers=[handler])
    return worker_id, await claim(database, worker_id, [queue], [handler], 100)


async def work(database: Database, outcome: Outcome | None = None, queue: str = "default") -> list[Run]:
    """Stage what is due, take what is ready, and let all of it come to an outcome."""
    await stage(database)
    worker_id, runs = await take(database, queue)
    for run in runs:
        assert await settled(database, worker_id, run, outcome) == []
    return runs
