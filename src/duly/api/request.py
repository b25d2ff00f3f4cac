"""The request: its headers, path, query, body and idempotency key, bounded and parsed; and whether its caller has
disconnected.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from contextvars import ContextVar
from datetime import timedelta
from hashlib import sha256
from typing import Any, cast
from urllib.parse import parse_qsl, unquote

import msgspec
from litestar.exceptions import InternalServerException

from duly.api.operations import Operation
from duly.api.problems import AnyRequest, Refusal
from duly.api.response import JSON, OCTETS
from duly.domain.duration import parse, to_iso
from duly.domain.errors import InvalidOption, InvalidSchedule
from duly.domain.fields import Duration
from duly.domain.jobs.job import check_key
from duly.wire.binary_events import attributes
from duly.wire.schema.fitting import Wrong
from duly.wire.schema.reading import Misshapen, read_body, read_query

Receive = Callable[[], Awaitable[Any]]

# Set for each request; only a long poll needs it.
receive: ContextVar[Receive] = ContextVar("receive")

HEADER_BYTES_MAX = 8_192
PARAMETERS_MAX = 50
_ARRIVING = "duly.is_arriving"


class _Peek(msgspec.Struct):
    idempotency_key: str | None = None


def check_headers(request: AnyRequest) -> None:
    """Refuse headers that are too large. Raises Refusal."""
    size = sum(len(name) + len(value) + 4 for name, value in request.scope["headers"])
    if size > HEADER_BYTES_MAX:
        raise Refusal("headers_too_large", f"The headers have {size} bytes; the limit is {HEADER_BYTES_MAX}.")


async def take_in(operation: Operation, request: AnyRequest) -> bytes:
    """Read the body, up to the operation's limit. Raises Refusal."""
    if operation.body is None:
        return b""
    given, taken_types = _media_type(request), _types_of(operation)
    taken = await _whole(operation, request)
    if taken and given not in taken_types and not _is_binary(operation, request):
        wanted = " or ".join((operation.media_type, *operation.also_takes))
        raise Refusal("unsupported_media_type", f"The Content-Type is {given or 'missing'}; send {wanted}.")
    return bytes(taken)


async def _whole(operation: Operation, request: AnyRequest) -> bytearray:
    taken = bytearray()
    scope = cast("dict[str, Any]", request.scope)
    scope[_ARRIVING] = True
    try:
        async for chunk in request.stream():
            taken += chunk
            if len(taken) > operation.body_bytes_max:
                raise Refusal("body_too_large", f"The body has more than {operation.body_bytes_max} bytes.")
    except InternalServerException:
        raise Refusal("request_timeout", "The connection was closed before the body arrived.") from None
    scope[_ARRIVING] = False
    return taken


def is_arriving(request: AnyRequest) -> bool:
    """Return whether the body had not fully arrived."""
    return bool(request.scope.get(_ARRIVING))


def _types_of(operation: Operation) -> tuple[str, ...]:
    """Return the content types that an operation accepts; JSON may be named as such, and lines as bytes."""
    plain = (JSON,) if operation.media_type.endswith("+json") else (OCTETS,) if operation.body is bytes else ()
    return (operation.media_type, *operation.also_takes, *plain)


def _media_type(request: AnyRequest) -> str:
    return (request.headers.get("content-type") or "").partition(";")[0].strip().lower()


def _is_binary(operation: Operation, request: AnyRequest) -> bool:
    return operation.is_binary is not None and operation.is_binary(request.headers)


def key_of(operation: Operation, request: AnyRequest, body: bytes) -> str | None:
    """Return the idempotency key, from the header or the body; both must be the same. Raises Refusal, Misshapen."""
    if not operation.is_keyed:
        return None
    header, inside = request.headers.get("idempotency-key"), _key_inside(operation, body)
    if header is not None and inside is not None and header != inside:
        raise Refusal("key_mismatch", f"The header has Idempotency-Key {header!r} and the body {inside!r}.")
    key = inside if header is None else header
    try:
        return None if key is None else check_key(key)
    except InvalidOption as error:
        if header is None:
            raise Misshapen([Wrong("/idempotency_key", str(error))]) from None
        raise Refusal("invalid_header", str(error)) from None


def _key_inside(operation: Operation, body: bytes) -> str | None:
    if not operation.has_key_inside or b'"idempotency_key"' not in body:
        return None
    try:
        return msgspec.json.decode(body, type=_Peek).idempotency_key
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None  # it is refused when the body is read


def path_of(operation: Operation, request: AnyRequest) -> Mapping[str, str]:
    """Return the parameters in the path. A name is read as it was sent, because slashes may be part of it."""
    head, name, rest = operation.path.partition("{name}")
    if not name:
        return request.path_params
    sent = sent_path(request).removeprefix(head).removesuffix(rest)
    return {**request.path_params, "name": unquote(sent, errors="surrogateescape")}


def sent_path(request: AnyRequest) -> str:
    """Return the path as it was sent, still percent-encoded."""
    path: bytes = request.scope["raw_path"]
    return path.decode("latin-1").partition("?")[0]


def query_of(operation: Operation, request: AnyRequest) -> Any:
    """Parse the query into its shape. Raises Refusal."""
    try:
        pairs = parse_qsl(request.url.query, keep_blank_values=True, errors="strict", max_num_fields=PARAMETERS_MAX)
        return read_query(pairs, operation.query)
    except Misshapen as error:
        raise Refusal("invalid_query", str(error)) from None
    except ValueError:
        raise Refusal(
            "invalid_query", f"The query is not UTF-8, or has more than {PARAMETERS_MAX} parameters."
        ) from None


def body_of(operation: Operation, request: AnyRequest, body: bytes) -> Any:
    """Parse the body into its shape. Raises Malformed, Misshapen."""
    if operation.body is None or operation.body is bytes or _is_binary(operation, request):
        return body
    return read_body(body or b"{}", operation.also_takes.get(_media_type(request), operation.body))


def digest(operation: Operation, request: AnyRequest, body: bytes) -> bytes:
    """Return a digest that tells requests under one key apart; in binary mode, it includes headers."""
    parts = [request.url.path.encode(), request.url.query.encode(), body]
    if _is_binary(operation, request):
        parts.append(repr(attributes(request.headers.items())).encode())
    return sha256(b"\0".join(parts)).digest()


@asynccontextmanager
async def watched_connection() -> AsyncIterator[asyncio.Task[None]]:
    """Return a task that is done when the caller has disconnected. The request's body must have been read."""
    watch = asyncio.create_task(_hang_up(receive.get()), name="duly-connection")
    try:
        yield watch
    finally:
        watch.cancel()


async def _hang_up(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def read_duration(value: Duration, what: str, least: timedelta, most: timedelta) -> timedelta:
    """Parse a duration within bounds. Raises InvalidOption."""
    try:
        span = parse(value, what)
    except InvalidSchedule as error:
        raise InvalidOption(str(error)) from None
    if not least <= span <= most:
        raise InvalidOption(f"{what} {value!r} is outside {to_iso(least)} to {to_iso(most)}")
    return span
