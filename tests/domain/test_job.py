"""Requested jobs are checked before it reaches the store, and each refusal names the value and the remedy."""

from datetime import datetime, timedelta, timezone

import pytest

from duly.domain.errors import InvalidOption, InvalidSchedule
from duly.domain.jobs.job import check_delay, check_moment, check_name, check_priority, check_timeout
from duly.domain.runs.expiry import check_expires_at


@pytest.mark.parametrize("name", ["a", "nightly report", "ü", "x" * 200, "a/b:c"])
def test_a_printable_name_is_taken(name):
    assert check_name(name, "queue") == name


@pytest.mark.parametrize("name", ["", "x" * 201, "a\nb", "a\0b", "\x7f", "a\u200bb", "\ud800"])
def test_another_name_is_refused(name):
    with pytest.raises(InvalidOption, match="is not a name: 1 to 200 printable characters"):
        check_name(name, "queue")


@pytest.mark.parametrize("priority", range(10))
def test_priorities_run_from_0_to_9(priority):
    assert check_priority(priority) == priority


@pytest.mark.parametrize("priority", [-1, 10, True])
def test_another_priority_is_refused(priority):
    with pytest.raises(InvalidOption, match=r"is outside 0 \(first\) to 9 \(last\)"):
        check_priority(priority)


def test_a_moment_names_its_zone():
    moment = datetime(2026, 11, 1, 9, tzinfo=timezone(timedelta(hours=1)))

    assert check_moment(moment, "at") == moment
    with pytest.raises(InvalidSchedule, match="has no time zone"):
        check_moment(moment.replace(tzinfo=None), "at")


@pytest.mark.parametrize(
    "moment", ["9999-12-31T23:59:59.999999+00:00", "9999-01-01T00:00:00+00:00", "0001-01-01T00:00:00+00:00"]
)
def test_a_moment_at_the_end_of_all_years_is_refused_in_words(moment):
    with pytest.raises(InvalidSchedule, match=r"^at .* is outside the years 2 to 9998"):
        check_moment(datetime.fromisoformat(moment), "at")
    with pytest.raises(InvalidSchedule, match=r"^expires_at .* is outside the years 2 to 9998"):
        check_expires_at(datetime.fromisoformat(moment))


def test_a_delay_is_zero_or_more_and_within_reach():
    assert check_delay("PT0S") == timedelta()
    assert check_delay("PT10M") == timedelta(minutes=10)
    with pytest.raises(InvalidSchedule, match="is negative"):
        check_delay(-0.001)
    with pytest.raises(
        InvalidSchedule, match="delay 'P36501D' is too long; the longest is 100 years, 3153600000 seconds"
    ):
        check_delay("P36501D")


def test_a_timeout_is_more_than_nothing():
    assert check_timeout(None) is None
    assert check_timeout("PT1M") == 60.0
    for value in (0, -1):
        with pytest.raises(InvalidOption, match="must be more than 0"):
            check_timeout(value)


@pytest.mark.parametrize("value", [1e308, "PT99999999999999H", "soon"])
def test_a_timeout_that_cannot_be_is_no_matter_of_the_schedule(value):
    with pytest.raises(InvalidOption, match="timeout"):
        check_timeout(value)
