from datetime import timedelta

import pytest

from duly.domain.diagnosis.figures import BOUNDS, counted_per_minute, fires_per_minute, percentile
from tests.clock import START


def histogram(**counts):
    found = [0] * (len(BOUNDS) + 1)
    for place, count in counts.items():
        found[int(place[1:])] = count
    return found


def test_of_nothing_there_is_no_percentile():
    assert percentile(histogram(), 0.5) is None
    assert percentile([], 0.5) is None


@pytest.mark.parametrize(
    ("counts", "share", "expected"),
    [
        ({"b0": 10}, 0.5, 0.0005),
        ({"b0": 10}, 1.0, 0.001),
        ({"b3": 100}, 0.5, 0.0075),
        ({"b0": 50, "b9": 50}, 0.5, 0.001),
        ({"b0": 50, "b9": 50}, 0.95, 0.95),
        ({"b20": 3}, 0.5, 3600.0),
    ],
)
def test_a_percentile_lies_within_its_bucket(counts, share, expected):
    assert percentile(histogram(**counts), share) == pytest.approx(expected)


@pytest.mark.parametrize("every", [1, 7, 10, 59, 60, 61, 90, 3600])
@pytest.mark.parametrize("first", [-30, 0, 1, 59, 60, 200])
def test_fires_by_the_minute_are_those_one_would_count_one_by_one(every, first):
    begin = START + timedelta(seconds=first)
    moments = [begin + timedelta(seconds=every * number) for number in range(700)]

    found = fires_per_minute(begin, timedelta(seconds=every), START, 10)

    assert found == counted_per_minute(moments, START, 10)
