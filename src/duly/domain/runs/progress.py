"""Progress of a run: `done`, `total` and a note. Only `done` is required."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import msgspec

from duly.domain.errors import InvalidOption
from duly.domain.runs.payload import storable

NOTE_CHARACTERS_MAX = 1_000


class Progress(msgspec.Struct, frozen=True):
    """The work done, of a total that may be unknown."""

    done: float
    total: float | None = None
    note: str | None = None


def progress_of(done: float, total: float | None, note: object) -> Progress:
    """Check the progress that a handler reports. Raises InvalidOption."""
    checked = None if total is None else _check(total, "total")
    return Progress(_check(done, "done"), checked, None if note is None else storable(str(note), NOTE_CHARACTERS_MAX))


def fraction_of(done: float | None, total: float | None) -> float | None:
    """Return the share that is done, from 0 to 1; None where the total is unknown."""
    if done is None or total is None:
        return None
    return 1.0 if done >= total else done / total


def shown(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return progress for display, from its stored form."""
    return {**row, "fraction": fraction_of(row["done"], row["total"])}


def progress_text(row: Mapping[str, Any]) -> str:
    """Write progress on a line: `40 of 120 (33%), reading page 4`."""
    done = "" if row["done"] is None else _number(row["done"])
    of = "" if row["total"] is None else f" of {_number(row['total'])}"
    is_beyond = row["done"] is not None and row["total"] is not None and row["done"] > row["total"]
    part = "" if row["fraction"] is None or is_beyond else f" ({row['fraction']:.0%})"
    return ", ".join(words for words in (f"{done}{of}{part}", row["note"]) if words)


def _number(value: float) -> str:
    return f"{value:.0f}" if value == int(value) else f"{value:g}"


def _check(value: float, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidOption(f"{what} {value!r} is not a number; write progress(40, 120)")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number) or number < 0:
        raise InvalidOption(f"{what} {value!r} is not a number of at least 0; write progress(40, 120)")
    return number
