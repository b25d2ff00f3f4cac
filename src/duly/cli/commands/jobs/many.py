"""What people do to many schedules at once."""

from __future__ import annotations

from typing import Any

from duly.cli.flags.bulk import Verb
from duly.client.asynchronous.client import AsyncClient
from duly.domain.jobs.filter import JOBS
from duly.wire.jobs.bulk import ManyDone


def pausing(reason: str) -> Verb:
    """Pause those that fire."""

    async def change(client: AsyncClient, **chosen: Any) -> ManyDone:
        return await client.jobs.pause_many(reason=reason, **chosen)

    return Verb("Pause", "paused", "job", JOBS, change)


def resuming(*, catch_up: bool) -> Verb:
    """Let those that are paused fire again."""

    async def change(client: AsyncClient, **chosen: Any) -> ManyDone:
        return await client.jobs.resume_many(catch_up=catch_up, **chosen)

    return Verb("Resume", "resumed", "job", JOBS, change)


async def _end(client: AsyncClient, **chosen: Any) -> ManyDone:
    return await client.jobs.delete_many(**chosen)


ENDING = Verb("Cancel", "cancelled", "job", JOBS, _end)
