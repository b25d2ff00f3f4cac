"""Run again: create a new run from an ended one, unchanged or changed. The ended run stays as it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from duly.domain.errors import InvalidOption, NotFound, Refused
from duly.domain.jobs.job import Submission
from duly.domain.jobs.unmasked import unmasked_payload
from duly.domain.redaction import has_mark
from duly.domain.runs.options import NO_OPTIONS, RunOptions
from duly.domain.runs.run import FINAL_STATES, HORIZON, PRIORITY_DEFAULT
from duly.domain.tenancy.audit import Action, Subject
from duly.domain.workflows.references import has_references
from duly.moves.admin.audit import audited, record
from duly.store.boxes import runs
from duly.store.connection.database import Database
from duly.store.reads import overview
from duly.store.tables import jobs
from duly.store.tables.jobs import Submitted


class Changes(msgspec.Struct, frozen=True):
    """The changes to the run; `payload` is JSON text. None leaves a value."""

    payload: str | None = None
    queue: str | None = None
    priority: int | None = None
    at: datetime | None = None


class Rerun(msgspec.Struct, frozen=True):
    """The new run, a one-shot: when it is due, on which queue, and whether it was requested under its key before.

    `needs_hint`: the caller sends the workers a hint after the commit.
    """

    run_id: UUID
    scheduled_at: datetime
    queue: str
    replayed: bool
    needs_hint: bool


Check = Callable[[Submission], Submission]
"""Refuses what may not be submitted here and now, though it once was."""


@audited
async def rerun(
    database: Database,
    run_id: UUID,
    *,
    key: str,
    tenant: int,
    changes: Changes | None = None,
    labels: Mapping[str, str] | None = None,
    check: Check | None = None,
) -> Rerun:
    """Submit a new one-shot from an ended run, once under its key; `labels` are of this request.

    Raises NotFound, also when it is archived, Refused while it has not ended, and InvalidOption where its payload is no
    longer stored.
    """
    found = await runs.find(database, run_id)
    if found is None or found["tenant"] != tenant:
        raise NotFound(
            f"no run {run_id} in the database; `duly runs` lists them. An archived run cannot be run again: take its payload"
            f" from `duly runs show {run_id}`, and submit it"
        )
    if found["state"] not in FINAL_STATES:
        raise Refused(
            f"run {run_id} is {found['state']}, so it cannot be run again yet; wait for its end, or cancel it"
        )
    requested = changes or Changes()
    carried = await overview.arguments(database, run_id)
    options: RunOptions = carried.get("options", NO_OPTIONS)
    rules = options.rules(carried.get("redact_above"))
    job = Submission(
        found["handler"],
        unmasked_payload(requested.payload or _payload(found, carried, rules), None, rules),
        requested.queue or found["queue"],
        _first(requested.priority, found["priority"], PRIORITY_DEFAULT),
        requested.at,
        None,
        options.for_rerun(run_id, labels or {}),
    )
    job = job if check is None else check(job)
    submitted = await jobs.submit_checked(database, tenant, key, job, HORIZON)
    await _record(database, tenant, run_id, job, submitted, has_payload=requested.payload is not None)
    return Rerun(submitted.job_id, submitted.scheduled_at, job.queue, submitted.replayed, submitted.needs_hint)


def _payload(found: Mapping[str, Any], carried: Mapping[str, Any], rules: Sequence[str]) -> str:
    """Return the payload that the run had. Raises InvalidOption."""
    run_id, payload = found["run_id"], carried.get("payload")
    again = "" if found["job_id"] == run_id else f", or trigger job {found['job_id']}"
    if payload is None:
        why = "never had a payload" if found["state"] == "skipped" else "has no stored payload any more"
        raise InvalidOption(f"run {run_id} {why}; give one{again}")
    if rules and has_mark(payload):
        raise InvalidOption(f"the payload of run {run_id} was redacted when it ended; give one{again}")
    if found["node"] is not None and has_references(payload):
        raise InvalidOption(
            f"run {run_id} is node {found['node']!r} of workflow {found['workflow_id']}, and its payload refers to results of"
            " other nodes; give a payload, or replay the workflow from that node"
        )
    return str(payload)


def _first(*values: int | None) -> int:
    return next(value for value in values if value is not None)


async def _record(
    database: Database, tenant: int, run_id: UUID, job: Submission, submitted: Submitted, *, has_payload: bool
) -> None:
    subject, count = Subject("run", str(submitted.job_id), job.handler), int(not submitted.replayed)
    detail = {"rerun_of": run_id, "has_payload": has_payload or None}
    await record(database, tenant, Action.RUN_RERUN, subject, count, **detail)
