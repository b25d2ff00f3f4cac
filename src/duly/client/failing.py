"""What a failed try means: whether the request may have arrived, and whether another try makes sense."""

from __future__ import annotations

import httpx2

from duly.client.requests import NoReply

_NEVER_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)
_OURS = (httpx2.UnsupportedProtocol, httpx2.LocalProtocolError, httpx2.TooManyRedirects)


def no_reply(error: httpx2.RequestError, url: str) -> NoReply:
    """Say what became of a try that got no answer; of the exception only its words are kept, for it holds the request."""
    words = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, httpx2.TimeoutException):
        words = "it took too long"
    is_untrusted = "CERTIFICATE_VERIFY_FAILED" in words
    return NoReply(
        f"No answer from {url}: {words}.",
        may_have_arrived=not isinstance(error, (*_NEVER_SENT, *_OURS)),
        is_hopeless=isinstance(error, _OURS) or is_untrusted,
    )
