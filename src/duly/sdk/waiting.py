"""Waiting for the end of a run or workflow: looks become rarer, and outages of the database are tolerated."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import TypeVar

from duly.clock import Clock
from duly.store.connection.database import Unavailable

T = TypeVar("T")
_LOOK_SECONDS_MIN, _LOOK_SECONDS_MAX = 0.005, 0.5
# The limit of waiting for a database that never answers, without a timeout: a restart takes seconds.
_SILENCE_SECONDS_MAX = 60.0


class Silence:
    """The time since a database first failed to answer. The work goes on meanwhile; `remedy` says what to do later."""

    def __init__(self, clock: Clock, remedy: str) -> None:
        self._clock = clock
        self._since = clock.monotonic()
        self._remedy = remedy

    def bear(self, error: Unavailable) -> None:
        """Tolerate one more failure. Raises Unavailable after a minute of them."""
        silent = self._clock.monotonic() - self._since
        if silent >= _SILENCE_SECONDS_MAX:
            raise Unavailable(f"{error}, for {silent:.0f} s. {self._remedy}") from error


async def until_final(
    clock: Clock, look: Callable[[], Awaitable[tuple[str, T]]], final: Collection[str], what: str, timeout: float | None
) -> T:
    """Call `look`, which returns a state and its content, until the state is final.

    Raises TimeoutError after `timeout` seconds; without one, Unavailable after a minute in which the database did not
    answer.
    """
    began, pause = clock.monotonic(), _LOOK_SECONDS_MIN
    silence: Silence | None = None
    while True:
        try:
            state, found = await look()
            if state in final:
                return found
            silence = None
        except Unavailable as error:
            silence = silence or Silence(clock, f"{what} goes on without us: wait for it again")
            if timeout is None:
                silence.bear(error)
            state = f"in a state that we cannot know ({error})"
        waited = clock.monotonic() - began
        if timeout is not None and waited >= timeout:
            raise TimeoutError(f"{what} is {state} after {waited:.3g} s")
        await clock.sleep(pause if timeout is None else min(pause, timeout - waited))
        pause = min(pause * 1.5, _LOOK_SECONDS_MAX)
