"""The executor: runs `async def` handlers on their own loop and plain functions in threads.

The engine has another thread.

Work comes over in batches and goes back in batches: one wake-up of the other loop carries everything that has gathered.
Threads bypass the handlers' loop, so that a handler that blocks it delays none of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Set
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID

import msgspec

from duly.clock import Clock, moment_of
from duly.domain.limits.pause import Pauses
from duly.domain.runs.expiry import expiry_of
from duly.domain.runs.options import PLAIN
from duly.domain.runs.outcome import Cancelled, Deferral, Expired, Outcome
from duly.domain.runs.run import Run
from duly.moves.defer import Deferred
from duly.moves.settle import End, Settled, end_of
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
    settled: End | Deferred | None


class _Attempt(msgspec.Struct):
    """A run of ours, from its start in a queue to its end."""

    kind: Kind
    handler: Handler | TargetHandler
    run: Run
    context: RunContext
    name: tuple[UUID, int]
    task: asyncio.Task[None] | None = None


def started(run: Run, clock: Clock) -> float:
    """Return when a run starts: not before it was due, though our clock, a lower bound, may have gone back since."""
    return max(run.due_at.timestamp(), clock.now())


def ended(run: Run, started: float, clock: Clock, outcome: Outcome, *, left_behind: bool) -> End:
    """End an attempt now, but not before it was started."""
    return end_of(run, started, max(started, clock.now()), outcome, left_behind=left_behind)


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
        self._attempts: dict[tuple[UUID, int], _Attempt] = {}
        self._queued: dict[tuple[UUID, int], _Attempt] = {}  # those that wait for a thread
        self._for_loop: dict[tuple[UUID, int], _Attempt] = {}  # those that wait for the loop
        self._ended: list[Ended] = []
        self._is_reporting = False
        self._interrupted = False
        self.pauses = Pauses()  # set from the engine's thread; read where a handler would be called

    @property
    def is_busy(self) -> bool:
        """Return whether a called handler has not ended. From any thread."""
        return any(attempt.context.has_started for attempt in list(self._attempts.values()))

    def start(self, services: RunServices, batch: list[tuple[Kind, Run, str | None]]) -> list[tuple[Kind, Run]]:
        """Take a batch, from the engine's thread. Returns the runs for which no thread could be started."""
        on_loop: list[_Attempt] = []
        without_thread: list[tuple[Kind, Run]] = []
        handlers: dict[str, Handler | TargetHandler] = {}
        for kind, run, saved in batch:
            if (handler := handlers.get(run.handler)) is None:
                handler = handlers[run.handler] = self._targets.get(run.handler) or self._registry[run.handler]
            name = (run.run_id, run.fence)
            attempt = self._attempts[name] = _Attempt(kind, handler, run, RunContext(run, services, saved=saved), name)
            if isinstance(handler, Handler) and not handler.is_async:
                if not self._enqueue(attempt):
                    without_thread.append((kind, run))
            else:
                self._for_loop[name] = attempt
                on_loop.append(attempt)
        if on_loop:
            self._loop.call_soon_threadsafe(self._start, on_loop)
        return without_thread

    def _enqueue(self, attempt: _Attempt) -> bool:
        """Queue a run for the next thread. False: none could be started, and none will come later."""
        assert self._pool is not None
        self._queued[attempt.name] = attempt
        try:
            self._pool.submit(self._in_thread, attempt)
        except Exception:  # noqa: BLE001 - no memory or no threads left; the pool has queued it all the same
            if self._queued.pop(attempt.name, None) is not None:
                del self._attempts[attempt.name]
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
                del self._attempts[name]
                taken.append(Ended(found.kind, found.run, None))
        return taken

    def run_on_loop(self) -> Run | None:
        """Return the run whose handler the loop executes at this moment, if it is known. From any thread."""
        task = asyncio.current_task(self._loop)
        running = [
            attempt
            for attempt in list(self._attempts.values())
            if attempt.task is not None and attempt.name not in self._for_loop
        ]
        found = [attempt.run for attempt in running if attempt.task is task]
        if not found and len(running) == 1:
            found = [running[0].run]  # a task that the handler made
        return found[0] if found else None

    def cancel(self, run: Run) -> None:
        """Ask a running handler to stop, from the engine's thread."""
        if (attempt := self._attempts.get((run.run_id, run.fence))) is not None:
            attempt.context.mark_cancelled()
            self._loop.call_soon_threadsafe(self._stop, attempt)

    def interrupt(self) -> None:
        """Start nothing more and stop every handler that can be stopped, from the engine's thread."""
        self._interrupted = True
        self._loop.call_soon_threadsafe(self._stop_all)

    def close(self) -> None:
        """Take no more work; threads end when their handlers do."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    def _start(self, batch: list[_Attempt]) -> None:
        for attempt in batch:
            attempt.task = self._loop.create_task(self._on_loop(attempt))

    async def _on_loop(self, attempt: _Attempt) -> None:
        if self._for_loop.pop(attempt.name, None) is None:
            return  # it was taken back meanwhile
        handler, run, context = attempt.handler, attempt.run, attempt.context
        settled: End | Deferred | None
        try:
            if not self._may_start(attempt, is_inside=isinstance(handler, Handler)):
                settled = _unstarted(run, context)
            elif (settled := self.expired(run)) is None:
                start = started(run, self._clock)
                context.start(start)
                came_to: Outcome | Deferral
                if isinstance(handler, Handler):
                    came_to = await attempt_on_loop(handler, context, run.payload, run.policy.timeout_seconds)
                else:
                    came_to = await attempt_target(handler, context, run)
                if isinstance(came_to, Deferral):
                    settled = Deferred(run, moment_of(start), came_to)
                else:
                    settled = ended(run, start, self._clock, came_to, left_behind=context.left_behind)
        except BaseException as error:  # noqa: BLE001 - whatever it was, the run must not stay held
            settled = _unprepared(run, error, context)
        self._end(attempt, settled)

    def _in_thread(self, attempt: _Attempt) -> None:
        if self._queued.pop(attempt.name, None) is None:
            return  # it was handed back meanwhile; the first to take it out of the queue has it
        handler, run, context = attempt.handler, attempt.run, attempt.context
        assert isinstance(handler, Handler)
        settled: End | None
        try:
            if not self._may_start(attempt, is_inside=True):
                settled = _unstarted(run, context)
            elif (settled := self.expired(run)) is None:
                start = started(run, self._clock)
                context.start(start)
                outcome = attempt_in_thread(handler, context, run.payload)
                settled = ended(run, start, self._clock, outcome, left_behind=context.left_behind)
        except BaseException as error:  # noqa: BLE001 - as above
            settled = _unprepared(run, error, context)
        self._attempts.pop(attempt.name, None)
        self._on_ended([Ended(attempt.kind, run, settled)])

    def expired(self, run: Run) -> Settled | None:
        """Return the outcome of a run that has expired; None: it may start. From any thread."""
        if run.policy is PLAIN:
            return None
        expires_at = expiry_of(run.scheduled_at, run.policy)
        if expires_at is None or expires_at.timestamp() > self._clock.now():
            return None
        return Settled(run, None, None, Expired(expires_at), left_behind=True)

    def _may_start(self, attempt: _Attempt, *, is_inside: bool) -> bool:
        self.shared_state.start(*attempt.name, is_inside=is_inside)  # before we check: see `shared_state.py`
        if attempt.context.cancelled or self._interrupted or self.pauses.cover(attempt.run):
            return False
        return self._is_safe() and not self.is_revoked(attempt.run)

    def revoke(self, names: Set[tuple[UUID, int]]) -> None:
        """Start none of these any more: they were handed back. From the engine's thread, before starts are safe again."""
        self._revoked |= names

    def is_revoked(self, run: Run) -> bool:
        """Return whether a run was handed back before it could be started. Called after `is_safe`, from any thread."""
        return bool(self._revoked) and (run.run_id, run.fence) in self._revoked

    def _end(self, attempt: _Attempt, settled: End | Deferred | None) -> None:
        self._attempts.pop(attempt.name, None)
        self._ended.append(Ended(attempt.kind, attempt.run, settled))
        if not self._is_reporting:  # the rest of this turn of the loop is gathered before the engine is woken once
            self._is_reporting = True
            self._loop.call_soon(self._report)

    def _report(self) -> None:
        self._is_reporting = False
        ended, self._ended = self._ended, []
        self._on_ended(ended)

    def _stop_all(self) -> None:
        for attempt in list(self._attempts.values()):
            self._stop(attempt)

    def _stop(self, attempt: _Attempt) -> None:
        """Cancel a task whose handler has been called; one that has not checks before it calls."""
        if attempt.task is not None and attempt.context.has_started:
            attempt.task.cancel()


def _unstarted(run: Run, context: RunContext) -> Settled | None:
    """End a run whose handler was never called: cancelled, or handed back."""
    return Settled(run, None, None, Cancelled(), context.left_behind) if context.cancelled else None


def _unprepared(run: Run, error: BaseException, context: RunContext) -> Settled:
    """End a run after an error of ours, wherever it was on its way."""
    return Settled(run, None, None, unprepared(error), context.left_behind)
