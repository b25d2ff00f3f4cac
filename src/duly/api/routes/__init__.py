"""What can be asked for, by what it is about: one module a group, all of them in one table."""

from __future__ import annotations

from duly.api.operations import Operation
from duly.api.routes import (
    as_code,
    backfills,
    batch,
    calendars,
    callbacks,
    dead,
    destinations,
    events,
    figures,
    gates,
    job_edits,
    job_verbs,
    jobs,
    keys,
    limits,
    queues,
    recovery,
    runs,
    tenants,
    triggers,
    versions,
    worker,
    workflows,
)

_MODULES = (
    jobs,
    job_edits,
    job_verbs,
    versions,
    batch,
    as_code,
    runs,
    workflows,
    dead,
    events,
    gates,
    queues,
    figures,
    recovery,
    limits,
    destinations,
    backfills,
    calendars,
    triggers,
    worker,
    callbacks,
    keys,
    tenants,
)

OPERATIONS: list[Operation] = [operation for module in _MODULES for operation in module.routes.operations]
