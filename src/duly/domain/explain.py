"""Why a run or a job is where it is: from what is known of it, codes for programs and sentences for people.

Nothing is read here. Each reason has a stable code, a sentence with its numbers, and the same numbers as facts. What stands in
the way comes with the command that would clear it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec

from duly.domain.hold import Hold, Scope
from duly.domain.run import QUEUE_DEFAULT
from duly.domain.target import is_reserved
from duly.domain.target_words import what_lets_it_run

POSITION_MAX = 10_000  # What waits before a run is counted up to this.
_LATE_LEAST = timedelta(seconds=1)

_SKIPPED = {
    "skipped_misfire": "it was noticed too late, and its misfire policy lets such occurrences go",
    "skipped_overlap": "the run before it had not ended, and its overlap policy lets such occurrences go",
    "skipped_paused": "its schedule was paused",
    "skipped_calendar": "a calendar excludes it",
    "skipped_edit": "its schedule was changed before it was due",
    "skipped_limit": "more were missed than its misfire policy makes up for",
    "skipped_on_request": "somebody asked for it to be skipped",
    "skipped_over": "its schedule was over when it was to be told of another run's end",
    "skipped_too_large": "its payload left no room for the outcome of another run, of which it was to be told",
    "skipped_duplicate": "the same occurrence was under way already",
}


class Reason(msgspec.Struct, frozen=True):
    """One thing that is so: a code, a sentence, and its numbers."""

    code: str
    text: str
    facts: dict[str, Any] = {}


class Serving(msgspec.Struct, frozen=True):
    """A live worker, as far as it matters here; to whom it is not to be named, it has no name, nor have its handlers."""

    name: str | None
    queues: Sequence[str]
    handlers: Sequence[str]
    slots: int


class Gate(msgspec.Struct, frozen=True):
    """What a run waits at: how many may be inside, how many are, and some of those."""

    name: str
    places: int
    active: int
    holders: Sequence[UUID] = ()


class Awaited(msgspec.Struct, frozen=True, kw_only=True):
    """The destination that a run waits for: how it is, when it is tried, and what it may be sent."""

    origin: str
    state: str
    tried_at: datetime | None = None
    places: int = 1
    in_flight: int = 0
    rate: float | None = None
    ramp_rate: float | None = None


class RunFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a run at a moment."""

    now: datetime
    state: str
    queue: str
    handler: str
    attempt: int
    max_attempts: int | None = None  # unknown where it is left to the handler
    scheduled_at: datetime
    due_at: datetime
    reason: str | None = None
    worker: str | None = None
    worker_is_live: bool = True
    claimed_at: datetime | None = None
    deadline_at: datetime | None = None  # by when its receiver, which has taken it on, has to say what it came to
    started_at: datetime | None = None
    finished_at: datetime | None = None
    last_error: str | None = None
    replays: int = 0
    before: int = 0  # how many of its tenant's in its queue come first, up to POSITION_MAX
    gate: Gate | None = None
    destination: Awaited | None = None
    holds: Sequence[Hold] = ()  # those that cover it
    workers: Sequence[Serving] = ()
    schedulers: int = 1


class JobFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a recurring job at a moment."""

    now: datetime
    state: str
    queue: str
    handler: str
    pause_reason: str | None = None
    paused_at: datetime | None = None
    removed_at: datetime | None = None
    source: str | None = None
    next_run_at: datetime | None = None
    failures: int = 0
    last: Sequence[Mapping[str, Any]] = ()  # its last runs, the newest first
    holds: Sequence[Hold] = ()  # those that cover its runs
    workers: Sequence[Serving] = ()
    schedulers: int = 1


def explain_run(run: RunFacts) -> list[Reason]:
    """Say why a run is where it is, what matters most first."""
    match run.state:
        case "scheduled":
            return [_waits_until_due(run), *_held(run.holds), *_nobody_stages(run.schedulers)]
        case "retrying":
            return [_retries(run), *_last_error(run), *_held(run.holds), *_in_the_way(run)]
        case "blocked":
            waits = _at_gate(run) if run.destination is None else _for_destination(run.destination, run.now)
            return [waits, *_held(run.holds), *_no_worker(run.queue, run.handler, run.workers)]
        case "ready" if run.worker is not None:
            return [_held_ahead(run), *_held(run.holds)]
        case "ready":
            return [*_held(run.holds), _in_queue(run), *_in_the_way(run)]
        case "running":
            return [*_running(run), *_late(run)]
        case "dead":
            return [_dead(run), *_last_error(run)]
    return [_ended(run), *_late(run)]


def explain_job(job: JobFacts) -> list[Reason]:
    """Say how a job stands, what matters most first."""
    standing = {"active": _next_fire, "paused": _paused}.get(job.state, _over)(job)
    return [
        *standing,
        *(_held(job.holds) if job.state in ("active", "paused") else []),
        *_removed(job),
        *_failing(job),
        *_last_run(job),
        *(_nobody_stages(job.schedulers) if job.state == "active" else []),
        *(_no_worker(job.queue, job.handler, job.workers) if job.state in ("active", "paused") else []),
    ]


def spoken(span: timedelta) -> str:
    """Write a span in the unit that says most."""
    seconds = abs(span.total_seconds())
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"


def _waits_until_due(run: RunFacts) -> Reason:
    left = run.due_at - run.now
    if left <= timedelta():
        return Reason("DUE", f"it has been due for {spoken(left)} and is about to be staged", {"due_at": run.due_at})
    return Reason(
        "WAITS_UNTIL_DUE",
        f"it waits for its moment, {_moment(run.due_at)}, in {spoken(left)}",
        {"due_at": run.due_at, "seconds": left.total_seconds()},
    )


def _retries(run: RunFacts) -> Reason:
    left = run.due_at - run.now
    when = f"at {_moment(run.due_at)}, in {spoken(left)}" if left > timedelta() else "as soon as a worker takes it"
    return Reason(
        "RETRYING",
        f"{_attempt(run)} failed; the next one starts {when}",
        {"attempt": run.attempt, "max_attempts": run.max_attempts, "due_at": run.due_at},
    )


def _at_gate(run: RunFacts) -> Reason:
    gate = run.gate
    if gate is None:
        return Reason("WAITS_AT_GATE", f"it waits at {run.reason or 'a gate'}")
    held = f"; inside: {', '.join(map(str, gate.holders))}" if gate.holders else ""
    return Reason(
        "WAITS_AT_GATE",
        f"it waits for a place at gate {gate.name!r}: {gate.active} of {gate.places} are taken{held}",
        {"gate": gate.name, "places": gate.places, "active": gate.active, "holders": list(gate.holders)},
    )


def _for_destination(awaited: Awaited, now: datetime) -> Reason:
    """Say what keeps a run from its destination; no attempt of it is used up by that."""
    facts = msgspec.structs.asdict(awaited)
    if awaited.state != "closed" or awaited.tried_at is not None:
        when = "now" if awaited.tried_at is None else f"in {spoken(awaited.tried_at - now)}"
        text = (
            f"{awaited.origin} has failed or asked to be left alone, so nothing is sent to it; it is tried next {when}."
            f" No attempt is used up. `duly destinations close {awaited.origin}` ends the wait"
        )
        return Reason("BREAKER_OPEN", text, facts)
    if awaited.rate is not None or awaited.ramp_rate is not None:
        limits = [f"{awaited.rate:g} a second"] if awaited.rate is not None else []
        limits += ["a slow start after an outage"] if awaited.ramp_rate is not None else []
        text = f"it waits for its turn: {awaited.origin} is sent requests at {' and '.join(limits)}"
        return Reason("GATE_RATE", text, facts)
    text = (
        f"it waits for a place: {awaited.in_flight} of {awaited.places} requests to {awaited.origin} are under way;"
        " `duly destinations limit` gives it more"
    )
    return Reason("GATE_CONCURRENCY", text, facts)


def _held_ahead(run: RunFacts) -> Reason:
    left = run.due_at - run.now
    return Reason(
        "HELD_AHEAD",
        f"worker {run.worker} holds it and starts it when it is due, in {spoken(left)}",
        {"worker": run.worker, "due_at": run.due_at},
    )


def _in_queue(run: RunFacts) -> Reason:
    waited = run.now - run.due_at
    count = f"{POSITION_MAX} or more" if run.before >= POSITION_MAX else str(run.before)
    when = f"it has been due for {spoken(waited)}" if waited > timedelta() else f"it is due in {spoken(waited)}"
    return Reason(
        "WAITS_IN_QUEUE",
        f"it waits in queue {run.queue}, with {count} before it; {when}",
        {"queue": run.queue, "before": run.before, "waited_seconds": waited.total_seconds()},
    )


def _in_the_way(run: RunFacts) -> list[Reason]:
    missing = _no_worker(run.queue, run.handler, run.workers)
    if missing or run.holds or run.due_at > run.now:
        return missing
    able = [one for one in run.workers if run.queue in one.queues and run.handler in one.handlers]
    slots = sum(one.slots for one in able)
    return [
        Reason(
            "WORKERS_BUSY",
            f"{len(able)} live workers with {slots} slots serve queue {run.queue} and know {run.handler};"
            " what comes first keeps them busy: start more to shorten the wait",
            {"workers": len(able), "slots": slots},
        )
    ]


def _no_worker(queue: str, handler: str, workers: Sequence[Serving]) -> list[Reason]:
    serving = [one for one in workers if queue in one.queues]
    flag = "" if queue == QUEUE_DEFAULT else f" --queue {queue}"
    if not serving:
        app = "" if is_reserved(handler) else " module:app"
        text = f"no worker serves queue {queue}; this starts one: duly worker{app}{flag}"
        return [Reason("NO_WORKER_FOR_QUEUE", text, {"queue": queue})]
    if not any(handler in one.handlers for one in serving):
        known = sorted({name for one in serving if one.name is not None for name in one.handlers})[:10]
        others = f" (known: {', '.join(known)})" if known else ""
        what = f"offers {handler}" if is_reserved(handler) else f"knows handler {handler!r}{others}"
        text = f"no live worker of queue {queue} {what}; {what_lets_it_run(handler, queue)}"
        return [Reason("NO_WORKER_KNOWS_HANDLER", text, {"queue": queue, "handler": handler, "known": known})]
    return []


def _held(holds: Sequence[Hold]) -> list[Reason]:
    return [
        Reason(
            "HELD",
            f"{hold.scope} is paused since {_moment(hold.held_at)}: {hold.reason}; {_lifting(hold.scope)} lets it go on",
            {"queue": hold.scope.queue, "tenant": hold.scope.tenant, "held_at": hold.held_at, "reason": hold.reason},
        )
        for hold in holds
    ]


def _lifting(scope: Scope) -> str:
    queue = "" if scope.queue is None else f" --queue {scope.queue}"
    tenant = "" if scope.tenant is None else f" --tenant {scope.tenant}"
    return f"`duly resume{queue}{tenant or ('' if queue else ' --all')}`"


def _nobody_stages(schedulers: int) -> list[Reason]:
    if schedulers:
        return []
    return [Reason("NO_SCHEDULER", "no scheduler is alive, so nothing falls due; this starts one: duly scheduler")]


def _running(run: RunFacts) -> list[Reason]:
    since = run.claimed_at or run.due_at
    if run.deadline_at is not None:
        return [_awaits_receiver(run, since, run.deadline_at)]
    facts = {"worker": run.worker, "since": since, "attempt": run.attempt}
    running = Reason(
        "RUNNING",
        f"{_attempt(run)} is with worker {run.worker} since {_moment(since)}, for {spoken(run.now - since)}",
        facts,
    )
    if run.worker_is_live:
        return [running]
    silent = f"worker {run.worker} is silent; when its lease has ended, another worker gets the run"
    return [running, Reason("WORKER_SILENT", silent, {"worker": run.worker})]


def _awaits_receiver(run: RunFacts, since: datetime, deadline_at: datetime) -> Reason:
    left = deadline_at - run.now
    until = f"until {_moment(deadline_at)}, in {spoken(left)}" if left > timedelta() else "which it had until now"
    text = (
        f"{_attempt(run)} is with its receiver since {_moment(since)}, which answered 202 and has yet to say what it came to,"
        f" {until}; then the attempt has timed out"
    )
    return Reason("AWAITS_RECEIVER", text, {"since": since, "deadline_at": deadline_at, "attempt": run.attempt})


def _late(run: RunFacts) -> list[Reason]:
    """Say by how much it started late, and where that time went, as far as it can be known."""
    began = run.started_at or run.claimed_at
    if began is None or began - run.due_at < _LATE_LEAST:
        return []
    late = began - run.due_at
    waited = run.claimed_at is not None and run.claimed_at > run.due_at
    where = (
        f"it waited in queue {run.queue} for a free worker"
        if waited or run.claimed_at is None
        else "its worker was busy"
    )
    return [
        Reason("LATE", f"it started {spoken(late)} after it was due: {where}", {"late_seconds": late.total_seconds()})
    ]


def _dead(run: RunFacts) -> Reason:
    again = f", after {run.replays} replays" if run.replays else ""
    return Reason(
        "DEAD",
        f"it gave up after {run.attempt} attempts{again}: {run.reason};"
        " give it another life with `duly dead replay`, or give it up with `duly dead discard`",
        {"attempts": run.attempt, "reason": run.reason, "replays": run.replays},
    )


def _last_error(run: RunFacts) -> list[Reason]:
    if not run.last_error:
        return []
    return [Reason("LAST_ERROR", f"its last attempt said: {run.last_error}", {"error": run.last_error})]


def _ended(run: RunFacts) -> Reason:
    facts = {"finished_at": run.finished_at, "reason": run.reason}
    at = f" at {_moment(run.finished_at)}" if run.finished_at else ""
    if run.state == "skipped":
        why = _SKIPPED.get(run.reason or "", run.reason or "its schedule let it go")
        return Reason((run.reason or "skipped").upper(), f"it was not run: {why}", facts)
    if run.state == "succeeded":
        took = f" in {spoken(run.finished_at - run.started_at)}" if run.finished_at and run.started_at else ""
        return Reason("SUCCEEDED", f"attempt {run.attempt} succeeded{took}{at}", facts | {"attempt": run.attempt})
    why = f": {run.reason}" if run.reason and run.reason != run.state else ""
    return Reason(run.state.upper(), f"it was {run.state}{at}{why}", facts)


def _next_fire(job: JobFacts) -> list[Reason]:
    if job.next_run_at is None:
        return [Reason("WAITS_FOR_END", "it fires again after the run that is under way has ended")]
    left = job.next_run_at - job.now
    when = f"in {spoken(left)}" if left > timedelta() else f"which is {spoken(left)} ago"
    return [
        Reason(
            "NEXT_FIRE",
            f"it fires next at {_moment(job.next_run_at)}, {when}",
            {"next_run_at": job.next_run_at, "seconds": left.total_seconds()},
        )
    ]


def _paused(job: JobFacts) -> list[Reason]:
    since = f" since {_moment(job.paused_at)}" if job.paused_at else ""
    why = f": {job.pause_reason}" if job.pause_reason else ""
    text = f"it is paused{since}{why}; `duly jobs resume` lets it go on"
    return [Reason("PAUSED", text, {"paused_at": job.paused_at, "reason": job.pause_reason})]


def _over(job: JobFacts) -> list[Reason]:
    return [Reason(job.state.upper(), f"it is {job.state}, and fires no more")]


def _removed(job: JobFacts) -> list[Reason]:
    if job.removed_at is None:
        return []
    text = f"no worker declares it since {_moment(job.removed_at)}: declare it again in {job.source}, or cancel it"
    return [Reason("REMOVED_FROM_CODE", text, {"removed_at": job.removed_at, "source": job.source})]


def _failing(job: JobFacts) -> list[Reason]:
    """Count the runs in a row that gave up, from the newest that has come to an end."""
    ended = [run for run in job.last if run["state"] in ("succeeded", "dead")]
    streak = next((number for number, run in enumerate(ended) if run["state"] != "dead"), len(ended))
    streak = max(streak, job.failures)
    if not streak:
        return []
    runs = "its last run" if streak == 1 else f"its last {streak} runs"
    return [Reason("FAILING", f"{runs} gave up; `duly dead list` shows why", {"streak": streak})]


def _last_run(job: JobFacts) -> list[Reason]:
    begun = [run for run in job.last if run["state"] not in ("scheduled", "skipped")]
    if not begun:
        return [Reason("NO_RUN_YET", "it has not run yet, as far as history is kept")]
    last = begun[0]
    return [
        Reason(
            "LAST_RUN",
            f"its last run, {last['run_id']}, for {_moment(last['scheduled_at'])}, is {last['state']}",
            {"run_id": last["run_id"], "state": last["state"], "scheduled_at": last["scheduled_at"]},
        )
    ]


def _attempt(run: RunFacts) -> str:
    return f"attempt {run.attempt}" if run.max_attempts is None else f"attempt {run.attempt} of {run.max_attempts}"


def _moment(value: datetime) -> str:
    return f"{value:%Y-%m-%d %H:%M:%S}Z"
