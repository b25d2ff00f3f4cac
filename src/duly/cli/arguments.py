"""What users type after a handler's name: `key=value`, where a value is JSON if it reads as JSON and text if not."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

import click
import msgspec

from duly.domain.errors import InvalidPayload, InvalidSchedule
from duly.domain.payload import DEPTH_MAX


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
        raise InvalidPayload(f"{flag} is not JSON: {error}") from None
    if not isinstance(payload, dict):
        raise InvalidPayload(f'{flag} must be an object of arguments, such as {{"customer": 7}}, not {json_text[:40]}')
    return payload


def read_value(text: str) -> Any:
    """Read one value: JSON if it is, otherwise the text itself."""
    try:
        return msgspec.json.decode(text)
    except RecursionError:
        raise _too_deep("a value") from None
    except (msgspec.DecodeError, UnicodeEncodeError):
        return text


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
    for read in (int, float):  # A whole number stays one, so that a refusal shows it as it was typed.
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
        payload[name] = read_value(value)
    return payload


def _too_deep(what: str) -> InvalidPayload:
    return InvalidPayload(f"{what} is nested deeper than {DEPTH_MAX} levels; flatten it")
