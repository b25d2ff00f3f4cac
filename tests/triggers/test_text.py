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
    key = {"cron": "expr", "interval": "every", "at": "at"}[kind]
    assert (compiled.canonical["type"], compiled.canonical[key]) == (kind, value)
    assert compiled.words == sentence


@pytest.mark.parametrize(("sentence", "position"), REFUSED)
def test_a_sentence_outside_the_grammar_is_refused_at_its_place(sentence: str, position: str):
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
