"""A queue for people: its state, what needs attention, and how to end a pause."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

import msgspec

from duly.cli.render.output import moment
from duly.domain.counting import some
from duly.domain.limits.overload import described_overload
from duly.domain.limits.pause import EVERYTHING, Scope
from duly.wire.queues import Pause, Queue, QueueOverload

_PAUSES_SHOWN_MAX = 3


def queue_row(found: Queue) -> dict[str, Any]:
    """Return a queue for programs."""
    row = msgspec.structs.asdict(found)
    shown = {"queue": row.pop("name"), "paused": row.pop("pauses"), "state": queue_state(found)}
    return {**row, **shown, "attention": "; ".join(attention(found))}


def queue_state(found: Queue) -> str:
    """Return whether a queue goes on."""
    if not found.pauses:
        return "overloaded" if found.is_overloaded else "open"
    return "paused" if any(pause.tenant is None for pause in found.pauses) else "paused for some"


def attention(found: Queue) -> list[str]:
    """Describe what needs attention in a queue."""
    pauses = found.pauses
    paused = [f"paused: {pause_text(pause)}" for pause in pauses[:_PAUSES_SHOWN_MAX]]
    more = [f"and {some(len(pauses) - len(paused), 'pause')} more"] if len(pauses) > len(paused) else []
    overloaded = [_overloaded(found.overloads)] if found.overloads else []
    unserved = [f"no worker serves it: duly worker module:app --queue {found.name}"]
    unknown = [f"no live worker has handler {one.handler} ({some(one.runs, 'run')})" for one in found.unroutable]
    return [*paused, *more, *overloaded, *(unknown if found.workers else unserved)]


def _overloaded(overloads: Sequence[QueueOverload]) -> str:
    """Describe the oldest backlog, and how many others there are."""
    oldest = max(overloads, key=lambda one: one.age_seconds)
    others = f" and {len(overloads) - 1} more" if len(overloads) > 1 else ""
    return f"tenant {oldest.tenant}{others} {described_overload(oldest.age_seconds, oldest.age_limit_seconds)}"


def pause_text(pause: Pause) -> str:
    """Describe a pause: its scope, since when, by whom, why, and how to end it."""
    scope, since = Scope(pause.tenant, pause.queue), f"since {moment(pause.paused_at)} by {pause.paused_by}"
    return f"{scope}, {since} ({pause.reason}): {resume_line(scope)}"


def resume_line(scope: Scope) -> str:
    """Return the command that ends a pause of this scope."""
    if scope == EVERYTHING:
        return "duly resume --all"
    queue = [] if scope.queue is None else ["--queue", scope.queue]
    tenant = [] if scope.tenant is None else ["--tenant", str(scope.tenant)]
    return shlex.join(["duly", "resume", *queue, *tenant])
