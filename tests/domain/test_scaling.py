"""The number of workers that a queue needs, for every need alone and all together."""

import pytest

from duly.domain.limits.scaling import MINUTES_AHEAD, QueueLoad, Throughput, desired_workers, spread


def load(**known):
    return QueueLoad(**{"slots_per_worker": 10, **known})


@pytest.mark.parametrize(
    ("known", "workers"),
    [
        ({}, 0),
        ({"upcoming": [0] * 15}, 0),
        ({"ready": 1}, 1),
        ({"upcoming": [0, 1]}, 1),
        ({"throughput": Throughput(0.1, 0.1)}, 1),
        ({"throughput": Throughput(100, 0.5)}, 6),  # 50 slots are busy, and a fifth is free
        ({"throughput": Throughput(10, None)}, 2),  # nobody knows how long: a second
        ({"ready": 3_000, "oldest_age_seconds": 30}, 1),  # as old as it may be: no hurry
        ({"ready": 3_000, "oldest_age_seconds": 31}, 6),  # 50 slots, for a minute
        ({"ready": 3_000, "oldest_age_seconds": 31, "age_limit_seconds": 120}, 1),
        ({"ready": 3_000, "oldest_age_seconds": 90, "throughput": Throughput(50, 1.0)}, 12),
        ({"ready": 3_000, "oldest_age_seconds": 90, "throughput": Throughput(50, 0.1)}, 2),
        ({"upcoming": [0] * 10 + [6_000]}, 12),
        ({"upcoming": [6_000, 600], "throughput": Throughput(1, 0.1)}, 2),
        (
            {"upcoming": [600] * 15, "throughput": Throughput(10, 1.0)},
            2,
        ),  # what comes is what came: it is not counted twice
        ({"slots_per_worker": 0, "ready": 1}, 1),
    ],
)
def test_the_largest_need_counts(known, workers):
    assert desired_workers(load(**known)) == workers


def test_more_of_anything_never_takes_fewer():
    base = {"ready": 500, "oldest_age_seconds": 40.0, "throughput": Throughput(20, 1.0), "upcoming": [100] * 15}
    more = {
        "ready": 5_000,
        "oldest_age_seconds": 400.0,
        "throughput": Throughput(200, 1.0),
        "upcoming": [100] * 14 + [9_000],
    }
    for name, value in more.items():
        assert desired_workers(load(**(base | {name: value}))) >= desired_workers(load(**base)), name


def test_desired_workers_rise_before_a_known_peak_and_fall_when_it_ends():
    peak = [0] * 10 + [12_000] + [0] * 4
    seen = [desired_workers(load(upcoming=(peak[minute:] + [0] * minute)[:15])) for minute in range(12)]

    assert seen == [24] * 11 + [0]


@pytest.mark.parametrize(
    ("minute", "every", "expected"),
    [
        (3, None, {3: 2}),
        (0, 60, dict.fromkeys(range(15), 2)),
        (0, 300, {0: 2, 5: 2, 10: 2}),
        (14, 60, {14: 2}),
        (13, 20, {13: 6, 14: 6}),
        (0, 0.1, dict.fromkeys(range(15), 120)),
        (15, 60, {}),
        (-1, None, {}),
    ],
)
def test_repeating_job_counts_in_every_minute_it_fires(minute, every, expected):
    counted = spread(minute, 2, every)

    assert len(counted) == MINUTES_AHEAD
    assert {number: count for number, count in enumerate(counted) if count} == expected
