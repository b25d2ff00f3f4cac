"""Keywords of a schedule become its shape, and what is wrong with them is said at once."""

from datetime import UTC, datetime, timedelta

import pytest

from duly.domain.errors import InvalidOption, InvalidSchedule
from duly.domain.triggers.errors import TriggerError
from duly.domain.triggers.schedule.options import check
from duly.sdk.keywords import When, check_known, shape_of


def checked(when):
    shape = shape_of(when)
    assert shape
    return check(shape)


CRON = {"type": "cron", "expr": "0 2 * * *"}


@pytest.mark.parametrize(
    ("when", "shape"),
    [
        ({}, None),
        ({"cron": None, "tz": None}, None),
        ({"cron": "0 2 * * *"}, {"trigger": CRON}),
        ({"cron": "0 2 * * *", "tz": "Europe/Paris"}, {"trigger": CRON | {"tz": "Europe/Paris"}}),
        ({"every": "P1D"}, {"trigger": {"type": "interval", "every": "PT24H"}}),
        ({"every": timedelta(minutes=5)}, {"trigger": {"type": "interval", "every": "PT5M"}}),
        ({"when": "every day at 9am"}, {"trigger": {"type": "text", "text": "every day at 9am"}}),
        ({"schedule": {"trigger": CRON, "max_runs": 3}}, {"trigger": CRON, "max_runs": 3}),
        (
            {"cron": "0 2 * * *", "jitter": "PT5M", "overlap": "queue", "misfire": "skip", "calendars": ["uk"]},
            {
                "trigger": CRON,
                "jitter": {"max": "PT5M"},
                "overlap": {"policy": "queue"},
                "misfire": {"policy": "skip"},
                "calendars": [{"name": "uk"}],
            },
        ),
        (
            {
                "cron": "0 2 * * *",
                "jitter": {"max": "PT5M", "per": "occurrence"},
                "overlap": {"policy": "allow", "limit": 2},
            },
            {
                "trigger": CRON,
                "jitter": {"max": "PT5M", "per": "occurrence"},
                "overlap": {"policy": "allow", "limit": 2},
            },
        ),
        (
            {
                "cron": "0 2 * * *",
                "jitter": 90,
                "start": datetime(2026, 1, 1, tzinfo=UTC),
                "end": "2027-01-01T00:00:00Z",
            },
            {
                "trigger": CRON,
                "jitter": {"max": "PT1M30S"},
                "start": "2026-01-01T00:00:00+00:00",
                "end": "2027-01-01T00:00:00Z",
            },
        ),
        (
            {"cron": "0 2 * * *", "max_runs": 3, "pause_on_failure": 2},
            {"trigger": CRON, "max_runs": 3, "pause_on_failure": 2},
        ),
    ],
)
def test_keywords_become_the_shape(when, shape):
    assert shape_of(when) == shape
    if shape is not None:
        check(shape)


@pytest.mark.parametrize(
    ("when", "words"),
    [
        ({"cron": "0 2 * * *", "every": 5}, "every= and cron= are both triggers"),
        ({"jitter": "PT5M"}, "jitter= belongs to a schedule; give every="),
        ({"tz": "Europe/Paris"}, "tz= belongs to a schedule"),
        ({"schedule": {"trigger": CRON}, "tz": "UTC"}, "tz= goes into the trigger of schedule="),
        ({"schedule": "0 2 * * *"}, "is not the shape of a schedule"),
    ],
)
def test_keywords_that_contradict_each_other_are_refused(when, words):
    with pytest.raises(InvalidOption, match=words):
        shape_of(when)


def test_a_period_that_is_none_and_a_moment_without_a_zone_are_refused():
    with pytest.raises(InvalidSchedule, match="shorter than one second"):
        shape_of({"every": 0.5})
    with pytest.raises(InvalidSchedule, match="has no time zone"):
        shape_of({"cron": "0 2 * * *", "start": datetime(2026, 1, 1)})  # noqa: DTZ001


@pytest.mark.parametrize(
    ("when", "words"),
    [
        ({"cron": "60 * * * *"}, "minute 60 is outside 0–59"),
        ({"cron": "0 0 30 2 *"}, "no date"),
        ({"cron": "0 2 * * *", "tz": "EST"}, "EST"),
        ({"cron": "0 2 * * *", "overlap": "quue"}, "overlap.policy 'quue' is unknown"),
        ({"cron": "0 2 * * *", "max_runs": 0}, "max_runs 0"),
        ({"cron": "0 2 * * *", "start": "2027-01-01T00:00:00Z", "end": "2026-01-01T00:00:00Z"}, "is not after start"),
        ({"cron": "0 2 * * *", "calendars": [{"name": "uk", "mode": "sometimes"}]}, "mode 'sometimes' is unknown"),
        ({"when": "every banana"}, 'stopped at "banana"'),
        ({"schedule": {"trigger": CRON, "jiter": "PT5M"}}, "jiter"),
        ({"schedule": {"trigger": CRON, "calendars": [{"name": "uk"}, "de"]}}, "'de' is not an object"),
        ({"every": timedelta(days=36_500)}, "longer than 68 years"),
    ],
)
def test_a_schedule_that_cannot_be_kept_is_refused_in_its_own_words(when, words):
    with pytest.raises(TriggerError, match=words):
        checked(when)


def test_schedule_check_ignores_past_ends_and_stored_calendars():
    checked({"cron": "0 2 * * *", "end": "2020-01-01T00:00:00Z"})
    checked({"cron": "H H * * *", "calendars": ["open", {"name": "shut", "mode": "include", "on_hit": "defer"}]})


def test_a_keyword_that_there_is_not_is_refused_with_the_nearest():
    with pytest.raises(InvalidOption, match=r"a schedule takes no crn=; did you mean cron=\?"):
        check_known({"crn": "0 2 * * *"}, When, "a schedule")
