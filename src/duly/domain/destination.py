"""Destinations: where webhooks go to, by tenant and origin; what they may be sent, and with which secrets it is signed."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from duly.domain.api_key import Secret
from duly.domain.errors import InvalidOption
from duly.domain.webhook_secret import BYTES_NEW, read_secret, show_secret

PLACES_DEFAULT, PLACES_MAX = 100, 100_000
RATE_MIN, RATE_MAX = 0.001, 100_000.0
SECRET_KEPT = timedelta(hours=24)  # how long the one before is still good after a rotation


def new_secret(draw: Callable[[int], bytes]) -> Secret:
    """Draw a signing secret, as receivers keep it."""
    return Secret(show_secret(draw(BYTES_NEW)))


def signing_key(secret: Secret) -> bytes:
    """Give the bytes that a secret signs with. Raises InvalidOption when it is none."""
    return read_secret(secret.reveal())


def about_secret(tenant: int, destination_id: object, number: int) -> bytes:
    """Say what a sealed secret belongs to: moved to another place, it does not open."""
    return f"duly/destination-secret/{tenant}/{destination_id}/{number}".encode()


def check_places(places: int) -> int:
    """Take a number of requests at once. Raises InvalidOption."""
    if not 1 <= places <= PLACES_MAX:
        raise InvalidOption(f"places {places} is outside 1 to {PLACES_MAX:,}: how many requests are under way at once")
    return places


def check_rate(rate: float | None) -> float | None:
    """Take a number of requests a second, or none. Raises InvalidOption."""
    if rate is not None and not RATE_MIN <= rate <= RATE_MAX:
        raise InvalidOption(
            f"rate {rate:g} is outside {RATE_MIN:g} to {RATE_MAX:,.0f} requests a second; null is no limit"
        )
    return rate
