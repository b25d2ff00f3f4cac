"""Jobs as responses show them: whole, or in a list."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec

from duly.api.views.runs import shown_run, status_of_one_shot, target_shape, target_summary
from duly.domain.errors import NotFound
from duly.domain.jobs.filter import Filter
from duly.domain.jobs.spec_of import rules_of, run_rules_of, shown_payload, waits_of
from duly.domain.runs.options import NO_OPTIONS
from duly.domain.runs.run import FINAL_STATES
from duly.domain.triggers.moments import utc_text
from duly.domain.triggers.schedule.options import requested_shape
from duly.domain.triggers.schedule.preview import fires, fires_left
from duly.domain.triggers.schedule.schedules import Schedule
from duly.domain.triggers.schedule.summary import brief, only_run_id, sentence
from duly.domain.triggers.schedule.timing import schedule_of
from duly.store.connection.database import Database
from duly.store.reads import lists, overview
from duly.store.tables import jobs
from duly.wire.jobs.jobs import Fire, Job, JobSummary, LastRun

FINEST = timedelta(microseconds=1)
NEXT_FIRES = 3
_BEGUN = ("running", "retrying", "succeeded", "dead", "cancelled")
_LOOKS = 50  # Runs looked at for the last one that has begun.


def no_job(job_id: UUID) -> NotFound:
    """Return the error that there is no such job."""
    return NotFound(f"no job {job_id}; GET /v1/jobs lists them")


async def shown_job(database: Database, tenant: int, job_id: UUID) -> Job:
    """Read a job, or the run that is its own job. Raises NotFound."""
    found = await jobs.find(database, job_id)
    if found is not None and found["tenant"] == tenant:
        return await defined_job(database, found)
    return await _shown_one_shot(database, tenant, job_id)


async def _shown_one_shot(database: Database, tenant: int, job_id: UUID) -> Job:
    try:
        run = await shown_run(database, tenant, job_id)
    except NotFound:
        run = None
    if run is None or run.job_id != job_id:
        raise no_job(job_id)
    carried = await overview.arguments(database, job_id)
    options, is_live = carried.get("options", NO_OPTIONS), run.state not in FINAL_STATES
    return Job(
        **{name: getattr(run, name) for name in ("job_id", "queue", "payload", "tags", "depends_on", "run_id")},
        name=None,
        status=status_of_one_shot(run.state),
        target=target_shape(run.handler, options, carried.get("redact_above")),
        priority=5 if run.priority is None else run.priority,
        schedule={"trigger": {"type": "at", "at": run.scheduled_at.isoformat()}},
        on_event=None,
        description=f"Once, at {run.scheduled_at.astimezone(UTC).isoformat()}",
        next_run_at=run.due_at if is_live and run.state != "running" else None,
        next_fires=[],
        **run_rules_of(options),
        version=carried.get("generation") or 1,
        owner="api",
        source=None,
        pause_reason=None,
        last_run=LastRun.of(run, attempts=run.attempt),
        created_at=None,
    )


async def defined_job(database: Database, found: Mapping[str, Any]) -> Job:
    """Return a job with a definition of its own, as responses show it."""
    schedule = await jobs.schedule_of_job(database, found)
    pending, options = found["next_run_at"], found["options"]
    left = fires_left(found, NEXT_FIRES)
    return Job.of(
        found,
        status=found["state"],
        target=target_shape(found["handler"], options, found["redact_above"]),
        payload=shown_payload(found["payload"] or "{}", options, found["redact_above"]),
        **waits_of(requested_schedule(found)),
        description=sentence(schedule),
        next_fires=[] if pending is None else upcoming_fires(schedule, pending - FINEST, left, str(found["job_id"])),
        **rules_of(options),
        depends_on=[],
        version=found["generation"],
        run_id=only_run_id(schedule, found["job_id"], found["pending_at"]),
        last_run=await _last_run(database, found),
        notes=_notes(schedule, found),
    )


def _notes(schedule: Schedule, found: Mapping[str, Any]) -> list[str]:
    """Return how the words of a schedule were parsed, and its warnings."""
    requested = requested_shape(found["schedule"], found["every_seconds"]).get("trigger")
    if requested is None:  # It waits for events.
        return []
    saved = [f"saved as {brief(schedule.trigger.canonical)}"] if requested.get("type") == "text" else []
    return [*saved, *(warning.message for warning in schedule.warnings_after(found["read_at"]))]


def upcoming_fires(schedule: Schedule, after: datetime, n: int, job_id: str) -> list[Fire]:
    """Show the next fires of a schedule from a moment on."""
    return [Fire(**shape) for shape in fires(schedule, after, n, job_id)]


def requested_schedule(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schedule as it was requested; an interval with its anchor, so that it can be put back as it is."""
    shape = requested_shape(row["schedule"], row["every_seconds"])
    trigger, anchor = shape.get("trigger"), row["anchor_at"]
    if trigger is None or anchor is None or trigger.get("anchor") is not None or trigger.get("mode") == "fixed_delay":
        return shape
    return {**shape, "trigger": {**trigger, "anchor": utc_text(int(anchor.timestamp()))}}


async def _last_run(database: Database, found: Mapping[str, Any]) -> LastRun | None:
    chosen = Filter({"job_id": (str(found["job_id"]),), "state": _BEGUN})
    page = await lists.runs(database, found["tenant"], chosen, 1, looks=_LOOKS)
    return next((LastRun.of(row, attempts=row["attempt"]) for row in page.rows), None)


def job_summary(row: Mapping[str, Any]) -> JobSummary:
    """Return a job as lists show it."""
    return JobSummary.of(
        row,
        status=row["state"],
        target=target_summary(row["handler"], row["options"]),
        **waits_of(requested_schedule(row)),
        version=row["generation"],
        description=row.get("description") or _described(row),
        run_id=row.get("run_id"),
    )


def _described(row: Mapping[str, Any]) -> str:
    """Return when a job of a list fires; calendars do not change the words."""
    stored = None if row["schedule"] is None else msgspec.json.decode(row["schedule"])
    if stored is not None and stored.pop("calendars", None) is not None:
        row = {**row, "schedule": msgspec.json.encode(stored).decode()}
    return sentence(schedule_of(row["schedule"], row["every_seconds"], row["anchor_at"], {}))
