"""Changes of a waiting one-shot without a name: payload, moment, queue, priority or options, under the same id."""

from __future__ import annotations

from uuid import UUID

import msgspec

from duly.clock import moment_of
from duly.domain.errors import Refused, Unsettled
from duly.domain.jobs.job import Submission
from duly.domain.runs.options import NO_OPTIONS, RunOptions
from duly.domain.runs.run import HORIZON
from duly.domain.tenancy.audit import Action, Subject
from duly.moves.admin.audit import audited, record
from duly.moves.admin.seal import sealed
from duly.moves.recall import recalled
from duly.store.boxes import runs
from duly.store.connection.database import Database
from duly.store.tables import jobs


async def change_one_shot(
    database: Database, tenant: int, job_id: UUID, version: int, job: Submission, standing: RunOptions = NO_OPTIONS
) -> bool:
    """Change a one-shot of a version that has not started, in any box. False: another change was faster; look again.

    `standing` are its current options. Raises Refused when it no longer waits for its first attempt, InvalidOption, and
    Unsettled where a worker that does not answer holds it.
    """
    job = sealed(database, tenant, job, standing)
    if job.delay is not None:
        job = msgspec.structs.replace(job, at=moment_of(database.clock.now()) + job.delay, delay=None)
    if await _change_one_shot(database, tenant, job_id, version, job):
        return True
    async with recalled(database, run_ids=[job_id]) as silent:
        if await _change_one_shot(database, tenant, job_id, version, job):
            return True
    if silent and await runs.may_start(database, silent):
        raise Unsettled(f"job {job_id}", "a worker that does not respond holds it")
    run = await runs.find(database, job_id)
    if run is None or (run["state"] in ("scheduled", "blocked", "ready") and run["attempt"] == 0):
        return False
    raise Refused(
        f"job {job_id} is a one-shot that no longer waits for its first attempt: it is {run['state']};"
        " cancel it while it runs, or run it again when it has ended"
    )


@audited
async def _change_one_shot(database: Database, tenant: int, job_id: UUID, version: int, job: Submission) -> bool:
    is_changed = await jobs.change_one_shot(database, tenant, job_id, version, job, HORIZON)
    await record(database, tenant, Action.JOB_EDITED, Subject("job", str(job_id)), int(is_changed), version=version + 1)
    return is_changed
