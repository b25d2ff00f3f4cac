"""Pacing: a run alone starts at its moment; where there are many, they start together, a few milliseconds late at most."""

from collections import Counter

import pytest

from duly.clock import Rng
from duly.worker.pacing import (
    BUSY,
    REST_IDLE_SECONDS,
    REST_SECONDS,
    RETRY_SECONDS_MAX,
    SETBACK_SECONDS,
    SETBACK_SECONDS_MAX,
    TURN_BUSY_SECONDS,
    TURN_SECONDS,
    Setback,
    pause,
    retry_delay,
)


@pytest.mark.parametrize(
    ("held", "started", "waiting", "left_seconds", "seconds"),
    [
        (0, 0, 0, None, REST_IDLE_SECONDS),
        (1, 0, 0, 0.02, 0.02),  # It wakes for the next.
        (1, 0, 0, 3.0, REST_SECONDS),
        (1, 1, 0, None, REST_SECONDS),  # All that is held runs.
        (9, BUSY - 1, 0, 0.0007, 0.0007),
        (9, BUSY - 1, 0, -0.01, TURN_SECONDS),  # It has fallen due meanwhile.
        (9, BUSY, 0, 0.0007, TURN_BUSY_SECONDS),
        (9, BUSY, 0, 0.02, 0.02),  # Busy or not, it wakes for nothing.
        (9, 0, 1, 0.0007, TURN_BUSY_SECONDS),  # No slot is free.
        (9, 0, 1, None, REST_SECONDS),
    ],
)
def test_pacing_waits_for_the_next_run_and_longer_under_load(held, started, waiting, left_seconds, seconds):
    assert pause(held=held, started=started, waiting=waiting, left_seconds=left_seconds) == seconds


def test_fifty_workers_whom_one_outage_has_struck_do_not_come_back_at_once():
    pauses = sorted(retry_delay(Rng(seed)) for seed in range(50))

    assert pauses[0] >= 0
    assert pauses[-1] < RETRY_SECONDS_MAX
    tenths = Counter(int(seconds / RETRY_SECONDS_MAX * 10) for seconds in pauses)
    assert max(tenths.values()) <= 12
    assert len(tenths) == 10


def test_nothing_is_later_by_it_than_a_few_milliseconds():
    assert TURN_SECONDS < TURN_BUSY_SECONDS <= 0.005


class TestSetback:
    def test_setback_grows_each_time_up_to_a_bound(self):
        setback, now, waited = Setback(), 100.0, []
        for _ in range(8):
            waited.append(setback.seconds(now))
            now += waited[-1] + 0.5
        assert waited == [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 8.0, 8.0]

    def test_the_bound_may_be_a_lower_one(self):
        setback = Setback(0.2)
        assert [setback.seconds(now) for now in (100.0, 101.0)] == pytest.approx([0.2, 0.2])

    def test_setback_counts_concurrent_failures_as_one_and_delays_them_together(self):
        setback = Setback()
        assert [setback.seconds(now) for now in (100.0, 100.1, 100.2)] == pytest.approx([0.25, 0.15, 0.05])
        assert setback.seconds(100.3) == 0.5

    def test_after_a_while_without_one_it_begins_anew(self):
        setback = Setback()
        for now in (100.0, 101.0, 102.0):
            setback.seconds(now)
        assert setback.seconds(103.0 + SETBACK_SECONDS_MAX + 0.1) == SETBACK_SECONDS
