"""Patience: whoever waits for a run goes on waiting while nobody answers, because the run goes on as well.

A server that is started again is away for seconds. After a minute without any answer it is not worth a person's time.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar
from uuid import UUID

from duly.cli.say import say
from duly.clock import Clock, SystemClock
from duly.store.database import Unavailable

T = TypeVar("T")
_SILENCE_SECONDS_MAX = 60.0
_PAUSE_SECONDS = 0.5


class Patience:
    """Asks about one run, again and again while the database does not answer."""

    def __init__(self, run_id: UUID, clock: Clock | None = None) -> None:
        self._run_id = run_id
        self._clock = clock or SystemClock()

    async def ask(self, question: Callable[[], Awaitable[T]]) -> T:
        """Give the answer. Raises Unavailable, with where to look again, after a minute without one."""
        silent_since: float | None = None
        while True:
            try:
                return await question()
            except Unavailable as error:
                now = self._clock.monotonic()
                if silent_since is None:
                    say("the database does not answer; waiting", err=True)
                    silent_since = now
                if now - silent_since >= _SILENCE_SECONDS_MAX:
                    raise Unavailable(
                        f"{error}, for {now - silent_since:.0f} s. The run goes on without us; to look again:"
                        f" duly logs {self._run_id} -f"
                    ) from error
            await self._clock.sleep(_PAUSE_SECONDS)
