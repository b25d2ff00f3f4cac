"""Schedules in English: a closed grammar, read word by word. What is outside it is refused at the word where it left."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date
from typing import Any

from duly.domain.triggers.english import MONTHS, WEEKDAYS, ordinal
from duly.domain.triggers.errors import TriggerError
from duly.domain.triggers.moments import DAY, EPOCH_ORDINAL, LAST_YEAR, month_days, utc_text
from duly.domain.triggers.periods import clock_iso
from duly.domain.triggers.sentence import Sentence
from duly.domain.triggers.stamps import FIRST_YEAR, only_instant
from duly.domain.triggers.zones import Zone

CHARACTERS_MAX = 256
_STRANGE = re.compile(r"[^\x21-\x7e \t]")
_TWELVE = re.compile(r"(\d{1,2})(?::(\d\d))?(am|pm)", re.ASCII)
_TWENTY_FOUR = re.compile(r"(\d\d):(\d\d)", re.ASCII)
_ORDINAL = re.compile(r"(\d{1,2})(?:st|nd|rd|th)", re.ASCII)
_DATE = re.compile(r"(\d{4})-(\d\d)-(\d\d)", re.ASCII)
_NUMBER = re.compile(r"\d{1,6}", re.ASCII)
_DAY_NUMBERS = {name.lower(): number for number, name in enumerate(WEEKDAYS)}
_DAY_NUMBERS |= {name[:3].lower(): number for number, name in enumerate(WEEKDAYS)}
_MONTH_NUMBERS = {name.lower(): number for number, name in enumerate(MONTHS) if name}
_MONTH_NUMBERS |= {name[:3].lower(): number for number, name in enumerate(MONTHS) if name}
_UNITS = {"second": 1, "minute": 60, "hour": 3600}
_WHICH = {"first": "1", "second": "2", "third": "3", "fourth": "4", "fifth": "5", "last": "L"}
_NAMED_TIMES = {"noon": (12, 0), "midnight": (0, 0)}


def parse(text: str, zone: Zone, now: int) -> dict[str, Any]:
    """Turn English into the trigger it stands for. Raises TriggerError at the word that does not fit."""
    if len(text) > CHARACTERS_MAX:
        raise TriggerError(
            "LIMIT", f"text has {len(text)} characters, over the limit of {CHARACTERS_MAX}; shorten it", "text"
        )
    if strange := _STRANGE.search(text):
        message = (
            f'text: stopped at "{strange[0]}", position {strange.start() + 1}; plain English letters and digits only'
        )
        raise TriggerError(
            "TEXT_UNREADABLE", message.encode("utf-8", "replace").decode(), "text", expression=text, span=strange.span()
        )
    sentence = Sentence(text)
    trigger = _read(sentence, zone, now)
    sentence.end()
    return trigger


def _read(sentence: Sentence, zone: Zone, now: int) -> dict[str, Any]:
    word = sentence.word
    if _DATE.fullmatch(word):
        return _on_date(sentence, zone)
    if word in ("today", "tomorrow", "next"):
        return _on_near_day(sentence, zone, now)
    if word == "in":
        return _in(sentence, zone, now)
    if word == "every":
        return _every(sentence, zone, now)
    if word not in _STARTS:
        sentence.refuse("no schedule begins like that")
    return {"type": "cron", "expr": _STARTS[word](sentence), "tz": zone.name}


def _every(sentence: Sentence, zone: Zone, now: int) -> dict[str, Any]:
    sentence.take()
    if _NUMBER.fullmatch(sentence.word):
        return _every_so_often(sentence, zone, now)
    if sentence.word == "year":
        expr = _every_year(sentence)
    else:
        days = _day_set(sentence)
        hour, minute = _at_time(sentence)
        expr = f"{minute} {hour} * * {days}"
    return {"type": "cron", "expr": expr, "tz": zone.name}


def _every_so_often(sentence: Sentence, zone: Zone, now: int) -> dict[str, Any]:
    if int(sentence.word) == 0:
        sentence.refuse("a number from 1 up is needed")
    count = int(sentence.take())
    unit = sentence.word.removesuffix("s")
    if unit not in _UNITS:
        sentence.refuse("expected seconds, minutes or hours")
    sentence.take()
    expr = _even_cron(count, unit)
    if expr is not None:
        return {"type": "cron", "expr": expr, "tz": zone.name}
    return {"type": "interval", "every": clock_iso(count * _UNITS[unit]), "anchor": utc_text(now)}


def _even_cron(count: int, unit: str) -> str | None:
    """Write a rhythm that fits the minute, the hour or the day as cron."""
    whole = 24 if unit == "hour" else 60
    if whole % count:
        return None
    step = {1: "*", whole: "0"}.get(count, f"*/{count}")
    if unit == "second":
        return "* * * * *" if count == whole else f"{step} * * * * *"
    return f"{step} * * * *" if unit == "minute" else f"0 {step} * * *"


def _every_year(sentence: Sentence) -> str:
    sentence.take()
    sentence.expect("on")
    if sentence.word not in _MONTH_NUMBERS:
        sentence.refuse("expected a month, such as march")
    month = _MONTH_NUMBERS[sentence.take()]
    longest = month_days(2024, month)
    if not _NUMBER.fullmatch(sentence.word) or not 1 <= int(sentence.word) <= longest:
        sentence.refuse(f"expected a day from 1 to {longest}")
    day = int(sentence.take())
    hour, minute = _at_time(sentence)
    return f"{minute} {hour} {day} {month} *"


def _day_set(sentence: Sentence) -> str:
    group = {"day": "*", "weekday": "1-5", "weekend": "0,6"}.get(sentence.word)
    if group is not None:
        sentence.take()
        return group
    numbers = _list(sentence, _day_number)
    return ",".join(str(number) for number in sorted(set(numbers)))


def _day_number(sentence: Sentence) -> int:
    if sentence.word not in _DAY_NUMBERS:
        sentence.refuse("expected a day of the week, such as monday")
    return _DAY_NUMBERS[sentence.take()]


def _list(sentence: Sentence, read: Callable[[Sentence], int]) -> list[int]:
    """Read `a`, `a and b` or `a, b and c`."""
    found = [read(sentence)]
    while sentence.word in (",", "and"):
        joint = sentence.take()
        if joint == "," and sentence.word == "and":
            sentence.take()
            joint = "and"
        found.append(read(sentence))
        if joint == "and":
            break
    return found


def _daily(sentence: Sentence) -> str:
    sentence.take()
    return "0 0 * * *"


def _hourly(sentence: Sentence) -> str:
    sentence.take()
    return "0 * * * *"


def _weekly(sentence: Sentence) -> str:
    sentence.take()
    sentence.expect("on")
    day = _day_number(sentence)
    hour, minute = _at_time(sentence)
    return f"{minute} {hour} * * {day}"


def _on_the(sentence: Sentence) -> str:
    sentence.expect("on", "the")
    days = ",".join(str(day) for day in sorted(set(_list(sentence, _day_of_month))))
    hour, minute = _at_time(sentence)
    return f"{minute} {hour} {days} * *"


def _day_of_month(sentence: Sentence) -> int:
    match = _ORDINAL.fullmatch(sentence.word)
    if match is None or not 1 <= int(match[1]) <= 31 or sentence.word != ordinal(int(match[1])):
        sentence.refuse("expected a day from 1st to 31st")
    sentence.take()
    return int(match[1])


def _which_of_month(sentence: Sentence) -> str:
    which = _WHICH[sentence.take()]
    if which == "L" and sentence.word == "day":
        sentence.take()
        days, weekdays = "L", "*"
    else:
        days, weekdays = "*", f"{_day_number(sentence)}#{which}"
    sentence.expect("of", "the", "month")
    hour, minute = _at_time(sentence)
    return f"{minute} {hour} {days} * {weekdays}"


_STARTS: dict[str, Callable[[Sentence], str]] = {
    "daily": _daily,
    "hourly": _hourly,
    "weekly": _weekly,
    "on": _on_the,
    **dict.fromkeys(_WHICH, _which_of_month),
}


def _in(sentence: Sentence, zone: Zone, now: int) -> dict[str, Any]:
    sentence.take()
    if not _NUMBER.fullmatch(sentence.word) or int(sentence.word) == 0:
        sentence.refuse("expected a number from 1 up")
    count = int(sentence.take())
    unit = sentence.word.removesuffix("s")
    if unit not in ("minute", "hour", "day"):
        sentence.refuse("expected minutes, hours or days")
    if count * (_UNITS | {"day": DAY})[unit] > 36_500 * DAY:
        sentence.at -= 1
        sentence.refuse("that is more than a hundred years away")
    sentence.take()
    # A day is one on the calendar: the clock shows the same time again.
    second = now + count * _UNITS[unit] if unit != "day" else zone.first_instant(zone.local_at(now) + count * DAY)
    return _once(second, zone)


def _on_near_day(sentence: Sentence, zone: Zone, now: int) -> dict[str, Any]:
    today = zone.local_at(now) // DAY
    word = sentence.take()
    if word == "next":
        weekday = _day_number(sentence)
        day = today + 1 + (weekday - (today + 1 + 4)) % 7
    else:
        day = today + (1 if word == "tomorrow" else 0)
    hour, minute = _at_time(sentence)
    return _once(only_instant(day * DAY + hour * 3600 + minute * 60, zone, "text"), zone)


def _on_date(sentence: Sentence, zone: Zone) -> dict[str, Any]:
    try:
        year, month, number = map(int, sentence.word.split("-"))
        day = date(year, month, number)
    except ValueError:
        sentence.refuse("there is no such day")
    if not FIRST_YEAR <= day.year <= LAST_YEAR:
        sentence.refuse(f"the years {FIRST_YEAR} to {LAST_YEAR} are all that is looked at")
    sentence.take()
    hour, minute = _at_time(sentence)
    local = (day.toordinal() - EPOCH_ORDINAL) * DAY + hour * 3600 + minute * 60
    return _once(only_instant(local, zone, "text"), zone)


def _once(second: int, zone: Zone) -> dict[str, Any]:
    return {"type": "at", "at": utc_text(second), "tz": zone.name}


def _at_time(sentence: Sentence) -> tuple[int, int]:
    sentence.expect("at")
    word = sentence.word
    time = _NAMED_TIMES.get(word) or _twelve(word) or _twenty_four(word)
    if time is None:
        if word.isdigit():
            sentence.refuse(f"{word} is unclear: write {word}am, {word}pm or {word.zfill(2)}:00")
        sentence.refuse("expected a time, such as 9am, 9:30pm, 09:30, noon or midnight")
    sentence.take()
    return time


def _twelve(word: str) -> tuple[int, int] | None:
    match = _TWELVE.fullmatch(word)
    if match is None or not 1 <= int(match[1]) <= 12 or int(match[2] or 0) > 59:
        return None
    return int(match[1]) % 12 + (12 if match[3] == "pm" else 0), int(match[2] or 0)


def _twenty_four(word: str) -> tuple[int, int] | None:
    match = _TWENTY_FOUR.fullmatch(word)
    if match is None or int(match[1]) > 23 or int(match[2]) > 59:
        return None
    return int(match[1]), int(match[2])
