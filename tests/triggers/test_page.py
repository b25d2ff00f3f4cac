"""The page for users names every code there is, and its examples are true."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from duly import triggers
from duly.domain.triggers.english.suggestions import FORMS
from duly.domain.triggers.errors import CODES

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "triggers.md").read_text()
WARNINGS = {"DAY_OR", "WEEKDAY_NUMBERS", "UNEVEN_STEP", "RARE", "CLOCK_CHANGE", "DENSE", "DEAD_PART"}
NOW = datetime(2026, 3, 7, 10, tzinfo=UTC)


def test_each_refusal_and_each_warning_is_on_the_page():
    named = set(re.findall(r"`([A-Z]+(?:_[A-Z]+)*)`", PAGE))
    assert named >= CODES | WARNINGS


def english_on_the_page() -> list[str]:
    table = PAGE.partition("**English**")[2].partition("Times are")[0]
    cells = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    return [sentence for cell in cells for sentence in re.findall(r"`([^`]+)`", cell)]


@pytest.mark.parametrize("sentence", [*english_on_the_page(), *FORMS])
def test_each_sentence_on_the_page_and_in_a_message_is_read(sentence: str):
    assert triggers.compile({"type": "text", "text": sentence}, now=NOW).words == sentence
