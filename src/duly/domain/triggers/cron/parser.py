"""Parsing of a cron expression: zone, macro or fields; every wrong field is reported, not only the first."""

from __future__ import annotations

import re
from typing import NoReturn

import msgspec

from duly.domain.triggers.cron.fields import Reader
from duly.domain.triggers.cron.specs import DAY_OF_WEEK, FIELDS, Field
from duly.domain.triggers.errors import TriggerError, check_length, nearest, shown, together
from duly.domain.triggers.zones import zones

CHARACTERS_MAX = 256
MACROS = {
    "@YEARLY": "0 0 1 1 *",
    "@ANNUALLY": "0 0 1 1 *",
    "@MONTHLY": "0 0 1 * *",
    "@WEEKLY": "0 0 * * 0",
    "@DAILY": "0 0 * * *",
    "@MIDNIGHT": "0 0 * * *",
    "@HOURLY": "0 * * * *",
}
_ZONE = re.compile(r"[ \t]*(?:CRON_TZ|TZ)=([^ \t]*)", re.IGNORECASE)
_WORD = re.compile(r"[^ \t]+")
_STRANGE = re.compile(r"[^\x21-\x7e \t]")


class Expression(msgspec.Struct, frozen=True):
    """A cron expression as written: six fields, the one for seconds given or not."""

    second: Field
    minute: Field
    hour: Field
    day_of_month: Field
    month: Field
    day_of_week: Field
    needs_both_days: bool
    zone: zones.Zone | None
    has_numbered_weekdays_and_mark: bool


def parse(text: str, job_id: str | None) -> Expression:
    """Parse a cron expression. Raises TriggerError that carries every wrong field."""
    _check_characters(text)
    zone, at = _zone(text)
    words = [(word[0].upper(), word.start()) for word in _WORD.finditer(text, at)]
    if words and words[0][0].startswith("@"):
        return _read(text, [(word, 0) for word in _macro(text, words).split()], zone, job_id)
    return _read(text, words, zone, job_id)


def _check_characters(text: str) -> None:
    check_length(text, "expr", CHARACTERS_MAX, "split it into several triggers with any")
    if strange := _STRANGE.search(text):
        message = f"{shown(strange[0])} at position {strange.start() + 1} of expr is not allowed in a cron expression; remove it"
        raise TriggerError("CRON_SYNTAX", message, "expr", expression=text, span=strange.span())


def _zone(text: str) -> tuple[zones.Zone | None, int]:
    match = _ZONE.match(text)
    if match is None:
        return None, 0
    return zones.find(match[1], "expr", expression=text, span=match.span(1)), match.end()


def _macro(text: str, words: list[tuple[str, int]]) -> str:
    word, at = words[0]
    span = (at, len(text.rstrip()))
    if word == "@REBOOT":
        _refuse_macro(text, "@reboot is not supported; use a time, or submit the job when your program starts", span)
    if word == "@EVERY":
        _refuse_macro(text, f"{text.strip()}: use an interval, such as every PT5M", span)
    if word not in MACROS:
        meant = nearest(word, MACROS)
        remedy = f"did you mean {meant.lower()}?" if meant else f"known are {', '.join(MACROS).lower()}"
        _refuse_macro(text, f"{word.lower()} is not a macro; {remedy}", span, meant.lower() if meant else None)
    if len(words) > 1:
        _refuse_macro(text, f"{word.lower()} takes nothing after it; remove the rest", span, word.lower())
    return MACROS[word]


def _refuse_macro(text: str, message: str, span: tuple[int, int], hint: str | None = None) -> NoReturn:
    raise TriggerError("CRON_MACRO", message, "expr", hint, expression=text, span=span)


def _read(text: str, words: list[tuple[str, int]], zone: zones.Zone | None, job_id: str | None) -> Expression:
    if len(words) not in (5, 6):
        raise _wrong_count(text, words)
    reader, errors, fields = Reader(text, job_id), [], []
    needs_both, words = _without_plus(words)
    for spec, (word, at) in zip(FIELDS[6 - len(words) :], words, strict=True):
        try:
            fields.append(reader.field(spec, word, at))
        except TriggerError as error:
            errors.append(error)
    if errors:
        raise together(errors)
    if len(fields) == 5:
        fields.insert(0, Field(mask=1))
    has_mark = len(words) == 6 and "?" in (words[3][0], words[5][0])
    numbered = has_mark and any(letter.isdigit() for letter in words[5][0].partition("#")[0])
    second, minute, hour, day_of_month, month, day_of_week = fields
    return Expression(second, minute, hour, day_of_month, month, day_of_week, needs_both, zone, numbered)


def _without_plus(words: list[tuple[str, int]]) -> tuple[bool, list[tuple[str, int]]]:
    weekday, at = words[-1]
    if not weekday.startswith("+") or len(weekday) == 1:
        return False, words
    return True, [*words[:-1], (weekday[1:], at + 1)]


def _wrong_count(text: str, words: list[tuple[str, int]]) -> TriggerError:
    count = len(words)
    message = f"expr has {count} field{'' if count == 1 else 's'}; 5 or 6 expected"
    if count > 6:
        message += ". There is no year field: use start and end"
    else:
        message += f": [second] minute hour day-of-month month {DAY_OF_WEEK.title.replace(' ', '-')}"
    extra = words[6][1] if count > 6 else max(0, len(text.rstrip()) - 1)
    return TriggerError(
        "CRON_FIELD_COUNT", message, "expr", expression=text, span=(extra, max(extra + 1, len(text.rstrip())))
    )
