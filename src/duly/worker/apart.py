"""Apart: runs in child processes, where they can be killed, and suspects among them, each announced before it starts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from uuid import UUID

from duly.clock import moment_of
from duly.domain.outcome import Failed
from duly.domain.run import Run
from duly.log import Log
from duly.moves.settle import Settled
from duly.store import workers
from duly.store.database import Database, Unavailable
from duly.worker.crew import Crew
from duly.worker.desk import WorkerDesk
from duly.worker.executor import Ended, Executor
from duly.worker.hands import Held
from duly.worker.lifeline import Lifeline


class Apart:
    """Runs what does not run in this process; without a crew it does after all, one suspect at a time."""

    def __init__(
        self,
        database: Database,
        worker_id: UUID,
        lifeline: Lifeline,
        crew: Crew | None,
        executor: Executor,
        desk: WorkerDesk,
        *,
        on_ended: Callable[[list[Ended]], None],
        log: Log,
    ) -> None:
        self._database = database
        self._clock = database.clock
        self._worker_id = worker_id
        self._lifeline = lifeline
        self._crew = crew
        self._executor = executor
        self._desk = desk
        self._on_ended = on_ended
        self._log = log

    async def run_alone(self, suspects: list[Held]) -> None:
        """Announce suspects, so that the death of each is laid at its own door; then run each in a child process."""
        if await self._announce([held.run for held in suspects]):
            await asyncio.gather(*(self.run(held) for held in suspects))
        else:
            self._on_ended([Ended(held.kind, held.run, None) for held in suspects])

    async def run(self, held: Held) -> None:
        """Run one in a child process."""
        run, kind = held.run, held.kind
        if not self._lifeline.is_safe or held.cancelled or self._is_held(run):
            self._on_ended([Ended(kind, run, None)])
            return
        if (expired := self._executor.expired(run)) is not None:
            self._on_ended([Ended(kind, run, expired)])
            return
        if self._crew is None:
            self._executor.start(self._desk, [(kind, run, held.saved)])
            return
        started_at = moment_of(self._clock.now())
        try:
            ended = await self._crew.run(
                run,
                started_at,
                held.saved,
                run.policy.timeout_seconds,
                self._desk.on_said,
                may_start=lambda: not self._is_held(run) and self._executor.expired(run) is None,
            )
            if ended is None:
                self._on_ended([Ended(kind, run, None)])
                return
            outcome, left_behind = ended
        except Exception as error:  # noqa: BLE001 - whatever becomes of a child, its run must not stay in our hands
            self._log.error("child_failed", run_id=run.run_id, error=repr(error))
            outcome, left_behind = Failed(f"its child process failed: {error!r}"), True
        settled = Settled(run, started_at, moment_of(self._clock.now()), outcome, left_behind or held.saved is not None)
        self._on_ended([Ended(kind, run, settled)])

    def _is_held(self, run: Run) -> bool:
        return self._executor.holds.cover(run)

    async def _announce(self, suspects: list[Run]) -> bool:
        try:
            return self._lifeline.is_safe and await workers.announce(self._database, self._worker_id, suspects)
        except Unavailable:
            return False
