"""Failed tries: whether the request may have arrived, whether a retry makes sense, and the wait before it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from duly.client.requests import NoReply
from duly.clock import SystemClock, host_sleep

if TYPE_CHECKING:
    import httpx2


def no_reply(error: httpx2.RequestError, url: str) -> NoReply:
    """Describe a try without a response; only the words of the exception are kept, because it holds the request."""
    import httpx2  # here, so that importing the client does not load it

    never_sent = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)
    ours = (httpx2.UnsupportedProtocol, httpx2.LocalProtocolError, httpx2.TooManyRedirects)
    words = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, httpx2.TimeoutException):
        words = "it took too long"
    elif isinstance(_root(error), ConnectionRefusedError):
        words = "connection refused"
    is_untrusted = "CERTIFICATE_VERIFY_FAILED" in words
    return NoReply(
        f"No answer from {url}: {words}.",
        may_have_arrived=not isinstance(error, (*never_sent, *ours)),
        is_hopeless=isinstance(error, ours) or is_untrusted,
        is_unreached=isinstance(error, httpx2.ConnectError) and not is_untrusted,
    )


def _root(error: BaseException) -> BaseException:
    while (cause := error.__cause__ or error.__context__) is not None:
        error = cause
    return error


async def async_pause(seconds: float) -> None:
    """Wait, without blocking the loop."""
    await SystemClock().sleep(seconds)


def pause(seconds: float) -> None:
    """Wait."""
    host_sleep(seconds)
