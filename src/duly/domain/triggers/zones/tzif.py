"""The files of the tz database: moments of change in a binary table (RFC 9636), and a rule for the years after it."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator
from datetime import date

from duly.domain.triggers.moments import DAY, EPOCH_ORDINAL, LAST_YEAR, month_days

Change = tuple[int, int]  # the moment, and the offset from then on

_HEADER = struct.Struct(">4s c 15x 6l")
_RULE = re.compile(
    r"(?:[A-Za-z]+|<[^>]+>)(?P<standard>[+-]?[\d:]+)"
    r"(?:(?:[A-Za-z]+|<[^>]+>)(?P<summer>[+-]?[\d:]+)?,(?P<begin>[^,]+),(?P<end>[^,]+))?"
)
_YEARS_AFTER = 2  # the table reaches a little beyond the last searched year


def read(content: bytes) -> tuple[int, list[Change]]:
    """Return the offset before all changes, and every change up to the end of the searched years."""
    first, changes, rule = _read_table(content)
    return first, changes + _changes_of_rule(rule, changes)


def _read_table(content: bytes) -> tuple[int, list[Change], str]:
    body = _second_part(content)
    _, _, _, _, _, times, kinds, _ = _HEADER.unpack_from(content, body)
    at = body + _HEADER.size
    moments = struct.unpack_from(f">{times}q", content, at)
    indexes = content[at + 8 * times : at + 9 * times]
    offsets = [struct.unpack_from(">l", content, at + 9 * times + 6 * kind)[0] for kind in range(kinds)]
    rule = content[content.rindex(b"\n", 0, -1) + 1 : -1].decode("ascii")
    return offsets[0], [(moment, offsets[index]) for moment, index in zip(moments, indexes, strict=True)], rule


def _second_part(content: bytes) -> int:
    """Find the table with 64-bit moments, which follows the one with 32 bits."""
    magic, _, utc, standard, leaps, times, kinds, letters = _HEADER.unpack_from(content)
    assert magic == b"TZif"
    return int(utc + _HEADER.size + times * 5 + kinds * 6 + letters + leaps * 8 + standard)


def _changes_of_rule(rule: str, changes: list[Change]) -> list[Change]:
    match = _RULE.fullmatch(rule)
    if match is None or match["begin"] is None:
        return []
    standard = -_seconds(match["standard"])
    summer = -_seconds(match["summer"]) if match["summer"] else standard + 3600
    last = changes[-1][0] if changes else -(2**40)
    first_year = date.fromordinal(last // DAY + EPOCH_ORDINAL).year if changes else 1970
    begin, end = _yearly(match["begin"]), _yearly(match["end"])
    return [
        change
        for year in range(first_year, LAST_YEAR + _YEARS_AFTER)
        for change in sorted([(begin(year) - standard, summer), (end(year) - summer, standard)])
        if change[0] > last
    ]


def _yearly(text: str) -> Callable[[int], int]:
    """Read one side of a rule, `M3.5.0/2`, as a function from the year to the local second of the change."""
    day, _, time = text.partition("/")
    seconds = _seconds(time) if time else 7200
    if day.startswith("M"):
        month, week, weekday = map(int, day[1:].split("."))
        return lambda year: _nth_weekday(year, month, week, weekday) * DAY + seconds
    if day.startswith("J"):
        return lambda year: (_day_without_leap(year, int(day[1:]))) * DAY + seconds
    return lambda year: (date(year, 1, 1).toordinal() - EPOCH_ORDINAL + int(day)) * DAY + seconds


def _nth_weekday(year: int, month: int, week: int, weekday: int) -> int:
    first = date(year, month, 1).toordinal() - EPOCH_ORDINAL
    day = (weekday - first - 4) % 7 + 7 * (week - 1)
    return first + (day if day < month_days(year, month) else day - 7)


def _day_without_leap(year: int, number: int) -> int:
    day = date(year, 1, 1).toordinal() - EPOCH_ORDINAL + number - 1
    return day + 1 if number >= 60 and month_days(year, 2) == 29 else day


def _seconds(text: str) -> int:
    sign = -1 if text.startswith("-") else 1
    parts = [int(part) for part in text.lstrip("+-").split(":")] + [0, 0]
    return sign * (parts[0] * 3600 + parts[1] * 60 + parts[2])


def merged(first: int, changes: list[Change]) -> Iterator[Change]:
    """Drop changes of name alone, which move no clock."""
    offset = first
    for moment, changed in changes:
        if changed != offset:
            yield moment, changed
            offset = changed
