"""Conditions that need a person, the worst first: each with a sentence, and a code and an id that lead there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from duly.domain.limits.pause import Pause
from duly.domain.targets.words import unroutable_remedy
from duly.store.reads.figures import COUNTED_MAX, Buried, Waiting
from duly.store.tables.workers import WorkerRow
from duly.wire.figures import Attention, QueueDepth

OLD_SECONDS = 60.0
UNKNOWN_MAX = 10  # handlers that no live worker has


def needing_attention(
    queues: Sequence[QueueDepth],
    standing: Sequence[Pause],
    buried: Buried,
    open_circuits: Sequence[Mapping[str, Any]],
    failing: Sequence[Mapping[str, Any]],
    unknown: Sequence[Waiting] = (),
) -> list[Attention]:
    """List what needs a person, from the facts read; `unknown` are the unroutable runs."""
    found = [
        *_pauses(standing),
        *_queues(queues),
        *_unknown(unknown),
        *_dead(buried),
        *_destinations(open_circuits),
        *_schedules(failing),
    ]
    return sorted(found, key=lambda one: one.severity != "bad")


def _pauses(standing: Sequence[Pause]) -> Iterator[Attention]:
    for one in standing:
        if one.scope.queue is None:
            yield Attention(
                code="everything_paused", severity="bad", text=f"Nothing starts: {one.reason} ({one.paused_by})."
            )
        else:
            text = f"Queue {one.scope.queue} is paused: {one.reason} ({one.paused_by})."
            yield Attention(code="queue_paused", severity="warning", text=text, id=one.scope.queue)


def _queues(queues: Sequence[QueueDepth]) -> Iterator[Attention]:
    for one in queues:
        if not one.ready or one.is_paused:
            continue
        if not one.workers:
            text = f"No worker serves queue {one.name}, and {_runs(one.ready)} there: duly worker --queue {one.name}"
            yield Attention(code="no_worker", severity="bad", text=text, id=one.name, count=one.ready)
        elif one.oldest_age_seconds >= OLD_SECONDS:
            text = f"The oldest run of queue {one.name} has waited {one.oldest_age_seconds:.0f} s; {_runs(one.ready)}."
            yield Attention(code="queue_old", severity="warning", text=text, id=one.name, count=one.ready)


def unknown_of(waiting: Sequence[Waiting], living: Sequence[WorkerRow], now: datetime) -> list[Waiting]:
    """Return due runs of a served queue whose handler none of its workers has, the most first."""
    known: dict[str, set[str]] = {}
    for row in living:
        for queue in row.queues:
            known.setdefault(queue, set()).update(row.handlers)
    found = [
        one
        for one in waiting
        if one.queue in known and one.handler not in known[one.queue] and one.oldest_due_at <= now
    ]
    return sorted(found, key=lambda one: -one.runs)[:UNKNOWN_MAX]


def _unknown(unknown: Sequence[Waiting]) -> Iterator[Attention]:
    for one in unknown:
        remedy = unroutable_remedy(one.handler, one.queue)
        text = f"No live worker of queue {one.queue} has handler {one.handler}, and {_runs(one.runs)} for it: {remedy}."
        yield Attention(code="unroutable", severity="bad", text=text, id=one.handler, count=one.runs)


def _runs(count: int) -> str:
    return "1 run waits" if count == 1 else f"{count:,} runs wait"


def _dead(buried: Buried) -> Iterator[Attention]:
    more = "more than " if buried.runs > COUNTED_MAX else ""
    if buried.lately:
        lately = f"{min(buried.lately, COUNTED_MAX):,} {'run' if buried.lately == 1 else 'runs'}"
        text = f"{more}{lately} failed within the last hour; last error: {(buried.reason or 'nothing')[:200]}"
        yield Attention(code="dead_recently", severity="bad", text=text[:1].upper() + text[1:], count=buried.lately)
    elif buried.runs:
        some = f"{min(buried.runs, COUNTED_MAX):,} dead {'letter' if buried.runs == 1 else 'letters'}"
        text = f"{more}{some}, none from the last hour: replay or discard them."
        yield Attention(code="dead", severity="warning", text=text[:1].upper() + text[1:], count=buried.runs)


def _destinations(open_circuits: Sequence[Mapping[str, Any]]) -> Iterator[Attention]:
    for one in open_circuits:
        text = f"{one['origin']}: the circuit is open, and deliveries wait."
        yield Attention(code="destination_open", severity="warning", text=text, id=str(one["destination_id"]))


def _schedules(failing: Sequence[Mapping[str, Any]]) -> Iterator[Attention]:
    for one in failing:
        text = f"Schedule {one['name'] or one['job_id']} was paused: {one['pause_reason']}."
        yield Attention(code="failing_schedule", severity="warning", text=text, id=str(one["job_id"]))
