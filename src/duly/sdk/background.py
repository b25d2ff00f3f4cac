"""Loops for the sync methods: one on a thread of its own, and a few on which callers do short work themselves.

The first is started at first use and serves any caller, also one inside a running loop. The others save a submit the way
to another thread and back; each runs only while it is lent, so it must be left without a task.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar
from weakref import WeakSet

from duly.worker.loop import new_loop

if TYPE_CHECKING:
    from duly.sdk.app import App

_Answer = TypeVar("_Answer")
_Parameters = ParamSpec("_Parameters")


LENT_MAX = 4


class Background:
    """Loops made at first use, in each process: a child has no threads, and must not use the connections of its parent."""

    def __init__(self) -> None:
        self._begin()
        _all.add(self)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._idle: list[asyncio.AbstractEventLoop] = []
        self._lent: dict[asyncio.AbstractEventLoop, bool] = {}  # and whether it is wanted again

    def forget(self) -> None:
        """Leave the loops to the process that has forked this one."""
        self._begin()

    def run(self, work: Coroutine[Any, Any, _Answer]) -> _Answer:
        """Run `work` on the loop and wait for its result."""
        waiting = asyncio.run_coroutine_threadsafe(work, self._running_loop())
        try:
            return waiting.result()
        except BaseException:
            waiting.cancel()  # Ctrl-C ends the waiting, and with it the work
            raise

    def run_here(self, work: Coroutine[Any, Any, _Answer]) -> _Answer:
        """Run short work on the caller's own thread, where that has no running loop and few others do the same.

        Raises whatever a signal handler raises meanwhile, such as Ctrl-C: then the work is cancelled.
        """
        if _is_inside_a_loop() or (loop := self._lend()) is None:
            return self.run(work)
        is_free = False
        try:
            task = loop.create_task(work)
            try:
                answer = _finish(loop, task)
            except Exception as error:
                is_free = task.done() and not task.cancelled() and task.exception() is error
                raise
            is_free = True
            return answer
        finally:
            self._take_back(loop, is_free=is_free)

    def start(self, work: Coroutine[Any, Any, object]) -> None:
        """Run `work` on the loop of the thread, without waiting for it."""
        asyncio.run_coroutine_threadsafe(work, self._running_loop())

    def close_idle(self) -> None:
        """Close the loops that nobody has borrowed, and with them their connections; the others when they come back."""
        with self._lock:
            idle, self._idle = self._idle, []
            self._lent = dict.fromkeys(self._lent, False)
        if not idle:
            return
        if _is_inside_a_loop():  # where no other can run
            thread = threading.Thread(target=_close_all, args=(idle,))
            thread.start()
            thread.join()
        else:
            _close_all(idle)

    def close(self) -> None:
        """End the loop of the thread, and the thread."""
        with self._lock:
            if self._loop is not None and self._thread is not None:
                self._loop.call_soon_threadsafe(self._loop.stop)
                self._thread.join()
            self._loop = self._thread = None

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = new_loop()
                self._thread = threading.Thread(target=_serve, args=(self._loop,), name="duly-sdk", daemon=True)
                self._thread.start()
            return self._loop

    def _lend(self) -> asyncio.AbstractEventLoop | None:
        with self._lock:
            if len(self._lent) == LENT_MAX:
                return None
            loop = self._idle.pop() if self._idle else new_loop()
            self._lent[loop] = True
            return loop

    def _take_back(self, loop: asyncio.AbstractEventLoop, *, is_free: bool) -> None:
        with self._lock:
            if is_kept := self._lent.pop(loop, False) and is_free:
                self._idle.append(loop)
        if not is_kept:
            with suppress(RuntimeError):  # a loop that was interrupted as it began cannot run again, nor be closed
                _close(loop)


_all: WeakSet[Background] = WeakSet()


def _before_a_fork() -> None:
    """Close idle loops: the child has copies of their connections, and would end the parent's at its own end."""
    for background in list(_all):
        background.close_idle()


def _after_a_fork() -> None:
    for background in list(_all):
        background.forget()


os.register_at_fork(before=_before_a_fork, after_in_child=_after_a_fork)


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


def _is_inside_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _finish(loop: asyncio.AbstractEventLoop, task: asyncio.Task[_Answer]) -> _Answer:
    """Run the loop until the task is done, or until a signal handler has raised, which loops only log."""
    raised: list[BaseException] = []

    def stop(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if "handle" in context and "exception" in context:  # of a callback, in which signals are handled
            raised.append(context["exception"])
            loop.stop()
        else:
            loop.default_exception_handler(context)

    loop.set_exception_handler(stop)
    try:
        return loop.run_until_complete(task)
    except RuntimeError:
        if raised and not task.done():
            raise raised[0] from None
        raise


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        _close(loop)


def _close_all(loops: Sequence[asyncio.AbstractEventLoop]) -> None:
    for loop in loops:
        _close(loop)


def _close(loop: asyncio.AbstractEventLoop) -> None:
    """Close a loop that does not run, after its tasks and what was to be closed with it."""
    loop.run_until_complete(_cancel_the_rest())
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()


async def _cancel_the_rest() -> None:
    rest = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in rest:
        task.cancel()
    await asyncio.gather(*rest, return_exceptions=True)
