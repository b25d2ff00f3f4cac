"""The circuit breaker of a destination: when it is called, when not, and how it recovers.

Three states. Closed: it is called. Open: it has failed, and is not called until a moment. Half-open: it is probed with
one request at a time. The database adds up what the workers report; the pure functions here decide from the sums.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from duly.domain.targets.destination import RETRIES_FREE_PER_SECOND, RETRY_SHARE_DEFAULT

FAILURES_IN_A_ROW = 5  # open it, whatever came before
ANSWERS_LEAST = 20  # with fewer, the share says nothing
FAILING_SHARE = 0.5
SUCCESSES_IN_A_ROW = 2  # close it, when it is half-open
COOL_SECONDS, COOL_SECONDS_MAX = 1.0, 30.0
COOL_JITTER = 0.25  # up or down, so that destinations that failed together are not probed together
CALM_SECONDS = 10.0  # closed for so long, it starts again with the shortest cool-down
RAMP = 1.5  # times the steady rate, after an outage: with the burst it stays below twice the rate
RAMP_RATE_LEAST = 10.0  # a second; a lower rate before says little about the capacity
TICK_SECONDS = 0.25
AHEAD_SECONDS = 0.5  # reservations are granted so far ahead: two reports, so that a late one costs none
_TICKS_AHEAD = 3


class State(StrEnum):
    """The state of the circuit."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class Verdict(StrEnum):
    """The verdict of one request on the health of its destination."""

    HEALTHY = "healthy"  # it answered, whatever it said of the request
    FAILING = "failing"  # it did not answer, or asked for a break
    IGNORED = "ignored"  # we broke off, or never began


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """The health of a destination at a moment. `state_version` counts its changes of state."""

    state: State = State.CLOSED
    state_version: int = 0
    openings: int = 0  # in a row, without calm between them
    failures_in_a_row: int = 0
    successes_in_a_row: int = 0
    healthy: int = 0  # in the window
    failing: int = 0
    wait_seconds: float = 0.0  # until it may be probed, if it is open
    requested_seconds: float = 0.0  # the Retry-After that it asked for
    since_state_change_seconds: float = float("inf")
    steady_rate: float | None = None


class StateChange(msgspec.Struct, frozen=True, kw_only=True):
    """A change of state. `ramp_rate`, if set, limits requests a second; it doubles each second if it `grows`."""

    state: State
    openings: int = 0
    wait_seconds: float = 0.0
    ramp_rate: float | None = None
    ramp_grows: bool = False


def judge(health: Health, chance: float) -> StateChange | None:
    """Decide the next state, if it changes; `chance` is from 0 to 1."""
    match health.state:
        case State.CLOSED:
            return _opened(health, chance) if health.requested_seconds > 0 or _is_failing(health) else None
        case State.OPEN:
            still = max(health.wait_seconds, health.requested_seconds) > 0
            return None if still else StateChange(state=State.HALF_OPEN, openings=health.openings)
        case State.HALF_OPEN if health.failures_in_a_row or health.requested_seconds > 0:
            return _opened(health, chance)
        case State.HALF_OPEN if health.successes_in_a_row >= SUCCESSES_IN_A_ROW:
            return _closed(health)
    return None


def closed_by_hand(health: Health) -> StateChange:
    """Return the state after an operator closed the circuit: called again, as after an outage."""
    return _closed(health)


def opened_by_hand(health: Health, seconds: float) -> StateChange:
    """Return the state after an operator opened the circuit: no requests for so long, then it is probed."""
    return StateChange(state=State.OPEN, openings=health.openings, wait_seconds=seconds)


def cool_seconds(openings: int, chance: float) -> float:
    """Return the cool-down after so many openings in a row."""
    seconds = COOL_SECONDS * 2.0 ** min(openings - 1, 30)
    return min(seconds, COOL_SECONDS_MAX) * (1 - COOL_JITTER + 2 * COOL_JITTER * chance)


class Queue(msgspec.Struct, frozen=True, kw_only=True):
    """The backlog of a destination, and the requests under way to it."""

    state: State = State.CLOSED
    is_waiting: bool = False  # it is open, or has asked for a break
    slots: int = 100
    in_flight: int = 0
    waiting: int = 0  # held by workers, without a slot or a reservation
    answers_per_second: float = 0.0
    rate: float | None = None
    tokens: float = 0.0  # in the bucket, if there is a rate limit; negative: reservations granted ahead
    retry_share: float = RETRY_SHARE_DEFAULT
    rejects: bool = False  # retries were just sent back, because there were too many


def let_through(queue: Queue) -> int:
    """Return how many waiting runs go on in this tick.

    It need not be exact: a run that finds no slot comes back. Too few would leave slots empty, because slots are freed
    between two ticks: so as many more as are answered in three ticks go as well, and wait in the workers. With a rate
    limit, those with a reservation soon go, and a tick's worth more; reservations granted ahead are on their way
    already.
    """
    under_way = queue.in_flight + queue.waiting
    if queue.is_waiting or queue.state is State.OPEN:
        return 0
    if queue.state is State.HALF_OPEN:
        return 0 if under_way else 1
    room = queue.slots + int(_TICKS_AHEAD * TICK_SECONDS * queue.answers_per_second) - under_way
    if queue.rate is not None:
        soon = int(queue.tokens + AHEAD_SECONDS * queue.rate) + int(TICK_SECONDS * queue.rate)
        room = min(room, soon - queue.waiting)
    if queue.rejects:  # Most of the backlog are retries, and more than the budget allows would only come back.
        paid = RETRIES_FREE_PER_SECOND + queue.retry_share * queue.answers_per_second
        room = min(room, max(1, int(TICK_SECONDS * paid)))
    return max(0, room)


def _is_failing(health: Health) -> bool:
    answers = health.healthy + health.failing
    return health.failures_in_a_row >= FAILURES_IN_A_ROW or (
        answers >= ANSWERS_LEAST and health.failing >= FAILING_SHARE * answers
    )


def _opened(health: Health, chance: float) -> StateChange:
    was_calm = health.state is State.CLOSED and health.since_state_change_seconds >= CALM_SECONDS
    openings = 1 if was_calm else health.openings + 1
    wait = max(cool_seconds(openings, chance), health.requested_seconds)
    return StateChange(state=State.OPEN, openings=openings, wait_seconds=wait)


def _closed(health: Health) -> StateChange:
    """Close it, with a rate limit. The number of openings is kept until it has been calm."""
    steady = health.steady_rate or 0.0
    is_known = steady >= RAMP_RATE_LEAST
    return StateChange(
        state=State.CLOSED,
        openings=health.openings,
        ramp_rate=RAMP * steady if is_known else RAMP_RATE_LEAST,
        ramp_grows=not is_known,
    )
