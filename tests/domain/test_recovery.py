"""Decisions on missed fires, by policy or by choice; and how long the recovery takes."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from duly.domain.jobs.recovery import RATE_MAX, Left, Rule, choice_for, decide, finish_at, proposed_rate
from duly.domain.triggers.schedule.reading import compile_schedule

START = datetime(2026, 11, 2, 9, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
NOTICED = START + timedelta(hours=2)
ONE, OTHER = UUID(int=1), UUID(int=2)


def a_schedule(**misfire):
    shape = {"trigger": {"type": "cron", "expr": "* * * * *"}, "misfire": misfire}
    return compile_schedule(shape, job_id=None, now=START)


def decided(choice=None, count=10, **misfire):
    verdict = decide(a_schedule(**misfire), START, START + count * MINUTE, NOTICED, choice)
    made = None if verdict.created is None else [(moment - START) // MINUTE for moment in verdict.created]
    return made, verdict.count, [(skip.reason, skip.count) for skip in verdict.skips]


MISSED = "skipped_misfire"


@pytest.mark.parametrize(
    ("misfire", "choice", "expected"),
    [
        ({"policy": "skip"}, None, (None, 0, [(MISSED, 10)])),
        ({"policy": "fire_once"}, None, ([9, 9], 1, [(MISSED, 9)])),
        ({"policy": "fire_once", "window": "PT30M"}, None, (None, 0, [(MISSED, 10)])),
        ({"policy": "fire_all"}, None, ([0, 9], 10, [])),
        ({"policy": "fire_all", "limit": 4}, None, ([6, 9], 4, [("skipped_limit", 6)])),
        ({"policy": "fire_all", "window": "PT1H55M"}, None, ([5, 9], 5, [(MISSED, 5)])),
        ({"policy": "fire_all"}, "skip", (None, 0, [(MISSED, 10)])),
        ({"policy": "fire_all"}, "fire_once", ([9, 9], 1, [(MISSED, 9)])),
        ({"policy": "fire_once", "window": "PT30M"}, "fire_once", ([9, 9], 1, [(MISSED, 9)])),
        ({"policy": "skip"}, "fire_all", ([0, 9], 10, [])),
        ({"policy": "fire_all", "limit": 4, "window": "PT1M"}, "fire_all", ([0, 9], 10, [])),
    ],
)
def test_a_policy_or_a_choice_decides(misfire, choice, expected):
    assert decided(choice, **misfire) == expected


def test_recovery_of_a_single_missed_occurrence_creates_that_occurrence():
    assert decided(None, count=1, policy="fire_once") == ([0, 0], 1, [])


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ([], None),
        ([Rule("skip")], "skip"),
        ([Rule("fire_all", tenant=1), Rule("skip")], "fire_all"),
        ([Rule("fire_once", job_id=ONE), Rule("fire_all", tenant=1), Rule("skip")], "fire_once"),
        ([Rule("fire_all", tenant=2), Rule("fire_once", job_id=OTHER)], None),
        ([Rule("fire_all"), Rule("skip")], "skip"),  # said twice, the later word counts
    ],
)
def test_the_nearest_rule_counts(rules, expected):
    assert choice_for(rules, 1, ONE) == expected


@pytest.mark.parametrize(("spare", "rate"), [(None, 50.0), (0.0, 1.0), (-3.0, 1.0), (20.0, 10.0), (5_000.0, RATE_MAX)])
def test_recovery_rate_proposal_is_half_of_the_spare_capacity(spare, rate):
    assert proposed_rate(spare) == rate


@pytest.mark.parametrize(
    ("left", "rate", "spare", "seconds"),
    [
        ([], 10, 5.0, 0),
        ([Left(100, 10)], 5, None, 20),
        ([Left(100, 10)], None, None, 10),
        ([Left(100, 100), Left(100, 100)], 10, 4.0, 50),
        ([Left(60, 1), Left(60, 10)], 100, 100.0, 60),
        ([Left(1_000, 1_000)], None, None, 2),
        ([Left(1, 1)], 1, 0.0, None),
    ],
)
def test_recovery_finish_depends_on_the_slowest_bound(left, rate, spare, seconds):
    expected = None if seconds is None else START + timedelta(seconds=seconds)

    assert finish_at(START, left, rate, spare) == expected
