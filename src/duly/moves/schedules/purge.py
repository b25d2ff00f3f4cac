"""Purge: remove an ended job, with its versions and its history. Its audit entries stay."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

from duly.domain.errors import Refused
from duly.domain.tenancy.audit import Action, Subject
from duly.moves.admin.audit import audited, record
from duly.store.boxes import history, runs
from duly.store.connection.database import Database
from duly.store.tables import jobs

AT_ONCE_MAX = 500  # runs whose history is removed with the request; maintenance removes the rest
JOBS_MAX = 1_000  # definitions that are removed in one round


@audited
async def purge(database: Database, tenant: int, job_id: UUID, name: str | None) -> None:
    """Remove the definition of a job that has ended, and its history in batches, when none of its runs is active.

    Raises Refused while the job has not ended, and for a node of a workflow.
    """
    run = await runs.find(database, job_id)
    if run is not None and run["node"] is not None:
        raise Refused(
            f"run {job_id} is a node of workflow {run['workflow_id']}; its history is deleted with the workflow's"
        )
    if not await jobs.purge_job(database, tenant, job_id, AT_ONCE_MAX):
        raise Refused(f"job {job_id} has not ended; cancel it first: duly jobs cancel {job_id}")
    await record(database, tenant, Action.JOB_PURGED, Subject("job", str(job_id), name))


async def go_on(database: Database, kept: timedelta | None) -> int:
    """Go on with requested purges, and with definitions that ended longer ago than `kept`; None: for ever.

    Returns how many runs and definitions were removed.
    """
    over = 0 if kept is None else await history.purge_over(database, kept, JOBS_MAX)
    return over + await history.purge(database, AT_ONCE_MAX)
