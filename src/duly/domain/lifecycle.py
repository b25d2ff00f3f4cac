"""What a run becomes after an attempt: the one place where its branches live."""

from __future__ import annotations

from datetime import timedelta
from typing import assert_never

import msgspec

from duly.domain.outcome import Cancelled, Failed, Lost, Outcome, Snoozed, Succeeded, TimedOut
from duly.domain.run import Options, Run

# Three losses in all make poison: the first leaves a suspect, which then runs alone; two losses alone prove it guilty.
NAMED_LOSSES_MAX = 2


class Finish(msgspec.Struct, frozen=True):
    """The run leaves the boxes in a final state."""

    state: str


class WaitFor(msgspec.Struct, frozen=True):
    """The run waits for another attempt."""

    delay: timedelta
    losses: int = 0
    suspect: bool = False


class Bury(msgspec.Struct, frozen=True):
    """The run gave up and waits for a person."""

    reason: str
    losses: int = 0
    suspect: bool = False


Transition = Finish | WaitFor | Bury


def decide(run: Run, policy: Options, outcome: Outcome, jitter: float) -> Transition:
    """Say what `run` becomes after `outcome`; `jitter` is uniform in [0, 1)."""
    match outcome:
        case Succeeded():
            return Finish("succeeded")
        case Cancelled():
            return Finish("cancelled")
        case Snoozed():
            return WaitFor(outcome.delay)
        case Lost():
            return _after_loss(run, policy, outcome, jitter)
        case Failed(retryable=False):
            return Bury(outcome.reason)
        case Failed() | TimedOut():
            return _after_failure(run, policy, outcome, jitter)
    assert_never(outcome)


def _after_loss(run: Run, policy: Options, outcome: Lost, jitter: float) -> Transition:
    losses = run.losses + outcome.named
    if losses >= NAMED_LOSSES_MAX:
        return Bury("poison", losses, suspect=True)
    if not attempts_left(run, policy):
        return Bury(outcome.reason, losses, suspect=True)
    return WaitFor(policy.retry.delay_after(_attempt_of_this_life(run, policy), jitter), losses, suspect=True)


def _after_failure(run: Run, policy: Options, outcome: Failed | TimedOut, jitter: float) -> Transition:
    if not attempts_left(run, policy):
        return Bury(outcome.reason)
    delay = policy.retry.delay_after(_attempt_of_this_life(run, policy), jitter)
    asked = outcome.retry_after if isinstance(outcome, Failed) else None
    return WaitFor(max(delay, asked) if asked else delay)


def attempts_left(run: Run, policy: Options) -> bool:
    """Say whether another attempt is allowed after this one; a replay starts a new count, but not new numbers."""
    return _attempt_of_this_life(run, policy) < policy.retry.max_attempts


def _attempt_of_this_life(run: Run, policy: Options) -> int:
    return run.attempt - policy.attempts_before
