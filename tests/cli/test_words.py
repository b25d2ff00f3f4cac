"""Counts and periods in words."""

import re

import pytest

from duly.cli.commands.queues import busiest_minute
from duly.cli.render.job import policy_line
from duly.cli.render.queue import attention
from duly.domain.triggers.schedule.options import check
from duly.wire.queues import Queue, UnknownHandler


@pytest.mark.parametrize(
    ("counts", "most", "minutes"),
    [([21, 3], 21, 1), ([0, 0, 7], 7, 2), ([5, 5], 5, 1), ([1], 1, 1)],
)
def test_the_busiest_minute_ahead_is_never_in_no_time(counts, most, minutes):
    assert re.findall(r"\d+", busiest_minute(counts)) == [str(most), str(minutes)]


def test_queue_without_upcoming_fires_has_an_empty_busiest_minute():
    assert [busiest_minute(counts) for counts in ([], [0, 0])] == ["", ""]


def test_count_of_1_is_written_in_the_singular():
    schedule = check(
        {
            "trigger": {"type": "interval", "every": "PT1H", "anchor": "2026-01-01T00:00:00Z"},
            "max_runs": 1,
            "pause_on_failure": 1,
        }
    )
    policy = policy_line(schedule, None)
    unknown = [UnknownHandler(handler="send", runs=1)]
    [needed] = attention(Queue("mail", 1, 0.0, 1, 1, False, 60.0, False, 1, [], unroutable=unknown))

    for words in (policy, needed):
        assert not re.search(r"\b1 (runs|failures)\b", words), words
    assert "1 run in all, 0 left" in policy
