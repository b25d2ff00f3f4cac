"""What people do to many schedules at once."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from duly.cli.many import Verb
from duly.client.asynchronous.client import AsyncClient
from duly.domain.jobs.filter import JOBS
from duly.moves.bulk.jobs_and_runs import OPEN
from duly.moves.cancel import end_job
from duly.moves.schedules import pause as pauses
from duly.store.connection.database import Database
from duly.wire.jobs.bulk import ManyDone


def pausing(reason: str) -> Verb:
    """Pause those that fire."""

    async def elsewhere(client: AsyncClient, **chosen: Any) -> ManyDone:
        return await client.jobs.pause_many(reason=reason, **chosen)

    async def here(database: Database, job_id: UUID) -> bool:
        return await pauses.pause(database, job_id, reason) != "already"

    return Verb("Pause", "paused", "job", JOBS, ("active",), elsewhere, job=here)


def resuming(*, catch_up: bool) -> Verb:
    """Let those that are paused fire again."""

    async def elsewhere(client: AsyncClient, **chosen: Any) -> ManyDone:
        return await client.jobs.resume_many(catch_up=catch_up, **chosen)

    async def here(database: Database, job_id: UUID) -> bool:
        return await pauses.resume(database, job_id, catch_up=catch_up) != "already"

    return Verb("Resume", "resumed", "job", JOBS, ("paused",), elsewhere, job=here)


async def _end_elsewhere(client: AsyncClient, **chosen: Any) -> ManyDone:
    return await client.jobs.delete_many(**chosen)


async def _end_here(database: Database, job_id: UUID) -> bool:
    await end_job(database, job_id, stop=False)
    return True


ENDING = Verb("Cancel", "cancelled", "job", JOBS, OPEN, _end_elsewhere, job=_end_here)
