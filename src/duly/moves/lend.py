"""Lend: put due runs into the hands of a worker over HTTP, with all that it needs to run them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from uuid import UUID

import asyncpg
import msgspec

from duly.clock import Rng
from duly.domain.outcome import Failed
from duly.domain.run import Run
from duly.moves.hand_out import hand_out
from duly.moves.settle import Settled, settle_by_key
from duly.store import ready, remote_workers, runs
from duly.store.database import Database
from duly.store.remote_workers import Lent
from duly.store.session import RolledBack

_UNUSED = Rng(0)  # What is not tried again has no delay to be spread.
OpenSession = Callable[[], AbstractAsyncContextManager[Database]]


class Parcel(msgspec.Struct, frozen=True):
    """A run on its way to a worker: its payload in full, and what an earlier attempt saved."""

    run: Run
    claimed_at: datetime
    saved: str | None


async def lend(database: Database, open_session: OpenSession, worker_id: UUID, number: int, limit: int) -> list[Parcel]:
    """Claim up to `limit` runs that are due. Raises NotFound, WorkerExpired, ClaimOver."""
    try:
        async with open_session() as session:
            parcels = await _pack(session, await remote_workers.claim(session, worker_id, number, limit))
            return await _without_refused(session, worker_id, parcels)
    except asyncpg.UniqueViolationError:  # A run that is leased already stands in ready once more.
        await ready.drop_duplicates(database)
    except RolledBack:
        pass  # Another claim was in the way, and nothing was taken: whoever waits looks again.
    return []


async def _pack(session: Database, lent: Sequence[Lent]) -> list[Parcel]:
    """Fetch what stands outside the rows: large payloads, checkpoints of earlier attempts, what nodes are given."""
    apart = [(item.run.job_id, item.run.generation) for item in lent if item.run.payload_stored]
    again = [item.run.run_id for item in lent if item.run.attempt > 1]
    bodies = await runs.payloads(session, apart) if apart else {}
    saved = await runs.checkpoints(session, again) if again else {}
    whole = [
        msgspec.structs.replace(item.run, payload=bodies.get((item.run.job_id, item.run.generation), item.run.payload))
        for item in lent
    ]
    handed = await hand_out(session, whole)
    return [
        Parcel(handed.get(run.run_id, run), item.claimed_at, saved.get(run.run_id))
        for run, item in zip(whole, lent, strict=True)
    ]


async def _without_refused(session: Database, worker_id: UUID, parcels: Sequence[Parcel]) -> list[Parcel]:
    """End those that cannot be given what they are to work on: no worker could do anything about it."""
    refused = [
        Settled(parcel.run, parcel.claimed_at, parcel.claimed_at, Failed(parcel.run.refused, retryable=False))
        for parcel in parcels
        if parcel.run.refused is not None
    ]
    if refused:
        await settle_by_key(session, worker_id, refused, _UNUSED)
    return [parcel for parcel in parcels if parcel.run.refused is None]
