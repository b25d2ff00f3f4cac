"""Suggestions for a sentence that cannot be read: its own words corrected where that helps, then the most similar forms."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from duly.domain.triggers.english.phrases import MONTHS, WEEKDAYS
from duly.domain.triggers.errors import nearest

FORMS = (
    "every day at 9am", "every 15 minutes", "every hour", "every weekday at 9:30am", "every monday at 9am",
    "every monday and friday at 17:00", "every minute", "every second", "every 2 days", "every week",
    "every 3 weeks on monday at 9am", "every month", "daily", "hourly", "weekly on monday at noon", "weekdays at 9am",
    "weekends at 10:30", "on mondays and fridays at 9am", "at 9am every day", "on the 1st and 15th at 09:00",
    "first monday of the month at 9am", "last day of the month at midnight", "every year on march 5 at 9am",
    "in 20 minutes", "in an hour", "today at 5pm", "tomorrow at 9am", "next friday at 17:00", "2026-12-24 at noon",
)  # fmt: skip
SHOWN = 3
# Words that may replace each other; the brackets keep the classes apart from words.
_TIMES, _NUMBERS, _NAMES, _MONTH_NAMES, _ORDINALS = _SLOTS = ("<time>", "<number>", "<day>", "<month>", "<ordinal>")
_WORDS_MAX = 16
_UNITS = ("second", "minute", "hour", "day", "week", "month", "year")
_DAYS = tuple(name.lower() for name in WEEKDAYS)
_MONTHS = tuple(name.lower() for name in MONTHS if name)
_KNOWN = (
    *_UNITS, *(f"{unit}s" for unit in _UNITS), *_DAYS, *(f"{day}s" for day in _DAYS), *_MONTHS, "every", "other", "at", "on",
    "in", "the", "of", "a", "an", "and", "weekday", "weekend", "weekdays", "weekends", "hourly", "daily", "weekly", "monthly",
    "yearly", "first", "second", "third", "fourth", "fifth", "last", "next", "today", "tomorrow", "noon", "midnight",
)  # fmt: skip
_SAID = {
    "each": "every", "everyday": "every day", "min": "minutes", "mins": "minutes", "m": "minutes", "hr": "hours",
    "hrs": "hours", "h": "hours", "sec": "seconds", "secs": "seconds", "s": "seconds", "d": "days", "annually": "yearly",
    "biweekly": "every 2 weeks", "fortnight": "2 weeks", "quarter": "3 months",
    "fortnightly": "every 2 weeks", "tonight": "today", "one": "1",
    "two": "2", "three": "3", "five": "5", "ten": "10", "@": "at", "&": "and", "or": "and",
}  # fmt: skip
_TIME = re.compile(r"\d{1,2}(:\d\d)?(am|pm)|\d\d:\d\d", re.ASCII)
_LOOSE_TIME = re.compile(r"(\d{1,2})(?::(\d\d))?(?::\d\d)? ?([ap])?\.?m?\.?", re.ASCII)
_NUMBER = re.compile(r"\d+", re.ASCII)
_ORDINAL = re.compile(r"\d{1,2}(st|nd|rd|th)", re.ASCII)
_WORD = re.compile(r"[^ \t,]+|,")
_HALVES = re.compile(r"\b(\d{1,2}(?::\d\d)?) ([ap])\.?m\b\.?", re.ASCII)
_WORKING_DAYS = re.compile(r"mon(day)?( to |-)fri(day)?")


def nearest_sentences(text: str, stop: int, is_read: Callable[[str], bool]) -> list[str]:
    """Return three valid sentences, the nearest to `text` first; reading it stopped at the character `stop`."""
    words = [match[0].lower() for match in _WORD.finditer(text)][:_WORDS_MAX]
    before = [match[0].lower() for match in _WORD.finditer(text[:stop])][:_WORDS_MAX]
    found = [one for one in (_mended(words), _mended(before)) if one and is_read(one)][:1]
    found += [form for form in _by_likeness(words, is_read) if form not in found]
    return found[:SHOWN]


def _mended(words: list[str]) -> str:
    """Correct unknown words and times of day."""
    mended = " ".join(_known_word(word) for word in words).replace(" ,", ",")
    return " ".join(_with_times(_WORKING_DAYS.sub("weekday", mended).split()))


def _known_word(word: str) -> str:
    if word in _KNOWN or word == "," or any(letter.isdigit() for letter in word):
        return word
    bare = word.strip(".,;!?\"'")
    return _SAID.get(bare) or nearest(bare, _KNOWN, 0.55) or bare


def _with_times(words: list[str]) -> list[str]:
    """Write `at 9`, `9 am` and `9a` as `at 9am`."""
    words = _HALVES.sub(r"\1\2m", " ".join(words)).split()
    found: list[str] = []
    for word in words:
        if found and found[-1] == "at" and (loose := _LOOSE_TIME.fullmatch(word)) and not _TIME.fullmatch(word):
            found.append(_tidy_time(loose))
        else:
            found.append(word)
    return _with_at(found)


def _tidy_time(loose: re.Match[str]) -> str:
    minutes = f":{loose[2]}" if loose[2] else ""
    if loose[3]:
        return f"{int(loose[1])}{minutes}{loose[3]}m"
    if loose[2] or int(loose[1]) > 12 or int(loose[1]) == 0:
        return f"{int(loose[1]):02}{minutes or ':00'}"
    return f"{loose[1]}am"


def _with_at(words: list[str]) -> list[str]:
    found: list[str] = []
    for word in words:
        if _TIME.fullmatch(word) and (not found or found[-1] != "at"):
            found = [*found[:-1], "at"] if found and found[-1] == "on" else [*found, "at"]
        found.append(word)
    return found


def _by_likeness(words: list[str], is_read: Callable[[str], bool]) -> Iterable[str]:
    """Return forms by how many words they share with the text, with its own numbers, times and days inserted."""
    mended = _mended(words).replace(",", " ").split()
    kinds = {_kind(word) for word in mended}
    text = " ".join(mended)

    def likeness(form: str) -> float:
        shared = {_kind(word) for word in form.split()}
        return len(kinds & shared) / len(kinds | shared) + (0.1 if nearest(form, [text]) else 0)

    for form in sorted(FORMS, key=likeness, reverse=True):
        filled = _filled(form, mended)
        yield filled if is_read(filled) else form


def _kind(word: str) -> str:
    """Map all numbers, times, weekdays and months to their class, and a unit to its singular."""
    if _TIME.fullmatch(word) or word in ("noon", "midnight"):
        return _TIMES
    if word.removesuffix("s") in _DAYS:
        return _NAMES
    if word in _MONTHS:
        return _MONTH_NAMES
    if _ORDINAL.fullmatch(word):
        return _ORDINALS
    return _NUMBERS if _NUMBER.fullmatch(word) else word.removesuffix("s")


def _filled(form: str, words: list[str]) -> str:
    """Insert the times, numbers and weekdays of the text into a form."""
    given = {kind: [word for word in words if _kind(word) == kind] for kind in _SLOTS}
    found = []
    for word in form.split():
        own = given.get(_kind(word))
        found.append(_like(word, own.pop(0)) if own else word)
    return " ".join(found)


def _like(word: str, own: str) -> str:
    """Write a weekday in the singular or plural, as in the form."""
    if _kind(word) != _NAMES:
        return own
    return own.removesuffix("s") + ("s" if word.endswith("s") else "")
