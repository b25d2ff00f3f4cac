"""The lifecycle of a run: the one place that decides what it becomes after an attempt."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import assert_never

import msgspec
from msgspec.structs import replace

from duly.domain.duration import to_iso
from duly.domain.jobs.job import DELAY_MAX
from duly.domain.runs.expiry import expiry_of, shown_moment
from duly.domain.runs.options import RunHistory
from duly.domain.runs.outcome import Cancelled, Expired, Failed, Lost, Outcome, Snoozed, Spent, Succeeded, TimedOut
from duly.domain.runs.retry import RETRY_AFTER_MAX
from duly.domain.runs.retry_rules import SNOOZES_MAX, Rule, kinds_of, rule_for
from duly.domain.runs.run import Run

# Three losses in all make a run poison: the first makes it a suspect, which then runs alone; two losses alone prove it.
NAMED_LOSSES_MAX = 2
# As many attempts that find a destination still failing do not count against the run; more may mean that it is the
# cause.
PROBES_MAX = 20
# A snooze uses up no attempt, so a snooze of zero would loop as fast as the database can.
SNOOZE_LEAST = timedelta(seconds=0.1)
_TIMEOUT_KINDS = kinds_of(TimeoutError)


class Finish(msgspec.Struct, frozen=True):
    """The run leaves the boxes in a final state; `reason`, if given, replaces the outcome's own."""

    state: str
    reason: str | None = None


class WaitFor(msgspec.Struct, frozen=True):
    """The run waits for another attempt. `history`: its new history; None: unchanged."""

    delay: timedelta
    losses: int = 0
    suspect: bool = False
    history: RunHistory | None = None


class Bury(msgspec.Struct, frozen=True):
    """The run gave up and waits for a person."""

    reason: str
    losses: int = 0
    suspect: bool = False


Transition = Finish | WaitFor | Bury


def decide(run: Run, outcome: Outcome, chance: float, now: datetime) -> Transition:
    """Decide what `run` becomes after `outcome`; `chance` is uniform in [0, 1)."""
    match outcome:
        case Succeeded():
            return Finish("succeeded")
        case Cancelled():
            return Finish("cancelled")
        case Expired():
            return Finish("expired")
        case Spent():
            return Bury(outcome.reason, run.losses, run.suspect)
        case Snoozed():
            wait = WaitFor(max(outcome.delay, SNOOZE_LEAST), history=_forgiven(run))
            return _in_time(run, outcome.reason, wait, now)
        case Lost():
            return _after_loss(run, outcome, chance, now)
        case Failed() | TimedOut():
            return _after_failure(run, outcome, chance, now)
    assert_never(outcome)


def _after_loss(run: Run, outcome: Lost, chance: float, now: datetime) -> Transition:
    losses = run.losses + outcome.named
    if losses >= NAMED_LOSSES_MAX:
        return Bury("poison", losses, suspect=True)
    if not attempts_left(run):
        return Bury(outcome.reason, losses, suspect=True)
    delay = run.policy.retry.delay_after(_attempt_of_this_life(run), chance)
    return _in_time(run, outcome.reason, WaitFor(delay, losses, suspect=True), now)


def _after_failure(run: Run, outcome: Failed | TimedOut, chance: float, now: datetime) -> Transition:
    """Decide after a failure: by the first matching rule, else by the policy."""
    rule = _rule(run, outcome)
    if rule is not None and rule.action == "dead":
        return Bury(outcome.reason)
    if rule is not None and rule.action == "snooze":
        return _snoozed(run, outcome, rule, now)
    if rule is None and isinstance(outcome, Failed) and not outcome.retryable:
        return Bury(outcome.reason)
    if outcome.probe and run.history.probes < PROBES_MAX:
        history = replace(_forgiven(run), probes=run.history.probes + 1)
        return _in_time(run, outcome.reason, WaitFor(timedelta(), history=history), now)
    if not attempts_left(run):
        return Bury(outcome.reason)
    return _in_time(run, outcome.reason, WaitFor(_delay(run, outcome, rule, chance)), now)


def _rule(run: Run, outcome: Failed | TimedOut) -> Rule | None:
    rules = run.policy.retry.rules
    if not rules:
        return None
    if isinstance(outcome, TimedOut):
        return rule_for(rules, _TIMEOUT_KINDS)
    return rule_for(rules, outcome.kinds, outcome.status, outcome.exit)


def _snoozed(run: Run, outcome: Failed | TimedOut, rule: Rule, now: datetime) -> Transition:
    assert rule.delay is not None
    if run.history.snoozes >= SNOOZES_MAX:
        return Bury(f"{outcome.reason}; a retry rule has snoozed it {SNOOZES_MAX:,} times")
    history = replace(_forgiven(run), snoozes=run.history.snoozes + 1)
    return _in_time(run, outcome.reason, WaitFor(max(rule.delay, SNOOZE_LEAST), history=history), now)


def _delay(run: Run, outcome: Failed | TimedOut, rule: Rule | None, chance: float) -> timedelta:
    """Return the delay of a rule, or of the policy, and at least the receiver's Retry-After."""
    if rule is not None and rule.delay is not None:
        delay = run.policy.retry.drawn(rule.delay, chance)
    else:
        delay = run.policy.retry.delay_after(_attempt_of_this_life(run), chance)
    requested = outcome.retry_after if isinstance(outcome, Failed) else None
    return max(delay, min(requested, RETRY_AFTER_MAX)) if requested else delay


def _in_time(run: Run, reason: str, wait: WaitFor, now: datetime) -> Transition:
    """Let a run wait, unless it would then start after its expiry or its maximum age."""
    starts_at = now + min(wait.delay, DELAY_MAX)
    expires_at = expiry_of(run.scheduled_at, run.policy)
    if expires_at is not None and starts_at >= expires_at:
        return Finish(
            "expired", f"{reason}; it expires at {shown_moment(expires_at)}, before another attempt would start"
        )
    if run.policy.retry.max_age_seconds is None:
        return wait
    since = run.due_at if run.history.since is None else datetime.fromtimestamp(run.history.since, UTC)
    age_max = timedelta(seconds=run.policy.retry.max_age_seconds)
    if starts_at - since > age_max:
        words = f"{reason}; another attempt would start after its max age of {to_iso(age_max)}"
        return Bury(words, wait.losses, wait.suspect)
    return replace(wait, history=replace(wait.history or run.history, since=since.timestamp()))


def attempts_left(run: Run) -> bool:
    """Return whether another attempt is allowed after this one; a replay restarts the count, but not the numbers."""
    return _attempt_of_this_life(run) < run.policy.retry.max_attempts


def spent(run: Run) -> Spent | None:
    """Return the outcome of a run that was claimed for one attempt more than its handler allows; None: it may start.

    A lost worker's runs are settled without knowing the handlers, so the limit that a handler sets is checked here.
    """
    if _attempt_of_this_life(run) <= run.policy.retry.max_attempts:
        return None
    # A failure leaves no suspect, and was judged with the handler at hand, which may have allowed more then.
    return Spent(Lost().reason if run.suspect else "its last attempt has failed", run.policy.retry.max_attempts)


def is_retry(run: Run) -> bool:
    """Return whether this attempt is a retry: others that count came before it since the last replay."""
    return _attempt_of_this_life(run) > 1


def _forgiven(run: Run) -> RunHistory:
    """Return the history of a run whose attempt keeps its number, but does not count."""
    return replace(run.history, attempts_before=run.history.attempts_before + 1)


def _attempt_of_this_life(run: Run) -> int:
    return run.attempt - run.history.attempts_before
