"""The wheel: never early, nothing lost, in order of the ticks."""

from hypothesis import given
from hypothesis import strategies as st

from duly.worker.wheel import Wheel

# Moments as they come from the database: whole microseconds, some years from now.
EPOCH_MICROSECONDS = 1_790_000_000_000_000
moments = st.integers(0, 3_000_000).map(lambda number: EPOCH_MICROSECONDS + number)


def seconds(microseconds: int) -> float:
    return microseconds / 1_000_000


def a_wheel(dues: list[int]) -> Wheel[tuple[int, int]]:
    wheel: Wheel[tuple[int, int]] = Wheel()
    for number, due in enumerate(dues):
        wheel.insert(seconds(due), (number, due))
    return wheel


@given(st.lists(moments), moments)
def test_nothing_leaves_the_wheel_early(dues, now):
    assert all(due <= now for _, due in a_wheel(dues).advance(seconds(now)))


@given(st.lists(moments), moments)
def test_wheel_releases_due_items_within_one_tick(dues, now):
    wheel = a_wheel(dues)
    left = {number for number, _ in wheel.advance(seconds(now))}
    assert {number for number, due in enumerate(dues) if due <= now - 1_001} <= left


@given(st.lists(moments), st.lists(moments))
def test_each_leaves_exactly_once_however_time_passes(dues, steps):
    wheel = a_wheel(dues)
    left = [item for now in sorted(steps) for item in wheel.advance(seconds(now))]
    assert len(wheel) == len(dues) - len(left)
    assert sorted([*left, *wheel.drain()]) == sorted(enumerate(dues))
    assert len(wheel) == 0
    assert wheel.next_due() is None


@given(st.lists(moments, min_size=1))
def test_wheel_yields_the_oldest_tick_first_and_ties_by_insertion(dues):
    expected = sorted(enumerate(dues), key=lambda item: -(-item[1] // 1000))
    assert a_wheel(dues).advance(float("inf")) == expected
    assert a_wheel(dues).drain() == expected


@given(st.lists(moments, min_size=1), st.data())
def test_wheel_drops_removed_items_and_releases_the_rest_at_their_moment(dues, data):
    unwanted = data.draw(st.sets(st.sampled_from(range(len(dues)))))
    wheel = a_wheel(dues)

    taken = wheel.take_out(lambda item: item[0] in unwanted)

    assert sorted(number for number, _ in taken) == sorted(unwanted)
    assert len(wheel) == len(dues) - len(unwanted)
    rest = a_wheel(dues).drain()
    assert wheel.advance(float("inf")) == [item for item in rest if item[0] not in unwanted]
    assert len(wheel) == 0


@given(st.lists(moments, min_size=1))
def test_the_next_due_moment_is_when_something_can_leave(dues):
    wheel = a_wheel(dues)
    while (next_due := wheel.next_due()) is not None:
        assert wheel.advance(next_due - 0.0005) == []
        assert wheel.advance(next_due) != []


@given(st.lists(moments, min_size=1), st.lists(moments))
def test_wheel_releases_items_inserted_in_the_past_at_the_next_advance(dues, late):
    wheel = a_wheel(dues)
    wheel.advance(seconds(max(dues)) + 0.002)
    for due in late:
        wheel.insert(seconds(min(due, max(dues))), (0, due))
    assert len(wheel.advance(seconds(max(dues)) + 0.002)) == len(late)


def test_a_wheel_without_a_clock_yet_lets_nothing_go():
    assert a_wheel([EPOCH_MICROSECONDS]).advance(float("-inf")) == []
