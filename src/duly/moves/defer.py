"""Defer: take leased runs from their worker that wait for something before there is an outcome.

A run whose destination must not be called now waits in `blocked`, under the origin of the destination, and no
attempt was made. The lease of a run that its receiver accepted passes to the receiver, and its attempt goes on. Where
the lease was lost there is nothing to do: the run has been moved on.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

import msgspec

from duly.domain.runs.outcome import Awaited, Deferral, WaitForDestination
from duly.domain.runs.run import Run
from duly.store.boxes import awaited, leased
from duly.store.connection.database import Database


class Deferred(msgspec.Struct, frozen=True, gc=False):
    """A run that waits for something, and since when it was at work."""

    run: Run
    started_at: datetime | None
    why: Deferral


async def defer(database: Database, worker_id: UUID, deferred: Sequence[Deferred]) -> None:
    """Move each run to where it waits."""
    waiting = [(item.run, item.why.origin) for item in deferred if isinstance(item.why, WaitForDestination)]
    taken_on = [
        awaited.TakenOn(item.run, item.started_at, timedelta(seconds=item.why.seconds))
        for item in deferred
        if isinstance(item.why, Awaited)
    ]
    if waiting:
        await leased.await_destination(database, worker_id, waiting)
    if taken_on:
        await awaited.put(database, worker_id, taken_on)
