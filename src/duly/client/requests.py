"""A request to a Duly as a value: what is sent, and how its answer is read. Nothing here sends anything."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Any, Generic, NoReturn, TypedDict, TypeVar, Unpack
from urllib.parse import quote
from uuid import UUID

import msgspec

from duly.client.errors import ApiError, NotFound, UnexpectedAnswer
from duly.client.reading import read as tolerantly
from duly.client.writing import check_step, check_text, write

T = TypeVar("T")
Id = UUID | str

JSON = "application/json"
NDJSON = "application/x-ndjson"
MERGE_PATCH = "application/merge-patch+json"


class Reply(msgspec.Struct, frozen=True):
    """An answer, read whole. The names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def is_replayed(self) -> bool:
        """Return whether it is the answer that was given before to the same request under its key."""
        return self.headers.get("idempotency-replayed") == "true"


class NoReply(msgspec.Struct, frozen=True):
    """A try that got no answer: why, whether the request may have arrived, and whether another try makes sense.

    `is_unreached`: nobody took the connection.
    """

    why: str
    may_have_arrived: bool
    is_hopeless: bool = False
    is_unreached: bool = False


class Ask(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """One request.

    `settle` says what a refusal means when an earlier try may have been done already: it may ask more, and gives the answer
    or raises. What is not `is_repeatable` would be done twice: it is not tried again once it may have arrived.
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


Settling = Generator[Ask[Any], Any, T]
"""Asks, is given the answers, and returns what the caller gets."""


def path(*steps: object) -> str:
    """Write the path to a thing; a name may contain whatever divides a path. Raises Invalid."""
    return "/v1/" + "/".join(quote(check_step(str(step)), safe="") for step in steps)


def getting(where: str, shape: type[T], **query: object) -> Ask[T]:
    """Ask for what is there."""
    return Ask(method="GET", path=where, read=reader(shape), query=query_of(query))


class Page(msgspec.Struct, Generic[T], frozen=True):
    """Some of a list, and what names the next page; without it there is no more."""

    items: list[T]
    next_page_token: str | None = None


def listing(where: str, item: type[T], **query: object) -> Ask[Page[T]]:
    """Ask for the first page of a list."""
    shape: Any = Page
    return getting(where, shape[item], **query)


def after(ask: Ask[Page[T]], token: str) -> Ask[Page[T]]:
    """Ask for the page that a token names."""
    return msgspec.structs.replace(ask, query={**ask.query, "page_token": token})


class Asking(TypedDict, Generic[T], total=False):
    """The parts of a request that few requests have."""

    query: Mapping[str, str]
    media_type: str
    headers: Mapping[str, str]
    key: str | None
    seconds_more: float
    settle: Callable[[ApiError], Settling[T]]
    is_repeatable: bool


def posting(where: str, shape: type[T], body: object = None, **more: Unpack[Asking[T]]) -> Ask[T]:
    """Ask for something to be done, once under its key."""
    written = None if body is None else write(body)
    return Ask(method="POST", path=where, read=reader(shape), body=written, **more)


def patching(where: str, read: Callable[[Reply], T], body: object) -> Ask[T]:
    """Ask for parts of something to be as told."""
    return Ask(method="PATCH", path=where, read=read, body=write(body))


def putting(where: str, shape: type[T], body: object) -> Ask[T]:
    """Ask for something to be as told."""
    return Ask(method="PUT", path=where, read=reader(shape), body=write(body))


def deleting(where: str, shape: type[T], **query: object) -> Ask[T]:
    """Ask for something to end."""
    return Ask(method="DELETE", path=where, read=reader(shape), query=query_of(query))


def removing(where: str) -> Ask[None]:
    """Ask for something to be gone; that it is gone already is no error after a try whose answer was lost."""
    return Ask(method="DELETE", path=where, read=nothing, settle=_gone)


def reader(shape: type[T]) -> Callable[[Reply], T]:
    """Return what reads an answer into a shape. It raises UnexpectedAnswer."""

    def read(reply: Reply) -> T:
        try:
            return tolerantly(reply.body, shape)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise unexpected(reply, str(error)) from None

    return read


def nothing(reply: Reply) -> None:
    """Read an answer that tells nothing."""


def unexpected(reply: Reply, why: str) -> UnexpectedAnswer:
    """Say that an answer is not of the shape we know."""
    return UnexpectedAnswer(
        f"The answer was {reply.status}, but cannot be read: {why}.",
        reply.status,
        "unexpected_answer",
        "See that the URL is that of a Duly, and that client and server are of the same minor version.",
        reply.headers.get("x-request-id"),
    )


def query_of(parameters: Mapping[str, object]) -> dict[str, str]:
    """Write the parameters of a query; None was not given."""
    return {name: check_text(_written(value), name) for name, value in parameters.items() if value is not None}


def given(**fields: object) -> dict[str, object]:
    """Keep the fields that were given: what is not sent is left to the server, also by clients that are newer than it."""
    return {name: value for name, value in fields.items() if value is not None}


def _written(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    written = msgspec.to_builtins(value)
    return written if isinstance(written, str) else str(written)


def uncertain(error: ApiError) -> NoReturn:
    """Say that a refusal may come from our own first try, whose answer was lost."""
    raise type(error)(
        f"{error.detail.rstrip('.')}. The answer to a first try was lost, so this may be what that try did.",
        *error.args[1:],
    )


def _gone(error: ApiError) -> Settling[None]:
    if not isinstance(error, NotFound):
        raise error
    yield from ()  # There is nothing more to ask.
