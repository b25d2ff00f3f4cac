"""Take back: settle the outcomes that an HTTP worker reports.

It names runs and fences, and nothing else is trusted: the store says what each run is. A run that is no longer leased
was either settled by this worker before (the answer was lost) or its lease was lost: then the outcome is refused, and
recorded as fenced.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

import msgspec

from duly.clock import Rng, moment_of
from duly.domain.runs.outcome import Cancelled, Outcome, Succeeded, TimedOut
from duly.domain.runs.run import Run
from duly.moves.settle import Settled, settle_by_key
from duly.store.boxes import leased
from duly.store.boxes.leased import Handle
from duly.store.connection.database import Database
from duly.store.tables import remote_workers
from duly.store.tables.remote_workers import Lent


class RunReport(msgspec.Struct, frozen=True):
    """A worker's report of one run's outcome; `started_at` is by its own clock. The length of a timeout comes from us."""

    handle: Handle
    outcome: Outcome
    name: str
    started_at: datetime | None


class TakenBack(msgspec.Struct, frozen=True):
    """The outcomes that count, and the queues in which they may have made something ready."""

    settled: set[Handle]
    queues: set[str]


async def take_back(database: Database, worker_id: UUID, reported: Sequence[RunReport], rng: Rng) -> TakenBack:
    """Settle inside a session; of two outcomes for one lease the first counts."""
    by_handle = {item.handle: item for item in reversed(reported)}
    found = await remote_workers.held(database, worker_id, list(by_handle))
    now = moment_of(database.clock.now())
    settled = [_settled(by_handle[handle], lent, now) for handle, lent in found.items()]
    there = await settle_by_key(database, worker_id, settled, rng)
    missing = [handle for handle in by_handle if handle not in there]
    before = await leased.already_settled(database, worker_id, missing) if missing else set()
    if refused := [(handle, by_handle[handle].name) for handle in missing if handle not in before]:
        await remote_workers.refuse(database, worker_id, refused)
    return TakenBack(there | before, {item.run.queue for item in settled if _leads_on(item.run, item.outcome)})


def _settled(item: RunReport, lent: Lent, now: datetime) -> Settled:
    """Put the start between the claim and now, whatever the worker's clock says."""
    started_at = max(lent.claimed_at, min(item.started_at or lent.claimed_at, now))
    outcome = item.outcome
    if isinstance(outcome, TimedOut):
        seconds = lent.run.policy.timeout_seconds
        elapsed = (now - started_at).total_seconds()
        outcome = TimedOut(elapsed if seconds is None else seconds, outcome.detail)
    return Settled(lent.run, started_at, None, outcome)


def _leads_on(run: Run, outcome: Outcome) -> bool:
    """Return whether this outcome may make something ready: the next attempt, or a run that waited for the slot."""
    return type(outcome) not in (Succeeded, Cancelled) or run.policy.has_consequence
