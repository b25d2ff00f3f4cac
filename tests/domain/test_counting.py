"""Counts are written with the noun they need."""

import pytest

from duly.domain.counting import some


@pytest.mark.parametrize(
    ("count", "nouns", "expected"),
    [(0, ("run",), "0 runs"), (1, ("run",), "1 run"), (2, ("run",), "2 runs"), (3, ("entry", "entries"), "3 entries")],
)
def test_a_count_has_its_noun(count, nouns, expected):
    assert some(count, *nouns) == expected
