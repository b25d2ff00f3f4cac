"""Requests as values: what is sent, and how the response is decoded. Nothing here sends anything."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Any, Generic, NoReturn, TypedDict, TypeVar, Unpack
from urllib.parse import quote
from uuid import UUID

import msgspec

from duly.client.errors import ApiError, NotFound, UnexpectedResponse
from duly.client.reading import read as tolerantly
from duly.client.writing import check_address, check_step, check_text, write

T = TypeVar("T")
Id = UUID | str

JSON = "application/json"
NDJSON = "application/x-ndjson"
MERGE_PATCH = "application/merge-patch+json"


class Reply(msgspec.Struct, frozen=True):
    """A response, read whole. Header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def is_replayed(self) -> bool:
        """Return whether it is the stored response of a repeated request."""
        return self.headers.get("idempotency-replayed") == "true"


class NoReply(msgspec.Struct, frozen=True):
    """A try without a response: why, whether the request may have arrived, and whether a retry makes sense.

    `is_unreached`: nothing accepted the connection.
    """

    why: str
    may_have_arrived: bool
    is_hopeless: bool = False
    is_unreached: bool = False


class ApiRequest(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """One request.

    `settle` resolves a refusal when an earlier try may have been carried out: it may send more, and returns the result
    or raises. A request that is not `is_repeatable` would be carried out twice: it is not retried once it may have
    arrived.
    """

    method: str
    path: str
    read: Callable[[Reply], T]
    query: Mapping[str, str] = {}
    body: bytes | None = None
    media_type: str = JSON
    headers: Mapping[str, str] = {}
    key: str | None = None
    seconds_more: float = 0.0
    settle: Callable[[ApiError], Settling[T]] | None = None
    is_repeatable: bool = True


Settling = Generator[ApiRequest[Any], Any, T]
"""Yields requests, receives their results, and returns the caller's result."""


def path(*steps: object) -> str:
    """Build the path of a thing; a name may contain slashes. Raises Invalid."""
    return check_address("/v1/" + "/".join(quote(check_step(str(step)), safe="") for step in steps), "the name")


def getting(where: str, shape: type[T], **query: object) -> ApiRequest[T]:
    """Build a GET request."""
    return ApiRequest(method="GET", path=where, read=reader(shape), query=query_of(query))


class Page(msgspec.Struct, Generic[T], frozen=True):
    """A part of a list, and the token of the next page; None: there is no more."""

    items: list[T]
    next_page_token: str | None = None


def listing(where: str, item: type[T], **query: object) -> ApiRequest[Page[T]]:
    """Build the request of a list's first page."""
    shape: Any = Page
    return getting(where, shape[item], **query)


def after(request: ApiRequest[Page[T]], token: str) -> ApiRequest[Page[T]]:
    """Build the request of the page that a token names."""
    return msgspec.structs.replace(request, query={**request.query, "page_token": token})


class Asking(TypedDict, Generic[T], total=False):
    """Optional parts of a request."""

    query: Mapping[str, str]
    media_type: str
    headers: Mapping[str, str]
    key: str | None
    seconds_more: float
    settle: Callable[[ApiError], Settling[T]]
    is_repeatable: bool


def posting(where: str, shape: type[T], body: object = None, **more: Unpack[Asking[T]]) -> ApiRequest[T]:
    """Build a POST request, done once under its key."""
    written = None if body is None else write(body)
    return ApiRequest(method="POST", path=where, read=reader(shape), body=written, **more)


def patching(where: str, read: Callable[[Reply], T], body: object) -> ApiRequest[T]:
    """Build a PATCH request."""
    return ApiRequest(method="PATCH", path=where, read=read, body=write(body))


def putting(where: str, shape: type[T], body: object) -> ApiRequest[T]:
    """Build a PUT request."""
    return ApiRequest(method="PUT", path=where, read=reader(shape), body=write(body))


def deleting(where: str, shape: type[T], **query: object) -> ApiRequest[T]:
    """Build a DELETE request."""
    return ApiRequest(method="DELETE", path=where, read=reader(shape), query=query_of(query))


def removing(where: str) -> ApiRequest[None]:
    """Build a DELETE request for which "not found" is a success after a try whose response was lost."""
    return ApiRequest(method="DELETE", path=where, read=nothing, settle=_already_removed)


def reader(shape: type[T]) -> Callable[[Reply], T]:
    """Return a decoder of responses, which raises UnexpectedResponse."""

    def read(reply: Reply) -> T:
        try:
            return tolerantly(reply.body, shape)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise unexpected(reply, str(error)) from None

    return read


def nothing(reply: Reply) -> None:
    """Decode an empty response."""


def unexpected(reply: Reply, why: str) -> UnexpectedResponse:
    """Return the error of a response of another shape."""
    return UnexpectedResponse(
        f"The answer was {reply.status}, but cannot be read: {why}.",
        reply.status,
        "unexpected_answer",
        "See that the URL is that of a Duly, and that client and server are of the same minor version.",
        reply.headers.get("x-request-id"),
    )


def query_of(parameters: Mapping[str, object]) -> dict[str, str]:
    """Write the parameters of a query; None was not given. Raises Invalid."""
    written = {name: check_text(_written(value), name) for name, value in parameters.items() if value is not None}
    for name, text in written.items():
        check_address(quote(text), name)
    return written


def given(**fields: object) -> dict[str, object]:
    """Keep the given fields: the rest is left to the server, also by clients that are newer than it."""
    return {name: value for name, value in fields.items() if value is not None}


def _written(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    written = msgspec.to_builtins(value)
    return written if isinstance(written, str) else str(written)


def uncertain(error: ApiError) -> NoReturn:
    """Return whether a refusal may come from our own first try, whose response was lost."""
    raise type(error)(
        f"{error.detail.rstrip('.')}. The answer to a first try was lost, so this may be what that try did.",
        *error.args[1:],
    )


def _already_removed(error: ApiError) -> Settling[None]:
    if not isinstance(error, NotFound):
        raise error
    yield from ()  # there is nothing more to send
