"""Schedules in English: a closed grammar, read word by word. Other text is refused at the first word that does not fit."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import date, timedelta
from itertools import count as counting
from typing import Any

from duly.domain.duration import to_iso
from duly.domain.triggers.english.phrases import MONTHS, WEEKDAYS, ordinal
from duly.domain.triggers.english.sentence import Sentence
from duly.domain.triggers.english.suggestions import nearest_sentences
from duly.domain.triggers.errors import TriggerError, check_length
from duly.domain.triggers.moments import (
    DAY,
    EPOCH_ORDINAL,
    LAST_YEAR,
    date_of,
    day_of,
    local_text,
    month_days,
    utc_text,
)
from duly.domain.triggers.stamps import FIRST_YEAR, only_instant
from duly.domain.triggers.zones.zones import Zone

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
_PLURAL_DAYS = {f"{name.lower()}s": number for number, name in enumerate(WEEKDAYS)}
_DAY_GROUPS = {"day": "*", "weekday": "1-5", "weekend": "0,6"}
_UNITS = {"second": 1, "minute": 60, "hour": 3600}
_CALENDAR_UNITS = {"day": DAY, "week": 7 * DAY, "month": 31 * DAY, "year": 366 * DAY}
_LONGEST = 36_500 * DAY
_WHICH = {"first": "1", "second": "2", "third": "3", "fourth": "4", "fifth": "5", "last": "L"}
_MIDNIGHT = (0, 0)
_NAMED_TIMES = {"noon": (12, 0), "midnight": _MIDNIGHT}


def parse(text: str, zone: Zone, now: int) -> dict[str, Any]:
    """Turn English into the trigger it stands for. Raises TriggerError at the word that does not fit."""
    check_length(text, "text", CHARACTERS_MAX)
    if strange := _STRANGE.search(text):
        message = (
            f'text: stopped at "{strange[0]}", position {strange.start() + 1}; plain English letters and digits only'
        )
        raise TriggerError(
            "TEXT_UNREADABLE", message.encode("utf-8", "replace").decode(), "text", expression=text, span=strange.span()
        )
    try:
        return _parse(text, zone, now)
    except TriggerError as error:
        if error.code == "TEXT_UNREADABLE":
            _suggest(error, text, zone, now)
        raise


def _parse(text: str, zone: Zone, now: int) -> dict[str, Any]:
    sentence = Sentence(text)
    if sentence.word == "at":
        sentence.time = _time(sentence)
    trigger = _read(sentence, zone, now)
    sentence.end()
    if sentence.time is not None:
        sentence.at = 1
        sentence.refuse("a time of day is for days only")
    return trigger


def _suggest(error: TriggerError, text: str, zone: Zone, now: int) -> None:
    """Add the nearest valid sentences; the first is the hint."""

    def is_read(candidate: str) -> bool:
        try:
            return bool(_parse(candidate, zone, now))
        except TriggerError:
            return False

    stop = 0 if error.span is None else error.span[0]
    forms = nearest_sentences(text, stop, is_read)
    error.hint = forms[0]
    error.message += f"; accepted are such as {'; '.join(forms)}"
    error.args = (error.message,)


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
        sentence.refuse("no schedule begins with this")
    return {"type": "cron", "expr": _STARTS[word](sentence), "tz": zone.name}


def _every(sentence: Sentence, zone: Zone, now: int) -> dict[str, Any]:
    sentence.take()
    if _NUMBER.fullmatch(sentence.word):
        if int(sentence.word) == 0:
            sentence.refuse("a number from 1 up is needed")
        return _every_so_often(sentence, int(sentence.take()), zone, now)
    if sentence.word == "other":
        sentence.take()
        return _every_so_often(sentence, 2, zone, now)
    if sentence.word in _UNITS or sentence.word in _CALENDAR_UNITS:
        return _every_so_often(sentence, 1, zone, now)
    if sentence.word not in _DAY_GROUPS and sentence.word not in _DAY_NUMBERS:
        sentence.refuse("expected a number, a unit such as hour or day, or a day of the week such as monday")
    return {"type": "cron", "expr": _at_days(sentence, _day_set(sentence)), "tz": zone.name}


def _every_so_often(sentence: Sentence, count: int, zone: Zone, now: int) -> dict[str, Any]:
    """Read the unit, and what goes with it."""
    unit = sentence.word.removesuffix("s")
    if unit not in _UNITS and unit not in _CALENDAR_UNITS:
        sentence.refuse("expected seconds, minutes, hours, days, weeks, months or years")
    if count * (_UNITS | _CALENDAR_UNITS)[unit] > _LONGEST:
        sentence.at -= 1
        sentence.refuse("that is more than a hundred years apart")
    sentence.take()
    if unit in _CALENDAR_UNITS:
        return _every_few(sentence, count, unit, zone, now)
    expr = _even_cron(count, unit)
    if expr is not None:
        return {"type": "cron", "expr": expr, "tz": zone.name}
    every = to_iso(timedelta(seconds=count * _UNITS[unit]))
    return {"type": "interval", "every": every, "anchor": utc_text(now), "tz": zone.name}


def _every_few(sentence: Sentence, count: int, unit: str, zone: Zone, now: int) -> dict[str, Any]:
    """Read a rhythm of the calendar: cron for every one of a unit, otherwise a repetition from the first to come."""
    if count == 1:
        return {"type": "cron", "expr": _EACH[unit](sentence), "tz": zone.name}
    weekday = 0
    if unit == "week" and sentence.word == "on":
        sentence.take()
        weekday = _day_number(sentence)
    hour, minute = _at_time(sentence, _MIDNIGHT)
    today = zone.local_at(now) // DAY
    days = _candidates(today, unit, weekday)
    start = _first_start(days, hour * 3600 + minute * 60, zone, now)
    return {"type": "iso8601", "text": f"R/{local_text(start)}/P{count}{unit[0].upper()}", "tz": zone.name}


def _candidates(today: int, unit: str, weekday: int) -> Iterator[int]:
    """Return the days from today on at which a unit may begin: any day, one weekday, the first of a month or of a year."""
    if unit == "day":
        return counting(today)
    if unit == "week":
        return counting(today + (weekday - today - 4) % 7, 7)
    first = date_of(today)
    months = counting(first.month - 1, 1) if unit == "month" else counting(0, 12)
    return (day_of(first.year + month // 12, month % 12 + 1, 1) for month in months)


def _first_start(days: Iterator[int], time: int, zone: Zone, now: int) -> int:
    """Return the first local time that is not past and names one moment, so that the stored form can be read again."""
    for day in days:
        found = zone.instants_of(day * DAY + time)
        if len(found) == 1 and found[0] >= now:
            return day * DAY + time
    raise AssertionError("unreachable")


def _even_cron(count: int, unit: str) -> str | None:
    """Write a rhythm that fits the minute, the hour or the day as cron."""
    whole = 24 if unit == "hour" else 60
    if whole % count:
        return None
    step = {1: "*", whole: "0"}.get(count, f"*/{count}")
    if unit == "second":
        return "* * * * *" if count == whole else f"{step} * * * * *"
    return f"{step} * * * *" if unit == "minute" else f"0 {step} * * *"


def _each_week(sentence: Sentence) -> str:
    """Read the weekday, which is Sunday if none is named, as with @weekly."""
    if sentence.word != "on":
        return _at_days(sentence, "0")
    sentence.take()
    return _at_days(sentence, str(_day_number(sentence)))


def _each_month(sentence: Sentence) -> str:
    if sentence.word == "on":
        return _on_the(sentence)
    hour, minute = _at_time(sentence, _MIDNIGHT)
    return f"{minute} {hour} 1 * *"


def _each_year(sentence: Sentence) -> str:
    day, month = (1, 1) if sentence.word != "on" else _day_of_year(sentence)
    hour, minute = _at_time(sentence, _MIDNIGHT)
    return f"{minute} {hour} {day} {month} *"


def _day_of_year(sentence: Sentence) -> tuple[int, int]:
    sentence.take()
    if sentence.word not in _MONTH_NUMBERS:
        sentence.refuse("expected a month, such as march")
    month = _MONTH_NUMBERS[sentence.take()]
    longest = month_days(2024, month)
    if not _NUMBER.fullmatch(sentence.word) or not 1 <= int(sentence.word) <= longest:
        sentence.refuse(f"expected a day from 1 to {longest}")
    return int(sentence.take()), month


def _at_days(sentence: Sentence, weekdays: str) -> str:
    hour, minute = _at_time(sentence, _MIDNIGHT)
    return f"{minute} {hour} * * {weekdays}"


def _day_set(sentence: Sentence) -> str:
    group = _DAY_GROUPS.get(sentence.word)
    if group is not None:
        sentence.take()
        return group
    return _weekdays(_list(sentence, _day_number))


def _plural_days(sentence: Sentence) -> str:
    """Read `weekdays`, `weekends` or `mondays and fridays`."""
    group = _DAY_GROUPS.get(sentence.word.removesuffix("s"))
    if group is not None:
        sentence.take()
        return _at_days(sentence, group)
    return _at_days(sentence, _weekdays(_list(sentence, _plural_day)))


def _plural_day(sentence: Sentence) -> int:
    if sentence.word not in _PLURAL_DAYS:
        sentence.refuse("expected days of the week, such as mondays")
    return _PLURAL_DAYS[sentence.take()]


def _weekdays(numbers: list[int]) -> str:
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


def _hourly(sentence: Sentence) -> str:
    sentence.take()
    return "0 * * * *"


def _each(unit: str) -> Callable[[Sentence], str]:
    def read(sentence: Sentence) -> str:
        sentence.take()
        return _EACH[unit](sentence)

    return read


def _on(sentence: Sentence) -> str:
    if sentence.tokens[sentence.at + 1 : sentence.at + 2] and sentence.tokens[sentence.at + 1].word in _PLURALS:
        sentence.take()
        return _plural_days(sentence)
    return _on_the(sentence)


def _on_the(sentence: Sentence) -> str:
    sentence.expect("on", "the")
    days = ",".join(str(day) for day in sorted(set(_list(sentence, _day_of_month))))
    hour, minute = _at_time(sentence, _MIDNIGHT)
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
    hour, minute = _at_time(sentence, _MIDNIGHT)
    return f"{minute} {hour} {days} * {weekdays}"


_EACH: dict[str, Callable[[Sentence], str]] = {
    "day": lambda sentence: _at_days(sentence, "*"),
    "week": _each_week,
    "month": _each_month,
    "year": _each_year,
}
_PLURALS = ("weekdays", "weekends", *_PLURAL_DAYS)
_STARTS: dict[str, Callable[[Sentence], str]] = {
    "hourly": _hourly,
    "daily": _each("day"),
    "weekly": _each("week"),
    "monthly": _each("month"),
    "yearly": _each("year"),
    "on": _on,
    **dict.fromkeys(_PLURALS, _plural_days),
    **dict.fromkeys(_WHICH, _which_of_month),
}


def _in(sentence: Sentence, zone: Zone, now: int) -> dict[str, Any]:
    sentence.take()
    if sentence.word not in ("a", "an") and (not _NUMBER.fullmatch(sentence.word) or int(sentence.word) == 0):
        sentence.refuse("expected a number from 1 up")
    word = sentence.take()
    count = 1 if word in ("a", "an") else int(word)
    unit = sentence.word.removesuffix("s")
    if unit not in (*_UNITS, "day", "week"):
        sentence.refuse("expected seconds, minutes, hours, days or weeks")
    size = (_UNITS | _CALENDAR_UNITS)[unit]
    if count * size > _LONGEST:
        sentence.at -= 1
        sentence.refuse("that is more than a hundred years away")
    sentence.take()
    # A day is one on the calendar: the clock shows the same time again.
    second = now + count * size if unit in _UNITS else zone.first_instant(zone.local_at(now) + count * size)
    return _at_moment(second, zone)


def _on_near_day(sentence: Sentence, zone: Zone, now: int) -> dict[str, Any]:
    today = zone.local_at(now) // DAY
    word = sentence.take()
    if word == "next":
        weekday = _day_number(sentence)
        day = today + 1 + (weekday - (today + 1 + 4)) % 7
    else:
        day = today + (1 if word == "tomorrow" else 0)
    hour, minute = _at_time(sentence)
    return _at_moment(only_instant(day * DAY + hour * 3600 + minute * 60, zone, "text"), zone)


def _on_date(sentence: Sentence, zone: Zone) -> dict[str, Any]:
    try:
        year, month, number = map(int, sentence.word.split("-"))
        day = date(year, month, number)
    except ValueError:
        sentence.refuse("there is no such day")
    if not FIRST_YEAR <= day.year <= LAST_YEAR:
        sentence.refuse(f"the years {FIRST_YEAR} to {LAST_YEAR} are supported")
    sentence.take()
    hour, minute = _at_time(sentence)
    local = (day.toordinal() - EPOCH_ORDINAL) * DAY + hour * 3600 + minute * 60
    return _at_moment(only_instant(local, zone, "text"), zone)


def _at_moment(second: int, zone: Zone) -> dict[str, Any]:
    return {"type": "at", "at": utc_text(second), "tz": zone.name}


def _at_time(sentence: Sentence, otherwise: tuple[int, int] | None = None) -> tuple[int, int]:
    """Read the time of day, unless it came first; recurring schedules have a default."""
    if sentence.time is not None:
        time, sentence.time = sentence.time, None
        return time
    if otherwise is not None and sentence.word != "at":
        return otherwise
    return _time(sentence)


def _time(sentence: Sentence) -> tuple[int, int]:
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
