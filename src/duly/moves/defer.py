"""Defer: take runs out of their worker's hands that wait for something before there is an outcome.

A run whose destination is not to be called now is parked: it stands in `blocked`, under the origin of the destination, and
no attempt was made. One that its receiver has taken on goes into the receiver's hands, and its attempt goes on. Where the lease
was lost there is nothing to do: whoever took it away has moved the run on.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

import msgspec

from duly.domain.runs.outcome import Awaited, Deferral, Parked
from duly.domain.runs.run import Run
from duly.store.boxes import awaited, leased
from duly.store.connection.database import Database


class Deferred(msgspec.Struct, frozen=True, gc=False):
    """A run that waits for something, and since when it was at work."""

    run: Run
    started_at: datetime | None
    why: Deferral


async def defer(database: Database, worker_id: UUID, deferred: Sequence[Deferred]) -> None:
    """Put each run where it waits."""
    parked = [(item.run, item.why.origin) for item in deferred if isinstance(item.why, Parked)]
    taken_on = [
        awaited.TakenOn(item.run, item.started_at, timedelta(seconds=item.why.seconds))
        for item in deferred
        if isinstance(item.why, Awaited)
    ]
    if parked:
        await leased.park(database, worker_id, parked)
    if taken_on:
        await awaited.put(database, worker_id, taken_on)
