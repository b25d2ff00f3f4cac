"""The response to a webhook: success, retry or final failure; the delay; and the part of it that is stored."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from enum import StrEnum
from typing import Any

import msgspec

from duly.domain.errors import InvalidPayload
from duly.domain.runs.payload import RESULT_BYTES_MAX, encode, storable
from duly.domain.targets.target import Webhook

RETRIED = frozenset({408, 425, 429})  # of the 4xx; of the 5xx all are
RETRY_AFTER_MAX = timedelta(hours=24)
EXCERPT_CHARACTERS_MAX = 1_000
_SECONDS_DIGITS_MAX = 9


class Taken(StrEnum):
    """The meaning of a status for the run."""

    DONE = "done"
    RETRY = "retry"
    FINAL = "final"


def take(status: int, target: Webhook) -> Taken:
    """Return the meaning of a status: by the job's lists, else by default."""
    if status in target.retry:
        return Taken.RETRY
    if status in target.final:
        return Taken.FINAL
    if 200 <= status < 300:
        return Taken.DONE
    return Taken.RETRY if is_ailing(status) else Taken.FINAL


def is_ailing(status: int) -> bool:
    """Return whether a receiver that answers so is failing or asks for a break."""
    return status in RETRIED or status >= 500


def read_retry_after(value: str | None, now: datetime) -> timedelta | None:
    """Parse a Retry-After, in seconds or as an HTTP date, up to a day; None when it cannot be read."""
    if value is None:
        return None
    text = value.strip()
    if text.isascii() and text.isdigit():
        return min(timedelta(seconds=int(text[:_SECONDS_DIGITS_MAX])), RETRY_AFTER_MAX)
    try:
        at = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    ahead = (at if at.tzinfo is not None else at.replace(tzinfo=UTC)) - now
    return min(max(ahead, timedelta()), RETRY_AFTER_MAX)


def result_of(status: int, body: bytes, *, is_whole: bool, is_packed: bool) -> str:
    """Return the run's result: the response itself when it is JSON, else its status and beginning."""
    if is_whole and not is_packed and body:
        try:
            return encode(msgspec.json.decode(body), "the answer", RESULT_BYTES_MAX)
        except (msgspec.DecodeError, InvalidPayload, RecursionError, UnicodeDecodeError):
            pass
    found: dict[str, Any] = {"status": status}
    if body:
        found["body"] = "(compressed)" if is_packed else excerpt(body)
    return msgspec.json.encode(found).decode()


def excerpt(body: bytes) -> str:
    """Return the beginning of a body as text that can be stored."""
    text = storable(body[: EXCERPT_CHARACTERS_MAX * 4].decode(errors="replace"), EXCERPT_CHARACTERS_MAX)
    return f"{text}…" if len(body) > len(text.encode()) else text
