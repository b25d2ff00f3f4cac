"""Parsing of one field of a cron expression into a mask of values and special terms, or an error."""

from __future__ import annotations

import re
from functools import reduce
from operator import or_
from typing import NoReturn

import msgspec

from duly.domain.triggers.cron.specs import (
    DAY_OF_MONTH,
    DAY_OF_WEEK,
    HOUR,
    LAST,
    MINUTE,
    MONTH,
    SECOND,
    Field,
    Spec,
    Term,
    folded,
    is_uneven,
    mask_of,
)
from duly.domain.triggers.errors import TriggerError
from duly.domain.triggers.jitter import stable_hash

_VALUE = r"(\d+|[A-Z]{3})"
_PLAIN = re.compile(rf"{_VALUE}(?:-{_VALUE})?")
_HASH = re.compile(rf"H(?:\({_VALUE}-{_VALUE}\))?")
_FROM_LAST = re.compile(r"L(?:-(\d+))?")
_NEAR = re.compile(r"(\d+|L)W")
_NTH = re.compile(rf"{_VALUE}#(\d+|L)")
_LAST_OF_KIND = re.compile(rf"{_VALUE}L")
_MISPLACED = re.compile(r"[\d,-]*[LW][LW\d-]*|.*[#?+].*|.*\d[LW]|[A-Z]{3}-[A-Z]{3}L|H.*")
_WORD = re.compile(r"[A-Z]+(?:-[A-Z\d]+)?|\d+-[A-Z]+")


class Reader(msgspec.Struct, frozen=True):
    """Parses the fields of one expression, and knows the position of each."""

    expression: str
    job_id: str | None

    def field(self, spec: Spec, text: str, at: int) -> Field:
        """Parse one field. Raises TriggerError that names the item and its position."""
        if text == "?":
            if spec not in (DAY_OF_MONTH, DAY_OF_WEEK):
                _refuse(self, "CRON_MODIFIER", f"? in {spec.title} has no meaning; write *", (at, at + 1), "*")
            return Field(mask=mask_of(spec.low, spec.high), is_free=True)
        terms, place = [], at
        for item in text.split(","):
            terms.append(self._term(spec, item, (place, place + len(item)), text))
            place += len(item) + 1
        return Field(
            mask=reduce(or_, (term.mask for term in terms)),
            lasts=tuple(sorted({term.last for term in terms if term.last is not None})),
            nears=tuple(sorted({term.near for term in terms if term.near is not None})),
            weekdays_of_month=tuple(sorted({term.weekday_of_month for term in terms if term.weekday_of_month})),
            is_star=text.startswith("*"),
            is_free=text in ("*", "*/1"),
            uneven_steps=tuple(term.step for term in terms if term.is_uneven),
        )

    def _term(self, spec: Spec, item: str, span: tuple[int, int], whole: str) -> Term:
        if not item:
            wide, message = (span[0], span[0] + 1), f"empty list item in {spec.title} {whole!r}; remove the extra comma"
            _refuse(self, "CRON_SYNTAX", message, wide)
        head, slash, step = item.partition("/")
        if head == "*":
            return self._values(spec, item, spec.low, spec.high, step if slash else None, span, runs_to_end=True)
        if plain := _PLAIN.fullmatch(head):
            return self._plain(spec, item, plain, step if slash else None, span)
        if hashed := _HASH.fullmatch(head):
            return self._hash(spec, item, hashed, step if slash else None, span)
        special = self._special(spec, head, span)
        if special is None:
            self._refuse_item(spec, item, head, step, span)
        if slash:
            _refuse(self, "CRON_MODIFIER", f"{head} in {spec.title} takes no step; write {head} alone", span, head)
        return special

    def _plain(self, spec: Spec, item: str, match: re.Match[str], step: str | None, span: tuple[int, int]) -> Term:
        low = self._value(spec, match[1], span)
        if match[2] is None:
            if step is None:
                return Term(1 << (low % 7 if spec.key == "dow" else low))
            low = low % 7 if spec.key == "dow" else low
            return self._values(spec, item, low, spec.high, step, span, runs_to_end=True)
        high = self._value(spec, match[2], span)
        if spec.key == "dow" and match[2] == "SUN":
            high = 7
        if low > high:
            self._refuse_reversed(spec, match[0], low, high, span)
        return self._values(spec, item, low, high, step, span)

    def _values(
        self, spec: Spec, item: str, low: int, high: int, step_text: str | None, span: tuple[int, int],
        *, runs_to_end: bool = False,
    ) -> Term:  # fmt: skip
        if step_text is None:
            return Term(folded(spec, mask_of(low, high)))
        step = self._step(spec, item, step_text, low, high, span)
        return Term(
            folded(spec, mask_of(low, high, step)), step=step, is_uneven=runs_to_end and is_uneven(spec, low, step)
        )

    def _hash(self, spec: Spec, item: str, match: re.Match[str], step_text: str | None, span: tuple[int, int]) -> Term:
        low, high = spec.low, spec.hash_high
        if match[1] is not None:
            low, high = self._value(spec, match[1], span), self._value(spec, match[2], span)
            high = 7 if match[2] == "SUN" else high
            if low > high:
                self._refuse_reversed(spec, f"{match[1]}-{match[2]}", low, high, span)
        if self.job_id is None:
            _refuse(
                self, "CRON_MODIFIER", f"{item} in {spec.title} needs a job to hash; give a job id or a number", span
            )
        hashed = stable_hash(f"{self.job_id}/{spec.key}")
        if step_text is None:
            return Term(folded(spec, 1 << (low + hashed % (high - low + 1))))
        # From the latest start that a hash can give, two values must still fit, so that no job is refused by chance.
        step = self._step(spec, item, step_text, low, low + (high - low + 1) // 2, span)
        uneven = match[1] is None and is_uneven(spec, low, step)
        return Term(folded(spec, mask_of(low + hashed % step, high, step)), step=step, is_uneven=uneven)

    def _special(self, spec: Spec, head: str, span: tuple[int, int]) -> Term | None:
        if spec.key == "dom":
            return self._special_day(head, span)
        return self._special_weekday(head, span) if spec.key == "dow" else None

    def _special_day(self, head: str, span: tuple[int, int]) -> Term | None:
        if match := _FROM_LAST.fullmatch(head):
            before = int(match[1]) if match[1] else 0
            if match[1] and not 1 <= before <= 30:
                _refuse(
                    self, "CRON_RANGE", f"{head} in day of month: L-n takes an n of 1–30; the last day is L", span, "L"
                )
            return Term(last=before)
        if match := _NEAR.fullmatch(head):
            return Term(near=LAST if match[1] == "L" else self._value(DAY_OF_MONTH, match[1], span))
        return None

    def _special_weekday(self, head: str, span: tuple[int, int]) -> Term | None:
        if match := _NTH.fullmatch(head):
            which = LAST if match[2] == "L" else int(match[2])
            if match[2] != "L" and not 1 <= which <= 5:
                _refuse(
                    self,
                    "CRON_RANGE",
                    f"{head} in day of week: a month has a 1st to 5th of a weekday; use 1–5 or L",
                    span,
                )
            return Term(weekday_of_month=(self._value(DAY_OF_WEEK, match[1], span) % 7, which))
        if match := _LAST_OF_KIND.fullmatch(head):
            return Term(weekday_of_month=(self._value(DAY_OF_WEEK, match[1], span) % 7, LAST))
        return None

    def _value(self, spec: Spec, text: str, span: tuple[int, int]) -> int:
        if not text.isdigit():
            if text not in spec.names:
                self._refuse_name(spec, text, span)
            return spec.names[text]
        number = int(text)
        if not spec.low <= number <= spec.written_high:
            _refuse(self, "CRON_RANGE", f"{spec.title} {text} is outside {spec.low}–{spec.written_high}", span)
        return number

    def _step(self, spec: Spec, item: str, text: str, low: int, high: int, span: tuple[int, int]) -> int:
        if not text.isdigit() or not 1 <= int(text) <= high - low:
            self._refuse_step(spec, item, text, low, high, span)
        return int(text)

    def _refuse_step(self, spec: Spec, item: str, text: str, low: int, high: int, span: tuple[int, int]) -> NoReturn:
        if "/" in text:
            _refuse(self, "CRON_SYNTAX", f"{item} in {spec.title} has more than one step; give one", span)
        if not text.isdigit() or int(text) == 0:
            _refuse(
                self, "CRON_STEP", f"step {text!r} of {item} in {spec.title} is not a number from 1 up; write */5", span
            )
        if spec in (SECOND, MINUTE, HOUR) and (low, high) == (spec.low, spec.high):
            remedy = f"for every {text} {spec.title}s use an interval"
        else:
            remedy = f"it would pick one value; write {low} alone" if low == high else "write the values as a list"
        _refuse(self, "CRON_STEP", f"step {text} of {item} in {spec.title} does not fit {low}–{high}; {remedy}", span)

    def _refuse_reversed(self, spec: Spec, text: str, low: int, high: int, span: tuple[int, int]) -> NoReturn:
        low = low % 7 if spec.key == "dow" and low == 7 else low
        instead = f"{low}-{high}" if low <= high else f"{_run(low, spec.high)},{_run(spec.low, high)}"
        _refuse(self, "CRON_RANGE_REVERSED", f"{text} in {spec.title} runs backwards; write {instead}", span, instead)

    def _refuse_name(self, spec: Spec, text: str, span: tuple[int, int]) -> NoReturn:
        short = text[:3]
        if short in spec.names:
            _refuse(self, "CRON_NAME", f"{text} in {spec.title}: use {short}", span, short)
        for other in (MONTH, DAY_OF_WEEK):
            if short in other.names:
                _refuse(self, "CRON_NAME", f"{text} in {spec.title} is a name for {other.title}; {_takes(spec)}", span)
        _refuse(self, "CRON_NAME", f"{text} is not a name in {spec.title}; {_takes(spec)}", span)

    def _refuse_item(self, spec: Spec, item: str, head: str, step: str, span: tuple[int, int]) -> NoReturn:
        if not head:
            _refuse(
                self, "CRON_STEP", f"{item} in {spec.title} has a step but no start; write */{step}", span, f"*/{step}"
            )
        if _MISPLACED.fullmatch(head):
            _refuse(self, "CRON_MODIFIER", f"{item} in {spec.title}: {_modifier_remedy(spec, head)}", span)
        if _WORD.fullmatch(head):
            word = next(part for part in head.split("-") if not part.isdigit() and part not in spec.names)
            self._refuse_name(spec, word, span)
        _refuse(self, "CRON_SYNTAX", f"{item} in {spec.title} cannot be read; {_takes(spec)}", span)


def _refuse(reader: Reader, code: str, message: str, span: tuple[int, int], hint: str | None = None) -> NoReturn:
    raise TriggerError(code, message, "expr", hint, expression=reader.expression, span=span)


def _modifier_remedy(spec: Spec, head: str) -> str:
    if head.endswith("W") and spec is DAY_OF_MONTH:
        return "W takes a single day, such as 15W or LW"
    if "#" in head:
        return "# stands in day of week, after one weekday: MON#2 or FRI#L"
    if "?" in head:
        return "? stands alone, in a day field"
    if "+" in head:
        return "+ stands before the day of week: +MON"
    if head.startswith("H"):
        return "write H, H(a-b), H/n or H(a-b)/n"
    if spec is DAY_OF_WEEK:
        return "L takes one weekday here: 5L or FRIL"
    return "L and W stand in day of month: L, L-3, 15W, LW"


def _takes(spec: Spec) -> str:
    names = list(spec.names)
    also = f" or {names[0]}–{names[-1]}" if names else ""
    return f"it takes numbers {spec.low}–{spec.high}{also}, as *, a, a-b, a,b or */n"


def _run(low: int, high: int) -> str:
    return str(low) if low == high else f"{low}-{high}"
