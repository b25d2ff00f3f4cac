"""The reaper: expires the lease of a worker without heartbeats, and moves its runs on.

A worker is lost when its lease has expired in database time and its heartbeat has not changed for a whole lease on the
reaper's own monotonic clock; so a step of the database clock forwards expires no worker. After a step backwards `until`
lies far ahead of what a lease can be: then the unchanged heartbeat alone decides. The worker's row is removed first: no
claim can follow it.

Rows of one worker that the store refuses delay no other worker: they are postponed, longer each time, and logged each
time.

A step every quarter of a second sees a heartbeat within that time, and its absence within another: runs of a lost
worker can be claimed half a second after its lease at the latest, and a hint says so.
"""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

from duly.clock import Rng
from duly.log import Log
from duly.moves.reclaim import reclaim
from duly.store.boxes import leased
from duly.store.connection import hints
from duly.store.connection.database import Database, Unavailable
from duly.store.tables import workers
from duly.store.tables.workers import ExpiredWorker, WorkerRow

STEP_SECONDS = 0.25
_ORPHANS_EVERY_STEPS = 120
_PUT_OFF_SECONDS = 0.5  # doubled each time
_PUT_OFF_SECONDS_MAX = 60.0


class Reaper:
    """Watches the heartbeats of all workers."""

    def __init__(self, database: Database, *, rng: Rng, log: Log) -> None:
        self._database = database
        self._rng = rng
        self._log = log
        self._seen: dict[UUID, tuple[int, float]] = {}  # heartbeat, and when it was first seen on our own clock
        self._put_off: dict[UUID, tuple[int, float]] = {}  # how often, and until when on our own clock
        self._steps = 0
        self.reaped = 0

    async def step(self) -> int:
        """Expire lost workers and move their runs on. Returns how many runs were moved."""
        living = await workers.live(self._database)
        self._seen = {row.worker_id: self._first_seen(row) for row in living}
        for row in living:
            await self._expire_if_dead(row)
        if self._steps % _ORPHANS_EVERY_STEPS == 0:
            for worker_id in await leased.orphans(self._database):
                await workers.depart(self._database, worker_id)
        self._steps += 1
        return await self._reclaim_all()

    async def _reclaim_all(self) -> int:
        expired_workers = await workers.expired_workers(self._database)
        self._put_off = {worker.worker_id: self._put_off.get(worker.worker_id, (0, 0.0)) for worker in expired_workers}
        now = self._database.clock.monotonic()
        return sum(
            [await self._reclaim(worker) for worker in expired_workers if self._put_off[worker.worker_id][1] <= now]
        )

    async def _reclaim(self, worker: ExpiredWorker) -> int:
        """Move on the runs of one lost worker. Raises Unavailable."""
        moved = 0
        try:
            while (batch := await reclaim(self._database, worker, self._rng)).moved:
                await hints.send(self._database, sorted({run.queue for run in batch.moved}))
                moved += len(batch.moved)
        except Unavailable:  # it may concern this worker alone, such as a locked row; the others come first next time
            tries, _ = self._put_off[worker.worker_id]
            self._put_off[worker.worker_id] = (tries, self._database.clock.monotonic() + _PUT_OFF_SECONDS)
            raise
        except Exception as error:  # noqa: BLE001 - whatever is wrong with what one has left, the others must be reaped
            self._try_later(worker, error)
        else:
            if batch.refused:
                (run_id, _), refusal = next(iter(batch.refused.items()))
                self._try_later(worker, refusal, runs=len(batch.refused), first=run_id)
        return moved

    def _try_later(self, worker: ExpiredWorker, error: Exception, **details: object) -> None:
        tries, _ = self._put_off[worker.worker_id]
        seconds = min(_PUT_OFF_SECONDS * 2**tries, _PUT_OFF_SECONDS_MAX)
        self._put_off[worker.worker_id] = (min(tries + 1, 10), self._database.clock.monotonic() + seconds)
        self._log.error(
            "reclaim_failed",
            worker_id=worker.worker_id,
            name=worker.name,
            **details,
            again_in=seconds,
            error=repr(error),
        )

    def _first_seen(self, row: WorkerRow) -> tuple[int, float]:
        heartbeat, since = self._seen.get(row.worker_id, (-1, 0.0))
        return (heartbeat, since) if heartbeat == row.heartbeat else (row.heartbeat, self._database.clock.monotonic())

    async def _expire_if_dead(self, row: WorkerRow) -> None:
        heartbeat, since = self._seen[row.worker_id]
        if self._database.clock.monotonic() - since < row.lease.total_seconds():
            return
        stepped_back = row.until - row.read_at > row.lease + timedelta(seconds=1)
        if await workers.expire(self._database, row.worker_id, heartbeat, clock_stepped=stepped_back):
            self.reaped += 1
            self._log.warning("worker_reaped", worker_id=row.worker_id, name=row.name, heartbeat=heartbeat)
