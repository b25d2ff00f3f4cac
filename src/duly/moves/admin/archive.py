"""The archive, for the operator: legal holds, and its end."""

from __future__ import annotations

from uuid import UUID

from duly.domain.archive import LegalHold
from duly.domain.errors import NotFound
from duly.domain.jobs.job import check_reason
from duly.domain.runs.run import TENANT_DEFAULT
from duly.domain.tenancy.audit import Action, Subject
from duly.moves.admin.audit import audited, record
from duly.store.boxes import history
from duly.store.connection.database import Database
from duly.store.tables import archive
from duly.store.tenancy import tenants


@audited
async def hold(database: Database, tenant: int, job_id: UUID | None, reason: str) -> LegalHold:
    """Hold the history of a tenant, or of one of its jobs: it is neither dropped, nor sampled, nor purged.

    One that is held keeps its first reason. Raises NotFound, InvalidOption.
    """
    reason = check_reason(reason)
    if await tenants.find(database, tenant) is None:
        raise NotFound(f"no tenant {tenant}; `duly tenants` lists them")
    held, is_new = await archive.hold(database, tenant, job_id, reason)
    await record(database, tenant, Action.HOLD_CREATED, _subject(tenant, job_id), int(is_new), reason=reason)
    return held


@audited
async def release(database: Database, tenant: int, job_id: UUID | None) -> None:
    """End a legal hold; others stay. Raises NotFound."""
    if not await archive.release(database, tenant, job_id):
        of_job = "" if job_id is None else f"job {job_id} of "
        raise NotFound(f"no legal hold on {of_job}tenant {tenant}; `duly archive holds` lists them")
    await record(database, tenant, Action.HOLD_REMOVED, _subject(tenant, job_id))


@audited
async def stop(database: Database) -> bool:
    """Drop history without an archive from now on, unless a scheduler with one runs. False: that was so before."""
    is_stopped = await history.stop_archive(database)
    await record(database, TENANT_DEFAULT, Action.ARCHIVE_STOPPED, Subject("archive"), int(is_stopped))
    return is_stopped


def _subject(tenant: int, job_id: UUID | None) -> Subject:
    return Subject("tenant", str(tenant)) if job_id is None else Subject("job", str(job_id))
