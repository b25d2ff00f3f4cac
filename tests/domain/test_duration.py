"""Durations as people write them."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duly.domain.duration import parse, to_iso
from duly.domain.errors import InvalidSchedule


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("PT30S", 30),
        ("PT0.25S", 0.25),
        ("PT5M", 300),
        ("PT1H30M", 5400),
        ("P1D", 86_400),
        ("P1DT1S", 86_401),
        ("P2W", 1_209_600),
        ("P1W1DT1H1M1.5S", 694_861.5),
        ("PT90M", 5400),
        (30, 30),
        (0.5, 0.5),
        (0, 0),
        (-3, -3),
    ],
)
def test_each_way_to_write_it_is_read(text, seconds):
    assert parse(text, "delay") == timedelta(seconds=seconds)


def test_a_span_is_taken_as_it_is():
    assert parse(timedelta(minutes=3), "delay") == timedelta(minutes=3)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "P",
        "PT",
        "P1DT",
        "30",
        "1h",
        "pt30s",
        "PT30",
        "P1Y",
        "P1M",
        "-PT5S",
        "PT5S ",
        "PT1.1234567S",
        "PT５S",
        "PT-5S",
        "PT1S1M",
    ],
)
def test_anything_else_is_refused_with_an_example(text):
    with pytest.raises(InvalidSchedule, match=r"is not a duration; write PT30S"):
        parse(text, "delay")


@pytest.mark.parametrize("value", [True, False])
def test_a_truth_is_not_a_number_of_seconds(value):
    with pytest.raises(InvalidSchedule, match="is not a duration"):
        parse(value, "timeout")


@pytest.mark.parametrize("value", [float("nan"), b"PT1S", None, []])
def test_duration_of_another_type_is_refused(value):
    with pytest.raises(InvalidSchedule, match="is not a duration; write PT30S"):
        parse(value, "timeout")


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (float("inf"), "inf"),
        (float("-inf"), "-inf"),
        (1e300, r"1e\+300"),
        (9_486_720_001, "9486720001"),
        (10**400, "a number beyond reason"),
        ("P9999999999D", "'P9999999999D'"),
        ("PT" + "9" * 400 + "S", "'PT9.*S'"),
        (timedelta.max, "999999999 days"),
        (timedelta(days=109_800, seconds=1), "109800 days"),
    ],
)
def test_duration_beyond_the_maximum_is_refused_with_the_maximum(value, words):
    with pytest.raises(
        InvalidSchedule, match=f"^every {words} is too long; the longest is 300 years, 9486720000 seconds$"
    ):
        parse(value, "every")
    assert parse(9_486_720_000, "every") == parse("P109800D", "every")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "PT0S"), (90, "PT1M30S"), (3600, "PT1H"), (86_400, "PT24H"), (0.5, "PT0.5S"), (3661, "PT1H1M1S")],
)
def test_duration_is_written_in_the_largest_units_that_fit(seconds, text):
    assert to_iso(timedelta(seconds=seconds)) == text


@given(st.integers(0, 10**9))
def test_written_duration_parses_to_the_same_value(seconds):
    assert parse(to_iso(timedelta(seconds=seconds)), "every") == timedelta(seconds=seconds)
