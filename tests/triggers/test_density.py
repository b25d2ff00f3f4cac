"""The minimum distance of occurrences: exact for cron and fixed periods, against a walk through a year of them."""

from itertools import islice, pairwise

import pytest

from duly import triggers
from duly.domain.triggers.errors import TriggerError
from duly.domain.triggers.schedule.density import check_density, least_gap
from tests.clock import START

HOUR, DAY = 3600, 86_400


def compiled(trigger):
    return triggers.compile(trigger, job_id="job", now=START)


def cron(expr):
    return {"type": "cron", "expr": expr}


def every(period, **more):
    return {"type": "interval", "every": period, **more}


@pytest.mark.parametrize(
    ("trigger", "seconds"),
    [
        (cron("* * * * * *"), 1),
        (cron("* * * * *"), 60),
        (cron("*/7 * * * *"), 4 * 60),
        (cron("0,59 * * * *"), 60),
        (cron("0 0 * * *"), DAY),
        (cron("0 0,23 * * *"), HOUR),
        (cron("0 0,23 1 * *"), 23 * HOUR),
        (cron("0 0 1 * *"), 28 * DAY),
        (cron("0 0 1,31 * *"), DAY),
        (cron("0 0 29 2 *"), 4 * 365 * DAY + DAY),
        (cron("10,50 0 9 * * *"), 40),
        (cron("50 59 23,0 * * *"), HOUR),
        (cron("0 9 * * MON"), 7 * DAY),
        (cron("0 9 * * MON#1"), 28 * DAY),
        (every("PT90S"), 90),
        (every("PT90S", mode="fixed_delay"), 90),
        ({"type": "iso8601", "text": "R/2026-11-03T00:00:00Z/PT20M"}, 1200),
        ({"type": "iso8601", "text": "R/2026-11-03T00:00:00Z/P1M"}, 28 * DAY),
        ({"type": "rrule", "rrule": "FREQ=DAILY;BYHOUR=9,10", "dtstart": "2026-11-03T09:00:00"}, HOUR),
        ({"type": "any", "of": [cron("0 * * * *"), cron("1 * * * *")]}, 60),
        ({"type": "any", "of": [cron("0 0 1 1 *"), cron("0,5 0 1 7 *")]}, 300),
        ({"type": "at", "at": "2026-12-01T00:00:00Z"}, None),
    ],
    ids=str,
)
def test_the_smallest_distance_between_two_occurrences(trigger, seconds):
    assert least_gap(compiled(trigger), START) == seconds


@pytest.mark.parametrize(
    "expr",
    ["*/7 */5 * * *", "3,4,50 1-4,22 * * SUN,MON", "0 0,12,23 1-3,28-31 * *", "15 2-23/7 */2 * *", "5 4 L * FRI"],
)
def test_no_two_occurrences_of_years_are_closer_and_some_are_as_close(expr):
    rule = compiled(cron(expr))
    walked = islice(rule.between(START.replace(year=2024), START.replace(year=2029)), 60_000)

    assert min((later - earlier).total_seconds() for earlier, later in pairwise(walked)) == least_gap(rule, START)


def test_trigger_at_the_density_limit_is_accepted_and_a_denser_trigger_refused():
    rule = compiled(cron("*/5 * * * *"))

    check_density(rule, START, None)
    check_density(rule, START, 300)
    with pytest.raises(TriggerError, match=r"can be PT5M apart, and this tenant's limit is PT5M1S apart") as refused:
        check_density(rule, START, 301)
    assert (refused.value.code, refused.value.field, refused.value.hint) == ("LIMIT", "trigger", "PT5M1S")
