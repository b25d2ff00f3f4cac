"""An event loop over virtual time: one for each simulated process, turned only when the simulation says so."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context
from heapq import heappop, heappush
from itertools import count
from typing import Any

_TURNS_MAX = 20_000


# A handful of the many methods of a loop is all that tasks, futures and timeouts ask for.
_AbstractLoop: Any = asyncio.AbstractEventLoop


class VirtualLoop(_AbstractLoop):  # type: ignore[misc]
    """Runs tasks at moments of a process's own monotonic clock, which may drift from true time."""

    def __init__(self, true_time: Callable[[], float], *, origin: float, rate: float) -> None:
        self._true_time = true_time
        self._origin = origin
        self._rate = rate
        self._ready: deque[asyncio.Handle] = deque()
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._order = count()
        self._tasks: list[asyncio.Task[Any]] = []
        self.next_at = float("inf")  # the true moment at which there is something to do; one that is past means now
        self.dead = False
        self.dying = False
        self.errors: list[str] = []

    # ------------------------------------------------------------------------------------------- for the simulation

    def turn(self) -> None:
        """Do everything that is due at this moment."""
        now = self.time()
        while self._timers and self._timers[0][0] <= now + 1e-9:
            self._ready.append(heappop(self._timers)[2])
        with self._running():
            for _ in range(_TURNS_MAX):
                if not self._ready or self.dead or self.dying:
                    self._look_ahead()
                    return
                handle = self._ready.popleft()
                if not handle.cancelled():
                    handle._run()
        raise AssertionError("a process spins without letting time pass")

    def _look_ahead(self) -> None:
        while self._timers and self._timers[0][2].cancelled():
            heappop(self._timers)
        self.next_at = self._true(self._timers[0][0]) if self._timers else float("inf")

    def _true(self, when: float) -> float:
        return (when - self._origin) / self._rate

    def kill(self) -> None:
        """End the process at this very point: nothing of it runs again, and nothing it does while it is torn down counts."""
        self.dead = True
        self._ready.clear()
        self._timers.clear()
        with self._running():
            for task in self._tasks:
                _tear_down(task)
        self._tasks.clear()

    @contextlib.contextmanager
    def _running(self) -> Any:
        before = asyncio._get_running_loop()
        asyncio._set_running_loop(self)
        try:
            yield
        finally:
            asyncio._set_running_loop(before)

    # ------------------------------------------------------------------------------------------------ for asyncio

    def time(self) -> float:
        return self._origin + self._true_time() * self._rate

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Context | None = None) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        if not self.dead:
            self._ready.append(handle)
            self.next_at = 0.0
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        if not self.dead:
            heappush(self._timers, (when, next(self._order), handle))
            self.next_at = min(self.next_at, self._true(when))
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Nothing to do: it is passed over when its moment comes."""

    def create_future(self) -> asyncio.Future[Any]:
        if self.dead:
            raise GeneratorExit  # A coroutine being torn down may not wait for anything.
        return asyncio.Future(loop=self)

    def create_task(
        self, coro: Any, *, name: str | None = None, context: Context | None = None, **_: Any
    ) -> asyncio.Task[Any]:
        if self.dead:
            coro.close()
            raise GeneratorExit
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=self, name=name, context=context)
        self._tasks.append(task)
        if len(self._tasks) > 64:
            self._tasks = [task for task in self._tasks if not task.done()]
        return task

    def start(self, main: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Begin a process with its main coroutine."""
        with self._running():
            return self.create_task(main, name="main")

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not self.dead:
            self.errors.append(f"{context.get('message')}: {context.get('exception')!r}")

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return not self.dead

    def is_closed(self) -> bool:
        return self.dead


def _tear_down(task: asyncio.Task[Any]) -> None:
    """Close a task's coroutine, however often its `finally` tries to wait for something."""
    coroutine: Any = task.get_coro()
    while not task.done() and inspect.getcoroutinestate(coroutine) == inspect.CORO_SUSPENDED:
        with contextlib.suppress(BaseException):
            coroutine.close()
    if inspect.getcoroutinestate(coroutine) == inspect.CORO_CREATED:
        coroutine.close()
