"""What one request says about its destination."""

from __future__ import annotations

from enum import StrEnum


class Verdict(StrEnum):
    """How a destination was, as far as this request can tell."""

    HEALTHY = "healthy"  # it answered, whatever it thinks of the request
    FAILING = "failing"  # it did not, or asks to be left alone
    IGNORED = "ignored"  # we broke off, or never began
