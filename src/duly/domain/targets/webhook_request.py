"""The method and the headers that a job may give its webhook.

They are checked twice: when a job is accepted, and again by the worker before it sends, because a run inserted by SQL
passes no earlier check.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from duly.domain.errors import InvalidOption
from duly.domain.triggers.errors import shown

HEADERS_MAX = 64
HEADERS_BYTES_MAX = 8_192
# One turns the connection into a tunnel, the other echoes our headers.
METHODS_REFUSED = ("CONNECT", "TRACE")
WITHOUT_BODY = frozenset({"DELETE", "GET", "HEAD", "OPTIONS"})  # when there is no payload
# Headers that we set, and those of the connection: a job that could set these could speak in our name, or smuggle a
# second request.
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
_METHOD = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,32}")
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,200}")
_VALUE = re.compile(r"[\t\x20-\x7e]*")


def check_method(method: str) -> str:
    """Check a method, in any case. Raises InvalidOption."""
    if not _METHOD.fullmatch(method) or method.upper() in METHODS_REFUSED:
        raise InvalidOption(f"method {shown(method)} is not supported; use POST, PUT, PATCH, GET or DELETE")
    return method.upper()


def check_headers(headers: Mapping[str, str]) -> Mapping[str, str]:
    """Check the headers of a job. Raises InvalidOption, without their values, which may be secret.

    The worker calls this again before it sends (worker/targets/webhook.py), because rows inserted by SQL have not been
    checked: a header could contain a line break, or be one of ours.
    """
    if len(headers) > HEADERS_MAX:
        raise InvalidOption(
            f"{len(headers)} headers are too many; the limit is {HEADERS_MAX}. Put the rest into the payload"
        )
    seen: set[str] = set()
    for name, value in headers.items():
        _check_header(name, value)
        if name.lower() in seen:
            raise InvalidOption(f"header {shown(name)} is given twice; join both values")
        seen.add(name.lower())
    size = sum(len(name) + len(value) for name, value in headers.items())
    if size > HEADERS_BYTES_MAX:
        raise InvalidOption(
            f"the headers have {size} bytes; the limit is {HEADERS_BYTES_MAX}. Put the rest into the payload"
        )
    return headers


def _check_header(name: str, value: str) -> None:
    if not _NAME.fullmatch(name):
        raise InvalidOption(
            f"header {shown(name)} is not a header name: use letters, digits and hyphens, such as Authorization"
        )
    plain = name.lower().replace("_", "-")  # many receivers treat the two alike
    if plain in RESERVED or plain.startswith(RESERVED_PREFIXES):
        raise InvalidOption(f"header {shown(name)} is set by Duly; leave it out, or give it another name")
    if not _VALUE.fullmatch(value):
        raise InvalidOption(
            f"the value of header {shown(name)} contains a line break, a control character or non-ASCII; encode it"
        )
    if value != value.strip():
        raise InvalidOption(
            f"the value of header {shown(name)} begins or ends with a space, which is never sent; remove it"
        )
