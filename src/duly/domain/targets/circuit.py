"""The health of a destination: when it is called, when it is left alone, and how it is let back in.

A circuit breaker with three states. Closed: it is called. Open: it has failed, and is not called until a moment. Half open: it is
tried with one request at a time. The database adds up what the workers report; what follows from the sums is said here, by
functions that read nothing and change nothing.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from duly.domain.targets.destination import RETRIES_FREE_PER_SECOND, RETRY_SHARE_DEFAULT

FAILURES_IN_A_ROW = 5  # open it, whatever came before them
ANSWERS_LEAST = 20  # of fewer, a share says nothing
FAILING_SHARE = 0.5
SUCCESSES_IN_A_ROW = 2  # close it, when it is half open
COOL_SECONDS, COOL_SECONDS_MAX = 1.0, 30.0
COOL_JITTER = 0.25  # up or down, so that destinations that fell together are not tried together
CALM_SECONDS = 10.0  # closed for so long, it starts anew with the shortest cool-down
RAMP = 1.5  # times the steady rate, after an outage: with what is drawn at once, it stays below twice
RAMP_RATE_LEAST = 10.0  # a second; what took less before says little about what it can take
TICK_SECONDS = 0.25
AHEAD_SECONDS = 0.5  # how far ahead turns at a rate are granted: two reports, so that one that is late costs none
_TICKS_AHEAD = 3


class State(StrEnum):
    """Whether a destination is called."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class Verdict(StrEnum):
    """How a destination was, as far as one request to it can tell."""

    HEALTHY = "healthy"  # it answered, whatever it thinks of the request
    FAILING = "failing"  # it did not, or asks to be left alone
    IGNORED = "ignored"  # we broke off, or never began


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a destination at a moment. `turn` counts its changes of state."""

    state: State = State.CLOSED
    turn: int = 0
    openings: int = 0  # in a row, without calm between them
    failures_in_a_row: int = 0
    successes_in_a_row: int = 0
    healthy: int = 0  # in the window
    failing: int = 0
    wait_seconds: float = 0.0  # until it may be tried, if it is open
    asked_seconds: float = 0.0  # for how long it has asked to be left alone
    since_turn_seconds: float = float("inf")
    steady_rate: float | None = None


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """A change of state. While `ramp_rate` is there, no more is sent a second; it doubles each second if it `grows`."""

    state: State
    openings: int = 0
    wait_seconds: float = 0.0
    ramp_rate: float | None = None
    ramp_grows: bool = False


def judge(health: Health, chance: float) -> Turn | None:
    """Say what a destination turns to, if anything; `chance` is from 0 to 1."""
    match health.state:
        case State.CLOSED:
            return _opened(health, chance) if health.asked_seconds > 0 or _is_failing(health) else None
        case State.OPEN:
            still = max(health.wait_seconds, health.asked_seconds) > 0
            return None if still else Turn(state=State.HALF_OPEN, openings=health.openings)
        case State.HALF_OPEN if health.failures_in_a_row or health.asked_seconds > 0:
            return _opened(health, chance)
        case State.HALF_OPEN if health.successes_in_a_row >= SUCCESSES_IN_A_ROW:
            return _closed(health)
    return None


def closed_by_hand(health: Health) -> Turn:
    """Say what it turns to when somebody knows better: it is called again, as after an outage."""
    return _closed(health)


def opened_by_hand(health: Health, seconds: float) -> Turn:
    """Say what it turns to when somebody wants it left alone: for so long nothing is sent to it, then it is tried."""
    return Turn(state=State.OPEN, openings=health.openings, wait_seconds=seconds)


def cool_seconds(openings: int, chance: float) -> float:
    """Say for how long it is left alone when it has opened so many times in a row."""
    seconds = COOL_SECONDS * 2.0 ** min(openings - 1, 30)
    return min(seconds, COOL_SECONDS_MAX) * (1 - COOL_JITTER + 2 * COOL_JITTER * chance)


class Queue(msgspec.Struct, frozen=True, kw_only=True):
    """What waits for a destination, and what is under way to it."""

    state: State = State.CLOSED
    is_waiting: bool = False  # it is open, or has asked to be left alone
    places: int = 100
    in_flight: int = 0
    waiting: int = 0  # in workers' hands, for a place or a turn that nobody has promised them
    answers_per_second: float = 0.0
    rate: float | None = None
    tokens: float = 0.0  # in the bucket, if there is a rate; less than none: so many turns were granted ahead
    retry_share: float = RETRY_SHARE_DEFAULT
    turns_away: bool = False  # retries have just been sent back, because there were too many


def let_through(queue: Queue) -> int:
    """Return how many of those that wait go on in this tick.

    It need not be exact: what finds no place comes back. Too few would leave places empty, because places change hands
    between two ticks: so as many more as are answered in three of them go as well, and wait with the workers. Where there is a
    rate, those go who have a turn soon, and a tick's worth more; what is owed of it is on its way already.
    """
    under_way = queue.in_flight + queue.waiting
    if queue.is_waiting or queue.state is State.OPEN:
        return 0
    if queue.state is State.HALF_OPEN:
        return 0 if under_way else 1
    room = queue.places + int(_TICKS_AHEAD * TICK_SECONDS * queue.answers_per_second) - under_way
    if queue.rate is not None:
        soon = int(queue.tokens + AHEAD_SECONDS * queue.rate) + int(TICK_SECONDS * queue.rate)
        room = min(room, soon - queue.waiting)
    if queue.turns_away:  # Most of what waits are retries, and more than are paid for would only go round.
        paid = RETRIES_FREE_PER_SECOND + queue.retry_share * queue.answers_per_second
        room = min(room, max(1, int(TICK_SECONDS * paid)))
    return max(0, room)


def _is_failing(health: Health) -> bool:
    answers = health.healthy + health.failing
    return health.failures_in_a_row >= FAILURES_IN_A_ROW or (
        answers >= ANSWERS_LEAST and health.failing >= FAILING_SHARE * answers
    )


def _opened(health: Health, chance: float) -> Turn:
    was_calm = health.state is State.CLOSED and health.since_turn_seconds >= CALM_SECONDS
    openings = 1 if was_calm else health.openings + 1
    wait = max(cool_seconds(openings, chance), health.asked_seconds)
    return Turn(state=State.OPEN, openings=openings, wait_seconds=wait)


def _closed(health: Health) -> Turn:
    """Close it, at a rate. How often it has opened is kept: calm alone proves that it is well."""
    steady = health.steady_rate or 0.0
    is_known = steady >= RAMP_RATE_LEAST
    return Turn(
        state=State.CLOSED,
        openings=health.openings,
        ramp_rate=RAMP * steady if is_known else RAMP_RATE_LEAST,
        ramp_grows=not is_known,
    )
