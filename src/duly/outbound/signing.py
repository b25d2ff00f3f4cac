"""The signature of Standard Webhooks: HMAC-SHA256 over `id.timestamp.body`, one for each valid secret.

Only `is_signed` compares signatures, in constant time.
"""

from __future__ import annotations

import hmac
from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections.abc import Sequence
from hashlib import sha256

SIGNATURES_MAX = 16  # more than a rotation needs; each costs the receiver a comparison
_VERSION = "v1"


def sign(secrets: Sequence[bytes], message_id: str, timestamp: int, body: bytes) -> str:
    """Return the value of `webhook-signature`: a signature for each secret, separated by spaces."""
    assert secrets, message_id
    signed = _signed(message_id, str(timestamp), body)
    return " ".join(f"{_VERSION},{b64encode(_digest(secret, signed)).decode()}" for secret in secrets)


def is_signed(secrets: Sequence[bytes], message_id: str, timestamp: str, body: bytes, signatures: str) -> bool:
    """Return whether one of the signatures was made with one of the secrets."""
    signed = _signed(message_id, timestamp, body)
    expected = [_digest(secret, signed) for secret in secrets]
    given = [digest for digest in map(_read, signatures.split(" ")[:SIGNATURES_MAX]) if digest is not None]
    # All of them are compared, so that the time does not tell which one was close.
    return any([hmac.compare_digest(one, other) for one in expected for other in given])  # noqa: C419


def _signed(message_id: str, timestamp: str, body: bytes) -> bytes:
    return b"%s.%s.%s" % (message_id.encode(), timestamp.encode(), body)


def _digest(secret: bytes, signed: bytes) -> bytes:
    return hmac.new(secret, signed, sha256).digest()


def _read(signature: str) -> bytes | None:
    """Parse one signature of the list; None when it is of another version, or invalid."""
    version, _, text = signature.partition(",")
    if version != _VERSION:
        return None
    try:
        return b64decode(text, validate=True)
    except (NotBase64, ValueError):
        return None
