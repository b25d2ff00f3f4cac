"""Whatever is written, the answer is a trigger or a TriggerError, and it comes soon."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duly import triggers
from duly.bench.scenarios.triggers import CORPUS, hostile
from duly.triggers import TriggerError

NOW = datetime(2026, 3, 7, 10, tzinfo=UTC)
SECONDS_MAX = 0.005
# A shared machine may pause us in the middle of any call; only what is slow each time is slow.
ATTEMPTS = 5
CI_FACTOR = 6
fuzz = settings(max_examples=400, deadline=None, derandomize=True)


def words_of(alphabet: str, size: int) -> st.SearchStrategy[str]:
    return st.text(alphabet=alphabet, max_size=size)


NOISE = st.text(max_size=40)
CRON = st.one_of(
    words_of("*/-,0123456789 LWH#?+()", 60),
    st.lists(words_of("*/-,0123456789LWH#?+()JANMOFRI", 8), min_size=5, max_size=6).map(" ".join),
    words_of("CRON_TZ=Europe/London @daily*0 ", 40),
    NOISE,
)
STAMPS = st.one_of(words_of("0123456789-:TZ+.", 30), st.datetimes().map(lambda moment: moment.isoformat() + "Z"), NOISE)
DURATIONS = st.one_of(words_of("PTYMWDHS0123456789.", 20), NOISE)
REPEATS = st.one_of(st.tuples(words_of("R-0123456789", 5), STAMPS, st.one_of(DURATIONS, STAMPS)).map("/".join), NOISE)
PARTS = st.sampled_from(
    ["FREQ=DAILY", "FREQ=WEEKLY", "FREQ=MONTHLY", "FREQ=YEARLY", "INTERVAL=", "COUNT=", "UNTIL=", "BYDAY=", "BYMONTH=",
     "BYMONTHDAY=", "BYYEARDAY=", "BYSETPOS=", "BYHOUR=", "BYMINUTE=", "WKST="]
)  # fmt: skip
RULES = st.one_of(
    st.lists(st.tuples(PARTS, words_of("0123456789-,MOTUFRSAZ", 8)).map("".join), max_size=6).map(";".join),
    st.lists(PARTS, max_size=4).map(";".join),
    NOISE,
)
SENTENCES = st.one_of(
    st.lists(
        st.sampled_from(
            [
                "every",
                "day",
                "weekday",
                "at",
                "9am",
                "09:30",
                "noon",
                "on",
                "the",
                "1st",
                "and",
                "15th",
                ",",
                "of",
                "month",
                "last",
                "first",
                "monday",
                "friday",
                "in",
                "5",
                "minutes",
                "hours",
                "next",
                "tomorrow",
                "year",
                "march",
                "weekly",
                "daily",
                "2026-12-24",
                "0",
                "banana",
            ]
        ),
        max_size=9,
    ).map(" ".join),
    NOISE,
)
ZONE_NAMES = st.one_of(st.sampled_from(["UTC", "Europe/London", "EST"]), words_of("Europe/LondnAsia_+-.", 20), NOISE)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=10)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=6), inner, max_size=3)),
    max_leaves=6,
)


def ask(trigger: Any) -> None:
    """Compile and use a trigger; a refusal is an answer too."""
    try:
        compiled = triggers.compile(trigger, job_id="job", now=NOW)
    except TriggerError:
        return
    found = compiled.next_after(NOW)
    compiled.latest_at_or_before(NOW)
    assert compiled.describe()
    assert found is None or found > NOW
    assert isinstance(compiled.warnings, tuple)


@fuzz
@given(CRON, ZONE_NAMES)
def test_cron(expr: str, tz: str):
    ask({"type": "cron", "expr": expr})
    ask({"type": "cron", "expr": expr, "tz": tz})


@fuzz
@given(STAMPS, ZONE_NAMES)
def test_at(at: str, tz: str):
    ask({"type": "at", "at": at, "tz": tz})


@fuzz
@given(DURATIONS, STAMPS)
def test_interval(every: str, anchor: str):
    ask({"type": "interval", "every": every})
    ask({"type": "interval", "every": "PT1H", "anchor": anchor, "tz": "Europe/London"})


@fuzz
@given(REPEATS)
def test_iso8601(text: str):
    ask({"type": "iso8601", "text": text, "tz": "Europe/London"})


@fuzz
@given(RULES, st.lists(STAMPS, max_size=2))
def test_rrule(rule: str, exdates: list[str]):
    ask({"type": "rrule", "rrule": rule, "dtstart": "2026-01-01T09:00:00", "tz": "Europe/London"})
    ask({"type": "rrule", "rrule": rule, "dtstart": "2026-01-01T09:00:00", "exdates": exdates})


@fuzz
@given(SENTENCES)
def test_text(text: str):
    ask({"type": "text", "text": text, "tz": "America/New_York"})


@fuzz
@given(VALUES, st.sampled_from(["at", "cron", "interval", "iso8601", "rrule", "text", "any", "", None]), VALUES)
def test_any_shape(value: Any, kind: Any, other: Any):
    ask(value)
    ask({"type": kind, "expr": value, "at": value})
    for key in ("expr", "at", "every", "text", "rrule", "of"):
        ask({"type": kind, key: value, "tz": other})
        ask({"type": kind, key: value, "dtstart": other, "exdates": other})


@fuzz
@given(VALUES, VALUES)
def test_any_schedule(value: Any, other: Any):
    trigger = {"type": "cron", "expr": "0 9 * * *"}
    keys = ("start", "end", "max_runs", "jitter", "misfire", "overlap", "calendars", "pause_on_failure")
    for key in keys:
        answer = triggers.preview({"trigger": trigger, key: value}, NOW, 3, "job")
        assert answer["valid"] == (not answer["errors"])
    triggers.preview(
        {"trigger": value, "misfire": {"grace": other, "rate": value}, "overlap": {"limit": value}}, NOW, 3
    )


@fuzz
@given(VALUES, VALUES)
def test_any_calendar(value: Any, other: Any):
    for shape in (
        value,
        {"name": "c", "dates": value},
        {"name": "c", "windows": [value], "weekly": [other], "tz": other},
    ):
        try:
            triggers.read_calendar(shape)
        except TriggerError:
            continue


def best_of(call: Callable[[], object]) -> float:
    def once() -> float:
        began = time.perf_counter()
        call()
        return time.perf_counter() - began

    return min(once() for _ in range(ATTEMPTS))


@pytest.mark.parametrize("trigger", [*CORPUS, *hostile()], ids=lambda value: repr(value)[:60])
def test_nothing_takes_long(trigger: Any):
    assert best_of(partial(ask, trigger)) < SECONDS_MAX * CI_FACTOR


@pytest.mark.proof
def test_nothing_takes_over_five_milliseconds():
    slow = {repr(trigger)[:80]: best_of(partial(ask, trigger)) for trigger in [*CORPUS, *hostile()]}
    assert {text: seconds for text, seconds in slow.items() if seconds > SECONDS_MAX} == {}
