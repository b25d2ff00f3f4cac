"""Lend: lease due runs to an HTTP worker, with everything that it needs to run them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

import asyncpg
import msgspec

from duly.clock import Rng
from duly.domain.runs.expiry import expiry_of
from duly.domain.runs.outcome import Expired, Failed
from duly.domain.runs.run import Run
from duly.moves.settle import Settled, settle_by_key
from duly.moves.workflows.hand_out import hand_out
from duly.store.boxes import ready, runs
from duly.store.connection.database import Database
from duly.store.connection.session import RolledBack
from duly.store.connection.together import OpenSession
from duly.store.tables import remote_workers
from duly.store.tables.remote_workers import Lent


class Parcel(msgspec.Struct, frozen=True):
    """A run on its way to a worker: its whole payload, and the checkpoint of an earlier attempt."""

    run: Run
    claimed_at: datetime
    saved: str | None


async def lend(
    database: Database, open_session: OpenSession, worker_id: UUID, number: int, limit: int, rng: Rng
) -> list[Parcel] | None:
    """Claim up to `limit` due runs; those that have expired end here, and are not lent.

    None: nothing was claimed, and the claim is still open. Raises NotFound, WorkerExpired, ClaimOver.
    """
    try:
        async with open_session() as session:
            lent = await remote_workers.claim(session, worker_id, number, limit)
            if not lent:
                return None
            parcels = await _pack(session, await _without_expired(session, worker_id, lent, rng))
            return await _without_refused(session, worker_id, parcels, rng)
    except asyncpg.UniqueViolationError:  # a run in ready is leased already
        await ready.drop_duplicates(database)
    except RolledBack:
        pass  # a conflict with another claim: nothing was taken, and the caller looks again
    return None


async def _without_expired(session: Database, worker_id: UUID, lent: Sequence[Lent], rng: Rng) -> list[Lent]:
    expiries = {item.run.run_id: _expired_at(item) for item in lent}
    expired = [item for item in lent if expiries.get(item.run.run_id) is not None]
    settled = [
        Settled(item.run, None, None, Expired(at)) for item in expired if (at := expiries[item.run.run_id]) is not None
    ]
    if settled:
        await settle_by_key(session, worker_id, settled, rng)
    return [item for item in lent if expiries.get(item.run.run_id) is None]


def _expired_at(lent: Lent) -> datetime | None:
    """Return the moment at which a run had expired when it was claimed, if it had."""
    expires_at = expiry_of(lent.run.scheduled_at, lent.run.policy)
    return expires_at if expires_at is not None and expires_at <= lent.claimed_at else None


async def _pack(session: Database, lent: Sequence[Lent]) -> list[Parcel]:
    """Fetch what is stored outside the rows: large payloads, checkpoints of earlier attempts, inputs of nodes."""
    stored = [(item.run.job_id, item.run.generation) for item in lent if item.run.payload_stored]
    retried = [item.run.run_id for item in lent if item.run.attempt > 1]
    bodies = await runs.payloads(session, stored) if stored else {}
    saved = await runs.checkpoints(session, retried) if retried else {}
    whole = [
        msgspec.structs.replace(item.run, payload=bodies.get((item.run.job_id, item.run.generation), item.run.payload))
        for item in lent
    ]
    handed = await hand_out(session, whole)
    return [
        Parcel(handed.get(run.run_id, run), item.claimed_at, saved.get(run.run_id))
        for run, item in zip(whole, lent, strict=True)
    ]


async def _without_refused(session: Database, worker_id: UUID, parcels: Sequence[Parcel], rng: Rng) -> list[Parcel]:
    """End runs whose payload cannot be built: no worker could do anything about it."""
    refused = [
        Settled(parcel.run, parcel.claimed_at, parcel.claimed_at, Failed(parcel.run.refused, retryable=False))
        for parcel in parcels
        if parcel.run.refused is not None
    ]
    if refused:
        await settle_by_key(session, worker_id, refused, rng)
    return [parcel for parcel in parcels if parcel.run.refused is None]
