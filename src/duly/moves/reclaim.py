"""Reclaim: settle the runs of a lost worker.

Runs that it had provably not started go back unused: those due after its last safe moment, and suspects it had not
announced. A webhook, a command and a container run no user code in the worker, so they are started without being
announced. Every other run of it counts an attempt `lost`; only a run that was announced, alone, is to blame for the
loss.
"""

from __future__ import annotations

import msgspec

from duly.clock import Rng
from duly.domain.runs.outcome import Lost
from duly.domain.runs.run import Run
from duly.domain.targets.target import is_reserved
from duly.moves.settle import give_back, lose
from duly.store.boxes import leased
from duly.store.boxes.leased import Handle
from duly.store.connection.database import Database
from duly.store.tables.workers import ExpiredWorker

BATCH_MAX = 500


class Reclaimed(msgspec.Struct, frozen=True):
    """The result of one batch. None moved: it is done, except for runs that the store refuses, each with its error."""

    moved: list[Run]
    refused: dict[Handle, Exception]


async def reclaim(database: Database, worker: ExpiredWorker, rng: Rng) -> Reclaimed:
    """Move one batch of a lost worker's runs on; a run that the store refuses does not delay others."""
    held = await leased.held_by(database, worker.worker_id, BATCH_MAX)
    unstarted = [run for run in held if _was_not_started(run, worker)]
    lost = [(run, Lost(named=worker.has_named(run))) for run in held if not _was_not_started(run, worker)]
    settled, refused = await lose(database, worker.worker_id, lost, rng)
    back, stuck = await give_back(database, worker.worker_id, unstarted)
    moved = {*settled, *back}
    return Reclaimed([run for run in held if (run.run_id, run.fence) in moved], refused | stuck)


def _was_not_started(run: Run, worker: ExpiredWorker) -> bool:
    is_announced = run.suspect and not is_reserved(run.handler)
    return run.due_at > worker.safe_until or (is_announced and not worker.has_named(run))
