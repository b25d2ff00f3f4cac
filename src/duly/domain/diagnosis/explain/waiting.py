"""Explanations of runs in `timers`, `ready` or a wheel: they wait for a moment, a retry, a pause, a worker, or their
queue.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from duly.domain.counting import some
from duly.domain.diagnosis.explain.facts import POSITION_MAX, Reason, RunFacts, Serving, position_text
from duly.domain.diagnosis.explain.words import moment_text, spoken
from duly.domain.limits.pause import Pause, Scope
from duly.domain.runs.run import QUEUE_DEFAULT
from duly.domain.targets.target import is_reserved
from duly.domain.targets.words import unroutable_remedy


def until_due(run: RunFacts) -> list[Reason]:
    """Report when a run in `timers` is due, or that it is about to be staged."""
    left = run.due_at - run.now
    if left > timedelta():
        return [not_due(run.due_at, left), *nobody_stages(run.schedulers)]
    text = f"it has been due for {spoken(left)} and is about to be staged"
    return [*nobody_stages(run.schedulers), Reason("due", text, {"due_at": run.due_at})]


def not_due(due_at: datetime, left: timedelta) -> Reason:
    """Report that something is not due yet."""
    return Reason(
        "not_due",
        f"it is due at {moment_text(due_at)}, in {spoken(left)}",
        {"due_at": due_at, "seconds": left.total_seconds()},
        resolved_by="its due time",
        probable_start_at=due_at,
    )


def backing_off(run: RunFacts) -> list[Reason]:
    """Report when the next attempt is due, while it is not."""
    left = run.due_at - run.now
    if left <= timedelta():
        return []
    return [
        Reason(
            "retry_backoff",
            f"{attempt_text(run)} failed; the next one starts at {moment_text(run.due_at)}, in {spoken(left)}",
            {"attempt": run.attempt, "max_attempts": run.max_attempts, "due_at": run.due_at},
            resolved_by="the end of the retry delay",
            probable_start_at=run.due_at,
        )
    ]


def in_queue(run: RunFacts) -> list[Reason]:
    """Explain what a run in `ready` waits for: a pause, a missing worker, or the runs ahead."""
    missing = no_worker(run.queue, run.handler, run.workers)
    first = [*paused(run.pauses), *missing, *_limited(run)]
    if run.due_at > run.now:
        return [*first, not_due(run.due_at, run.due_at - run.now)]
    return [*first, _backlog(run), *([] if first else [_busy(run)])]


def with_worker(run: RunFacts) -> list[Reason]:
    """Report which worker holds a run that has not started, and whether it waits for its moment or a slot."""
    left = run.due_at - run.now
    if left <= timedelta():
        text = f"worker {run.worker} holds it and has not started it; it has been due for {spoken(-left)}"
        return [Reason("not_started", text, {"worker": run.worker, "due_at": run.due_at})]
    text = f"worker {run.worker} holds it and starts it when it is due, in {spoken(left)}"
    return [Reason("leased_ahead", text, {"worker": run.worker, "due_at": run.due_at}), not_due(run.due_at, left)]


def _limited(run: RunFacts) -> list[Reason]:
    """Report the limits on concurrent runs that are reached."""
    return [
        Reason(
            "limit_reached",
            f"the limit of {limit.scope} is reached: at most {some(limit.slots, 'run')} at once",
            {"queue": limit.scope.queue, "tenant": limit.scope.tenant, "slots": limit.slots},
            resolved_by=f"the end of another run under the limit of {limit.scope}, or a higher limit (`duly limits set`)",
        )
        for limit in run.limits
    ]


def _backlog(run: RunFacts) -> Reason:
    waited = run.now - run.due_at
    rate = f"; the queue completes {run.throughput.per_second:.3g} runs a second" if run.throughput.per_second else ""
    return Reason(
        "queue_backlog",
        f"it waits in queue {run.queue}, with {position_text(run.before)} before it; it has been due for {spoken(waited)}{rate}",
        {
            "queue": run.queue,
            "before": run.before,
            "waited_seconds": waited.total_seconds(),
            "per_second": run.throughput.per_second,
        },
        resolved_by=f"a free slot of a worker of queue {run.queue}; start more workers to shorten the wait",
        probable_start_at=_when_taken(run),
    )


def _when_taken(run: RunFacts) -> datetime | None:
    """Estimate when a run is claimed, from its queue's throughput; unknown beyond the counted position."""
    if not run.throughput.per_second or run.before >= POSITION_MAX:
        return None
    return run.now + timedelta(seconds=(run.before + 1) / run.throughput.per_second)


def _busy(run: RunFacts) -> Reason:
    able = [one for one in run.workers if run.queue in one.queues and run.handler in one.handlers]
    slots = sum(one.slots_for(run.handler) for one in able)
    serve, know, them = ("serves", "has", "it") if len(able) == 1 else ("serve", "have", "them")
    return Reason(
        "workers_busy",
        f"{some(len(able), 'live worker')} with {some(slots, 'slot')} {serve} queue {run.queue} and {know} handler {run.handler};"
        f" earlier runs keep {them} busy: start more workers to shorten the wait",
        {"workers": len(able), "slots": slots},
    )


def no_worker(queue: str, handler: str, workers: Sequence[Serving]) -> list[Reason]:
    """Report the missing worker: none serves the queue, or none there has the handler."""
    serving = [one for one in workers if queue in one.queues]
    flag = "" if queue == QUEUE_DEFAULT else f" --queue {queue}"
    if not serving:
        app = "" if is_reserved(handler) else " module:app"
        command = f"duly worker{app}{flag}"
        text = f"no worker serves queue {queue}: start one with {command}"
        return [Reason("no_worker_for_queue", text, {"queue": queue}, resolved_by=f"a worker for the queue: {command}")]
    if not any(handler in one.handlers for one in serving):
        known = sorted({name for one in serving if one.name is not None for name in one.handlers})[:10]
        others = f" (handlers there: {', '.join(known)})" if known else ""
        what = f"offers {handler}" if is_reserved(handler) else f"has handler {handler!r}{others}"
        remedy = unroutable_remedy(handler, queue)
        text = f"no live worker of queue {queue} {what}; {remedy}"
        facts = {"queue": queue, "handler": handler, "known": known}
        return [Reason("unroutable", text, facts, resolved_by=remedy)]
    return _all_stalled(queue, [one for one in serving if handler in one.handlers])


def _all_stalled(queue: str, able: Sequence[Serving]) -> list[Reason]:
    """Report that every worker that could take a run is stalled, and in which handlers."""
    stalled = [(one, one.stall) for one in able if one.stall is not None]
    if len(stalled) < len(able):
        return []
    named = "; ".join(f"{'one' if one.name is None else f'worker {one.name}'} {stall}" for one, stall in stalled[:3])
    facts = {"queue": queue, "workers": len(stalled), "since": min(stall.since for _, stall in stalled)}
    resolved_by = f"another worker of queue {queue}, or a restart of a stalled one"
    return [
        Reason("workers_stalled", f"every worker that could run it is stalled: {named}", facts, resolved_by=resolved_by)
    ]


def paused(pauses: Sequence[Pause]) -> list[Reason]:
    """Report the pauses that cover something. Each has to be resumed before a run starts."""
    remedy = " and ".join(_resume_command(pause.scope) for pause in pauses)
    return [
        Reason(
            "queue_paused",
            f"{pause.scope} has been paused since {moment_text(pause.paused_at)}: {pause.reason};"
            f" {_resume_command(pause.scope)} resumes it",
            {
                "queue": pause.scope.queue,
                "tenant": pause.scope.tenant,
                "paused_at": pause.paused_at,
                "reason": pause.reason,
            },
            resolved_by=remedy,
        )
        for pause in pauses
    ]


def _resume_command(scope: Scope) -> str:
    queue = "" if scope.queue is None else f" --queue {scope.queue}"
    tenant = "" if scope.tenant is None else f" --tenant {scope.tenant}"
    return f"`duly resume{queue}{tenant or ('' if queue else ' --all')}`"


def nobody_stages(schedulers: int) -> list[Reason]:
    """Report that no scheduler is alive, so nothing becomes due."""
    if schedulers:
        return []
    text = "no scheduler is running: start one with duly scheduler"
    return [Reason("no_scheduler", text, resolved_by="a scheduler: duly scheduler")]


def last_error(run: RunFacts) -> list[Reason]:
    """Report the error of the last attempt."""
    if not run.last_error:
        return []
    return [Reason("last_error", f"error of its last attempt: {run.last_error}", {"error": run.last_error})]


def attempt_text(run: RunFacts) -> str:
    """Number an attempt, with the maximum if it is known."""
    return f"attempt {run.attempt}" if run.max_attempts is None else f"attempt {run.attempt} of {run.max_attempts}"
