"""The executor: runs `async def` handlers on their own loop and plain functions in threads.

The engine has another thread.

Work comes over in batches and goes back in batches: one wake-up of the other loop carries everything that has gathered.
Threads bypass the handlers' loop, so that a handler that blocks it delays none of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Set
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from uuid import UUID

import msgspec

from duly.clock import Clock, moment_of
from duly.domain.limits.pause import Pauses
from duly.domain.runs.expiry import expiry_of
from duly.domain.runs.options import PLAIN
from duly.domain.runs.outcome import Cancelled, Deferral, Expired, Outcome
from duly.domain.runs.run import Run
from duly.moves.defer import Deferred
from duly.moves.settle import Settled
from duly.worker.context import RunContext, RunServices
from duly.worker.execute.attempt import attempt_in_thread, attempt_on_loop, attempt_target, unprepared
from duly.worker.handlers import Handler, Registry
from duly.worker.heartbeat.shared_state import SharedState
from duly.worker.slots import Kind
from duly.worker.targets import TargetHandler, Targets


class Ended(msgspec.Struct, frozen=True, gc=False):
    """A freed slot, with the outcome; without one, the run was never started: it was not safe, or is paused."""

    kind: Kind
    run: Run
    settled: Settled | Deferred | None


def started(run: Run, clock: Clock) -> datetime:
    """Return when a run starts: not before it was due, though our clock, a lower bound, may have gone back since."""
    return max(run.due_at, moment_of(clock.now()))


def finished(started_at: datetime, clock: Clock) -> datetime:
    """Return when an attempt ends, which is not before it was started."""
    return max(started_at, moment_of(clock.now()))


class Executor:
    """Runs handlers on the loop it is given; it is made on any thread."""

    def __init__(
        self,
        registry: Registry,
        targets: Targets,
        *,
        loop: asyncio.AbstractEventLoop,
        threads: int,
        clock: Clock,
        is_safe: Callable[[], bool],
        on_ended: Callable[[list[Ended]], None],
        shared_state: SharedState | None = None,
    ) -> None:
        self.shared_state = shared_state or SharedState()
        self._revoked: set[tuple[UUID, int]] = set()
        self._registry = registry
        self._targets = targets
        self._clock = clock
        self._is_safe = is_safe
        self._on_ended = on_ended
        self._loop = loop
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="handler") if threads else None
        self._contexts: dict[tuple[UUID, int], RunContext] = {}
        self._queued: dict[tuple[UUID, int], tuple[Kind, Run]] = {}  # waiting for a thread
        self._for_loop: dict[tuple[UUID, int], tuple[Kind, Run]] = {}  # waiting for the loop
        self._tasks: dict[tuple[UUID, int], tuple[asyncio.Task[None], Run]] = {}
        self._ended: list[Ended] = []
        self._is_reporting = False
        self._interrupted = False
        self.pauses = Pauses()  # set from the engine's thread; read where a handler would be called

    @property
    def is_busy(self) -> bool:
        """Return whether a called handler has not ended. From any thread."""
        return any(context.has_started for context in list(self._contexts.values()))

    def start(self, services: RunServices, batch: list[tuple[Kind, Run, str | None]]) -> list[tuple[Kind, Run]]:
        """Take a batch, from the engine's thread. Returns the runs for which no thread could be started."""
        on_loop: list[tuple[Kind, Handler | TargetHandler, Run, RunContext]] = []
        without_thread: list[tuple[Kind, Run]] = []
        for kind, run, saved in batch:
            handler = self._targets.get(run.handler) or self._registry[run.handler]
            context = self._contexts[run.run_id, run.fence] = RunContext(run, services, saved=saved)
            if isinstance(handler, Handler) and not handler.is_async:
                if not self._enqueue(kind, handler, run, context):
                    without_thread.append((kind, run))
            else:
                self._for_loop[run.run_id, run.fence] = (kind, run)
                on_loop.append((kind, handler, run, context))
        if on_loop:
            self._loop.call_soon_threadsafe(self._start, on_loop)
        return without_thread

    def _enqueue(self, kind: Kind, handler: Handler, run: Run, context: RunContext) -> bool:
        """Queue a run for the next thread. False: none could be started, and none will come later."""
        assert self._pool is not None
        name = (run.run_id, run.fence)
        self._queued[name] = (kind, run)
        try:
            self._pool.submit(self._in_thread, kind, handler, run, context)
        except Exception:  # noqa: BLE001 - no memory or no threads left; the pool has queued it all the same
            if self._queued.pop(name, None) is not None:
                del self._contexts[name]
                return False
        return True

    @property
    def queued(self) -> set[tuple[UUID, int]]:
        """The runs that wait for the loop or for a thread: their handlers have not been called. From the engine's thread."""
        return {*self._for_loop.copy(), *self._queued.copy()}

    def take_back(self, names: Iterable[tuple[UUID, int]] | None = None) -> list[Ended]:
        """Take these out of the queue for the loop or a thread, or all that wait for the loop.

        From the engine's thread.

        The first to take a run out of its queue has it.
        """
        taken: list[Ended] = []
        for name in list(self._for_loop) if names is None else names:
            found = self._for_loop.pop(name, None) or (None if names is None else self._queued.pop(name, None))
            if found is not None:
                del self._contexts[name]
                taken.append(Ended(*found, None))
        return taken

    def run_on_loop(self) -> Run | None:
        """Return the run whose handler the loop executes at this moment, if it is known. From any thread."""
        task = asyncio.current_task(self._loop)
        running = [
            (one, run) for one, run in list(self._tasks.values()) if (run.run_id, run.fence) not in self._for_loop
        ]
        found = [run for one, run in running if one is task]
        if not found and len(running) == 1:
            found = [running[0][1]]  # a task that the handler made
        return found[0] if found else None

    def cancel(self, run: Run) -> None:
        """Ask a running handler to stop, from the engine's thread."""
        name = (run.run_id, run.fence)
        if (context := self._contexts.get(name)) is not None:
            context.mark_cancelled()
            self._loop.call_soon_threadsafe(self._stop, name, context)

    def interrupt(self) -> None:
        """Start nothing more and stop every handler that can be stopped, from the engine's thread."""
        self._interrupted = True
        self._loop.call_soon_threadsafe(self._stop_all)

    def close(self) -> None:
        """Take no more work; threads end when their handlers do."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    def _start(self, batch: list[tuple[Kind, Handler | TargetHandler, Run, RunContext]]) -> None:
        for kind, handler, run, context in batch:
            task = self._loop.create_task(self._on_loop(kind, handler, run, context))
            self._tasks[run.run_id, run.fence] = (task, run)

    async def _on_loop(self, kind: Kind, handler: Handler | TargetHandler, run: Run, context: RunContext) -> None:
        if self._for_loop.pop((run.run_id, run.fence), None) is None:
            del self._tasks[run.run_id, run.fence]  # it was taken back meanwhile
            return
        try:
            if not self._may_start(run, context, is_inside=isinstance(handler, Handler)):
                ended = self._unstarted(kind, run, context)
            elif (expired := self.expired(run)) is not None:
                ended = Ended(kind, run, expired)
            else:
                started_at = context.started(started(run, self._clock))
                settled: Settled | Deferred
                if isinstance(handler, Handler):
                    outcome = await attempt_on_loop(handler, context, run.payload, run.policy.timeout_seconds)
                    settled = self._settled(run, started_at, outcome, context)
                else:
                    came_to = await attempt_target(handler, context, run)
                    settled = self._settled_or_deferred(run, started_at, came_to, context)
                ended = Ended(kind, run, settled)
        except BaseException as error:  # noqa: BLE001 - whatever it was, the run must not stay held
            ended = self._unprepared(kind, run, error, context)
        self._end(ended)

    def _in_thread(self, kind: Kind, handler: Handler, run: Run, context: RunContext) -> None:
        if self._queued.pop((run.run_id, run.fence), None) is None:
            return  # it was handed back meanwhile; the first to take it out of the queue has it
        try:
            if not self._may_start(run, context, is_inside=True):
                ended = self._unstarted(kind, run, context)
            elif (expired := self.expired(run)) is not None:
                ended = Ended(kind, run, expired)
            else:
                started_at = context.started(started(run, self._clock))
                outcome = attempt_in_thread(handler, context, run.payload)
                ended = Ended(kind, run, self._settled(run, started_at, outcome, context))
        except BaseException as error:  # noqa: BLE001 - as above
            ended = self._unprepared(kind, run, error, context)
        self._contexts.pop((run.run_id, run.fence), None)
        self._on_ended([ended])

    def expired(self, run: Run) -> Settled | None:
        """Return the outcome of a run that has expired; None: it may start. From any thread."""
        if run.policy is PLAIN:
            return None
        expires_at = expiry_of(run.scheduled_at, run.policy)
        if expires_at is None or expires_at.timestamp() > self._clock.now():
            return None
        return Settled(run, None, None, Expired(expires_at), left_behind=True)

    def _may_start(self, run: Run, context: RunContext, *, is_inside: bool) -> bool:
        self.shared_state.start(run.run_id, run.fence, is_inside=is_inside)  # before we check: see `shared_state.py`
        if context.cancelled or self._interrupted or self.pauses.cover(run):
            return False
        return self._is_safe() and not self.is_revoked(run)

    def revoke(self, names: Set[tuple[UUID, int]]) -> None:
        """Start none of these any more: they were handed back. From the engine's thread, before starts are safe again."""
        self._revoked |= names

    def is_revoked(self, run: Run) -> bool:
        """Return whether a run was handed back before it could be started. Called after `is_safe`, from any thread."""
        return bool(self._revoked) and (run.run_id, run.fence) in self._revoked

    def _settled_or_deferred(
        self, run: Run, started_at: datetime, outcome: Outcome | Deferral, context: RunContext
    ) -> Settled | Deferred:
        if isinstance(outcome, Deferral):
            return Deferred(run, started_at, outcome)
        return self._settled(run, started_at, outcome, context)

    def _settled(self, run: Run, started_at: datetime, outcome: Outcome, context: RunContext) -> Settled:
        return Settled(run, started_at, finished(started_at, self._clock), outcome, context.left_behind)

    def _unstarted(self, kind: Kind, run: Run, context: RunContext) -> Ended:
        """End a run whose handler was never called: cancelled, or handed back."""
        cancelled = Settled(run, None, None, Cancelled(), context.left_behind) if context.cancelled else None
        return Ended(kind, run, cancelled)

    def _unprepared(self, kind: Kind, run: Run, error: BaseException, context: RunContext) -> Ended:
        """End a run after an error of ours, wherever it was on its way."""
        return Ended(kind, run, Settled(run, None, None, unprepared(error), context.left_behind))

    def _end(self, ended: Ended) -> None:
        name = (ended.run.run_id, ended.run.fence)
        self._contexts.pop(name, None)
        self._tasks.pop(name, None)
        self._ended.append(ended)
        if not self._is_reporting:  # the rest of this turn of the loop is gathered before the engine is woken once
            self._is_reporting = True
            self._loop.call_soon(self._report)

    def _report(self) -> None:
        self._is_reporting = False
        ended, self._ended = self._ended, []
        self._on_ended(ended)

    def _stop_all(self) -> None:
        for name, context in list(self._contexts.items()):
            self._stop(name, context)

    def _stop(self, name: tuple[UUID, int], context: RunContext) -> None:
        """Cancel a task whose handler has been called; one that has not checks before it calls."""
        if (found := self._tasks.get(name)) is not None and context.has_started:
            found[0].cancel()
