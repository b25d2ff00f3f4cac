"""Leased runs. Each statement names the fence; rows missing from its answer were lost."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

import msgspec

from duly.domain.runs.options import RunHistory
from duly.domain.runs.outcome import Succeeded
from duly.domain.runs.run import Run
from duly.store.boxes.options import encode_history, run_of
from duly.store.connection.database import Database
from duly.store.connection.statements import columns, load

SQL = load("boxes/leased")
_FIRST = UUID(int=0)

Handle = tuple[UUID, int]  # run and fence


class Finished(msgspec.Struct, frozen=True, gc=False):
    """A plain success without consequences. Its moments are seconds since 1970, which cost less for each run."""

    run: Run
    started: float
    finished: float
    result: str | None = None

    @property
    def outcome(self) -> Succeeded:
        """The outcome, as of any attempt."""
        return Succeeded(self.result)


class Moved(msgspec.Struct, frozen=True):
    """An outcome and what the run becomes by it."""

    run: Run
    started_at: datetime | None
    finished_at: datetime | None
    outcome: str
    became: str
    delay: timedelta = timedelta()
    losses: int = 0
    suspect: bool = False
    reason: str | None = None
    result: str | None = None
    detail: str | None = None
    history: RunHistory | None = None  # of a run that goes on; None: unchanged


async def finish(database: Database, worker_id: UUID, done: Sequence[Finished]) -> list[Handle]:
    """Record plain successes by their rows. Returns those that were there, each once."""
    results = [item.result for item in done]
    [(is_all, run_ids, fences)] = await database.fetch(
        SQL["finish"],
        worker_id,
        [item.run.tid for item in done],
        [item.run.fence for item in done],
        [item.started for item in done],
        [item.finished for item in done],
        results if any(results) else [],  # missing items at the end of an array are null
    )
    return [(item.run.run_id, item.run.fence) for item in done] if is_all else list(zip(run_ids, fences, strict=True))


async def settle(database: Database, worker_id: UUID, moved: Sequence[Moved], horizon: timedelta) -> set[Handle]:
    """Record outcomes and move each run on, by run and fence. Returns those that were there."""
    rows = await database.fetch(
        SQL["settle"],
        worker_id,
        [item.run.run_id for item in moved],
        [item.run.fence for item in moved],
        *columns(moved, "started_at", "finished_at", "outcome", "became", "delay", "losses", "suspect"),
        *columns(moved, "reason", "result", "detail"),
        [encode_history(item.history) for item in moved],
        horizon,
    )
    return {(row[0], row[1]) for row in rows}


async def hand_back(database: Database, worker_id: UUID, runs: Sequence[Run]) -> set[Handle]:
    """Put back runs that were never started, without using up their attempt."""
    rows = await database.fetch(SQL["hand_back"], worker_id, [run.run_id for run in runs], [run.fence for run in runs])
    return {(row[0], row[1]) for row in rows}


async def await_destination(database: Database, worker_id: UUID, waiting: Sequence[tuple[Run, str]]) -> set[Handle]:
    """Move runs to `blocked`, each waiting for its origin, without using up their attempt. Returns those that were there."""
    rows = await database.fetch(
        SQL["await_destination"],
        worker_id,
        [run.run_id for run, _ in waiting],
        [run.fence for run, _ in waiting],
        [origin for _, origin in waiting],
    )
    return {(row[0], row[1]) for row in rows}


async def already_settled(database: Database, worker_id: UUID, handles: Sequence[Handle]) -> set[Handle]:
    """Return which of these runs this worker has settled before, after a commit whose outcome is unknown."""
    rows = await database.fetch(
        SQL["already_settled"], worker_id, [handle[0] for handle in handles], [handle[1] for handle in handles]
    )
    return {(row[0], row[1]) for row in rows}


async def record_fenced(database: Database, worker_id: UUID, refused: Sequence[Moved]) -> None:
    """Record outcomes that came after the lease was lost. They change nothing."""
    runs = [item.run for item in refused]
    await database.execute(
        SQL["record_fenced"],
        worker_id,
        *columns(runs, "run_id", "job_id", "scheduled_at", "due_at"),
        *columns(refused, "started_at", "finished_at"),
        *columns(runs, "fence", "tenant", "attempt", "queue", "handler"),
        [f"refused: {item.outcome}" for item in refused],
    )


async def held_by(database: Database, worker_id: UUID, limit: int, after: UUID = _FIRST) -> list[Run]:
    """Read the runs that a worker holds, live or lost, by rising id after one."""
    return [run_of(row) for row in await database.fetch(SQL["held_by"], worker_id, limit, after)]


async def orphans(database: Database) -> list[UUID]:
    """Return holders of leases that have no row among the workers."""
    return [row[0] for row in await database.fetch(SQL["orphans"])]


async def void_overstayed(database: Database, stop: timedelta) -> list[UUID]:
    """Void the fences of runs that were asked to stop too long ago, if the next run of their job waits for their slot."""
    return [row[0] for row in await database.fetch(SQL["void_overstayed"], stop)]
