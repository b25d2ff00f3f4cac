"""The request of a webhook, as far as a job may shape it: the method, and headers beside ours."""

from __future__ import annotations

import re
from collections.abc import Mapping

from duly.domain.errors import InvalidOption

METHODS = ("DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT")
WITHOUT_BODY = frozenset({"DELETE", "GET", "HEAD", "OPTIONS"})  # when there is no payload
# What we say ourselves, and what belongs to the connection: a job that could set these could speak in our name, or make
# the next request out of the end of this one.
RESERVED = frozenset(
    {
        "accept-encoding",
        "connection",
        "content-encoding",
        "content-length",
        "expect",
        "host",
        "http2-settings",
        "keep-alive",
        "te",
        "trailer",
        "traceparent",
        "transfer-encoding",
        "upgrade",
        "user-agent",
        "x-attempt",
        "x-callback-token",
        "x-fence",
        "x-job-id",
        "x-request-id",
        "x-run-id",
        "x-scheduled-at",
        "x-scheduler-signature",
    }
)
RESERVED_PREFIXES = ("proxy-", "webhook-")
_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,200}")
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")


def check_method(method: str) -> str:
    """Take a method, in any case. Raises InvalidOption."""
    if method.upper() not in METHODS:
        raise InvalidOption(f"webhook method {method[:40]!r} is not one that is sent; take one of {', '.join(METHODS)}")
    return method.upper()


def check_headers(headers: Mapping[str, str]) -> Mapping[str, str]:
    """Take the headers of a job. Raises InvalidOption, without their values: they may be secret."""
    seen: set[str] = set()
    for name, value in headers.items():
        lower = name.lower()
        if not _NAME.fullmatch(name):
            raise InvalidOption(f"webhook header {name[:80]!r}: a name has letters, digits and hyphens")
        if lower in RESERVED or lower.startswith(RESERVED_PREFIXES):
            raise InvalidOption(f"webhook header {name!r} is set by Duly itself; give yours another name")
        if lower in seen:
            raise InvalidOption(f"webhook header {name!r} is given twice; write both values into one")
        if not _VALUE.fullmatch(value):
            raise InvalidOption(f"webhook header {name!r}: its value holds a line break or another control character")
        seen.add(lower)
    return headers
