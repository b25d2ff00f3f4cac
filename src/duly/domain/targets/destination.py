"""Destinations: the origins that a tenant's webhooks go to, their limits, and their signing secrets."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from duly.domain.duration import to_iso
from duly.domain.errors import InvalidOption
from duly.domain.targets.webhook_secret import BYTES_NEW, read_secret, show_secret
from duly.domain.tenancy.api_key import Secret

SLOTS_DEFAULT, SLOTS_MAX = 100, 100_000
RATE_MIN, RATE_MAX = 0.001, 100_000.0
RETRY_SHARE_DEFAULT = 0.2  # retries for each first attempt
RETRIES_FREE_PER_SECOND = 1.0  # besides, however few requests are sent
OPEN_MIN, OPEN_MAX = timedelta(seconds=1), timedelta(days=7)
SECRET_KEPT = timedelta(hours=24)  # how long the previous secret stays valid after a rotation


def new_secret(draw: Callable[[int], bytes]) -> Secret:
    """Draw a signing secret, as receivers keep it."""
    return Secret(show_secret(draw(BYTES_NEW)))


def signing_key(secret: Secret) -> bytes:
    """Return the bytes that a secret signs with. Raises InvalidOption when it is no secret."""
    return read_secret(secret.reveal())


def about_secret(tenant: int, destination_id: object, number: int) -> bytes:
    """Return the associated data of a sealed secret: moved elsewhere, it does not open."""
    return f"duly/destination-secret/{tenant}/{destination_id}/{number}".encode()


def check_slots(slots: int) -> int:
    """Check a number of requests at once. Raises InvalidOption."""
    if not 1 <= slots <= SLOTS_MAX:
        raise InvalidOption(
            f"slots {slots} is outside 1 to {SLOTS_MAX:,}, the number of concurrent requests; choose another limit"
        )
    return slots


def check_open_duration(span: timedelta) -> timedelta:
    """Check for how long the circuit is to stay open. Raises InvalidOption."""
    if not OPEN_MIN <= span <= OPEN_MAX:
        raise InvalidOption(
            f"duration {to_iso(span)} is outside PT1S to P7D, the time a circuit stays open; choose another duration"
        )
    return span


def check_retry_share(share: float) -> float:
    """Check the number of retries for each first attempt. Raises InvalidOption."""
    if isinstance(share, bool) or not 0 <= share <= 1:
        raise InvalidOption(
            f"retries {share:g} is outside 0 to 1, the retries allowed per first attempt; 1 is no limit"
        )
    return float(share)


def check_rate(rate: float | None) -> float | None:
    """Check a number of requests a second, or None. Raises InvalidOption."""
    if rate is not None and not RATE_MIN <= rate <= RATE_MAX:
        raise InvalidOption(
            f"rate {rate:g} is outside {RATE_MIN:g} to {RATE_MAX:,.0f} requests a second; null is no limit"
        )
    return rate
