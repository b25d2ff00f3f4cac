# Made from ../asynchronous by scripts/sync_client.py; change that one.
"""What a receiver of webhooks says after it has answered 202."""

from __future__ import annotations

from typing import Any

import msgspec

from duly.client.requests import given, nothing, path, posting
from duly.client.synchronous.transport import Line
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

    def progress(self, token: str, done: float, total: float | None = None, note: str | None = None) -> None:
        """Show how far it has come: `done` of `total`, which may be unknown. Raises NotFound, Conflict."""
        body = given(done=done, total=total, note=note)
        ask = posting(path("callbacks", token, "progress"), CallbackSettled, body)
        self._line.ask(msgspec.structs.replace(ask, read=nothing))

    def extend(self, token: str, within: str | float) -> CallbackExtended:
        """Say that it takes longer, counted from now. Raises NotFound, Conflict."""
        return self._line.ask(posting(path("callbacks", token, "extend"), CallbackExtended, {"within": within}))
