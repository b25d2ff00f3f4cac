"""Change a one-shot without a name while it waits: another payload, moment, queue, priority or options, under the same id."""

from __future__ import annotations

from uuid import UUID

from duly.domain.audit import Action, Subject
from duly.domain.job import Submission
from duly.domain.run import HORIZON
from duly.moves.note import audited, note
from duly.moves.recall import recalled
from duly.moves.seal import sealed
from duly.store import jobs
from duly.store.database import Database


async def change_one_shot(
    database: Database, tenant: int, job_id: UUID, version: int, job: Submission, standing: str | None = None
) -> bool:
    """Change a one-shot of a version that has not started, wherever it is held. False: there is none; look again.

    `standing` are the options that it has. Raises Refused.
    """
    job = sealed(database, tenant, job, standing)
    if await _change_one_shot(database, tenant, job_id, version, job):
        return True
    async with recalled(database, run_ids=[job_id]):
        return await _change_one_shot(database, tenant, job_id, version, job)


@audited
async def _change_one_shot(database: Database, tenant: int, job_id: UUID, version: int, job: Submission) -> bool:
    is_changed = await jobs.change_one_shot(database, tenant, job_id, version, job, HORIZON)
    await note(database, tenant, Action.JOB_EDITED, Subject("job", str(job_id)), int(is_changed), version=version + 1)
    return is_changed
