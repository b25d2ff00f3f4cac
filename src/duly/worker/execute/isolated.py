"""Isolated runs: runs in child processes or on a Ray cluster, where they can be killed, and suspects among the former,
each announced before it starts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from uuid import UUID

from duly.domain.runs.outcome import Failed
from duly.domain.runs.payload import storable
from duly.domain.runs.run import Run
from duly.log import Log
from duly.moves.settle import End
from duly.store.connection.database import Database, Unavailable
from duly.store.tables import workers
from duly.worker.execute.executor import Ended, Executor, ended, started
from duly.worker.execute.process_pool import NoChild, ProcessPool
from duly.worker.heartbeat.lease import WorkerLease
from duly.worker.held_runs import HeldRun
from duly.worker.run_records import WorkerServices
from duly.worker.slots import Kind

_REASON_CHARACTERS_MAX = 2_000


class IsolatedRuns:
    """Runs what does not run in this process; without a process pool it does after all, one suspect at a time."""

    def __init__(
        self,
        database: Database,
        worker_id: UUID,
        worker_lease: WorkerLease,
        pools: Mapping[Kind, ProcessPool],
        executor: Executor,
        services: WorkerServices,
        *,
        on_ended: Callable[[list[Ended]], None],
        on_unable: Callable[[list[Ended]], None],
        is_recalled: Callable[[Run], bool],
        log: Log,
    ) -> None:
        self.waiting: set[tuple[UUID, int]] = set()  # waiting for a child
        self._is_stopping = False
        self._is_recalled = is_recalled
        self._database = database
        self._clock = database.clock
        self._worker_id = worker_id
        self._worker_lease = worker_lease
        self._pools = pools
        self._executor = executor
        self._services = services
        self._on_ended = on_ended
        self._on_unable = on_unable  # called with a run that could not be started here, through no fault of its own
        self._log = log

    def stop(self) -> None:
        """Start nothing more: what waits for a child goes back unused."""
        self._is_stopping = True

    async def run_alone(self, suspects: list[HeldRun]) -> None:
        """Announce suspects, so that each is blamed for its own crash; then run each in a child process."""
        unstarted = [Ended(held.kind, held.run, None) for held in suspects]
        try:
            is_announced = await self._announce([held.run for held in suspects])
        except Exception as error:  # noqa: BLE001 - without a name on record none of them may start
            self._log.error("announce_failed", runs=len(suspects), **suspects[0].run.ids, error=repr(error))
            self._on_unable(unstarted)
            return
        if is_announced:
            await asyncio.gather(*(self.run(held) for held in suspects))
        else:
            self._on_ended(unstarted)

    async def run(self, held: HeldRun) -> None:
        """Run one in a child process. Whatever happens, we do not keep holding the run."""
        if (pool := self._pools.get(held.kind)) is None:
            self._run_here(held)
            return
        run, start = held.run, started(held.run, self._clock)
        settled: End | None
        try:
            settled = await self._attempt(pool, held)
        except NoChild as error:
            self._log.error("no_child", **run.ids, error=str(error))
            self._on_unable([Ended(held.kind, run, None)])
            return
        except Exception as error:  # noqa: BLE001 - as said above
            self._log.error("child_failed", **run.ids, error=repr(error))
            failed = Failed(storable(f"its child process failed: {error!r}", _REASON_CHARACTERS_MAX))
            settled = ended(run, start, self._clock, failed, left_behind=True)
        self._on_ended([Ended(held.kind, run, settled)])

    async def _attempt(self, pool: ProcessPool, held: HeldRun) -> End | None:
        """Return the outcome; None: it may not start any more. Raises NoChild."""
        run = held.run
        if held.cancelled or not self._may_start(run):
            return None
        if (expired := self._executor.expired(run)) is not None:
            return expired
        name = (run.run_id, run.fence)
        self._executor.shared_state.end(*name)  # it waits for a child, and can be taken back meanwhile
        self.waiting.add(name)
        start: float | None = None

        def may_start() -> float | None:
            nonlocal start  # the wait for a child is no part of the attempt
            start = started(run, self._clock) if self._has_child(run) and self._executor.expired(run) is None else None
            return start

        try:
            came_to = await pool.run(
                run,
                held.saved,
                run.policy.timeout_seconds,
                self._services.on_message,
                may_wait=lambda: self._is_wanted(run) and self._executor.expired(run) is None,
                may_start=may_start,
            )
        finally:
            self.waiting.discard(name)
        if came_to is None:
            return None
        outcome, left_behind = came_to
        start = started(run, self._clock) if start is None else start
        return ended(run, start, self._clock, outcome, left_behind=left_behind or held.saved is not None)

    def _run_here(self, held: HeldRun) -> None:
        """Run one in this process, which checks everything else before it calls the handler."""
        unstarted = [Ended(held.kind, held.run, None)]
        if held.cancelled:
            self._on_ended(unstarted)
        elif self._executor.start(self._services, [(held.kind, held.run, held.saved)]):
            self._on_unable(unstarted)

    def _has_child(self, run: Run) -> bool:
        self.waiting.discard((run.run_id, run.fence))
        return self._may_start(run)

    def _may_start(self, run: Run) -> bool:
        # Checked again when a child has loaded the app: meanwhile we may have slept past our lease.
        self._executor.shared_state.start(
            run.run_id, run.fence, is_inside=False
        )  # before we check: see `shared_state.py`
        return self._is_wanted(run)

    def _is_wanted(self, run: Run) -> bool:
        is_free = not self._is_stopping and self._worker_lease.is_safe and not self._executor.pauses.cover(run)
        return is_free and not (self._executor.is_revoked(run) or self._is_recalled(run))

    async def _announce(self, suspects: list[Run]) -> bool:
        try:
            return self._worker_lease.is_safe and await workers.announce(self._database, self._worker_id, suspects)
        except Unavailable:
            return False
