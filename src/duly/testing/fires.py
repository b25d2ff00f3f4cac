"""Events of an environment, as a test asserts them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from duly.domain.runs.lifecycle import Bury, Finish, WaitFor, decide
from duly.domain.runs.outcome import Outcome, Succeeded
from duly.domain.runs.run import Run
from duly.worker.handlers import Handler


@dataclass(frozen=True, slots=True)
class Line:
    """A line that a handler logged."""

    level: str
    message: str
    fields: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Fire:
    """One attempt. `outcome` is its own, `state` the run's after it: succeeded, retrying, dead or cancelled.

    `missed` is how many missed occurrences its run makes up for; 0 when it was on time.
    """

    handler: str
    arguments: dict[str, Any]
    run_id: UUID
    job_id: UUID
    attempt: int
    scheduled_at: datetime
    fired_at: datetime
    missed: int
    outcome: str
    state: str
    result: Any
    reason: str | None
    traceback: str | None
    logs: tuple[Line, ...]


def fire_of(
    handler: Handler, run: Run, payload: str | None, fired_at: datetime, outcome: Outcome, logs: list[Line]
) -> Fire:
    """Return the outcome of an attempt."""
    return Fire(
        handler=handler.name,
        arguments=msgspec.json.decode(payload or "{}"),
        run_id=run.run_id,
        job_id=run.job_id,
        attempt=run.attempt,
        scheduled_at=run.scheduled_at,
        fired_at=fired_at,
        missed=run.history.missed,
        outcome=_snake(type(outcome).__name__),
        state=_state_after(run, outcome, fired_at),
        result=handler.decode_result(outcome.result) if isinstance(outcome, Succeeded) else None,
        reason=None if isinstance(outcome, Succeeded) else outcome.reason,
        traceback=_traceback_in(outcome),
        logs=tuple(logs),
    )


def _state_after(run: Run, outcome: Outcome, fired_at: datetime) -> str:
    match decide(run, outcome, 0.0, fired_at):
        case Finish(state):
            return state
        case WaitFor():
            return "retrying"
        case Bury():
            return "dead"


def _traceback_in(outcome: Outcome) -> str | None:
    detail: str | None = getattr(outcome, "detail", None)
    return msgspec.json.decode(detail).get("traceback") if detail else None


def _snake(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
