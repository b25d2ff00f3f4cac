# Made from ../asynchronous by tests/client/twins.py; change that one.
"""What a receiver of webhooks says after it has answered 202."""

from __future__ import annotations

from typing import Any

from duly.client.asking import given, path, posting
from duly.client.synchronous.line import Line
from duly.wire.callbacks import CallbackExtended, CallbackSettled


class Callbacks:
    """Runs that wait for their receiver, each by its token; no key is needed."""

    def __init__(self, line: Line) -> None:
        self._line = line

    def settle(self, token: str, result: Any = None) -> CallbackSettled:
        """Say that it succeeded. Raises NotFound, Conflict."""
        body = given(outcome="succeeded", result=result)
        return self._line.ask(posting(path("callbacks", token), CallbackSettled, body))

    def fail(
        self, token: str, reason: str | None = None, *, retry: bool = True, retry_after: str | float | None = None
    ) -> CallbackSettled:
        """Say that it failed, and whether and when another attempt makes sense. Raises NotFound, Conflict."""
        body = given(outcome="failed", reason=reason, retry=retry, retry_after=retry_after)
        return self._line.ask(posting(path("callbacks", token), CallbackSettled, body))

    def extend(self, token: str, within: str | float) -> CallbackExtended:
        """Say that it takes longer, counted from now. Raises NotFound, Conflict."""
        return self._line.ask(posting(path("callbacks", token, "extend"), CallbackExtended, {"within": within}))
