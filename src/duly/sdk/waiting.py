"""Waiting for the end of something that goes on without us: we look ever less often, and go on when the database was away."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import TypeVar

from duly.clock import Clock
from duly.store.database import Unavailable

T = TypeVar("T")
_LOOK_SECONDS_MIN, _LOOK_SECONDS_MAX = 0.005, 0.5
_SILENCE_SECONDS_MAX = 60.0  # So long we wait for a database that never answers, where nobody said how long.


async def until_final(
    clock: Clock, look: Callable[[], Awaitable[tuple[str, T]]], final: Collection[str], what: str, timeout: float | None
) -> T:
    """Look, which gives a state and what is in it, until the state is final.

    Raises TimeoutError after `timeout` seconds; without one, Unavailable after a minute in which the database did not answer.
    """
    began = answered = clock.monotonic()
    pause = _LOOK_SECONDS_MIN
    while True:
        try:
            state, found = await look()
            if state in final:
                return found
            answered = clock.monotonic()
        except Unavailable as error:
            silent = clock.monotonic() - answered
            if timeout is None and silent >= _SILENCE_SECONDS_MAX:
                raise Unavailable(
                    f"{error}, for {silent:.0f} s. {what} goes on without us: wait for it again"
                ) from error
            state = f"in a state that we cannot know ({error})"
        waited = clock.monotonic() - began
        if timeout is not None and waited >= timeout:
            raise TimeoutError(f"{what} is {state} after {waited:.3g} s")
        await clock.sleep(pause if timeout is None else min(pause, timeout - waited))
        pause = min(pause * 1.5, _LOOK_SECONDS_MAX)
