"""Verification for receivers of webhooks: is this call really from our Duly, and is it fresh?

from duly.webhooks import InvalidSignature, verify

verified = verify(body, headers, "whsec_…")     # raises InvalidSignature

`body` is the request body, byte for byte, before parsing. While a secret is rotated, give the old and the new one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

import msgspec

from duly.clock import host_now
from duly.domain.duration import Duration, parse
from duly.domain.errors import DulyError, InvalidOption
from duly.domain.targets.webhook_secret import read_secret
from duly.outbound.signing import is_signed

__all__ = ["TOLERANCE", "InvalidSignature", "Verified", "verify"]

TOLERANCE = timedelta(minutes=5)
_TIMESTAMP = re.compile(r"[0-9]{1,11}")
_HEADERS = ("webhook-id", "webhook-timestamp", "webhook-signature")

Secret = str | bytes


class InvalidSignature(DulyError):
    """The call is not from where it claims to be, or not from now; the message says which."""


class Verified(msgspec.Struct, frozen=True):
    """A verified signature. `id` is the run's, the same at each attempt: the key to deduplicate with."""

    id: str
    at: datetime


def verify(
    body: bytes | str,
    headers: Mapping[str, str],
    secrets: Secret | Sequence[Secret],
    *,
    tolerance: Duration = TOLERANCE,
    now: datetime | None = None,
) -> Verified:
    """Verify the sender and the time of a body. Raises InvalidSignature; InvalidOption when no secret can be read."""
    keys = _read_secrets(secrets)
    message_id, timestamp, signatures = _read_headers(headers)
    at = _read_moment(timestamp)
    _check_age(at, parse(tolerance, "tolerance"), now or host_now())
    if not is_signed(keys, message_id, timestamp, body.encode() if isinstance(body, str) else body, signatures):
        raise InvalidSignature(
            f"webhook {message_id}: no signature fits; the body must be byte for byte what came,"
            " and the secret that of this destination"
        )
    return Verified(message_id, at)


def _read_secrets(secrets: Secret | Sequence[Secret]) -> list[bytes]:
    given = [secrets] if isinstance(secrets, str | bytes) else secrets
    keys = [read_secret(secret) if isinstance(secret, str) else bytes(secret) for secret in given]
    if not keys or not all(keys):
        raise InvalidOption("webhook secret: there is none to check with; give the one of this destination, whsec_…")
    return keys


def _read_headers(headers: Mapping[str, str]) -> list[str]:
    given = {name.lower(): value for name, value in headers.items()}
    for name in _HEADERS:
        if not given.get(name):
            raise InvalidSignature(f"header {name} is missing; a webhook of Duly carries {', '.join(_HEADERS)}")
    return [given[name] for name in _HEADERS]


def _read_moment(timestamp: str) -> datetime:
    if not _TIMESTAMP.fullmatch(timestamp):
        raise InvalidSignature(f"header webhook-timestamp {timestamp[:40]!r} is not a number of seconds since 1970")
    return datetime.fromtimestamp(int(timestamp), UTC)


def _check_age(at: datetime, tolerance: timedelta, now: datetime) -> None:
    seconds = int((now - at).total_seconds())
    if abs(now - at) > tolerance:
        way = "old" if seconds > 0 else "ahead of this machine's clock"
        raise InvalidSignature(
            f"header webhook-timestamp: it is {abs(seconds)} s {way}, and up to {tolerance.total_seconds():g} s are taken;"
            " it may be a replay, or a clock is wrong"
        )
