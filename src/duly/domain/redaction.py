"""Redaction: values of a payload that nobody is shown, chosen by rules such as `$.card`.

A rule is a path, and its own name: the value is shown as `*** ($.card)`. Rules come from the job, its tenant and the
installation. The boxes keep payloads whole, because the handler needs them; everything that leaves them is redacted:

- `redacted(value, rules)` replaces what the rules name in a payload, a result or an event;
- `Redactor(rules, payload)` also finds the redacted values of that payload wherever they are quoted: in errors,
  tracebacks, log lines and results;
- `restored(value, stored, rules)` is the way back: `*** ($.card)` in a change stands for the stored value.

Paths: `$.a.b`, `$.items[*].card`, `$.items[0]`, `$.a.*`, `$['a b']`, and `$..password` at any depth. The function
`duly.redacted` reads them alike, for what SQL writes to history.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any
from urllib.parse import quote, quote_plus

import msgspec

from duly.domain.errors import InvalidOption, InvalidPayload

HIDDEN = "***"
RULES_MAX = 32
PATH_CHARACTERS_MAX = 200
QUOTED_CHARACTERS_MIN = 4  # Shorter values are found at their place, and not in texts: they would match by chance.
_QUOTED_MAX = 256  # With more redacted values than this, a text is replaced as a whole.
_CUT_MIN = 1_000  # Longer texts may have been cut, in the middle of a value.
_CUT_VALUE_MAX = 1_024
_EXAMPLES = "write paths such as $.card, $.items[*].card or $..password"

_NAME = r"[A-Za-z_][A-Za-z0-9_-]*"
_STEP = re.compile(
    rf"\.\.(?P<deep>{_NAME})|\.(?P<name>{_NAME}|\*)|\[(?P<index>[0-9]{{1,6}}|\*)\]|\['(?P<quoted>[^'\\]+)'\]"
)


class Step(msgspec.Struct, frozen=True):
    """One step of a path: a field's name, the index of an item, or None for each of them."""

    key: str | int | None
    is_deep: bool = False  # a field of this name at any depth


class Rule(msgspec.Struct, frozen=True):
    """A path, and the steps that it takes."""

    path: str
    steps: tuple[Step, ...]

    @property
    def mark(self) -> str:
        """The text that stands in the place of a value."""
        return f"{HIDDEN} ({self.path})"


def check_rules(paths: object, field: str = "redact") -> tuple[str, ...]:
    """Return the paths of rules, each once. Raises InvalidOption naming the one that cannot be read."""
    if isinstance(paths, str) or not isinstance(paths, Sequence) or not all(isinstance(path, str) for path in paths):
        raise InvalidOption(f'{field} {paths!r} is not a list of paths; write ["$.card"]', field)
    if len(paths) > RULES_MAX:
        raise InvalidOption(
            f"{field} has {len(paths)} rules; the limit is {RULES_MAX}: name a field at any depth with $..name", field
        )
    for path in paths:
        try:
            _read(path)
        except InvalidOption as error:
            raise InvalidOption(f"{field}: {error}", field) from None
    return tuple(dict.fromkeys(paths))


def has_mark(text: str) -> bool:
    """Return whether a text may have a mark: nearly none has, so nothing else is paid for those."""
    return f"{HIDDEN} (" in text


@lru_cache(maxsize=1_024)
def read_rules(paths: tuple[str, ...]) -> tuple[Rule, ...]:
    """Return the rules of checked paths; one that this version cannot read hides the whole value."""
    return tuple(_read_anyhow(path) for path in paths)


def redacted(value: Any, paths: Sequence[str]) -> Any:
    """Return a JSON value as it is shown: with `*** (rule)` in the place of what the rules name. `value` is not changed."""
    for rule in read_rules(tuple(paths)):
        value = _replaced(value, rule.steps, rule.mark)
    return value


def redacted_pair(before: Any, after: Any, paths: Sequence[str]) -> tuple[Any, Any]:
    """Return two values as they are shown beside each other: of a hidden value that differs, only that it does."""
    shown, shown_after = redacted(before, paths), redacted(after, paths)
    return shown, _told_apart(shown, shown_after, before, after)


def _told_apart(shown: Any, shown_after: Any, before: Any, after: Any) -> Any:
    if isinstance(shown, dict) and isinstance(shown_after, dict):
        return {
            name: _told_apart(shown[name], item, before[name], after[name]) if name in shown else item
            for name, item in shown_after.items()
        }
    if isinstance(shown, list) and isinstance(shown_after, list) and len(shown) == len(shown_after):
        return [_told_apart(*four) for four in zip(shown, shown_after, before, after, strict=True)]
    return f"{shown_after}, another value" if shown == shown_after and before != after else shown_after


def restored(value: Any, stored: Any, paths: Sequence[str]) -> Any:
    """Return a value that was sent back as shown, with the stored values in the place of `*** (rule)`.

    An item of a list has to stand where it was shown, unchanged: otherwise one item would get the value of another.
    Raises InvalidPayload where a mark stands for nothing.
    """
    marks = frozenset(rule.mark for rule in read_rules(tuple(paths)))
    return _restored(value, redacted(stored, paths), stored, marks, "$") if marks else value


class Redactor:
    """The redaction of one payload, and of whatever may quote it: errors, tracebacks, log lines, results."""

    def __init__(self, paths: Sequence[str], payload: Any) -> None:
        self._paths = tuple(paths)
        self._marks = _quotable(read_rules(self._paths), payload)
        is_bounded = 0 < len(self._marks) <= _QUOTED_MAX
        longest_first = sorted(self._marks, key=len, reverse=True) if is_bounded else ()
        self._pattern = re.compile("|".join(map(re.escape, longest_first))) if longest_first else None

    def text(self, text: str) -> str:
        """Return a text without the redacted values of the payload."""
        if self._pattern is None:
            return next(iter(self._marks.values())) if self._marks and text else text
        found = self._pattern.sub(lambda found: self._marks[found[0]], text)
        return found if len(text) < _CUT_MIN else self._without_cut_values(found)

    def _without_cut_values(self, text: str) -> str:
        """Replace the rest of a value at an end of a text, which may have been cut there."""
        for value, mark in self._marks.items():
            kept = text.rstrip("…")
            if (length := _shared(kept, value, len(value))) > 0:
                text = kept[:-length] + mark
            if (length := _shared(value, text, len(value))) > 0:
                text = mark + text[length:]
        return text

    def value(self, value: Any) -> Any:
        """Return a JSON value without what the rules name in it, and without the redacted values of the payload."""
        return self._quoted(redacted(value, self._paths))

    def json(self, text: str) -> str:
        """Return a JSON value that is text, as `value` does."""
        return msgspec.json.encode(self.value(msgspec.json.decode(text))).decode()

    def quotes(self, text: str) -> str:
        """Return JSON text, such as an error with its traceback, without the redacted values of the payload."""
        return msgspec.json.encode(self._quoted(msgspec.json.decode(text))).decode()

    def _quoted(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.text(name): self._quoted(item) for name, item in value.items()}
        if isinstance(value, list | tuple):
            return [self._quoted(item) for item in value]
        return self._marks.get(_number(value), value) if _is_number(value) else value


def _read_anyhow(path: str) -> Rule:
    try:
        return _read(path)
    except InvalidOption:
        return Rule(path, ())


def _read(path: str) -> Rule:
    if len(path) > PATH_CHARACTERS_MAX:
        raise InvalidOption(f"a path of {len(path)} characters is too long; the limit is {PATH_CHARACTERS_MAX}")
    if not path.startswith("$"):
        raise InvalidOption(f"{path!r} does not start with $; {_EXAMPLES}")
    steps, at = [], 1
    while at < len(path):
        found = _STEP.match(path, at)
        if found is None:
            raise InvalidOption(f"{path!r} cannot be read from {path[at:]!r} on; {_EXAMPLES}")
        steps.append(_step(found))
        at = found.end()
    if not steps:
        raise InvalidOption(f"{path!r} names the whole payload; {_EXAMPLES}")
    return Rule(path, tuple(steps))


def _step(found: re.Match[str]) -> Step:
    if found["deep"] is not None:
        return Step(found["deep"], is_deep=True)
    if found["index"] is not None:
        return Step(None if found["index"] == "*" else int(found["index"]))
    return Step(found["quoted"] or (None if found["name"] == "*" else found["name"]))


def _replaced(value: Any, steps: tuple[Step, ...], mark: str) -> Any:
    """Return a value with a mark at the end of the steps; parts in which nothing changes are shared."""
    if not steps:
        return mark
    if isinstance(value, Mapping):
        return {key: _inside(key, item, steps, mark) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_inside(index, item, steps, mark) for index, item in enumerate(value)]
    return value


def _inside(key: str | int, item: Any, steps: tuple[Step, ...], mark: str) -> Any:
    step = steps[0]
    if step.is_deep:
        item = _replaced(item, steps, mark)
    return _replaced(item, steps[1:], mark) if step.key in (None, key) else item


def _found(value: Any, steps: tuple[Step, ...]) -> Iterator[Any]:
    """Return the values at the end of the steps."""
    if not steps:
        yield value
        return
    items: Iterable[tuple[str | int, Any]] = ()
    if isinstance(value, Mapping):
        items = value.items()
    elif isinstance(value, list | tuple):
        items = enumerate(value)
    for key, item in items:
        if steps[0].is_deep:
            yield from _found(item, steps)
        if steps[0].key in (None, key):
            yield from _found(item, steps[1:])


def _quotable(rules: Iterable[Rule], payload: Any) -> dict[str, str]:
    """Return the texts in which redacted values may be quoted, each with the mark that replaces it."""
    marks: dict[str, str] = {}
    for rule in rules:
        for value in _found(payload, rule.steps):
            for leaf in _leaves(value):
                marks |= dict.fromkeys(_writings(leaf), rule.mark)
    return marks


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for item in value.values():
            yield from _leaves(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _leaves(item)
    elif isinstance(value, str) or _is_number(value):
        text = value if isinstance(value, str) else _number(value)
        if len(text) >= QUOTED_CHARACTERS_MIN:
            yield text


def _writings(text: str) -> set[str]:
    """Return how a text is written: as it is, in JSON, in Python and in a URL."""
    in_json, in_python = msgspec.json.encode(text).decode()[1:-1], repr(text)[1:-1]
    in_ascii = in_json.encode("ascii", "backslashreplace").decode()
    return {text, in_json, in_ascii, in_python, quote(text, safe=""), quote(text), quote_plus(text)}


def _shared(text: str, following: str, whole: int) -> int:
    """Return how many characters at the end of a text are the start of another: a part of a value of `whole` characters.

    Candidates are found by their first few characters, because most texts have none.
    """
    head = following[:QUOTED_CHARACTERS_MIN]
    if len(head) < QUOTED_CHARACTERS_MIN:
        return 0
    at = text.find(head, max(0, len(text) - min(whole, _CUT_VALUE_MAX) + 1))
    while at >= 0:
        if following.startswith(text[at:]):
            return len(text) - at
        at = text.find(head, at + 1)
    return 0


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _number(value: float) -> str:
    return repr(value)


def _restored(value: Any, shown: Any, stored: Any, marks: frozenset[str], place: str) -> Any:
    if isinstance(value, str):
        if value not in marks:
            return value
        if value != shown:
            raise InvalidPayload(f"{place} is {value!r}, which stands for no stored value there; send the value itself")
        return stored
    if isinstance(value, dict):
        # What the caller left out stays out; what was not there before has nothing to be restored from.
        known = shown if isinstance(shown, dict) else {}
        return {
            name: _restored(item, known.get(name), stored.get(name) if known else None, marks, f"{place}.{name}")
            for name, item in value.items()
        }
    if isinstance(value, list):
        return _restored_items(value, shown, stored, marks, place)
    return value


def _restored_items(value: list[Any], shown: Any, stored: Any, marks: frozenset[str], place: str) -> list[Any]:
    """Return the items of a list; those that are not as shown, at their place, may have no mark. Raises InvalidPayload."""
    is_as_long = isinstance(shown, list) and len(shown) == len(value)
    return [
        stored[at] if is_as_long and item == shown[at] else _restored(item, None, None, marks, f"{place}[{at}]")
        for at, item in enumerate(value)
    ]
