"""Slots: who starts next, and who does not wait here in vain."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duly.worker.slots import Kind, Pool, Slots
from tests.worker.stories import a_run

NOON = datetime(2026, 11, 2, 12, tzinfo=UTC)


def due(seconds: float, priority: int = 5):
    return a_run(due_at=NOON + timedelta(seconds=seconds), priority=priority)


def a_line(*runs, loop: int = 1, kind: Kind = Kind.LOOP) -> Slots:
    slots = Slots({Pool.LOOP: loop, Pool.PLAIN: 1, Pool.ALONE: 1})
    for run in runs:
        slots.queue(kind, run, NOON.timestamp())
    return slots


def test_slots_remove_unwanted_runs_from_every_queue_and_keep_the_order():
    runs = [due(number) for number in (3, 0, 2, 1)]
    slots = a_line(*runs[:3])
    slots.queue(Kind.THREAD, runs[3], NOON.timestamp())

    assert slots.take_out(lambda run: run in (runs[1], runs[3])) == [runs[1], runs[3]]

    assert (slots.waiting, slots.running) == (2, 0)
    assert slots.take() == [(Kind.LOOP, runs[2])]
    slots.release(Kind.LOOP)
    assert slots.take() == [(Kind.LOOP, runs[0])]


def test_no_more_start_than_there_are_slots():
    first, second, third = due(0), due(1), due(2)
    slots = a_line(third, first, second, loop=2)

    assert slots.take() == [(Kind.LOOP, first), (Kind.LOOP, second)]
    assert slots.take() == []
    assert (slots.running, slots.waiting) == (2, 1)

    slots.release(Kind.LOOP)
    assert slots.take() == [(Kind.LOOP, third)]


def test_threads_and_child_processes_share_their_slots_and_their_line():
    first, second = due(0), due(1)
    slots = a_line()
    slots.queue(Kind.CHILD, second, NOON.timestamp())
    slots.queue(Kind.THREAD, first, NOON.timestamp())
    assert slots.take() == [(Kind.THREAD, first)]
    assert (slots.free_in(Pool.PLAIN), slots.waiting_for(Pool.PLAIN)) == (0, 1)
    slots.release(Kind.THREAD)
    assert slots.take() == [(Kind.CHILD, second)]


def test_a_full_line_of_one_pool_does_not_hold_up_another():
    slots = a_line(due(0), due(1))
    slots.take()
    in_thread = due(2)
    slots.queue(Kind.THREAD, in_thread, NOON.timestamp())
    assert slots.take() == [(Kind.THREAD, in_thread)]


def test_high_priority_run_starts_before_all_others_though_due_last():
    urgent = due(20, priority=0)
    slots = a_line(*(due(second) for second in range(10)), urgent)
    assert slots.take() == [(Kind.LOOP, urgent)]


def test_thirty_seconds_of_age_make_up_for_one_priority():
    older, newer = due(0, priority=6), due(31, priority=5)
    assert a_line(newer, older).take() == [(Kind.LOOP, older)]
    older, newer = due(0, priority=6), due(29, priority=5)
    assert a_line(newer, older).take() == [(Kind.LOOP, newer)]


@given(st.lists(st.tuples(st.integers(0, 600), st.integers(0, 9))))
def test_the_order_of_the_line_is_rank_then_arrival(asked):
    runs = [due(*one) for one in asked]
    slots = a_line(*runs, loop=len(runs))
    assert [run for _, run in slots.take()] == sorted(runs, key=lambda run: run.due_at.timestamp() + 30 * run.priority)


@given(st.lists(st.integers(0, 600)), st.integers(0, 20))
def test_slots_give_up_the_last_queued_runs_and_lose_none(seconds, keep):
    runs = [due(second) for second in seconds]
    slots = a_line(*runs, loop=len(runs))
    given_up = slots.give_up(Pool.LOOP, keep)
    kept = [run for _, run in slots.take()]
    assert kept + given_up == sorted(runs, key=lambda run: run.due_at)
    assert len(kept) == min(keep, len(runs))


def test_slots_drain_returns_every_queued_run():
    runs = [due(0), due(1)]
    slots = a_line(*runs)
    assert slots.drain() == runs
    assert slots.waiting == 0


def test_slots_report_since_when_the_next_run_of_a_queue_waits():
    slots = a_line(due(5), due(3))
    slots.queue(Kind.THREAD, due(4), NOON.timestamp())
    assert slots.waits_since(Pool.LOOP) == (NOON + timedelta(seconds=3)).timestamp()
    assert slots.waits_since(Pool.ALONE) == float("inf")


def test_a_run_that_came_late_has_not_waited_here_since_it_was_due():
    """Two workers whose slots were taken handed such runs to and fro as fast as they could."""
    came_at = (NOON + timedelta(seconds=60)).timestamp()
    slots = a_line()
    slots.queue(Kind.ALONE, due(3), came_at)
    assert slots.waits_since(Pool.ALONE) == came_at


def test_a_slot_cannot_be_freed_twice():
    slots = a_line(due(0))
    slots.take()
    slots.release(Kind.LOOP)
    with pytest.raises(AssertionError):
        slots.release(Kind.LOOP)


def test_later_arrival_passes_queued_runs_for_half_a_second_at_most():
    slots = a_line(loop=1)
    at = NOON.timestamp()
    fresh, old = due(0, priority=9), due(-86_400, priority=0)
    slots.queue(Kind.LOOP, fresh, at)
    slots.queue(Kind.LOOP, old, at + 0.4)
    later = [due(-86_400, priority=0) for _ in range(5)]
    for run in later:
        slots.queue(Kind.LOOP, run, at + 0.6)

    order = []
    for _ in range(3):
        order += [run for _, run in slots.take()]
        slots.release(Kind.LOOP)

    assert order == [old, fresh, later[0]]
