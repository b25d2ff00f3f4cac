"""What people do to many runs at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from duly.cli.many import Verb
from duly.client.asynchronous.client import AsyncClient
from duly.domain.jobs.filter import RUNS
from duly.moves.bulk.dead import check_rate
from duly.moves.bulk.jobs_and_runs import LIVE
from duly.moves.cancel import cancel_live
from duly.moves.replay import replay
from duly.store.connection.database import Database
from duly.wire.jobs.bulk import ManyDone


async def _cancel_elsewhere(client: AsyncClient, **chosen: Any) -> ManyDone:
    return await client.runs.cancel_many(**chosen)


async def _cancel_here(database: Database, run_ids: Sequence[UUID], _: int) -> int:
    return await cancel_live(database, run_ids, "cancelled")


CANCELLING = Verb("Cancel", "cancelled, or asked to stop", "run", RUNS, LIVE, _cancel_elsewhere, runs=_cancel_here)


def replaying(rate: float | None) -> Verb:
    """Give the dead another set of attempts, at once or so many a second. Raises InvalidOption."""
    check_rate(rate)

    async def elsewhere(client: AsyncClient, **chosen: Any) -> ManyDone:
        return await client.runs.replay_many(rate=rate, **chosen)

    async def here(database: Database, run_ids: Sequence[UUID], passed: int) -> int:
        return len(await replay(database, run_ids, check_rate(rate), passed))

    return Verb("Replay", "replayed", "run", RUNS, ("dead",), elsewhere, runs=here)
