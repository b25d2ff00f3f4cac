"""Explanations of runs in `blocked`: they wait for a slot, a reservation, their dependencies, or their destination."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from duly.domain.counting import few
from duly.domain.diagnosis.explain.facts import (
    POSITION_MAX,
    Awaited,
    ConcurrencyKey,
    Parents,
    Reason,
    Reservation,
    RunFacts,
    position_text,
)
from duly.domain.diagnosis.explain.words import moment_text, rate_text, spoken


def at_concurrency_key(run: RunFacts) -> Reason:
    """Explain why a blocked run is not in its queue yet."""
    if run.parents is not None:
        return _for_parents(run.parents)
    if run.destination is not None:
        return _for_destination(run.destination, run.now)
    if run.reservation is not None:
        return _for_reservation(run.reservation)
    if run.concurrency is None:
        text = f"it {run.reason or 'waits for a slot of its concurrency key'}"
        return Reason("concurrency_limit", text, resolved_by="a free slot of its concurrency key")
    return _in_fifo_order(run.concurrency) if run.concurrency.is_fifo else _for_slot(run, run.concurrency)


def _for_parents(parents: Parents) -> Reason:
    facts = {"workflow_id": parents.workflow_id, "parents": list(parents.names)}
    if parents.is_paused:
        text = f"its workflow {parents.workflow_id} is paused"
        return Reason("paused", text, facts, resolved_by=f"`duly workflows resume {parents.workflow_id}`")
    reported = few(parents.names)
    text = f"it waits for {reported or 'its dependencies'} to end"
    return Reason("dependency", text, facts, resolved_by=f"the end of {reported or 'its dependencies'}")


def _for_slot(run: RunFacts, key: ConcurrencyKey) -> Reason:
    holders = f" by {', '.join(map(str, key.holders))}" if key.holders else ""
    return Reason(
        "concurrency_limit",
        f"it waits for a slot of concurrency key {key.name!r}: {key.active} of {key.slots} are taken{holders};"
        f" {position_text(key.before)} before it",
        {
            "concurrency": key.name,
            "slots": key.slots,
            "active": key.active,
            "holders": list(key.holders),
            "before": key.before,
        },
        resolved_by=f"the end of a run that has a slot of {key.name!r}, or a higher limit for it",
        probable_start_at=_when_inside(run, key),
    )


def _when_inside(run: RunFacts, key: ConcurrencyKey) -> datetime | None:
    """Estimate when a slot is free: the runs ahead and itself, by slots, each as long as a run of its queue takes."""
    if run.throughput.mean_seconds is None or key.before >= POSITION_MAX:
        return None
    return run.now + timedelta(seconds=run.throughput.mean_seconds * (key.before + 1) / key.slots)


def _in_fifo_order(key: ConcurrencyKey) -> Reason:
    first = key.holders[0] if key.holders else key.next_run
    next_to_run = "the run before it" if first is None else f"run {first}"
    return Reason(
        "fifo_order",
        f"it waits for a slot of concurrency key {key.name!r}, which is FIFO, with {position_text(key.before)} before it;"
        f" {next_to_run} goes first",
        {"concurrency": key.name, "before": key.before, "first": first},
        resolved_by=f"the end of {next_to_run}: succeeded, or out of attempts",
    )


def _for_reservation(reservation: Reservation) -> Reason:
    when = "" if reservation.reservation_at is None else f" at {moment_text(reservation.reservation_at)}"
    return Reason(
        "rate_limit",
        f"it waits for its start{when}: rate limit {reservation.key!r} allows {rate_text(reservation.per_second)},"
        f" with {position_text(reservation.before)} before it",
        msgspec.structs.asdict(reservation),
        resolved_by=f"its reserved start, or a higher rate limit for {reservation.key!r}",
        probable_start_at=reservation.reservation_at,
    )


def _for_destination(awaited: Awaited, now: datetime) -> Reason:
    """Explain why a run waits for its destination; waiting uses up no attempt."""
    facts = msgspec.structs.asdict(awaited)
    if awaited.state != "closed" or awaited.probe_at is not None:
        when = "now" if awaited.probe_at is None else f"in {spoken(awaited.probe_at - now)}"
        text = (
            f"the circuit for {awaited.origin} is open (failures, its own request, or by hand); next try {when}."
            " No attempt is used up."
            f" `duly destinations close {awaited.origin}` closes the circuit"
        )
        resolved_by = f"a response from {awaited.origin}, or `duly destinations close {awaited.origin}`"
        return Reason("circuit_open", text, facts, resolved_by=resolved_by, probable_start_at=awaited.probe_at or now)
    if awaited.rate is not None or awaited.ramp_rate is not None:
        limits = [rate_text(awaited.rate)] if awaited.rate is not None else []
        limits += ["a slow start after an outage"] if awaited.ramp_rate is not None else []
        text = f"it waits for its start: the rate limit of {awaited.origin} is {' and '.join(limits)}"
        return Reason(
            "rate_limit", text, facts, resolved_by="its start, or `duly destinations limit` with a higher rate"
        )
    text = (
        f"it waits for a slot: {awaited.in_flight} of {awaited.slots} requests to {awaited.origin} are in flight;"
        " `duly destinations limit` raises the limit"
    )
    resolved_by = "a response to one of them, or `duly destinations limit` with a higher limit"
    return Reason("concurrency_limit", text, facts, resolved_by=resolved_by)
