"""Pages: an opaque token says where the next one begins, and to which list it belongs."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from hashlib import sha256
from typing import Any, TypeVar

import msgspec

from duly.api.problems import Refusal
from duly.api.response import Response
from duly.wire.pages import Page

T = TypeVar("T")
_MARK_BYTES = 6


def page(shape: type[Page[T]], items: Sequence[T], position: Any, of: str) -> Response:
    """Return a page, and where the next one begins; without a position it is the last."""
    return Response(200, shape(items=list(items), next_page_token=next_token(position, of)))


def next_token(position: Any, of: str) -> str | None:
    """Encode where the next page begins; None when there is none."""
    return None if position is None else token(position, of)


def token(position: Any, of: str) -> str:
    """Encode a position in a list; `of` names the list and its filter."""
    text = _mark(of) + msgspec.msgpack.encode(position)
    return urlsafe_b64encode(text).rstrip(b"=").decode()


def position(text: str | None, of: str, kind: type[T]) -> T | None:
    """Decode a position in a list. Raises Refusal when it is invalid, or of another list."""
    if text is None:
        return None
    try:
        raw = urlsafe_b64decode(text + "=" * (-len(text) % 4))
        if raw[:_MARK_BYTES] == _mark(of):
            return msgspec.msgpack.decode(raw[_MARK_BYTES:], type=kind)
    except (ValueError, msgspec.MsgspecError):
        pass
    raise Refusal(
        "invalid_query",
        "The page_token does not belong to this list and filter; use next_page_token of the page before.",
    )


def _mark(of: str) -> bytes:
    return sha256(of.encode()).digest()[:_MARK_BYTES]
