"""Turns: each is used once, not before its moment, and not long after it."""

import pytest

from duly.worker.targets.reservations import GOOD_SECONDS, Reservations


def used(reservations: Reservations, now: float) -> int:
    """Use up all there are. Gives how many."""
    number = 0
    while reservations.take(now):
        number += 1
    return number


def test_reservation_becomes_usable_at_its_moment_and_only_once():
    reservations = Reservations()
    reservations.add(10.0, 0.5, 3)

    assert [used(reservations, now) for now in (9.99, 10.0, 10.1, 10.5, 11.0, 11.5)] == [0, 1, 0, 1, 1, 0]


def test_reservations_granted_later_are_used_later():
    reservations = Reservations()
    reservations.add(10.0, 0.1, 2)
    reservations.add(10.2, 0.05, 2)

    assert reservations.held(10.0) == 4
    assert [used(reservations, now) for now in (10.0, 10.1, 10.2, 10.25)] == [1, 1, 1, 1]


@pytest.mark.parametrize(("late", "left"), [(0.0, 1), (GOOD_SECONDS, 25), (GOOD_SECONDS + 0.1, 25), (0.99, 25)])
def test_delayed_caller_catches_up_a_quarter_second_of_reservations_at_most(late, left):
    reservations = Reservations()
    reservations.add(0.0, 0.01, 1_000)

    assert used(reservations, late + 1e-9) == left


def test_where_they_are_rare_one_is_good_until_the_next_and_for_a_second_at_most():
    for spacing, good in ((0.5, 0.5), (60.0, 1.0)):
        reservations = Reservations()
        reservations.add(0.0, spacing, 1)
        assert reservations.held(good - 0.01) == 1
        assert reservations.held(good + 0.01) == 0


def test_reservations_report_the_seconds_to_the_next_one():
    reservations = Reservations()
    assert reservations.seconds_to_next(5.0) is None
    reservations.add(5.5, 1.0, 1)
    assert reservations.seconds_to_next(5.0) == 0.5
    assert reservations.seconds_to_next(5.6) == 0.0
    assert reservations.seconds_to_next(7.0) is None


def test_in_no_second_more_are_used_than_were_granted_for_a_second_and_a_quarter():
    """Whoever sleeps and wakes as it likes: what it missed is lost, but for the last quarter of a second."""
    reservations, sent, now = Reservations(), [], 0.0
    for look, pause in enumerate((0.1, 0.7, 0.01, 0.3, 0.24, 0.9, 0.05) * 6):
        reservations.add(look * 0.5, 0.01, 50)
        now += pause
        sent += [now] * used(reservations, now)

    assert sent
    assert max(sum(begin <= at < begin + 1 for at in sent) for begin in sent) <= 126
