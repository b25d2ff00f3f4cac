"""Fixed rate: occurrences count from the anchor, so lateness never shifts them."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duly.domain.errors import InvalidSchedule
from duly.domain.triggers.elapsed import FixedRate
from duly.domain.triggers.interval import describe_every, parse_every
from duly.domain.triggers.moments import second_of

ANCHOR = datetime(2026, 1, 1, tzinfo=UTC)
ANCHORS = st.integers(0, 20 * 365 * 86_400).map(lambda count: ANCHOR + timedelta(seconds=count))
MOMENTS = st.integers(0, 20 * 365 * 86_400 * 10**6).map(lambda count: ANCHOR + timedelta(microseconds=count))
PERIODS = st.integers(1, 10**7)


@pytest.mark.parametrize(
    ("after", "following"), [(-5, 0), (0, 60), (1, 60), (59.999999, 60), (60, 120), (61, 120), (3600, 3660)]
)
def test_the_next_occurrence_is_the_first_one_after_the_moment(after, following):
    rule = FixedRate(60, second_of(ANCHOR))

    assert rule.next_after(ANCHOR + timedelta(seconds=after)) == ANCHOR + timedelta(seconds=following)


@given(anchor=ANCHORS, every=PERIODS, moment=MOMENTS)
def test_an_occurrence_is_after_the_moment_on_the_grid_and_none_lies_between(anchor, every, moment):
    following = FixedRate(every, second_of(anchor)).next_after(moment)
    assert following is not None

    assert following > moment or following == anchor
    assert (following - anchor) % timedelta(seconds=every) == timedelta()
    assert following == anchor or following - timedelta(seconds=every) <= moment


@pytest.mark.parametrize(("value", "seconds"), [("PT1S", 1), ("PT90S", 90), (60, 60), (timedelta(hours=2), 7200)])
def test_a_period_of_whole_seconds_is_taken(value, seconds):
    assert parse_every(value) == timedelta(seconds=seconds)


@pytest.mark.parametrize("value", ["PT0.5S", 0, -60, 0.999])
def test_a_period_under_a_second_is_refused(value):
    with pytest.raises(InvalidSchedule, match="shorter than one second"):
        parse_every(value)


def test_a_period_with_a_fraction_is_refused_with_the_nearest_that_can_be_kept():
    with pytest.raises(InvalidSchedule, match=r"write PT2M$"):
        parse_every("PT119.6S")


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (1, "Every second"),
        (90, "Every 90 seconds"),
        (60, "Every minute"),
        (300, "Every 5 minutes"),
        (3600, "Every hour"),
        (172_800, "Every 2 days"),
    ],
)
def test_period_is_described_in_the_largest_unit_that_divides_it(seconds, words):
    assert describe_every(timedelta(seconds=seconds)) == words
