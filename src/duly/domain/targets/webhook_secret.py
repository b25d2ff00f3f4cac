"""Signing secrets of webhooks, as people see them: `whsec_` and the base64 of 24 to 64 bytes."""

from __future__ import annotations

from base64 import b64decode, b64encode
from binascii import Error as NotBase64

from duly.domain.errors import InvalidOption

PREFIX = "whsec_"
BYTES_MIN, BYTES_MAX = 24, 64
BYTES_NEW = 32


def read_secret(text: str) -> bytes:
    """Parse a secret, with its prefix or without, as Standard Webhooks does. Raises InvalidOption, without the secret."""
    try:
        secret = b64decode(_padded(text.strip().removeprefix(PREFIX)), validate=True)
    except (NotBase64, ValueError):
        raise InvalidOption(f"webhook secret: it is not base64; copy it whole, with its {PREFIX}") from None
    if not BYTES_MIN <= len(secret) <= BYTES_MAX:
        raise InvalidOption(
            f"webhook secret: it has {len(secret)} bytes and must have {BYTES_MIN} to {BYTES_MAX}; copy it whole"
        )
    return secret


def show_secret(secret: bytes) -> str:
    """Write a secret as people see it."""
    return PREFIX + b64encode(secret).decode()


def _padded(text: str) -> str:
    return text + "=" * (-len(text) % 4)
