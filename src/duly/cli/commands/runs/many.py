"""What people do to many runs at once."""

from __future__ import annotations

from typing import Any

from duly.cli.flags.bulk import Verb
from duly.client.asynchronous.client import AsyncClient
from duly.domain.jobs.filter import RUNS
from duly.wire.jobs.bulk import ManyDone


async def _cancel(client: AsyncClient, **chosen: Any) -> ManyDone:
    return await client.runs.cancel_many(**chosen)


CANCELLING = Verb("Cancel", "cancelled, or asked to stop", "run", RUNS, _cancel)


def replaying(rate: float | None) -> Verb:
    """Give the dead another set of attempts, at once or so many a second."""

    async def change(client: AsyncClient, **chosen: Any) -> ManyDone:
        return await client.runs.replay_many(rate=rate, **chosen)

    return Verb("Replay", "replayed", "run", RUNS, change)
