"""Backfills under way."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

from duly.api import paging
from duly.api.operations import Answer, Call, Routes
from duly.domain.errors import NotFound
from duly.moves.schedules.backfill import cancel_backfill as stop
from duly.store.tables import schedules
from duly.wire.jobs.verbs import BackfillCancelled, BackfillList, BackfillQuery, BackfillStatus
from duly.wire.schema.shapes import Nothing

routes = Routes("backfills")
_NEWEST = (datetime(9999, 12, 30, tzinfo=UTC), UUID(int=(1 << 128) - 1))


@routes.add("GET", "/v1/backfills", scope="jobs:read", query=BackfillQuery, answers={200: BackfillList})
async def list_backfills(call: Call[BackfillQuery, None]) -> Answer:
    """List backfills, the last asked for first: of a job, or of all. Missed ones that are made up for are among them."""
    asked, of = call.query, f"backfills {call.query.job_id or ''}"
    after = paging.position(asked.page_token, of, tuple[datetime, UUID]) or _NEWEST
    if asked.job_id is None:
        found = await schedules.backfills_of_tenant(call.database, call.tenant, after, asked.page_size)
    else:
        found = await schedules.backfills_of_job(call.database, call.tenant, asked.job_id, after, asked.page_size)
    last = (found[-1]["asked_at"], found[-1]["backfill_id"]) if len(found) == asked.page_size else None
    items = [BackfillStatus(**row) for row in found]
    return Answer(200, BackfillList(items=items, next_page_token=paging.next_token(last, of)))


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
    """Stop a backfill; its runs that have not begun are taken back. One of which nothing is left is not found."""
    backfill_id = call.id("backfill_id")
    if await schedules.find_backfill(call.database, call.tenant, backfill_id) is None:
        raise NotFound(f"no backfill {backfill_id}")
    return Answer(200, BackfillCancelled(backfill_id=backfill_id, taken_back=await stop(call.database, backfill_id)))
