"""Explanations of a run's state; for one that has started: its worker, its start delay, and its outcome."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from duly.domain.diagnosis.explain import waiting
from duly.domain.diagnosis.explain.blocked import at_concurrency_key
from duly.domain.diagnosis.explain.codes import code_of
from duly.domain.diagnosis.explain.facts import Passed, Reason, RunFacts
from duly.domain.diagnosis.explain.waiting import attempt_text
from duly.domain.diagnosis.explain.words import moment_text, spoken

_START_DELAY_LEAST = timedelta(seconds=1)

_SKIPPED = {
    "skipped_misfire": "it was missed, and its misfire policy skips missed occurrences",
    "skipped_overlap": "the previous run had not ended, and its overlap policy skips overlapping occurrences",
    "skipped_paused": "its schedule was paused",
    "skipped_calendar": "a calendar excludes it",
    "skipped_edit": "its schedule was changed before it was due",
    "skipped_limit": "more occurrences were missed than its misfire policy runs",
    "skipped_on_request": "it was skipped on request",
    "skipped_over": "its schedule had ended when the completion callback arrived",
    "skipped_too_large": "its payload left no room for the outcome in the completion callback",
    "skipped_duplicate": "the same occurrence was already running",
}


def explain_run(run: RunFacts) -> list[Reason]:
    """Explain the state of a run, most important first."""
    match run.state:
        case "scheduled":
            return [*waiting.until_due(run), *waiting.paused(run.pauses)]
        case "retrying":
            backing_off = waiting.backing_off(run)
            others = [*waiting.paused(run.pauses), *waiting.no_worker(run.queue, run.handler, run.workers)]
            return [*(backing_off + others if backing_off else waiting.in_queue(run)), *waiting.last_error(run)]
        case "blocked":
            missing = waiting.no_worker(run.queue, run.handler, run.workers)
            return [at_concurrency_key(run), *waiting.paused(run.pauses), *missing]
        case "ready" if run.worker is not None:
            return [*(_stalled(run) or waiting.with_worker(run)), *waiting.paused(run.pauses)]
        case "ready":
            return waiting.in_queue(run)
        case "running":
            return [*_running(run), *_start_delay(run)]
        case "dead":
            return [_dead(run), *waiting.last_error(run)]
    return [_ended(run), *_start_delay(run)]


def _running(run: RunFacts) -> list[Reason]:
    """Report which worker runs it, since when, and whether that worker is alive."""
    since = run.claimed_at or run.due_at
    if run.deadline_at is not None:
        return [_awaiting_callback(run, since, run.deadline_at)]
    if run.awaits_recovery:
        text = (
            f"{attempt_text(run)} was in flight at the backup that was restored, and may have ended after it; it is tried again"
            " when the recovery is decided: duly recover"
        )
        return [Reason("awaits_recovery", text, {"attempt": run.attempt})]
    runs = Reason(
        "running",
        f"{attempt_text(run)} has been running on worker {run.worker} since {moment_text(since)}, for {spoken(run.now - since)}",
        {"worker": run.worker, "since": since, "attempt": run.attempt},
    )
    if run.worker_is_live:
        return [runs, *_stalled(run)]
    silent = f"worker {run.worker} sends no heartbeat; when its lease expires, the run goes to another worker"
    return [runs, Reason("worker_silent", silent, {"worker": run.worker})]


def _stalled(run: RunFacts) -> list[Reason]:
    """Report that the worker is stalled, and in which handlers: it starts nothing and settles nothing."""
    if run.stall is None:
        return []
    text = (
        f"worker {run.worker} {run.stall}; results are recorded when it continues. Give a long computation a timeout, so that it"
        " runs in a child process, and await instead of blocking in an async def"
    )
    return [Reason("worker_stalled", text, {"since": run.stall.since, "handlers": list(run.stall.handlers)})]


def _awaiting_callback(run: RunFacts, since: datetime, deadline_at: datetime) -> Reason:
    left = deadline_at - run.now
    until = f"until {moment_text(deadline_at)}, in {spoken(left)}" if left > timedelta() else "until now"
    text = (
        f"{attempt_text(run)} waits for its receiver, which answered 202 at {moment_text(since)}, to report the outcome"
        f" {until}; then the attempt times out"
    )
    return Reason("awaiting_callback", text, {"since": since, "deadline_at": deadline_at, "attempt": run.attempt})


def _start_delay(run: RunFacts) -> list[Reason]:
    """Explain the start delay, as far as it is known."""
    began = run.started_at or run.claimed_at
    if began is None or began - run.due_at < _START_DELAY_LEAST:
        return []
    by = began - run.due_at
    text = f"it started {spoken(by)} after it was due: {_where(run)}"
    return [Reason("start_delayed", text, {"start_delay_seconds": by.total_seconds()})]


def _where(run: RunFacts) -> str:
    """Name the limits that a run had to pass; how long each took is not recorded, because that would cost every run."""
    if run.claimed_at is not None and run.claimed_at <= run.due_at:
        return "its worker was busy"
    others = list(_passed(run.passed))
    for_worker = f"in queue {run.queue} for a free worker"
    if not others and run.claimed_at is None:  # It has ended, and its record names no key or rate limit.
        return f"it waited {for_worker}, or for a limit; which one is not recorded"
    return f"it waited {' or '.join([*others, for_worker])}{'; which one is not recorded' if others else ''}"


def _passed(passed: Passed) -> Iterator[str]:
    if passed.key is not None:
        yield f"for a slot of concurrency key {passed.key!r}"
    if passed.rate is not None:
        yield f"for rate limit {passed.rate!r}"
    if passed.has_destination:
        yield "for its destination"


def _dead(run: RunFacts) -> Reason:
    """Explain why a run gave up, and what can be done."""
    after_replays = f", after {run.replays} replay{'s' * (run.replays != 1)}" if run.replays else ""
    return Reason(
        "dead",
        f"it failed after {run.attempt} attempt{'s' * (run.attempt != 1)}{after_replays}: {run.reason};"
        " replay it with `duly dead replay RUN`, or discard it with `duly dead discard RUN`",
        {"attempts": run.attempt, "reason": run.reason, "replays": run.replays},
    )


def _ended(run: RunFacts) -> Reason:
    """Report the outcome of a run."""
    facts = {"finished_at": run.finished_at, "reason": run.reason}
    at = f" at {moment_text(run.finished_at)}" if run.finished_at else ""
    if run.state == "skipped":
        why = _SKIPPED.get(run.reason or "", run.reason or "its schedule skipped it")
        return Reason(code_of(run.reason or "", "skipped"), f"it did not run: {why}", facts)
    if run.state == "succeeded":
        elapsed = f" in {spoken(run.finished_at - run.started_at)}" if run.finished_at and run.started_at else ""
        return Reason("succeeded", f"attempt {run.attempt} succeeded{elapsed}{at}", facts | {"attempt": run.attempt})
    why = f": {run.reason}" if run.reason and run.reason != run.state else ""
    return Reason(code_of(run.state, "skipped"), f"it was {run.state}{at}{why}", facts)
