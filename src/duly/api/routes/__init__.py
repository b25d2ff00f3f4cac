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
    job_edits,
    job_verbs,
    jobs,
    keys,
    queues,
    runs,
    tenants,
    triggers,
    versions,
    worker,
)

_MODULES = (
    jobs,
    job_edits,
    job_verbs,
    versions,
    batch,
    as_code,
    runs,
    dead,
    events,
    queues,
    figures,
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
