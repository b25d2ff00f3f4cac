"""Backfills under way."""

from __future__ import annotations

from duly.api.operations import Answer, Call, Routes
from duly.domain.errors import NotFound
from duly.moves.backfill import cancel_backfill as stop
from duly.store import schedules
from duly.wire.shapes import Nothing
from duly.wire.verbs import BackfillCancelled, BackfillStatus

routes = Routes("backfills")


@routes.add("GET", "/v1/backfills/{backfill_id}", scope="jobs:read", answers={200: BackfillStatus})
async def read_backfill(call: Call[Nothing, None]) -> Answer:
    """Say how far a backfill has come."""
    backfill_id = call.id("backfill_id")
    found = await schedules.find_backfill(call.database, call.tenant, backfill_id)
    if found is None:
        raise NotFound(f"no backfill {backfill_id}")
    return Answer(200, BackfillStatus(**found))


@routes.add("DELETE", "/v1/backfills/{backfill_id}", scope="jobs:write", answers={200: BackfillCancelled})
async def cancel_backfill(call: Call[Nothing, None]) -> Answer:
    """Stop a backfill; its runs that have not begun are taken back."""
    backfill_id = call.id("backfill_id")
    if await schedules.find_backfill(call.database, call.tenant, backfill_id) is None:
        raise NotFound(f"no backfill {backfill_id}")
    return Answer(200, BackfillCancelled(backfill_id=backfill_id, taken_back=await stop(call.database, backfill_id)))
