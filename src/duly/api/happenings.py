"""What happens to runs and jobs, as CloudEvents: types, ids, and the lines in which they are sent."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec

from duly.store.job_changes import Change
from duly.store.stream import Ended, Started
from duly.store.workflow_changes import WorkflowChange
from duly.store.workflow_ends import WorkflowEnd

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


class Happening(msgspec.Struct, frozen=True):
    """One thing that happened, as it is sent; `at` is when."""

    tenant: int
    queue: str
    type: str
    at: datetime
    data: bytes

    def lines(self, place: str) -> bytes:
        """Write it as an event of a stream, with its place in it."""
        return b"id: %b\nevent: %b\ndata: %b\n\n" % (place.encode(), self.type.encode(), self.data)


def began(run: Started) -> Happening:
    """Tell that a run has started."""
    return _happening(run, _STARTED, run.started_at, msgspec.to_builtins(run))


def started_of(ended: Ended) -> Started:
    """Give the start of an attempt that has ended before anybody saw it start."""
    assert ended.fence is not None
    assert ended.started_at is not None
    values = {name: getattr(ended, name) for name in Started.__struct_fields__}
    return Started(**values)


def came_to(ended: Ended) -> Iterator[Happening]:
    """Tell what an attempt came to; nothing of an outcome that did not count, or of a run that was put off."""
    kind = _FINAL.get(ended.became) or ("duly.run.failed.v1" if ended.outcome in _FAILED else None)
    if kind is not None and ended.outcome != "fenced":
        yield _happening(ended, kind, ended.finished_at, msgspec.to_builtins(ended))


def changed(change: Change) -> Happening:
    """Tell that a job was made, edited, paused, resumed, completed or cancelled."""
    data = msgspec.to_builtins(change)
    del data["tenant"], data["number"]
    event = {
        "specversion": "1.0",
        "id": f"{change.job_id}/{change.version}/{change.change}/{change.number}",
        "source": JOBS,
        "type": _CHANGED,
        "subject": str(change.job_id),
        "time": _text(change.changed_at),
        "datacontenttype": "application/json",
        "data": data,
    }
    return Happening(change.tenant, change.queue, _CHANGED, change.changed_at, msgspec.json.encode(event))


def workflow_changed(change: WorkflowChange) -> Happening:
    """Tell that a workflow was paused, resumed, replayed, or is being cancelled."""
    data = msgspec.to_builtins(change)
    del data["tenant"], data["number"]
    event = {
        "specversion": "1.0",
        "id": f"{change.workflow_id}/{change.replays}/{change.change}/{change.number}",
        "source": WORKFLOWS,
        "type": _WORKFLOW_CHANGED,
        "subject": str(change.workflow_id),
        "time": _text(change.changed_at),
        "datacontenttype": "application/json",
        "data": data,
    }
    return Happening(change.tenant, "", _WORKFLOW_CHANGED, change.changed_at, msgspec.json.encode(event))


def workflow_ended(end: WorkflowEnd) -> Happening:
    """Tell what a workflow came to. It is of no queue: its nodes may be of several."""
    data = msgspec.to_builtins(end)
    del data["tenant"]
    event = {
        "specversion": "1.0",
        "id": f"{end.workflow_id}/{end.replays}/{end.state}",
        "source": WORKFLOWS,
        "type": _WORKFLOW_ENDED,
        "subject": str(end.workflow_id),
        "time": _text(end.ended_at),
        "datacontenttype": "application/json",
        "data": data,
    }
    return Happening(end.tenant, "", _WORKFLOW_ENDED, end.ended_at, msgspec.json.encode(event))


def gap(at: datetime, reason: str) -> Happening:
    """Tell a listener that it has missed something: it has to look for itself what there is."""
    event = {
        "specversion": "1.0",
        "id": f"gap/{at.timestamp():.6f}",
        "source": "/v1/events",
        "type": GAP,
        "time": _text(at),
        "data": {"reason": reason},
    }
    return Happening(0, "", GAP, at, msgspec.json.encode(event))


def _happening(run: Started | Ended, kind: str, at: datetime, data: dict[str, Any]) -> Happening:
    del data["tenant"]
    event = {
        "specversion": "1.0",
        # Of one thing always the same, so that whoever hears it twice can tell.
        "id": f"{run.run_id}/{run.attempt}/{run.fence or 0}/{kind}",
        "source": SOURCE,
        "type": kind,
        "subject": str(run.run_id),
        "time": _text(at),
        "datacontenttype": "application/json",
        "data": data,
    }
    return Happening(run.tenant, run.queue, kind, at, msgspec.json.encode(event))


def _text(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")
