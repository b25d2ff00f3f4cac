"""Arguments of a handler on the command line: `key=value`, where a value is JSON if it reads as JSON and text if not.

A value that begins like JSON, or is a number that JSON does not have, was meant as JSON: it is refused rather than
passed as text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

import click
import msgspec
from msgspec import UNSET

from duly.domain.errors import InvalidPayload, InvalidSchedule
from duly.domain.runs.payload import DEPTH_MAX
from duly.domain.triggers.errors import shown
from duly.wire.schema.reading import why_not_json

_BEGINS_AS_JSON = re.compile(r'\s*[{\["]')
_NUMBER = re.compile(r"\s*(?:NaN|-?Infinity|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?)\s*")


class OrNone(click.ParamType[Any]):
    """A value of a kind, or `none`, which is None; of an option whose default is UNSET."""

    name = "number"

    def __init__(self, kind: click.ParamType[Any]) -> None:
        self._kind = kind

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read it."""
        return None if value == "none" else value if value is UNSET else self._kind.convert(value, param, ctx)


def read_payload(pairs: Sequence[str], json_text: str | None, flag: str = "--json") -> dict[str, Any]:
    """Read the arguments of a handler, from pairs or from one JSON object, typed after `flag`."""
    if json_text is None:
        return _read_pairs(pairs)
    if pairs:
        raise click.UsageError(f"give key=value pairs or {flag}, not both")
    try:
        payload = msgspec.json.decode(json_text)
    except RecursionError:
        raise _too_deep(flag) from None
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise InvalidPayload(
            f"""{flag} is not JSON: {_why(json_text, error)}; give one object, such as {flag} '{{"customer": 7}}'"""
        ) from None
    if not isinstance(payload, dict):
        raise InvalidPayload(f'{flag} must be an object of arguments, such as {{"customer": 7}}, not {json_text[:40]}')
    return payload


def read_value(text: str, name: str) -> Any:
    """Parse the value of argument `name`: JSON if it is, otherwise the text itself. Raises InvalidPayload."""
    try:
        return msgspec.json.decode(text)
    except RecursionError:
        raise _too_deep(name) from None
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        if not _BEGINS_AS_JSON.match(text) and not _NUMBER.fullmatch(text):
            return text
        raise InvalidPayload(
            f"argument {name}: {shown(text)} is not JSON: {_why(text, error)}; to pass it as text, quote it as a JSON string,"
            f""" such as '{name}="some text"'"""
        ) from None


def read_moment(text: str | None, what: str) -> datetime | None:
    """Read a moment. Raises InvalidSchedule when it is none."""
    if text is None:
        return None
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise InvalidSchedule(
            f"{what} {text!r} is not a moment; write it with an offset, such as 2026-11-01T09:00:00+01:00"
        ) from None


def read_duration(text: str) -> str | float:
    """Read a duration as a number of seconds, or leave it for the domain to read."""
    for read in (int, float):  # a whole number stays one, so that a refusal shows it as it was typed
        with suppress(ValueError):
            return read(text)
    return text


def _read_pairs(pairs: Sequence[str]) -> dict[str, Any]:
    payload: dict[str, Any] = {}
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not separator or not name:
            raise click.UsageError(f"{pair!r} is not key=value, such as customer=7")
        if name in payload:
            raise click.UsageError(f"{name!r} is given twice")
        payload[name] = read_value(value, name)
    return payload


def _why(text: str, error: Exception) -> str:
    return why_not_json(text.encode(errors="surrogatepass"), error)


def _too_deep(what: str) -> InvalidPayload:
    return InvalidPayload(f"{what} is nested deeper than {DEPTH_MAX} levels; flatten it")
