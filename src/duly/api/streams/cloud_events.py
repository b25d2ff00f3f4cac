"""CloudEvents of runs, jobs and workflows: types, ids, and the lines in which they are sent."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from uuid import UUID

import msgspec

from duly.store.reads.changes import JobChange, WorkflowChange
from duly.store.reads.stream import Ended, Started
from duly.store.reads.workflow_ends import WorkflowEnd

SOURCE, JOBS, WORKFLOWS = "/v1/runs", "/v1/jobs", "/v1/workflows"
GAP = "duly.stream.gap.v1"
_FINAL = {
    "succeeded": "duly.run.succeeded.v1",
    "dead": "duly.run.dead.v1",
    "cancelled": "duly.run.cancelled.v1",
    "expired": "duly.run.expired.v1",
    "skipped": "duly.run.skipped.v1",
}
_FAILED = frozenset({"failed", "timed_out", "lost"})
_STARTED = "duly.run.started.v1"
_CHANGED = "duly.job.changed.v1"
_WORKFLOW_CHANGED = "duly.workflow.changed.v1"
_WORKFLOW_ENDED = "duly.workflow.ended.v1"


class CloudEvent(msgspec.Struct, frozen=True):
    """One event as it is sent; `at` is its moment."""

    tenant: int
    queue: str
    type: str
    at: datetime
    data: bytes

    def lines(self, event_id: str) -> bytes:
        """Write it as a server-sent event with this id."""
        return b"id: %b\nevent: %b\ndata: %b\n\n" % (event_id.encode(), self.type.encode(), self.data)


def began(run: Started) -> CloudEvent:
    """Return the event that a run has started."""
    return _of_run(run, _STARTED, run.started_at)


def started_of(ended: Ended) -> Started:
    """Return the start of an attempt that has ended before its start was published."""
    assert ended.fence is not None
    assert ended.started_at is not None
    values = {name: getattr(ended, name) for name in Started.__struct_fields__}
    return Started(**values)


def came_to(ended: Ended) -> Iterator[CloudEvent]:
    """Yield the event of an attempt that ended; none for an outcome that did not count, or a run that was put off."""
    kind = _FINAL.get(ended.became) or ("duly.run.failed.v1" if ended.outcome in _FAILED else None)
    if kind is not None and ended.outcome != "fenced":
        yield _of_run(ended, kind, ended.finished_at)


def changed(change: JobChange) -> CloudEvent:
    """Return the event that a job was created, edited, paused, resumed, completed or cancelled."""
    name = f"{change.job_id}/{change.version}/{change.change}/{change.number}"
    return _event(change, _CHANGED, change.changed_at, JOBS, change.job_id, name, change.queue)


def workflow_changed(change: WorkflowChange) -> CloudEvent:
    """Return the event that a workflow was paused, resumed, replayed, or is being cancelled."""
    name = f"{change.workflow_id}/{change.replays}/{change.change}/{change.number}"
    return _event(change, _WORKFLOW_CHANGED, change.changed_at, WORKFLOWS, change.workflow_id, name)


def workflow_ended(end: WorkflowEnd) -> CloudEvent:
    """Return the event that a workflow ended. It is of no queue: its nodes may be of several."""
    name = f"{end.workflow_id}/{end.replays}/{end.state}"
    return _event(end, _WORKFLOW_ENDED, end.ended_at, WORKFLOWS, end.workflow_id, name)


def gap(at: datetime, reason: str) -> CloudEvent:
    """Return the event that a listener has missed others, and must read the state anew."""
    event = {
        "specversion": "1.0",
        "id": f"gap/{at.timestamp():.6f}",
        "source": "/v1/events",
        "type": GAP,
        "time": _text(at),
        "data": {"reason": reason},
    }
    return CloudEvent(0, "", GAP, at, msgspec.json.encode(event))


def _of_run(run: Started | Ended, kind: str, at: datetime) -> CloudEvent:
    name = f"{run.run_id}/{run.attempt}/{run.fence or 0}/{kind}"
    return _event(run, kind, at, SOURCE, run.run_id, name, run.queue)


def _event(
    row: Started | Ended | JobChange | WorkflowChange | WorkflowEnd,
    kind: str,
    at: datetime,
    source: str,
    subject: UUID,
    name: str,
    queue: str = "",
) -> CloudEvent:
    """Build an event. Its id is always the same, so that a repeat can be recognized."""
    data = msgspec.to_builtins(row)
    for left_out in ("tenant", "number"):
        data.pop(left_out, None)
    event = {
        "specversion": "1.0",
        "id": name,
        "source": source,
        "type": kind,
        "subject": str(subject),
        "time": _text(at),
        "datacontenttype": "application/json",
        "data": data,
    }
    return CloudEvent(row.tenant, queue, kind, at, msgspec.json.encode(event))


def _text(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")
