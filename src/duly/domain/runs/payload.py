"""Limits of payloads, results and checkpoints: bounded JSON, and text that PostgreSQL can store."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

import msgspec

from duly.domain.errors import InvalidPayload

PAYLOAD_BYTES_MAX = 262_144
RESULT_BYTES_MAX = 65_536
CHECKPOINT_BYTES_MAX = 262_144
DEPTH_MAX = 64
# Composed values, such as a node's payload with results inserted, may be deeper.
SHOWN_DEPTH_MAX = 256
_TOO_DEEP_TO_KEEP = (
    f"result nested deeper than {DEPTH_MAX} levels was not kept; flatten it, or store it elsewhere and return a"
    " reference to it"
)

_encoder = msgspec.json.Encoder()


def encode(value: Any, what: str, bytes_max: int = PAYLOAD_BYTES_MAX) -> str:
    """Encode `value` as JSON text. Raises InvalidPayload naming `what` and the limit it breaks."""
    try:
        plain = msgspec.to_builtins(value)
        _check(plain, what, 0)
        text = _encoder.encode(plain)
    except RecursionError:
        raise InvalidPayload(f"{what} is nested deeper than {DEPTH_MAX} levels; flatten it") from None
    except (TypeError, ValueError) as error:
        raise InvalidPayload(f"{what} is not JSON: {error}") from None
    if len(text) > bytes_max:
        raise InvalidPayload(
            f"{what} has {len(text)} bytes; the limit is {bytes_max}. Store it elsewhere and pass a reference"
        )
    return text.decode()


def encode_together(values: Sequence[Any], decoder: msgspec.json.Decoder[Any]) -> list[str] | None:
    """Encode objects in one pass, and check that each can be decoded; None where one may be refused: `encode` says why."""
    try:
        lines = _encoder.encode_lines(values)
        decoder.decode_lines(lines)
    except (TypeError, ValueError, ArithmeticError, RecursionError):
        return None
    if b"\\u" in lines or b"null" in lines:  # a NUL or half a character; and a null may have been NaN
        return None
    texts = lines.decode().split("\n")[:-1]
    if len(texts) != len(values):
        return None
    is_flat = lines.count(b"{") + lines.count(b"[") < len(values) + DEPTH_MAX
    if not is_flat and any(text.count("{") + text.count("[") > DEPTH_MAX for text in texts):
        return None
    if len(lines) > PAYLOAD_BYTES_MAX and any(len(line) > PAYLOAD_BYTES_MAX for line in lines.split(b"\n")):
        return None
    return texts


def encode_result(value: Any) -> tuple[str | None, str | None]:
    """Encode a result as JSON text that can be stored; None if it is too large or too deep, with the reason.

    Raises TypeError or ValueError when it is not JSON.
    """
    try:
        text = _encode_anyhow(value)
    except RecursionError:
        return None, _TOO_DEEP_TO_KEEP
    if len(text) > RESULT_BYTES_MAX:
        return None, (
            f"its result was {len(text):,} bytes and is not kept: results up to {RESULT_BYTES_MAX:,} bytes are;"
            " store it elsewhere and return a reference to it"
        )
    return (None, _TOO_DEEP_TO_KEEP) if is_deeper(text, DEPTH_MAX) else (text.decode(), None)


def _encode_anyhow(value: Any) -> bytes:
    try:
        text = _encoder.encode(value)
    except UnicodeEncodeError:
        text = None
    if text is None or b"\\u0000" in text:  # a lone surrogate or a NUL somewhere within
        text = _encoder.encode(storable_value(msgspec.to_builtins(value)))
    return text


def read_anyhow(text: str) -> Any:
    """Decode stored JSON for display; text that cannot be decoded is returned as it is, with the error. Cannot fail."""
    if is_deeper(text.encode(), SHOWN_DEPTH_MAX):
        return {"unreadable": f"it is nested deeper than {SHOWN_DEPTH_MAX} levels", "text": text}
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        return {"unreadable": str(error), "text": text}


def is_deeper(text: bytes, levels: int) -> bool:
    """Return whether JSON is nested deeper than so many levels, without decoding it."""
    if text.count(b"[") + text.count(b"{") <= levels:
        return False
    depth = 0
    for token in _TOKENS.finditer(text):
        depth += (token[0] in (b"{", b"[")) - (token[0] in (b"}", b"]"))
        if depth > levels:
            return True
    return False


# An unclosed string reaches to the end: otherwise each quote in it would start a new match.
_TOKENS = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)|[\[\]{}]', re.DOTALL)


def _check(value: Any, what: str, depth: int) -> None:
    if depth >= DEPTH_MAX and isinstance(value, dict | list | tuple):
        raise InvalidPayload(f"{what} is nested deeper than {DEPTH_MAX} levels; flatten it")
    if isinstance(value, str):
        _check_text(value, what)
    elif isinstance(value, float) and not math.isfinite(value):
        raise InvalidPayload(f"{what} contains {value}, which JSON cannot express; use null or a string")
    elif isinstance(value, dict):
        for key, item in value.items():
            _check_text(str(key), what)
            _check(item, what, depth + 1)
    elif isinstance(value, list | tuple):
        for item in value:
            _check(item, what, depth + 1)


def _check_text(text: str, what: str) -> None:
    if "\0" in text:
        raise InvalidPayload(f"{what} contains a NUL character, which PostgreSQL cannot store; remove it")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InvalidPayload(
                f"{what} contains a lone surrogate at position {error.start}; it is not valid text"
            ) from None


def storable(text: str, characters_max: int = 32_768) -> str:
    """Make any text safe to store: no NUL, no lone surrogate, cut to a length. Cannot fail."""
    return text[:characters_max].replace("\0", "\ufffd").encode("utf-8", "replace").decode()


def storable_value(value: Any) -> Any:
    """Make the text inside a JSON value safe to store."""
    if isinstance(value, str):
        return storable(value, len(value))
    if isinstance(value, dict):
        return {storable(str(key)): storable_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [storable_value(item) for item in value]
    return value
