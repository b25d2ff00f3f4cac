"""Edits of a one-shot without a name on a database: only while it waits for its first attempt, as over HTTP."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from uuid import UUID

import msgspec

from duly.api.definitions import not_plain
from duly.api.views.jobs import shown_job
from duly.cli import rows
from duly.cli.edit_over_http import recurring_of
from duly.domain.errors import DulyError
from duly.domain.jobs.job import Recurring, Submission
from duly.domain.jobs.when import delay_of, is_moment, moment_of
from duly.domain.runs.options import RunOptions
from duly.domain.runs.run import TENANT_DEFAULT
from duly.moves.schedules.change_one_shot import change_one_shot
from duly.moves.schedules.conflict import until_settled
from duly.store.connection import hints
from duly.store.connection.database import Database
from duly.store.reads import overview


async def amend_one_shot(database: Database, job_id: UUID, change: Callable[[Recurring], Recurring]) -> int:
    """Change something about a one-shot, and give its new version. Raises NotFound, Refused, Unsettled."""

    async def attempt() -> int | None:
        shown = await shown_job(database, TENANT_DEFAULT, job_id)
        carried = await overview.arguments(database, job_id)
        standing: RunOptions = carried["options"]  # In these secrets are sealed; what is shown masks them.
        before = msgspec.structs.replace(recurring_of(shown), options=standing)
        wanted = change(before)
        if rows.fields_of(wanted) == rows.fields_of(before):
            return shown.version
        job = one_shot_of(wanted)
        if not await change_one_shot(database, TENANT_DEFAULT, job_id, shown.version, job, standing):
            return None
        with suppress(DulyError):  # A hint that is lost costs a moment.
            await hints.send(database, [job.queue])
        return shown.version + 1

    return await until_settled(f"job {job_id}", attempt)


def one_shot_of(job: Recurring) -> Submission:
    """Give the one-shot that a definition of a moment alone is. Raises Refused."""
    if job.name is not None or not is_moment(job.schedule):
        raise not_plain()
    at, delay = moment_of(job.schedule), delay_of(job.schedule)
    return Submission(job.handler, job.payload, job.queue, job.priority, at, delay, job.options)
