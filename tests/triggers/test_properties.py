"""Properties of every trigger: order, purity, the inverse, the end of time, and one canonical form."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from random import Random

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from duly import triggers
from duly.triggers import Compiled, TriggerError
from tests.triggers.shapes import random_moment, random_trigger

JOB = "job-1"
NOW = datetime(2026, 1, 1, tzinfo=UTC)
seeds = st.integers(0, 2**32)
quick = settings(max_examples=400, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.filter_too_much])


def a_trigger(random: Random) -> Compiled:
    try:
        return triggers.compile(random_trigger(random), job_id=JOB, now=NOW)
    except TriggerError as error:
        # Chance also writes what never fires; all else that it writes is valid.
        assume({single.code for single in error.errors} & {"CRON_NEVER_FIRES", "CRON_STEP", "WINDOW_EMPTY"})
        assume(False)
        raise


def some(trigger: Compiled, moment: datetime, count: int = 8) -> list[datetime]:
    found: list[datetime] = []
    while len(found) < count:
        after = trigger.next_after(moment)
        if after is None:
            break
        found.append(after)
        moment = after
    return found


@quick
@given(seeds)
def test_the_next_is_later_and_results_increase(seed: int):
    random = Random(seed)
    trigger, moment = a_trigger(random), random_moment(random)
    fires = some(trigger, moment)
    assert all(moment < fire for fire in fires)
    assert all(first < second for first, second in pairwise(fires))
    assert all(fire.tzinfo is UTC for fire in fires)


@quick
@given(seeds)
def test_asking_afresh_equals_iterating(seed: int):
    random = Random(seed)
    trigger, moment = a_trigger(random), random_moment(random)
    for first, second in pairwise(some(trigger, moment)):
        between = first + (second - first) * random.random()
        assert trigger.next_after(min(between, second - timedelta(microseconds=1))) == second


@quick
@given(seeds)
def test_the_latest_is_the_inverse_of_the_next(seed: int):
    random = Random(seed)
    trigger, moment = a_trigger(random), random_moment(random)
    fires = some(trigger, moment)
    for fire in fires:
        assert trigger.latest_at_or_before(fire) == fire
    for first, second in pairwise(fires):
        assert trigger.latest_at_or_before(second - timedelta(microseconds=1)) == first
    before = trigger.latest_at_or_before(moment)
    assert before is None or trigger.next_after(before) == (fires[0] if fires else None)


@quick
@given(seeds)
def test_the_canonical_form_fires_the_same_and_is_its_own(seed: int):
    random = Random(seed)
    trigger, moment = a_trigger(random), random_moment(random)
    again = triggers.compile(trigger.canonical, job_id=None, now=NOW + timedelta(days=1))
    assert again.canonical == trigger.canonical
    assert again.key == trigger.key
    assert again.describe() == trigger.describe()
    assert again.kind == trigger.kind
    assert some(again, moment) == some(trigger, moment)


@quick
@given(seeds)
def test_between_returns_the_same_fires_as_iteration(seed: int):
    random = Random(seed)
    trigger, moment = a_trigger(random), random_moment(random)
    fires = some(trigger, moment)
    assume(len(fires) > 2)
    assert list(trigger.between(fires[0], fires[-1])) == fires[:-1]


@pytest.mark.parametrize(
    "trigger",
    [
        {"type": "cron", "expr": "* * * * *"},
        {"type": "cron", "expr": "30 2 29 2 *", "tz": "Pacific/Auckland"},
        {"type": "interval", "every": "PT1S", "anchor": "2026-01-01T00:00:00Z"},
        {"type": "iso8601", "text": "R/2026-01-31T00:00:00Z/P1M"},
        {"type": "rrule", "rrule": "FREQ=DAILY", "dtstart": "2026-01-01T00:00:00", "tz": "America/Nuuk"},
    ],
)
def test_the_search_ends_with_2199(trigger: dict[str, str]):
    compiled = triggers.compile(trigger)
    end = datetime(2200, 1, 1, tzinfo=UTC)
    last = compiled.latest_at_or_before(datetime(9999, 12, 31, tzinfo=UTC))
    assert last is not None
    assert last < end
    assert compiled.next_after(last) is None
    assert compiled.next_after(datetime(9999, 12, 31, tzinfo=UTC)) is None
    assert compiled.next_after(datetime.min.replace(tzinfo=UTC)) is not None
    assert next(iter(compiled.between(datetime.min.replace(tzinfo=UTC), end))) is not None
    first = compiled.latest_at_or_before(datetime.min.replace(tzinfo=UTC))
    assert first is None


def test_the_clock_and_the_host_zone_play_no_part(monkeypatch):
    trigger = {"type": "cron", "expr": "30 2 * * *", "tz": "Europe/Paris"}
    here = triggers.compile(trigger).next_after(NOW)
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    assert triggers.compile(trigger, now=NOW).next_after(NOW) == here


def test_a_moment_without_a_zone_is_no_moment():
    with pytest.raises(TypeError):
        triggers.compile({"type": "cron", "expr": "* * * * *"}).next_after(datetime(2026, 1, 1))  # noqa: DTZ001
