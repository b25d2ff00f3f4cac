"""The watch over the handlers' loop, from the engine's: an `async def` that blocks it is logged after a second.

When it has been blocked for longer, runs that wait for the loop go back unused, and nothing more is claimed for it
until it passes again. The heartbeat reports to the database which handler blocks it (`shared_state.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from duly.clock import Clock
from duly.log import Log
from duly.worker.execute.executor import Executor

LOOK_SECONDS = 0.25
# Looks, not seconds: while the interpreter is blocked we do not look either, and then the loop is not to blame.
WARNED_LOOKS = 4
GIVEN_BACK_SECONDS_MAX = 5.0


class LoopWatch:
    """Pings the loop, over one life of a worker."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        executor: Executor,
        lease_seconds: float,
        *,
        clock: Clock,
        log: Log,
        on_blocked: Callable[[Callable[[], bool]], None],
    ) -> None:
        self._loop = loop
        self._executor = executor
        self._given_back_looks = round(min(lease_seconds, GIVEN_BACK_SECONDS_MAX) / LOOK_SECONDS)
        self._clock = clock
        self._log = log
        self._on_blocked = on_blocked  # called at every look while runs that wait for the loop are to go back
        self._has_answered = True

    @property
    def is_on_this_loop(self) -> bool:
        """Return whether the watched loop is the one that we are on."""
        return self._loop is asyncio.get_running_loop()

    async def run(self) -> None:
        """Watch until cancelled, or until the loop is closed."""
        while not self._loop.is_closed():
            sent_at, looks, self._has_answered = self._clock.monotonic(), 0, False
            self._loop.call_soon_threadsafe(self._answer)
            await self._clock.sleep(LOOK_SECONDS)
            while not self._has_answered:
                looks += 1
                if looks == WARNED_LOOKS:
                    self._warn(sent_at)
                if looks >= self._given_back_looks:
                    self._on_blocked(lambda: not self._has_answered)
                await self._clock.sleep(LOOK_SECONDS)
            if looks >= WARNED_LOOKS:
                self._executor.shared_state.unblock()
                self._log.info("handlers_loop_unblocked", blocked_seconds=round(self._clock.monotonic() - sent_at, 1))

    def _answer(self) -> None:
        self._has_answered = True

    def _warn(self, since: float) -> None:
        run = self._executor.run_on_loop()
        self._executor.shared_state.block(since, *((None, 0) if run is None else (run.run_id, run.fence)))
        self._log.warning(
            "handlers_loop_blocked",
            handler=None if run is None else run.handler,
            run_id=None if run is None else run.run_id,
            seconds=round(self._clock.monotonic() - since, 1),
            remedy="an async def must not block: await, or make it a plain function",
        )
