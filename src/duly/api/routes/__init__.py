"""What can be asked for, by what it is about: one module a group, all of them in one table."""

from __future__ import annotations

from duly.api.audited import check_audited
from duly.api.operations import Operation
from duly.api.routes import (
    as_code,
    audit,
    backfills,
    batch,
    bulk,
    calendars,
    callbacks,
    dead,
    destinations,
    events,
    figures,
    files,
    gates,
    job_edits,
    job_verbs,
    jobs,
    keys,
    limits,
    queues,
    recovery,
    run_again,
    runs,
    sessions,
    system,
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
    bulk,
    as_code,
    files,
    runs,
    run_again,
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
    sessions,
    tenants,
    system,
    audit,
)

OPERATIONS: list[Operation] = [operation for module in _MODULES for operation in module.routes.operations]
check_audited(OPERATIONS)
