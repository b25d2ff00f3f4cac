"""One grammar to choose jobs, runs, workflows and dead letters: of jobs, `state:paused AND created_at>"2026-11-01"`.

A filter is a list of terms joined by AND; each field has a kind of value:

queue:mail   queue:(mail,reports)   name:"nightly report"   name:report*   created_at>=2026-11-01T09:00:00+01:00

A word is quoted when it holds spaces, commas or other signs; inside quotes a backslash keeps the next character. A list
in parentheses matches any of its words; a field given twice must match both. A day alone is its midnight in UTC. Input
never becomes part of a statement: it goes to the store as values.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any, Literal, NoReturn
from uuid import UUID

import msgspec

from duly.domain.errors import Refused
from duly.domain.runs.run import RUN_STATES
from duly.domain.triggers.errors import nearest, shown
from duly.domain.workflows.workflow import WORKFLOW_STATES

LENGTH_MAX = 2_000
TERMS_MAX = 20
VALUES_MAX = 50

JOB_STATES = ("active", "paused", "completed", "cancelled")
OWNERS = ("api", "code")
Code = Literal[
    "FILTER_LENGTH", "FILTER_TERMS", "FILTER_SYNTAX", "FILTER_FIELD", "FILTER_OPERATOR", "FILTER_VALUE", "FILTER_MOMENT"
]
_STEP = timedelta(microseconds=1)  # the database's resolution
_TOKEN = re.compile(
    r'\s*(?:(?P<quoted>"(?:[^"\\]|\\.)*")|(?P<sign>>=|<=|[:<>=(),])|(?P<word>[^\s"():,<>=]+))', re.DOTALL
)


class InvalidFilter(Refused):
    """A filter that cannot be parsed: a stable code, and the position in `expression`."""

    def __init__(
        self, code: Code, message: str, expression: str, span: tuple[int, int], hint: str | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.expression = expression
        self.span = span
        self.hint = hint

    def as_json(self) -> dict[str, Any]:
        """Return the error as the API sends it."""
        return {
            "code": self.code,
            "message": self.message,
            "field": "filter",
            "hint": self.hint,
            "span": list(self.span),
        }


class Words(msgspec.Struct, frozen=True):
    """A text field. `choices`: the allowed words; `may_begin`: `report*` matches every word that begins so."""

    choices: tuple[str, ...] = ()
    may_begin: bool = False


class Ids(msgspec.Struct, frozen=True):
    """A field that holds an id. `single`: the id is unique, so it matches one thing."""

    single: bool = False


class Moments(msgspec.Struct, frozen=True):
    """A field that holds a moment."""


Field = Words | Ids | Moments
TAG = "tag"

JOBS: Mapping[str, Field] = {
    "state": Words(JOB_STATES),
    "queue": Words(),
    "name": Words(may_begin=True),
    TAG: Words(),
    "handler": Words(),
    "owner": Words(OWNERS),
    "created_at": Moments(),
    "next_run_at": Moments(),
}
RUNS: Mapping[str, Field] = {
    "state": Words(RUN_STATES),
    "queue": Words(),
    "job_id": Ids(),
    "parent": Ids(single=True),
    "workflow": Ids(single=True),
    "handler": Words(),
    TAG: Words(),
    "scheduled_at": Moments(),
    "due_at": Moments(),
    "finished_at": Moments(),
}
DEAD: Mapping[str, Field] = {
    "queue": Words(),
    "handler": Words(),
    "reason": Words(may_begin=True),
    "error": Words(),  # the normalized reason, as groups are named
    "job_id": Ids(),
    TAG: Words(),
    "buried_at": Moments(),
}
WORKFLOWS: Mapping[str, Field] = {
    "state": Words(WORKFLOW_STATES),
    "name": Words(may_begin=True),
    TAG: Words(),
    "submitted_at": Moments(),
}


class Span(msgspec.Struct, frozen=True):
    """Moments from one on and before another; either may be open."""

    since: datetime | None = None
    before: datetime | None = None


class Filter(msgspec.Struct, frozen=True):
    """A parsed filter. `words`: any of these; `beginnings`: a prefix; `tags`: all of these; `any_tags`: one of these."""

    words: Mapping[str, tuple[str, ...]] = {}
    beginnings: Mapping[str, str] = {}
    tags: tuple[str, ...] = ()
    any_tags: tuple[str, ...] = ()
    moments: Mapping[str, Span] = {}

    @property
    def is_empty(self) -> bool:
        """Return whether everything matches."""
        return self == EVERYTHING

    def among(self, field: str, values: tuple[str, ...]) -> Filter:
        """Require a field to be one of these words, besides earlier requirements."""
        known = self.words.get(field)
        both = values if known is None else tuple(value for value in values if value in known)
        return msgspec.structs.replace(self, words={**self.words, field: both})

    def only(self, field: str, value: str | None) -> Filter:
        """Require one more word; without a value, nothing."""
        if value is None:
            return self
        if field == TAG:
            return msgspec.structs.replace(self, tags=(*self.tags, value))
        return self.among(field, (value,))


EVERYTHING = Filter()


def quoted(word: str) -> str:
    """Quote a word so that none of its characters has a meaning."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def parse(text: str, fields: Mapping[str, Field]) -> Filter:
    """Parse a filter over these fields; an empty one matches everything. Raises InvalidFilter."""
    if len(text) > LENGTH_MAX:
        message = f"the filter has {len(text)} characters; the limit is {LENGTH_MAX}. Split it"
        raise InvalidFilter("FILTER_LENGTH", message, shown(text), (0, 1))
    return _Reader(text, fields).read()


class _Token(msgspec.Struct, frozen=True):
    text: str
    start: int
    end: int
    kind: str  # quoted, sign, word, or end

    @property
    def span(self) -> tuple[int, int]:
        return self.start, max(self.end, self.start + 1)


class _Reader:
    """Parses one filter from left to right."""

    def __init__(self, text: str, fields: Mapping[str, Field]) -> None:
        self._text = text
        self._fields = fields
        self._tokens = list(self._split())
        self._next = 0

    def read(self) -> Filter:
        found = EVERYTHING
        if self._peek().kind == "end":
            return found
        for number in range(1, len(self._tokens)):
            if number > TERMS_MAX:
                self._refuse("FILTER_TERMS", f"a filter has at most {TERMS_MAX} terms; split it")
            found = self._term(found)
            if self._peek().kind == "end":
                break
            self._conjunction()
        return found

    def _split(self) -> list[_Token]:
        tokens, at = [], 0
        while left := self._text[at:].strip():
            found = _TOKEN.match(self._text, at)
            if found is None or found.lastgroup is None:
                span = (self._text.index(left, at), len(self._text))
                raise InvalidFilter("FILTER_SYNTAX", "a quote is not closed", self._text, span, "end it with a quote")
            kind = found.lastgroup
            tokens.append(_Token(found[kind], found.start(kind), found.end(), kind))
            at = found.end()
        return [*tokens, _Token("", len(self._text), len(self._text), "end")]

    def _peek(self) -> _Token:
        return self._tokens[self._next]

    def _take(self) -> _Token:
        token = self._tokens[self._next]
        self._next = min(self._next + 1, len(self._tokens) - 1)
        return token

    def _conjunction(self) -> None:
        word = self._peek()
        if word.kind == "word" and word.text.upper() == "AND":
            self._take()
            if self._peek().kind != "end":
                return
            self._refuse("FILTER_SYNTAX", "a term is missing after AND")
        if word.kind == "word" and word.text.upper() in ("OR", "NOT"):
            hint = f"{_list_example(self._fields)} is any of them"
            self._refuse("FILTER_SYNTAX", f"{word.text} is not part of a filter; terms are joined by AND", hint)
        if word.text == ":":
            self._refuse("FILTER_SYNTAX", "a value that contains ':' needs quotes", 'write handler:"app:hello"')
        self._refuse("FILTER_SYNTAX", f"expected AND before {shown(word.text)}", "join terms by AND")

    def _term(self, found: Filter) -> Filter:
        name = self._take()
        if name.kind != "word":
            example = _example(*next(iter(self._fields.items())))
            self._refuse("FILTER_SYNTAX", f"expected a field: {', '.join(self._fields)}", example, name)
        field = self._fields.get(name.text)
        if field is None:
            self._refuse_field(name)
        operator = self._take()
        if operator.kind != "sign" or operator.text in ("(", ")", ","):
            self._refuse(
                "FILTER_SYNTAX", f"expected an operator after {name.text}", _example(name.text, field), operator
            )
        if isinstance(field, Moments):
            return self._compare(found, name, operator)
        if operator.text not in (":", "="):
            message = f"{name.text} is not a timestamp; use : instead of {operator.text}"
            self._refuse("FILTER_OPERATOR", message, _example(name.text, field), operator)
        return self._choose(found, name.text, field)

    def _compare(self, found: Filter, name: _Token, operator: _Token) -> Filter:
        if operator.text in (":", "="):
            message = f"{name.text} is a timestamp: compare it with <, <=, > or >="
            self._refuse("FILTER_OPERATOR", message, f'{name.text}>"2026-11-01"', operator)
        at = self._moment(name.text)
        shifted = at + _STEP if operator.text in (">", "<=") else at
        known = found.moments.get(name.text, Span())
        if operator.text in (">", ">="):
            span = Span(max(filter(None, (known.since, shifted))), known.before)
        else:
            span = Span(known.since, min(filter(None, (known.before, shifted))))
        return msgspec.structs.replace(found, moments={**found.moments, name.text: span})

    def _moment(self, field: str) -> datetime:
        """Read a moment; unquoted, its colons are separate tokens, so it is put together again."""
        first = self._take()
        if first.kind == "quoted":
            text, end = _unquoted(first.text), first.end
        else:
            end = first.end
            while self._peek().start == end and self._peek().kind in ("word", "sign"):
                end = self._take().end
            text = self._text[first.start : end]
        try:
            return _read_moment(text)
        except (ValueError, OverflowError):
            message = f"{field} {shown(text)} is not a timestamp: write a date, or a date and time with an offset"
            span = (first.start, max(end, first.start + 1))
            raise InvalidFilter("FILTER_MOMENT", message, self._text, span, f'{field}>"2026-11-01T09:00:00Z"') from None

    def _choose(self, found: Filter, name: str, field: Words | Ids) -> Filter:
        tokens = self._values(name)
        for token in tokens:
            if token.kind == "word" and "*" in (token.text[:-1] if len(tokens) == 1 else token.text):
                message = (
                    f"{name}:{token.text} has an asterisk inside; it may only end a single value; quote a literal one"
                )
                self._refuse("FILTER_VALUE", message, f'{name}:"{token.text}"', token)
        if len(tokens) == 1 and tokens[0].kind == "word" and tokens[0].text.endswith("*"):
            return self._begin(found, name, field, tokens[0])
        values = tuple(dict.fromkeys(self._value(name, field, token) for token in tokens))
        if isinstance(field, Ids) and field.single and len(values) > 1:
            self._refuse(
                "FILTER_TERMS", f"{name} takes one id; send one request per id", f"{name}:{values[0]}", tokens[1]
            )
        return self._tag(found, values, tokens[0]) if name == TAG else found.among(name, values)

    def _tag(self, found: Filter, values: tuple[str, ...], token: _Token) -> Filter:
        if len(values) == 1:
            return msgspec.structs.replace(found, tags=(*found.tags, *values))
        if found.any_tags:
            self._refuse("FILTER_TERMS", "a filter takes at most one list of tags", "tag:(a,b) AND tag:c", token)
        return msgspec.structs.replace(found, any_tags=values)

    def _begin(self, found: Filter, name: str, field: Words | Ids, token: _Token) -> Filter:
        beginning = token.text[:-1]
        if not isinstance(field, Words) or not field.may_begin or not beginning:
            known = ", ".join(
                other for other, kind in self._fields.items() if isinstance(kind, Words) and kind.may_begin
            )
            message = f"{name}:{token.text} matches a prefix, which works for {known} only; quote a literal asterisk"
            self._refuse("FILTER_VALUE", message, f'{name}:"{token.text}"', token)
        before = found.beginnings.get(name, "")
        if not (beginning.startswith(before) or before.startswith(beginning)):
            return found.among(name, ())  # Nothing begins with both.
        longest = max(before, beginning, key=len)
        return msgspec.structs.replace(found, beginnings={**found.beginnings, name: longest})

    def _values(self, name: str) -> Sequence[_Token]:
        token = self._take()
        if token.kind in ("word", "quoted"):
            return [token]
        if token.text != "(":
            self._refuse(
                "FILTER_SYNTAX", f"a value is missing after {name}", f'{name}:mail, or {name}:"my mail"', token
            )
        values = []
        while True:
            value = self._take()
            if value.kind not in ("word", "quoted"):
                self._refuse(
                    "FILTER_SYNTAX", f"expected a value of {name} in the list", f"{name}:(mail,reports)", value
                )
            values.append(value)
            if len(values) > VALUES_MAX:
                self._refuse("FILTER_TERMS", f"a list has at most {VALUES_MAX} values; split it", None, value)
            sign = self._take()
            if sign.text == ")" and sign.kind == "sign":
                return values
            if sign.text != "," or sign.kind != "sign":
                self._refuse("FILTER_SYNTAX", "expected a comma or the end of the list", f"{name}:(mail,reports)", sign)

    def _value(self, name: str, field: Words | Ids, token: _Token) -> str:
        value = _unquoted(token.text) if token.kind == "quoted" else token.text
        if not value or not value.isprintable():
            self._refuse("FILTER_VALUE", f"{name} {shown(value)} is not a printable word", None, token)
        if isinstance(field, Ids):
            try:
                return str(UUID(value))
            except ValueError:
                message = f"{name} {shown(value)} is not an id; write a UUID"
                self._refuse("FILTER_VALUE", message, None, token)
        if field.choices and value not in field.choices:
            likely = nearest(value, field.choices)
            message = f"{name} {shown(value)} is none of {', '.join(field.choices)}"
            self._refuse("FILTER_VALUE", message, f"{name}:{likely}" if likely else None, token)
        return value

    def _refuse_field(self, name: _Token) -> NoReturn:
        likely = nearest(name.text, self._fields)
        message = f"no field {shown(name.text)} here; known: {', '.join(self._fields)}"
        self._refuse("FILTER_FIELD", message, f"did you mean {likely}?" if likely else None, name)

    def _refuse(self, code: Code, message: str, hint: str | None = None, token: _Token | None = None) -> NoReturn:
        raise InvalidFilter(code, message, self._text, (token or self._peek()).span, hint)


def _read_moment(text: str) -> datetime:
    if len(text) <= len("2026-11-01"):
        return datetime.combine(date.fromisoformat(text), datetime.min.time(), UTC)
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(text)
    return moment.astimezone(UTC)


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text[1:-1], flags=re.DOTALL)


def _list_example(fields: Mapping[str, Field]) -> str:
    """Show a list of values, of a field that is known here."""
    name = next(name for name, field in fields.items() if isinstance(field, Words) and not field.choices)
    return f"{name}:(mail,reports)"


def _example(name: str, field: Field) -> str:
    if isinstance(field, Moments):
        return f'{name}>"2026-11-01"'
    if isinstance(field, Words) and field.choices:
        return f"{name}:{field.choices[0]}"
    return f"{name}:mail"
