"""Retry rules: which error, status or exit code is retried, buried or snoozed. The first match decides."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import timedelta
from fnmatch import fnmatchcase
from typing import Any, Literal

import msgspec

from duly.domain.duration import parse_option, to_iso
from duly.domain.errors import InvalidOption
from duly.domain.triggers.errors import shown

Action = Literal["retry", "dead", "snooze"]

ACTIONS: tuple[Action, ...] = ("retry", "dead", "snooze")
RULES_MAX = 32
ERROR_CHARACTERS_MAX = 200
SNOOZES_MAX = 1_000  # of one run, by rules
STATUS_LEAST, STATUS_MOST = 100, 599
EXIT_LEAST, EXIT_MOST = 0, 255
_FIELDS = ("error", "status", "exit", "action", "delay")
_ERROR = re.compile(r"[\w.*?<>]+")
_HUNDRED = re.compile(r"([1-5])xx", re.IGNORECASE)
_RANGE = re.compile(r"(\d{1,3})-(\d{1,3})")


class Rule(msgspec.Struct, frozen=True, omit_defaults=True):
    """A rule for one kind of failure: exactly one of `error`, `status` and `exit` is given."""

    action: Action
    error: str | None = None  # a class by its name or path, or a pattern with *
    status: str | None = None  # 404, 4xx, 500-599
    exit: str | None = None
    delay_seconds: float | None = None

    def fits(self, kinds: Iterable[str], status: int | None, exit_code: int | None) -> bool:
        """Return whether it matches a failure: `kinds` are the paths of its error's class and base classes."""
        if self.error is not None:
            return any(_is_named(kind, self.error) for kind in kinds)
        if self.status is not None:
            return status is not None and _is_within(status, self.status)
        return exit_code is not None and self.exit is not None and _is_within(exit_code, self.exit)

    @property
    def delay(self) -> timedelta | None:
        """Return the delay, if it has one."""
        return None if self.delay_seconds is None else timedelta(seconds=self.delay_seconds)


def rule_for(
    rules: Iterable[Rule], kinds: Iterable[str], status: int | None = None, exit_code: int | None = None
) -> Rule | None:
    """Return the first rule that matches a failure."""
    kinds = tuple(kinds)
    return next((rule for rule in rules if rule.fits(kinds, status, exit_code)), None)


def kinds_of(error: type[BaseException]) -> tuple[str, ...]:
    """Return the paths of an error's class and base classes, by which rules name it."""
    return tuple(f"{kind.__module__}.{kind.__qualname__}" for kind in error.__mro__ if kind is not object)


def read_rules(rules: Iterable[Mapping[str, Any]]) -> tuple[Rule, ...]:
    """Parse rules as users write them. Raises InvalidOption, naming the rule by its number."""
    found = tuple(_read_rule(rule, number) for number, rule in enumerate(rules, start=1))
    if len(found) > RULES_MAX:
        raise InvalidOption(
            f"{len(found)} retry rules are too many; the limit is {RULES_MAX}. Merge some with a pattern such as *Timeout"
        )
    return found


def described_rule(rule: Rule) -> dict[str, Any]:
    """Write a rule as users do."""
    described: dict[str, Any] = {
        "error": rule.error,
        "status": _number_or_text(rule.status),
        "exit": _number_or_text(rule.exit),
        "action": rule.action,
        "delay": None if rule.delay is None else to_iso(rule.delay),
    }
    return {name: value for name, value in described.items() if value is not None}


def _read_rule(rule: Mapping[str, Any], number: int) -> Rule:
    what = f"retry rule {number}"
    if not isinstance(rule, Mapping):
        raise InvalidOption(f'{what} {shown(rule)} is not a rule; write {{"error": "ValueError", "action": "dead"}}')
    said = {name: value for name, value in rule.items() if value is not None}
    if unknown := sorted(said.keys() - set(_FIELDS)):
        raise InvalidOption(f"{what} has an unknown field {unknown[0]}; use {', '.join(_FIELDS)}")
    if len(said.keys() & {"error", "status", "exit"}) != 1:
        raise InvalidOption(f"{what} needs exactly one of error, status and exit")
    action = said.get("action")
    if action not in ACTIONS:
        raise InvalidOption(f"{what} has an unknown action {shown(action)}; use one of {', '.join(ACTIONS)}")
    return Rule(
        action,
        None if "error" not in said else _error(said["error"], what),
        None if "status" not in said else _numbers(said["status"], f"{what}: status", STATUS_LEAST, STATUS_MOST),
        None if "exit" not in said else _numbers(said["exit"], f"{what}: exit", EXIT_LEAST, EXIT_MOST),
        _delay(said.get("delay"), action, what),
    )


def _delay(value: Any, action: Action, what: str) -> float | None:
    if value is None:
        if action == "snooze":
            raise InvalidOption(f"{what} has the action snooze without delay; add a delay, such as PT5M")
        return None
    if action == "dead":
        raise InvalidOption(f"{what} has the action dead with a delay; leave the delay out")
    seconds = parse_option(value, f"{what}: delay").total_seconds()
    if seconds < 0 or (action == "snooze" and seconds == 0):
        raise InvalidOption(f"{what}: delay {value!r} must be more than 0")
    return seconds


def _error(value: Any, what: str) -> str:
    if not isinstance(value, str) or len(value) > ERROR_CHARACTERS_MAX or not _ERROR.fullmatch(value):
        raise InvalidOption(
            f"{what}: error {shown(value)} is not a class; write ValueError, module.Class or a pattern such as *Timeout"
        )
    return value


def _numbers(value: Any, what: str, least: int, most: int) -> str:
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if isinstance(text, str):
        low, high = _bounds(text)
        if least <= low <= high <= most and (not _HUNDRED.fullmatch(text) or least == STATUS_LEAST):
            return text.lower()
    example = "404, 4xx or 500-599" if least == STATUS_LEAST else "75 or 1-10"
    raise InvalidOption(f"{what} {shown(value)} is none; write {example}, from {least} to {most}")


def _bounds(text: str) -> tuple[int, int]:
    """Parse a number, a hundred or a range; anything else gives an empty range."""
    if hundred := _HUNDRED.fullmatch(text):
        return int(hundred[1]) * 100, int(hundred[1]) * 100 + 99
    if both := _RANGE.fullmatch(text):
        return int(both[1]), int(both[2])
    return (int(text), int(text)) if text.isascii() and text.isdigit() and len(text) <= 3 else (1, 0)


def _is_within(number: int, numbers: str) -> bool:
    low, high = _bounds(numbers)
    return low <= number <= high


def _is_named(kind: str, name: str) -> bool:
    """Return whether a pattern names a class: by its path, by its own name, or with wildcards."""
    return fnmatchcase(kind, name) or fnmatchcase(kind.rpartition(".")[2], name)


def _number_or_text(numbers: str | None) -> int | str | None:
    return int(numbers) if numbers is not None and numbers.isdigit() else numbers
