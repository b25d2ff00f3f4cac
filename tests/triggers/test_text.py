"""English schedules: each accepted sentence becomes what the table says, others are refused where they leave the grammar."""

from __future__ import annotations

import ast
from datetime import UTC, datetime
from pathlib import Path

import pytest

from duly import triggers
from duly.triggers import TriggerError

FOLDER = Path(__file__).parent
NOW = datetime(2026, 3, 7, 10, tzinfo=UTC)


def rows(name: str) -> list[tuple[str, ...]]:
    lines = (FOLDER / name).read_text().splitlines()[1:]
    cells = [[cell.strip() for cell in line.split(" | ")] for line in lines]
    return [(ast.literal_eval(first), *rest) for first, *rest in cells]


ACCEPTED, REFUSED = rows("sentences_accepted.txt"), rows("sentences_refused.txt")


def test_the_tables_are_large_enough():
    assert len(ACCEPTED) >= 200
    assert len(REFUSED) >= 200


@pytest.mark.parametrize(("sentence", "kind", "value"), ACCEPTED)
def test_a_sentence_becomes_its_trigger(sentence: str, kind: str, value: str):
    compiled = triggers.compile({"type": "text", "text": sentence}, now=NOW)
    key = {"cron": "expr", "interval": "every", "at": "at", "iso8601": "text"}[kind]
    assert (compiled.canonical["type"], compiled.canonical[key]) == (kind, value)
    assert compiled.words == sentence


@pytest.mark.parametrize(("sentence", "position"), REFUSED)
def test_sentence_outside_the_grammar_is_refused_with_its_position(sentence: str, position: str):
    with pytest.raises(TriggerError) as caught:
        triggers.compile({"type": "text", "text": sentence}, now=NOW)
    error = caught.value
    assert error.code == "TEXT_UNREADABLE"
    assert error.span is not None
    assert error.span[0] + 1 == int(position)
    assert "accepted are such as" in error.message


def test_words_in_another_zone():
    tomorrow = triggers.compile({"type": "text", "text": "tomorrow at 9am", "tz": "Pacific/Auckland"}, now=NOW)
    assert tomorrow.canonical == {"type": "at", "at": "2026-03-07T20:00:00Z", "tz": "Pacific/Auckland"}


def test_a_day_is_one_of_the_calendar():
    later = triggers.compile({"type": "text", "text": "in 1 day", "tz": "America/New_York"}, now=NOW)
    # The clock goes forward in between, so a day has 23 hours.
    assert later.canonical["at"] == "2026-03-08T09:00:00Z"


@pytest.mark.parametrize(
    ("sentence", "code"),
    [("2026-03-08 at 02:30", "LOCAL_TIME_MISSING"), ("2026-11-01 at 1:30am", "LOCAL_TIME_AMBIGUOUS")],
)
def test_a_local_time_that_is_not_one_moment_is_refused(sentence: str, code: str):
    with pytest.raises(TriggerError) as caught:
        triggers.compile({"type": "text", "text": sentence, "tz": "America/New_York"}, now=NOW)
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("sentence", "hint"),
    [
        ("every 5 mins", "every 5 minutes"),
        ("every mnday at 7pm", "every monday at 7pm"),
        ("everyday at 9am", "every day at 9am"),
        ("every day at 9", "every day at 9am"),
        ("every day at 9 pm", "every day at 9pm"),
        ("every day 17:30", "every day at 17:30"),
        ("9am weekdays", "at 9am weekdays"),
        ("every monday to friday at 8am", "every weekday at 8am"),
        ("monday at 7:30am", "every monday at 7:30am"),
        ("every fortnight", "every 2 weeks"),
        ("every 5 minutes at 9am", "every 5 minutes"),
        ("in five minutes", "in 5 minutes"),
        ("tomorow at 9am", "tomorrow at 9am"),
        ("tomorrow", "tomorrow at 9am"),
        ("every first monday of the month at 6pm", "first monday of the month at 6pm"),
        ("@daily", "daily"),
    ],
)
def test_the_hint_is_the_nearest_sentence_that_can_be_read(sentence: str, hint: str):
    with pytest.raises(TriggerError) as caught:
        triggers.compile({"type": "text", "text": sentence}, now=NOW)
    assert caught.value.hint == hint
    assert hint in caught.value.message


@pytest.mark.parametrize("sentence", [sentence for sentence, _ in REFUSED])
def test_each_hint_can_be_read(sentence: str):
    with pytest.raises(TriggerError) as caught:
        triggers.compile({"type": "text", "text": sentence}, now=NOW)
    assert caught.value.hint is not None
    triggers.compile({"type": "text", "text": caught.value.hint}, now=NOW)


@pytest.mark.parametrize(
    ("sentence", "description"),
    [
        ("every day", "At 00:00, Europe/Paris time"),
        ("every weekday", "At 00:00, Monday to Friday, Europe/Paris time"),
        ("every week", "At 00:00 on every Sunday, Europe/Paris time"),
        ("every 2 days", "Every 2 days from 2026-03-08 at 00:00, Europe/Paris time"),
        ("every 3 weeks on monday", "Every 3 weeks from 2026-03-09 at 00:00, Europe/Paris time"),
    ],
)
def test_text_without_a_time_of_day_fires_at_midnight_and_states_it(sentence: str, description: str):
    compiled = triggers.compile({"type": "text", "text": sentence, "tz": "Europe/Paris"}, now=NOW)
    assert compiled.describe() == description


def test_every_other_day_schedule_fires_at_the_same_local_time_on_clock_change():
    compiled = triggers.compile({"type": "text", "text": "every 2 days at 9am", "tz": "Europe/Paris"}, now=NOW)
    fires = list(compiled.between(datetime(2026, 3, 27, tzinfo=UTC), datetime(2026, 4, 2, tzinfo=UTC)))
    assert [fire.isoformat() for fire in fires] == [
        "2026-03-28T08:00:00+00:00", "2026-03-30T07:00:00+00:00", "2026-04-01T07:00:00+00:00",
    ]  # fmt: skip


def test_a_rhythm_does_not_begin_at_a_local_time_that_does_not_exist():
    compiled = triggers.compile({"type": "text", "text": "every 2 days at 02:30", "tz": "America/New_York"}, now=NOW)
    # 8 March, the first candidate, has no 02:30.
    assert compiled.canonical["text"] == "R/2026-03-09T02:30:00-04:00/P2D"
