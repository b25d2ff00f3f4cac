"""What can be asked for, by what it is about: one module a group, all of them in one table."""

from __future__ import annotations

from duly.api.operations import Operation
from duly.api.routes import backfills, batch, calendars, job_verbs, jobs, triggers

OPERATIONS: list[Operation] = [
    operation
    for module in (jobs, job_verbs, batch, backfills, calendars, triggers)
    for operation in module.routes.operations
]
