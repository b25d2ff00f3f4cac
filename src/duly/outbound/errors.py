"""Errors of outbound calls. The message is for tenants and reveals nothing of our network; `detail` is for the log.

OutboundError
├── NotAllowed      by what the URL says itself, under the settings here: another worker's may allow it
├── NotFound        no address that may be called: the name has none, or leads elsewhere; callers do not learn which
├── NoAnswer        the connection could not be made, or ended before a whole answer had come
├── BadAnswer       it answered, with something that is no answer we take
└── DeadlinePassed  no whole answer came in time: see calling.py
"""

from __future__ import annotations

from duly.domain.errors import DulyError


class OutboundError(DulyError):
    """The root of errors of outbound calls."""

    def __init__(self, message: str, detail: str = "") -> None:
        super().__init__(message)
        self.detail = detail


class NotAllowed(OutboundError):
    """The URL itself names a port or an address that may not be called."""


class NotFound(OutboundError):
    """The host's name leads to no address that may be called."""


class NoAnswer(OutboundError):
    """No whole response came."""


class BadAnswer(OutboundError):
    """The response is unacceptable: too many headers, or no HTTP."""
