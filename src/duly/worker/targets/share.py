"""A worker's share of one destination: its slots, the runs that wait for one, and its observations.

It is the store's last answer, obeyed between two reports. A slot is taken before a request and returned after it. With
a rate limit, a request also uses up a reservation.
"""

from __future__ import annotations

import asyncio
from collections import deque
from uuid import UUID

from duly.domain.targets.circuit import FAILURES_IN_A_ROW, TICK_SECONDS, State, Verdict
from duly.domain.targets.destination import RETRIES_FREE_PER_SECOND, RETRY_SHARE_DEFAULT
from duly.store.tables.destinations import Allowed, DestinationReport
from duly.worker.targets.reservations import Reservations

BELIEVED_SECONDS = 2.0  # how long a refusal holds before the next report: an operator may close the circuit
LINGER_SECONDS = 2.0  # how long unused slots are kept
WAITING_LEAST = 8  # so many may wait, or as many as there are slots, or as many as are sent in a moment
SAVED_SECONDS = 10.0  # what a retry budget saves up at most, as time
_AHEAD_SECONDS = 1.0
_MEASURED_SECONDS = 0.1  # a shorter time says nothing about the requests a second
_ROUNDING = 1e-6  # five fifths are one
_ROOM_LEAST = 4  # slots wanted beyond the current need, so that not every request asks


class Share:
    """One destination, as one worker knows it; it lives on the handlers' loop."""

    def __init__(self, tenant: int, origin: str, fresh_id: UUID) -> None:
        self.tenant = tenant
        self.origin = origin
        self.fresh_id = fresh_id
        self.slots = 0
        self.in_flight = 0
        self.is_known = False
        self.waiters: deque[asyncio.Future[bool]] = deque()
        self._rate: float | None = None  # a second, of all workers together
        self._reservations = Reservations()
        self._spent = 0
        self._blocked_until = float("-inf")
        self._is_doubted = False
        self._is_half_open = False  # the circuit is half-open, and this is the probe
        self._is_contended = False
        self._is_cramped = False  # there were too few slots since the last report
        self._healthy = self._failing = self._streak = self._seen_streak = 0
        self._requested_seconds = 0.0
        self._peak = 0
        self._answered = 0  # since the last measurement
        self._measured_at = float("-inf")
        self._throughput = 0.0  # responses a second
        self._used_at = float("-inf")
        self._reported = (0, 0, 0)  # the last report: under way, waiting, kept
        self._is_unanswered = False  # whether its arrival is unknown
        self._retry_share = RETRY_SHARE_DEFAULT
        self._retry_free = RETRIES_FREE_PER_SECOND  # our part of the free retries, a second
        self._retry_credit = SAVED_SECONDS * RETRIES_FREE_PER_SECOND
        self._retry_credit_at = float("-inf")
        self._retries = self._rejected = 0

    def is_blocked(self, now: float) -> bool:
        """Return whether nothing is sent now, nor soon."""
        return now < self._blocked_until

    def is_full(self) -> bool:
        """Return whether so many wait that another would not be sent soon; unknown before the first answer."""
        return self.is_known and len(self.waiters) >= self._waiting_max

    @property
    def is_half_open(self) -> bool:
        """Return whether the circuit is half-open: the next request is a probe."""
        return self._is_half_open

    def spend_retry(self, now: float) -> bool:
        """Take a retry out of the budget, which each first attempt and each second add to. False: there is none left."""
        if self._retry_share >= 1:
            self._retries += 1
            return True
        self._save_up(now)
        if self._retry_credit < 1 - _ROUNDING:
            self._rejected += 1
            return False
        self._retry_credit -= 1
        self._retries += 1
        return True

    def refund_retry(self) -> None:
        """Return a retry that was not sent after all."""
        self._retry_credit += 1
        self._retries -= 1

    def earn_retries(self, now: float) -> None:
        """Credit the budget for a first attempt."""
        self._save_up(now)
        self._retry_credit += self._retry_share

    def is_idle(self, now: float) -> bool:
        """Return whether there is nothing to remember."""
        return not self.has_news and not self.is_blocked(now) and self.is_rested(now)

    def is_rested(self, now: float) -> bool:
        """Return whether no retries are owed, so that it may be forgotten."""
        self._save_up(now)
        return self._retry_credit >= SAVED_SECONDS * self._retry_free

    def _save_up(self, now: float) -> None:
        elapsed = max(0.0, min(now - self._retry_credit_at, SAVED_SECONDS))
        most = max(1.0, SAVED_SECONDS * (self._retry_free + self._retry_share * self._throughput))
        self._retry_credit = min(self._retry_credit + elapsed * self._retry_free, most)
        self._retry_credit_at = now

    @property
    def has_news(self) -> bool:
        """Return whether there is something to report: an observation, or use, or the store may think that it is in use."""
        in_use = self.in_flight or self.slots or self.waiters or self._healthy or self._failing or self._rejected
        return bool(in_use) or self._reported != (0, 0, 0) or self._is_unanswered

    @property
    def is_unheard(self) -> bool:
        """Return whether the store does not know yet that a run waits here."""
        return not self.is_known or not self._reported[1]

    def take(self, now: float) -> bool:
        """Take a slot, and a reservation if there is a rate limit. False: there is none."""
        if not self._has_slot(now):
            self._is_cramped = self._is_cramped or self.in_flight >= self.slots > 0
            return False
        if self._rate is not None:
            if not self._reservations.take(now):
                return False
            self._spent += 1
        self.in_flight += 1
        self._peak = max(self._peak, self.in_flight)
        self._used_at = now
        return True

    def seconds_to_reservation(self, now: float) -> float | None:
        """Return how long it is until the first waiter's reservation, if it waits for one that is known."""
        if not self.waiters or self._rate is None or not self._has_slot(now):
            return None
        return self._reservations.seconds_to_next(now)

    def give_back(self, verdict: Verdict, requested_seconds: float, now: float) -> bool:
        """Return a slot, with the observation. True: report at once."""
        self.in_flight -= 1
        self._used_at = now
        if verdict is Verdict.FAILING:
            self._fail(requested_seconds)
        elif verdict is Verdict.HEALTHY:
            self._healthy += 1
            self._streak = self._seen_streak = 0
        return self._is_doubted or self._give_up()

    def _give_up(self) -> bool:
        """Give up slots that others wait for, once nothing is under way or waits here. True: there were some."""
        if not self._is_contended or self.in_flight or self.waiters or not self.slots:
            return False
        self.slots = 0
        return True

    def _fail(self, requested_seconds: float) -> None:
        self._failing += 1
        self._streak += 1
        self._seen_streak += 1
        self._requested_seconds = max(self._requested_seconds, requested_seconds)
        # So many failures in a row open the circuit, and one failed probe does: nothing more is sent before the next
        # report is answered.
        if self._is_half_open or self._seen_streak >= FAILURES_IN_A_ROW or requested_seconds > 0:
            self._is_doubted = True

    def serve(self, now: float) -> None:
        """Admit waiters, the first first, while there is a slot."""
        while self.waiters:
            if self.waiters[0].done():  # it is about to give up
                self.waiters.popleft()
            elif self.take(now):
                self.waiters.popleft().set_result(True)
            else:
                return

    def reject(self, beyond: int) -> None:
        """Refuse the waiters behind the first so many."""
        while len(self.waiters) > beyond:
            waiter = self.waiters.pop()
            if not waiter.done():
                waiter.set_result(False)

    def report(self, now: float) -> DestinationReport:
        """Return the observations since the last report, and what is kept until the answer."""
        waiting, reservations = len(self.waiters), self._reservations.held(now)
        self._reported = (self.in_flight, waiting, max(self.slots, self.in_flight))
        self._is_unanswered = True
        report = DestinationReport(
            fresh_id=self.fresh_id,
            tenant=self.tenant,
            origin=self.origin,
            healthy=self._healthy,
            failing=self._failing,
            streak=self._streak,
            requested_seconds=self._requested_seconds,
            in_flight=self.in_flight,
            waiting=waiting,
            wanted=self._wanted(waiting, now),
            holds=self._reported[2],
            tokens=max(0, waiting - reservations),
            spare=max(0, self._spent - max(0, reservations - waiting)),
            retries=max(0, self._retries),
            rejected=self._rejected,
        )
        self._measure(now)
        self._healthy = self._failing = self._streak = 0
        self._requested_seconds = 0.0
        self._spent = self._retries = self._rejected = 0
        self._is_cramped = False
        return report

    def hear(self, allowed: Allowed, now: float, said_at: float) -> bool:
        """Take the answer to a report, and reservations as of the moment at which it was given. True: report again at once."""
        health = allowed.health
        self.is_known = True
        self._is_unanswered = False
        self.slots = allowed.slots
        self._is_contended = allowed.is_contended
        self._retry_share, self._retry_free = allowed.retry_share, RETRIES_FREE_PER_SECOND / allowed.workers
        self._is_half_open = health.state is State.HALF_OPEN
        self._rate = allowed.rate
        if allowed.rate is not None and allowed.tokens is not None:
            self._reservations.add(said_at + allowed.first_seconds, 1 / allowed.rate, allowed.tokens)
        if self._is_doubted:  # whatever the answer, it does not include our last observations
            self._is_doubted, self._seen_streak = False, 0
        wait = max(health.wait_seconds, health.requested_seconds)
        if wait == 0 and health.state is State.HALF_OPEN and not allowed.slots and not allowed.has_turned:
            wait = TICK_SECONDS  # another worker sends the probe
        self._blocked_until = now + min(wait, BELIEVED_SECONDS) if wait else float("-inf")
        self.serve(now)
        self.reject(0 if wait else self._waiting_max)
        is_to_confirm = allowed.is_contended and max(self.slots, self.in_flight) < self._reported[2]
        return is_to_confirm or (allowed.has_turned and bool(self.waiters))

    def start_over(self) -> None:
        """Forget the share of a life that is over."""
        self.slots = 0
        self.is_known = False
        self._reservations = Reservations()
        self._blocked_until = float("-inf")
        self._reported = (0, 0, 0)
        self._is_unanswered = False

    def _has_slot(self, now: float) -> bool:
        is_barred = not self.is_known or self._is_doubted or self.is_blocked(now)
        return not is_barred and self.in_flight < self.slots

    @property
    def _waiting_max(self) -> int:
        return max(WAITING_LEAST, self.slots, int(_AHEAD_SECONDS * max(self._throughput, self._rate or 0.0)))

    def _measure(self, now: float) -> None:
        self._answered += self._healthy + self._failing
        elapsed = now - self._measured_at
        if elapsed >= _MEASURED_SECONDS:
            self._throughput = self._answered / elapsed
            self._answered, self._measured_at = 0, now

    def _wanted(self, waiting: int, now: float) -> int:
        if now - self._used_at > LINGER_SECONDS:
            self._peak = self.in_flight
        pressing = self.in_flight + (waiting if self._is_cramped or self._rate is None else 0)
        if not pressing and waiting:
            # A waiter for a reservation takes no slot meanwhile; when it is due, few are under way at once.
            pressing = min(waiting, WAITING_LEAST)
        room = max(_ROOM_LEAST, pressing // 2) if pressing else 0
        return max(pressing + room, self._peak)
