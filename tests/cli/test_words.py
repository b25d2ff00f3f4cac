"""What is said of a count and a period says what is meant."""

import re
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from duly.cli import policies, queue_rows
from duly.cli.queues import COLUMNS
from duly.domain.triggers.schedule.options import check
from duly.store.tables.workers import WorkerRow

NOW, HOUR = datetime(2026, 11, 2, 9, tzinfo=UTC), timedelta(hours=1)


@pytest.mark.parametrize(
    ("counts", "most", "minutes"),
    [([21, 3], 21, 1), ([0, 0, 7], 7, 2), ([5, 5], 5, 1), ([1], 1, 1)],
)
def test_the_busiest_minute_ahead_is_never_in_no_time(counts, most, minutes):
    assert re.findall(r"\d+", COLUMNS["coming"]({"coming": counts})) == [str(most), str(minutes)]


def test_a_queue_without_fires_ahead_says_nothing_of_them():
    assert [COLUMNS["coming"]({"coming": counts}) for counts in ([], [0, 0])] == ["", ""]


def test_one_is_no_plural():
    schedule = check(
        {
            "trigger": {"type": "interval", "every": "PT1H", "anchor": "2026-01-01T00:00:00Z"},
            "max_runs": 1,
            "pause_on_failure": 1,
        }
    )
    policy = policies.policy_line(schedule, {"runs_left": None})
    worker = WorkerRow(UUID(int=1), "w", "0", ["mail"], ["other"], 1, HOUR, NOW, 0, NOW + HOUR, NOW)
    needed = queue_rows._attention("mail", [worker], [{"handler": "send", "runs": 1}], [], [])

    for words in (policy, needed):
        assert not re.search(r"\b1 (runs|failures)\b", words), words
    assert "1 run in all, 0 left" in policy
