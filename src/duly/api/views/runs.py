"""Runs as responses show them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal
from uuid import UUID

import msgspec

from duly.domain.errors import NotFound
from duly.domain.jobs.spec_of import run_rules_of, shown_payload, shown_target
from duly.domain.redaction import Redactor
from duly.domain.runs.options import NO_OPTIONS, RunOptions
from duly.domain.runs.payload import read_anyhow
from duly.domain.runs.run import FINAL_STATES
from duly.domain.targets.spec import described_in_short
from duly.domain.targets.target import WORKFLOW
from duly.store.boxes import runs
from duly.store.connection.database import Database
from duly.store.reads import overview
from duly.store.reads.explain import Explanation as Explained
from duly.store.tables import workflows
from duly.store.tenancy import audit
from duly.wire.explanations import Blocker, Explanation, Reason
from duly.wire.jobs.definitions import JobTarget, RunDefinition
from duly.wire.runs import (
    Attempt,
    CheckpointSize,
    Dependency,
    Progress,
    Run,
    RunLease,
    RunSummary,
    SkippedStretch,
    Submitter,
    TargetSummary,
)


async def find_run(database: Database, tenant: int, run_id: UUID) -> dict[str, Any]:
    """Read a run of a tenant with its attempts. Raises NotFound."""
    found = await runs.find(database, run_id)
    if found is None or found["tenant"] != tenant:
        raise no_run(run_id)
    return found


def no_run(run_id: UUID) -> NotFound:
    """Return the error that there is no such run."""
    return NotFound(f"no run {run_id}; GET /v1/runs lists them")


def status_of_one_shot(state: str) -> Literal["active", "completed", "cancelled"]:
    """Return the status of a job that is its own run."""
    if state not in FINAL_STATES:
        return "active"
    return "cancelled" if state == "cancelled" else "completed"


async def shown_run(database: Database, tenant: int, run_id: UUID) -> Run:
    """Return a run of a tenant as responses show it. Raises NotFound."""
    found = await find_run(database, tenant, run_id)
    return await run_of(database, found, await overview.arguments(database, run_id))


async def run_of(
    database: Database, found: Mapping[str, Any], carried: Mapping[str, Any], *, is_archived: bool = False
) -> Run:
    """Return a run that was found as responses show it, with the payload and options that it carried."""
    run_id = found["run_id"]
    options: RunOptions = carried.get("options", NO_OPTIONS)
    progress = await runs.read_progress(database, run_id)
    checkpoint = await runs.checkpoint_size(database, run_id)
    attempts = [shown_attempt(row) for row in found["attempts"]]
    lease = await runs.find_lease(database, run_id)
    is_final = found["state"] in FINAL_STATES
    return Run.of(
        found,
        depends_on=[Dependency(job=UUID(job), on=on) for job, on in found["depends_on"]],
        started_at=_started(found, lease),
        finished_at=_last([row["finished_at"] for row in found["attempts"]]) if is_final else None,
        fire_skew_ms=_skew(found["attempts"]),
        payload=_payload(carried),
        result=_last([attempt.result for attempt in attempts if attempt.outcome == "succeeded"]),
        progress=None if progress is None else Progress(**progress),
        checkpoint=None if checkpoint is None else CheckpointSize(**checkpoint),
        attempts=attempts,
        target=target_summary(found["handler"], options),
        started_workflow_id=await _started_workflow(database, found),
        lease=None if lease is None else RunLease(**lease),
        payload_kept=bool(carried.get("is_kept")),
        rerun_of=options.metadata.rerun_of,
        definition=_definition(found["handler"], carried),
        submitted_by=await _submitter(database, found),
        missed=_missed(options, found["attempts"]),
        is_archived=is_archived,
    )


def run_summary(row: Mapping[str, Any], payload_preview: str | None = None) -> RunSummary:
    """Return a run as lists show it."""
    reported = _object(row["detail"])
    stretch = msgspec.convert(reported, SkippedStretch) if "count" in reported else None
    return RunSummary.of(
        row,
        skipped=stretch,
        missed=reported.get("missed"),
        payload_preview=payload_preview or row.get("payload_preview"),
        is_archived=row.get("is_archived", False),
    )


def _missed(options: RunOptions, attempts: Sequence[Mapping[str, Any]]) -> int | None:
    """Return how many occurrences a run stands for: its options say so while it lives, its last attempt afterwards."""
    last = _object(attempts[-1]["detail"]) if attempts else {}
    return options.history.missed or last.get("missed")


def _object(text: str | None) -> dict[str, Any]:
    value = decoded(text)
    return value if isinstance(value, dict) else {}


async def _submitter(database: Database, found: Mapping[str, Any]) -> Submitter | None:
    by = await audit.submitter(database, found["tenant"], found["run_id"], found["job_id"], found["scheduled_at"])
    return None if by is None else Submitter.of(by.actor, action=by.action, at=by.at)


def _started(found: Mapping[str, Any], lease: Mapping[str, Any] | None) -> datetime | None:
    """Return when its attempt began: the one that runs, or else the last one."""
    if found["state"] == "running" and lease is not None:
        began: datetime = max(found["due_at"], lease["claimed_at"])
        return began
    last: datetime | None = _last([row["started_at"] for row in found["attempts"]])
    return last


async def _started_workflow(database: Database, found: Mapping[str, Any]) -> UUID | None:
    if found["handler"] != WORKFLOW:
        return None
    return await workflows.of_run(database, found["tenant"], found["run_id"])


def shown_attempt(row: Mapping[str, Any]) -> Attempt:
    """Return an attempt as responses show it."""
    return Attempt.of(row, result=decoded(row["result"]), detail=decoded(row["detail"]))


def target_shape(handler: str, options: RunOptions, above: Sequence[str] | None = None) -> JobTarget:
    """Show what a job runs, its secrets masked; of a target that this version cannot read, no more than its type."""
    return JobTarget(**shown_target(handler, options, above))


def target_summary(handler: str, options: RunOptions) -> TargetSummary:
    """Show what runs, in short."""
    return TargetSummary(**described_in_short(handler, options))


def _definition(handler: str, carried: Mapping[str, Any]) -> RunDefinition:
    """Show the definition that a run uses or used, its secrets masked."""
    options, version = carried.get("options", NO_OPTIONS), carried.get("generation") or 1
    target = target_shape(handler, options, carried.get("redact_above"))
    return RunDefinition(version=version, target=target, **run_rules_of(options))


def _payload(carried: Mapping[str, Any]) -> Any:
    """Return the payload of a run, redacted, as far as it is kept."""
    text = carried.get("payload")
    return None if text is None else shown_payload(text, carried["options"], carried["redact_above"])


def shown_explanation(found: Explained) -> Explanation:
    """Return an explanation as responses show it."""
    reasons = [Reason.of(one, facts=dict(one.facts)) for one in found.reasons]
    blocker = None if found.blocker is None else Blocker.of(found.blocker)
    return Explanation.of(found, blocker=blocker, reasons=reasons)


def _skew(attempts: Sequence[Mapping[str, Any]]) -> float | None:
    """Return the start delay of the first attempt that started, in milliseconds."""
    for row in attempts:
        if row["started_at"] is not None:
            start_delay: timedelta = row["started_at"] - row["due_at"]
            return round(start_delay.total_seconds() * 1000, 3)
    return None


def _last(values: Sequence[Any]) -> Any:
    return next((value for value in reversed(values) if value is not None), None)


def quoted_value(text: str, carried: Mapping[str, Any]) -> Any:
    """Return a value that a run has stored, redacted as its payload is."""
    value, rules = decoded(text), carried["options"].rules(carried["redact_above"])
    return Redactor(rules, decoded(carried["payload"])).value(value) if rules else value


def decoded(text: str | None) -> Any:
    """Decode a value that is stored as JSON, by any writer."""
    return None if text is None else read_anyhow(text)
