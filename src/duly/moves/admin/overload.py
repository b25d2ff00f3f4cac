"""Overload: record which tenants overload a queue, and set how old its oldest run may be."""

from __future__ import annotations

from datetime import timedelta

from duly.domain.duration import to_iso
from duly.domain.jobs.job import check_name
from duly.domain.limits.overload import AGE_LIMIT, check_age_limit
from duly.domain.runs.run import TENANT_DEFAULT
from duly.domain.tenancy.audit import Action, Subject
from duly.moves.admin.audit import audited, record
from duly.store.connection.database import Database
from duly.store.tables import overloads


async def record_overloads(database: Database, default: timedelta = AGE_LIMIT) -> int | None:
    """Update the overloads; None: another process just did."""
    return await overloads.record(database, default)


@audited
async def limit_age(database: Database, queue: str, age_limit: timedelta | None, set_by: str) -> None:
    """Set the maximum age of the oldest due run of a queue; None restores the default. Raises InvalidOption."""
    check_name(queue, "queue")
    before = (await overloads.limits(database)).get(queue)
    if age_limit is None:
        await overloads.unlimit(database, queue)
    else:
        await overloads.limit(database, queue, check_age_limit(age_limit), check_name(set_by, "set_by"))
    subject, reported = Subject("queue", queue, queue), "default" if age_limit is None else to_iso(age_limit)
    await record(database, TENANT_DEFAULT, Action.QUEUE_CHANGED, subject, int(before != age_limit), age_limit=reported)
