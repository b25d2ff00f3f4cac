"""Callback tokens: the right to report the outcome of one attempt of one run.

`cb_<run>_<fence>_<mac>`: the MAC is HMAC-SHA256 over the text before it, with a key derived from the keyring, so no
token has to be stored. The fence binds it to one attempt.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64encode
from hashlib import sha256
from hmac import compare_digest
from hmac import digest as hmac_digest
from uuid import UUID

from duly.domain.tenancy.sealing import Keyring

HEADER = "X-Callback-Token"
PATTERN = "^cb_[0-9a-f]{32}_[1-9][0-9]{0,18}_[A-Za-z0-9_-]{43}$"
_TEXT = re.compile(PATTERN.replace("$", r"\Z"))
_PURPOSE = b"duly callback token"


class CallbackTokens:
    """Makes tokens and verifies them: the first key makes them, every key verifies."""

    def __init__(self, keyring: Keyring) -> None:
        self._keys = keyring.derived(_PURPOSE)

    def __repr__(self) -> str:
        return f"CallbackTokens({len(self._keys)} keys)"

    def make(self, run_id: UUID, fence: int) -> str:
        """Return the token of an attempt."""
        head = f"cb_{run_id.hex}_{fence}"
        return f"{head}_{_mac(self._keys[0], head)}"

    def read(self, token: str) -> tuple[UUID, int] | None:
        """Return the run and the fence of a valid token; None of any other."""
        if _TEXT.match(token) is None:
            return None
        _, run, fence, _ = token.split("_", 3)
        head = f"cb_{run}_{fence}"
        given = token.removeprefix(head + "_")
        known = [compare_digest(given, _mac(key, head)) for key in self._keys]
        return (UUID(run), int(fence)) if any(known) and int(fence) < 1 << 63 else None


def _mac(key: bytes, head: str) -> str:
    return urlsafe_b64encode(hmac_digest(key, head.encode(), sha256)).rstrip(b"=").decode()
