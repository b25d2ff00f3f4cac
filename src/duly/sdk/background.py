"""A loop on a thread of its own, for the sync methods: they work inside and outside a running loop."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar

if TYPE_CHECKING:
    from duly.sdk.app import App

_Answer = TypeVar("_Answer")
_Parameters = ParamSpec("_Parameters")


class Background:
    """Started at first use, in each process: a thread does not survive a fork."""

    def __init__(self) -> None:
        self._starting = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._pid = 0

    def run(self, work: Coroutine[Any, Any, _Answer]) -> _Answer:
        """Run `work` on the loop and wait for its result."""
        waiting = asyncio.run_coroutine_threadsafe(work, self._running_loop())
        try:
            return waiting.result()
        except BaseException:
            waiting.cancel()  # Ctrl-C ends the waiting, and with it the work
            raise

    def close(self) -> None:
        """End the loop and its thread."""
        with self._starting:
            if self._loop is not None and self._thread is not None and self._pid == os.getpid():
                self._loop.call_soon_threadsafe(self._loop.stop)
                self._thread.join()
            self._loop = self._thread = None

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        with self._starting:
            if self._loop is None or self._pid != os.getpid():
                self._loop, self._pid = asyncio.new_event_loop(), os.getpid()
                self._thread = threading.Thread(target=_serve, args=(self._loop,), name="duly-sdk", daemon=True)
                self._thread.start()
            return self._loop


class _OfAnApp(Protocol):
    _app: App


_Owner = TypeVar("_Owner", bound=_OfAnApp)


def sync_twin(
    method: Callable[Concatenate[_Owner, _Parameters], Coroutine[Any, Any, _Answer]],
) -> Callable[Concatenate[_Owner, _Parameters], _Answer]:
    """Build the sync version of an async method: it does the same on the app's own loop, and waits."""

    @wraps(method)
    def twin(self: _Owner, /, *args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _Answer:
        # By name, so that a subclass's override is used.
        work: Coroutine[Any, Any, _Answer] = getattr(self, method.__name__)(*args, **kwargs)
        return self._app.background.run(work)

    twin.__name__, twin.__qualname__ = f"{method.__name__}_sync", f"{method.__qualname__}_sync"
    return twin


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        loop.run_until_complete(_cancel_the_rest())
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


async def _cancel_the_rest() -> None:
    rest = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in rest:
        task.cancel()
    await asyncio.gather(*rest, return_exceptions=True)
