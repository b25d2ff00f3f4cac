"""Errors of triggers: a stable code, a sentence with its remedy, the field, and the position in the text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from reprlib import Repr
from typing import Any

from duly.domain.errors import Refused

CODES = frozenset(
    [
        "CRON_FIELD_COUNT",
        "CRON_RANGE",
        "CRON_RANGE_REVERSED",
        "CRON_STEP",
        "CRON_NAME",
        "CRON_MODIFIER",
        "CRON_SYNTAX",
        "CRON_MACRO",
        "CRON_NEVER_FIRES",
        "TZ_UNKNOWN",
        "TZ_CONFLICT",
        "SUB_SECOND",
        "LOCAL_TIME_MISSING",
        "LOCAL_TIME_AMBIGUOUS",
        "DATETIME_SYNTAX",
        "DURATION_SYNTAX",
        "DURATION_ZERO",
        "DURATION_MIXED",
        "DURATION_CALENDAR",
        "ISO_SYNTAX",
        "ISO_COUNT",
        "ISO_FORM",
        "RRULE_FREQ",
        "RRULE_PART",
        "RRULE_BOUNDS",
        "WINDOW_EMPTY",
        "AT_PAST",
        "TEXT_UNREADABLE",
        "TRIGGER_TYPE",
        "TRIGGER_KEY",
        "TRIGGER_VALUE",
        "LIMIT",
    ]
)
_SHOWN_CHARACTERS_MAX = 60


# Reads only the beginning of a value, however large it is.
_brief = Repr()
_brief.maxstring = _brief.maxother = _SHOWN_CHARACTERS_MAX


class TriggerError(Refused):
    """An invalid trigger.

    `hint` is a valid replacement, `expression[span]` the wrong part, and `errors` all errors found, this one first.
    """

    def __init__(
        self,
        code: str,
        message: str,
        field: str = "",
        hint: str | None = None,
        *,
        expression: str | None = None,
        span: tuple[int, int] | None = None,
    ) -> None:
        assert code in CODES, code
        super().__init__(message)
        self.code = code
        self.message = message
        self.field = field
        self.hint = hint
        self.expression = expression
        self.span = span
        self.errors: tuple[TriggerError, ...] = (self,)

    def within(self, path: str) -> TriggerError:
        """Prefix the field with `path`, for this error and those found with it."""
        for error in self.errors:
            error.field = join(path, error.field)
        return self

    def named(self, what: str) -> TriggerError:
        """Prefix the sentence with the name of the wrong thing."""
        self.message = f"{what}: {self.message}"
        self.args = (self.message,)
        return self

    def as_json(self) -> dict[str, Any]:
        """Return the error as the API sends it."""
        shape: dict[str, Any] = {"code": self.code, "message": self.message, "field": self.field, "hint": self.hint}
        if self.span is not None:
            shape["span"] = list(self.span)
        return shape


def check_length(text: str, field: str, limit: int, remedy: str = "shorten it") -> None:
    """Refuse a text that is too long. Raises TriggerError."""
    if len(text) > limit:
        message = f"{field} has {len(text)} characters, over the limit of {limit}; {remedy}"
        raise TriggerError("LIMIT", message, field)


def join(path: str, field: str) -> str:
    """Join a path and a field: `trigger` and `expr` are `trigger.expr`."""
    if not path or not field:
        return path or field
    return path + field if field.startswith("[") else f"{path}.{field}"


def together(errors: Sequence[TriggerError]) -> TriggerError:
    """Combine errors: the first carries the others."""
    first = errors[0]
    first.errors = tuple(single for error in errors for single in error.errors)
    return first


def shown(value: object) -> str:
    """Quote a user's value, cut to fit a sentence."""
    text = _shown_number(value) if isinstance(value, int) else _brief.repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS_MAX else text[:_SHOWN_CHARACTERS_MAX] + "…"


def _shown_number(value: int) -> str:
    # Python refuses to print numbers of more than some thousand digits.
    return str(value) if value.bit_length() < 256 else "a number beyond reason"


def nearest(word: str, known: Iterable[str], share_min: float = 0.4) -> str | None:
    """Return the known word that shares most pairs of letters with `word`, if more than a minimum."""
    pairs = _pairs(word[:_SHOWN_CHARACTERS_MAX].lower())
    if not pairs:
        return None
    best, best_share = None, share_min
    for candidate in known:
        others = _pairs(candidate.lower())
        share = 2 * len(pairs & others) / (len(pairs) + len(others) or 1)
        if share > best_share:
            best, best_share = candidate, share
    return best


@lru_cache(maxsize=1024)
def _pairs(word: str) -> frozenset[str]:
    padded = f" {word} "
    return frozenset(padded[index : index + 2] for index in range(len(padded) - 1) if word)
