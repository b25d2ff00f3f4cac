"""Retries of one request: tries, pauses and a deadline, without any I/O, so that both clients share this code.

`converse` yields what to do next and receives the result: `Send` is answered by a `Reply` or a `NoReply`, `Pause` by
nothing. A request is retried when that is safe and may help: after a lost connection, after 502, 503 and 504, after
429, and after a 409 with a Retry-After. A POST carries one key through all its tries, so it is done once. PUT, PATCH
and DELETE can be repeated as they are; where a repeat is refused because the first try was carried out after all, the
request's `settle` finds out.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from math import inf
from typing import TypeVar

import msgspec

from duly import __version__
from duly.client.errors import ApiError, QuotaReached, Unavailable, error_of
from duly.client.requests import ApiRequest, NoReply, Reply
from duly.client.writing import check_key
from duly.clock import Rng

T = TypeVar("T")

_UNREACHED = "See that DULY_URL is right, and that `duly api` or `duly up` runs there."
_TRY_SECONDS_MIN = 0.5  # a try that begins just before the deadline gets as long as this


class Patience(msgspec.Struct, frozen=True):
    """The limits of retrying: seconds for one try, for all together, and pauses that double from the first to the
    longest.

    `connect_deadline` is for all tries of a read while nothing accepts the connection.
    """

    timeout: float = 15.0
    deadline: float = 60.0
    connect_deadline: float = inf
    pause_first: float = 0.1
    pause_max: float = 5.0

    def pause(self, tries: int, chance: float, retry_after: float | None) -> float:
        """Return the pause after so many tries: half of it random, and at least the server's Retry-After."""
        backoff = min(self.pause_max, self.pause_first * 2.0 ** min(tries - 1, 30))
        return max(backoff * (0.5 + 0.5 * chance), retry_after or 0.0)


class Send(msgspec.Struct, frozen=True):
    """Send this, and wait so long for the response."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes | None
    timeout: float


class Pause(msgspec.Struct, frozen=True):
    """Wait so long."""

    seconds: float


Step = Send | Pause
Came = Reply | NoReply | None
Conversation = Generator[Step, Came, T]


class Manners(msgspec.Struct, frozen=True):
    """The inputs of retrying: patience, a monotonic clock, and randomness."""

    patience: Patience
    monotonic: Callable[[], float]
    rng: Rng


def converse(request: ApiRequest[T], manners: Manners) -> Conversation[T]:
    """Take one request to its response. Raises ApiError."""
    began = manners.monotonic()
    ends_at = began + manners.patience.deadline + request.seconds_more
    headers = _headers(request, manners.rng)
    tries, may_be_done = 0, False
    while True:
        tries += 1
        event = yield _send(request, headers, manners, ends_at)
        if isinstance(event, Reply) and 200 <= event.status < 300:
            return request.read(event)
        assert event is not None
        error = error_in(event)
        if not is_worth_repeating(event, error):
            if may_be_done and request.settle is not None:
                return (yield from _settle(request, error, manners))
            raise error
        may_be_done = may_be_done or _may_be_done(event)
        if may_be_done and not request.is_repeatable:
            raise _gave_up(request, error, headers, tries, may_be_done=True)
        if request.method == "GET" and isinstance(event, NoReply) and event.is_unreached:
            ends_at = min(ends_at, began + manners.patience.connect_deadline)
        pause = manners.patience.pause(tries, manners.rng.uniform(), error.retry_after)
        if manners.monotonic() + pause >= ends_at:
            raise _gave_up(request, error, headers, tries, may_be_done=may_be_done)
        yield Pause(pause)


def _settle(request: ApiRequest[T], error: ApiError, manners: Manners) -> Conversation[T]:
    assert request.settle is not None
    settling = request.settle(error)
    try:
        more = next(settling)
        while True:
            more = settling.send((yield from converse(more, manners)))
    except StopIteration as done:
        value: T = done.value
        return value


def _headers(request: ApiRequest[T], rng: Rng) -> dict[str, str]:
    """Write the headers once for all tries, with one idempotency key."""
    headers = {"Accept": "*/*", "User-Agent": f"duly-python/{__version__}", **request.headers}
    if request.body is not None:
        headers["Content-Type"] = request.media_type
    if request.method == "POST" and request.is_repeatable:
        headers["Idempotency-Key"] = _fresh(rng) if request.key is None else check_key(request.key)
    return headers


def _fresh(rng: Rng) -> str:
    """Create a key that no other process has, forks included."""
    return rng.secret(16).hex()


def _send(request: ApiRequest[T], headers: dict[str, str], manners: Manners, ends_at: float) -> Send:
    left = max(ends_at - manners.monotonic(), _TRY_SECONDS_MIN)
    timeout = min(manners.patience.timeout + request.seconds_more, left)
    return Send(request.method, request.path, dict(request.query), headers, request.body, timeout)


def error_in(event: Reply | NoReply) -> ApiError:
    """Return the exception of a response, or of its absence."""
    if isinstance(event, NoReply):
        return Unavailable(event.why, code="no_answer", remedy=_UNREACHED if event.is_unreached else "")
    return error_of(event.status, event.body, _seconds(event.headers.get("retry-after")))


def _seconds(text: str | None) -> float | None:
    """Parse Retry-After; a date, which Duly never sends, counts as none."""
    return float(text) if text is not None and text.isascii() and text.isdigit() else None


def is_worth_repeating(event: Reply | NoReply, error: ApiError) -> bool:
    """Return whether a retry may help."""
    match event:
        case NoReply():
            return not event.is_hopeless
        case Reply(status=502 | 503 | 504):
            return True
        case Reply(status=429):
            return error.retry_after is not None or not isinstance(error, QuotaReached)
        case Reply(status=409):
            return error.retry_after is not None
    return False


def _may_be_done(event: Reply | NoReply) -> bool:
    return event.may_have_arrived if isinstance(event, NoReply) else event.status >= 500


def _retry_remedy(request: ApiRequest[T], key: str | None) -> str:
    if not request.is_repeatable:
        return "check the state before you retry: a second request would be carried out again"
    return f"retry with the key {key!r}: it is carried out once" if key else "retry: repeating it does no harm"


def _gave_up(
    request: ApiRequest[T], error: ApiError, headers: dict[str, str], tries: int, *, may_be_done: bool
) -> ApiError:
    """Return the error after the last try, with the idempotency key."""
    key = headers.get("Idempotency-Key")
    if not may_be_done or request.method == "GET":
        return gave_up_on(error, tries, key=key)
    return gave_up_on(error, tries, f"It may or may not have been done; {_retry_remedy(request, key)}.", key)


def gave_up_on(error: ApiError, tries: int, remedy: str | None = None, key: str | None = None) -> ApiError:
    """Return the error after the last try."""
    return type(error)(
        f"{error.detail.rstrip('.')}; given up after {tries} {'try' if tries == 1 else 'tries'}.",
        error.status,
        error.code,
        error.remedy if remedy is None else remedy,
        error.request_id,
        error.errors,
        error.retry_after,
        key,
    )
