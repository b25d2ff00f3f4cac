"""The operations of the API: a module for each resource, and all of them in one table."""

from __future__ import annotations

from duly.api.operations import Operation
from duly.api.routes import (
    audit,
    batch,
    bulk,
    dead,
    events,
    figures,
    files,
    job_actions,
    job_edits,
    jobs,
    keys,
    limits,
    queues,
    recovery,
    runs,
    schedules,
    sessions,
    system,
    tenants,
    worker,
    workflows,
)
from duly.api.routes.delivery import callbacks, destinations, notifications

_ROUTES = (
    jobs.routes,
    job_edits.routes,
    job_actions.routes,
    batch.routes,
    bulk.routes,
    files.routes,
    runs.routes,
    workflows.routes,
    dead.routes,
    events.routes,
    limits.concurrency_key_routes,
    queues.routes,
    queues.worker_routes,
    figures.routes,
    recovery.routes,
    limits.routes,
    destinations.routes,
    notifications.routes,
    job_actions.backfill_routes,
    schedules.routes,
    schedules.trigger_routes,
    worker.routes,
    callbacks.routes,
    keys.routes,
    sessions.routes,
    tenants.routes,
    system.routes,
    system.archive_routes,
    audit.routes,
)

OPERATIONS: list[Operation] = [operation for routes in _ROUTES for operation in routes.operations]
