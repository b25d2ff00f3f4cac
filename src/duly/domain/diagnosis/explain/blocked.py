"""Explanations of runs in `blocked`: they wait for a slot, a reservation, their dependencies, or their destination."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from duly.domain.counting import few
from duly.domain.diagnosis.explain.facts import (
    POSITION_MAX,
    Awaited,
    Gate,
    Parents,
    Reason,
    RunFacts,
    Turn,
    position_text,
)
from duly.domain.diagnosis.explain.words import moment_text, rate_text, spoken


def at_gate(run: RunFacts) -> Reason:
    """Explain why a blocked run is not in its queue yet."""
    if run.parents is not None:
        return _for_parents(run.parents)
    if run.destination is not None:
        return _for_destination(run.destination, run.now)
    if run.turn is not None:
        return _for_turn(run.turn)
    if run.gate is None:
        text = f"it {run.reason or 'waits for a slot of its concurrency key'}"
        return Reason("gate_concurrency", text, frees="a free slot of its concurrency key")
    return _in_line(run.gate) if run.gate.is_fifo else _for_place(run, run.gate)


def _for_parents(parents: Parents) -> Reason:
    facts = {"workflow_id": parents.workflow_id, "parents": list(parents.names)}
    if parents.is_paused:
        text = f"its workflow {parents.workflow_id} is paused"
        return Reason("paused", text, facts, frees=f"`duly workflows resume {parents.workflow_id}`")
    told = few(parents.names)
    text = f"it waits for {told or 'its dependencies'} to end"
    return Reason("blocked_parent", text, facts, frees=f"the end of {told or 'its dependencies'}")


def _for_place(run: RunFacts, gate: Gate) -> Reason:
    held = f" by {', '.join(map(str, gate.holders))}" if gate.holders else ""
    return Reason(
        "gate_concurrency",
        f"it waits for a slot of concurrency key {gate.name!r}: {gate.active} of {gate.places} are taken{held};"
        f" {position_text(gate.before)} before it",
        {
            "gate": gate.name,
            "places": gate.places,
            "active": gate.active,
            "holders": list(gate.holders),
            "before": gate.before,
        },
        frees=f"the end of a run that has a slot of {gate.name!r}, or a higher limit for it",
        probable_start_at=_when_inside(run, gate),
    )


def _when_inside(run: RunFacts, gate: Gate) -> datetime | None:
    """Estimate when a slot is free: the runs ahead and itself, by slots, each as long as a run of its queue takes."""
    if run.pace.mean_seconds is None or gate.before >= POSITION_MAX:
        return None
    return run.now + timedelta(seconds=run.pace.mean_seconds * (gate.before + 1) / gate.places)


def _in_line(gate: Gate) -> Reason:
    first = gate.holders[0] if gate.holders else gate.next_run
    who = "the run before it" if first is None else f"run {first}"
    return Reason(
        "gate_fifo",
        f"it waits for a slot of concurrency key {gate.name!r}, which is FIFO, with {position_text(gate.before)} before it;"
        f" {who} goes first",
        {"gate": gate.name, "before": gate.before, "first": first},
        frees=f"the end of {who}: succeeded, or out of attempts",
    )


def _for_turn(turn: Turn) -> Reason:
    when = "" if turn.turn_at is None else f" at {moment_text(turn.turn_at)}"
    return Reason(
        "gate_rate",
        f"it waits for its start{when}: rate limit {turn.key!r} allows {rate_text(turn.per_second)},"
        f" with {position_text(turn.before)} before it",
        msgspec.structs.asdict(turn),
        frees=f"its reserved start, or a higher rate limit for {turn.key!r}",
        probable_start_at=turn.turn_at,
    )


def _for_destination(awaited: Awaited, now: datetime) -> Reason:
    """Explain why a run waits for its destination; waiting uses up no attempt."""
    facts = msgspec.structs.asdict(awaited)
    if awaited.state != "closed" or awaited.tried_at is not None:
        when = "now" if awaited.tried_at is None else f"in {spoken(awaited.tried_at - now)}"
        text = (
            f"the circuit for {awaited.origin} is open: it failed, or asked to wait; next try {when}. No attempt is used up."
            f" `duly destinations close {awaited.origin}` closes the circuit"
        )
        frees = f"a response from {awaited.origin}, or `duly destinations close {awaited.origin}`"
        return Reason("breaker_open", text, facts, frees=frees, probable_start_at=awaited.tried_at or now)
    if awaited.rate is not None or awaited.ramp_rate is not None:
        limits = [rate_text(awaited.rate)] if awaited.rate is not None else []
        limits += ["a slow start after an outage"] if awaited.ramp_rate is not None else []
        text = f"it waits for its start: the rate limit of {awaited.origin} is {' and '.join(limits)}"
        return Reason("gate_rate", text, facts, frees="its start, or `duly destinations limit` with a higher rate")
    text = (
        f"it waits for a slot: {awaited.in_flight} of {awaited.places} requests to {awaited.origin} are in flight;"
        " `duly destinations limit` raises the limit"
    )
    frees = "a response to one of them, or `duly destinations limit` with a higher limit"
    return Reason("gate_concurrency", text, facts, frees=frees)
