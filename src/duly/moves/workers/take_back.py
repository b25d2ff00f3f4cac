"""Take back: settle what a worker over HTTP says its runs came to.

It names runs and fences, and nothing else is believed: what each run is, the store says. What is in no hands any more was either
settled by this worker before (the answer was lost) or taken away: then the outcome is refused, and recorded as fenced.
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


class Told(msgspec.Struct, frozen=True):
    """What a worker says of one of its runs; `started_at` is by its own clock. A timeout's length is for us to say."""

    handle: Handle
    outcome: Outcome
    name: str
    started_at: datetime | None


class TakenBack(msgspec.Struct, frozen=True):
    """Which outcomes count, and the queues in which something may be ready by them."""

    settled: set[Handle]
    queues: set[str]


async def take_back(database: Database, worker_id: UUID, told: Sequence[Told], rng: Rng) -> TakenBack:
    """Settle inside a session; of two outcomes for one lease the first counts."""
    by_handle = {item.handle: item for item in reversed(told)}
    found = await remote_workers.held(database, worker_id, list(by_handle))
    now = moment_of(database.clock.now())
    settled = [_settled(by_handle[handle], lent, now) for handle, lent in found.items()]
    there = await settle_by_key(database, worker_id, settled, rng)
    missing = [handle for handle in by_handle if handle not in there]
    before = await leased.already_settled(database, worker_id, missing) if missing else set()
    if refused := [(handle, by_handle[handle].name) for handle in missing if handle not in before]:
        await remote_workers.refuse(database, worker_id, refused)
    return TakenBack(there | before, {item.run.queue for item in settled if _leads_on(item.run, item.outcome)})


def _settled(item: Told, lent: Lent, now: datetime) -> Settled:
    """Put its start between the claim and now, whatever its clock says."""
    started_at = max(lent.claimed_at, min(item.started_at or lent.claimed_at, now))
    outcome = item.outcome
    if isinstance(outcome, TimedOut):
        seconds = lent.run.policy.timeout_seconds
        elapsed = (now - started_at).total_seconds()
        outcome = TimedOut(elapsed if seconds is None else seconds, outcome.detail)
    return Settled(lent.run, started_at, None, outcome)


def _leads_on(run: Run, outcome: Outcome) -> bool:
    """Say whether something may be ready by this outcome: the next attempt, or whoever waited for the place at its gate."""
    return type(outcome) not in (Succeeded, Cancelled) or run.policy.has_consequence
