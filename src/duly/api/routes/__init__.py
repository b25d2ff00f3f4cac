"""What can be asked for, by what it is about: one module a group, all of them in one table."""

from __future__ import annotations

from duly.api.operations import Operation
from duly.api.routes import (
    backfills,
    batch,
    calendars,
    dead,
    events,
    job_verbs,
    jobs,
    keys,
    queues,
    runs,
    tenants,
    triggers,
)

_MODULES = (jobs, job_verbs, batch, runs, dead, queues, backfills, calendars, triggers, events, keys, tenants)

OPERATIONS: list[Operation] = [operation for module in _MODULES for operation in module.routes.operations]
