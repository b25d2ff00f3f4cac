"""What waits in each queue, who serves it, and what needs attention."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from duly.cli.holding import told
from duly.cli.output import Row
from duly.domain.counting import some
from duly.domain.limits.overload import Overload, overload_told
from duly.domain.limits.pause import Hold, Scope
from duly.store.boxes import ready
from duly.store.connection.database import Database
from duly.store.reads.pressure import Gauge
from duly.store.tables import overloads, pauses
from duly.store.tables import workers as store

_HOLDS_TOLD_MAX = 3


async def read_queues(database: Database) -> Sequence[Row]:
    """Read every queue that has work or a worker, or is paused by its name."""
    now = await database.read_clock()
    depths = {row["queue"]: row for row in await ready.depth(database)}
    living = [row for row in await store.live(database) if row.until > row.read_at and not row.is_draining]
    unknown = await ready.unknown_handlers(database)
    standing = await pauses.standing(database)
    paused = (hold.scope.queue for hold in standing if hold.scope.queue is not None)
    names = sorted({*depths, *(queue for row in living for queue in row.queues), *paused})
    pressure = await Gauge(database).read()
    overloaded: dict[str, list[Overload]] = {}
    for overload in (await overloads.standing(database)).values():
        overloaded.setdefault(overload.queue, []).append(overload)
    return [
        {
            **_queue(
                name,
                depths.get(name),
                [row for row in living if name in row.queues],
                unknown,
                standing,
                overloaded.get(name, []),
                now,
                handler=pressure.busiest_handler(name),
            ),
            "is_overloaded": name in overloaded,
            "age_limit_seconds": pressure.age_limit_seconds(name),
            "desired_workers": pressure.desired_workers(name),
            "coming": pressure.coming(name),
        }
        for name in names
    ]


def _queue(
    name: str,
    depth: Row | None,
    serving: Sequence[store.WorkerRow],
    unknown: Sequence[Row],
    standing: Sequence[Hold],
    overloaded: Sequence[Overload],
    now: datetime,
    *,
    handler: str | None,
) -> dict[str, Any]:
    touching = [hold for hold in standing if hold.scope.touches(Scope(queue=name))]
    age = (now - depth["oldest_due_at"]).total_seconds() if depth else 0.0
    return {
        "queue": name,
        "ready": depth["runs"] if depth else 0,
        "oldest_age_seconds": max(0.0, age),
        "workers": len(serving),
        "slots": sum(row.slots_for(handler) for row in serving),
        "state": _state(touching, overloaded),
        "paused": touching,
        "attention": _attention(name, serving, [row for row in unknown if row["queue"] == name], touching, overloaded),
    }


def _state(touching: Sequence[Hold], overloaded: Sequence[Overload]) -> str:
    if not touching:
        return "overloaded" if overloaded else "open"
    return "paused" if any(hold.scope.tenant is None for hold in touching) else "paused for some"


def _attention(
    name: str,
    serving: Sequence[store.WorkerRow],
    unknown: Sequence[Row],
    touching: Sequence[Hold],
    overloaded: Sequence[Overload],
) -> str:
    paused = [f"paused: {told(hold)}" for hold in touching[:_HOLDS_TOLD_MAX]]
    more = [f"and {some(len(touching) - len(paused), 'pause')} more"] if len(touching) > len(paused) else []
    if overloaded:
        more.append(_overloaded(overloaded))
    if not serving:
        return "; ".join([*paused, *more, f"nobody serves it: duly worker module:app --queue {name}"])
    unknown_handlers = [f"no live worker knows {row['handler']} ({some(row['runs'], 'run')})" for row in unknown]
    return "; ".join([*paused, *more, *unknown_handlers])


def _overloaded(overloaded: Sequence[Overload]) -> str:
    """Say whose backlog is the oldest, and how many others there are."""
    oldest = max(overloaded, key=lambda one: one.age)
    others = f" and {len(overloaded) - 1} more" if len(overloaded) > 1 else ""
    told = overload_told(oldest.age.total_seconds(), oldest.age_limit.total_seconds())
    return f"tenant {oldest.tenant}{others} {told}"
