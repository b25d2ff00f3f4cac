"""Dead letters: runs that gave up. Read them, edit their payload, replay or discard them, one by one or by a filter."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any
from uuid import UUID

from duly.api import paging
from duly.api.operations import Call, Routes
from duly.api.problems import Refusal
from duly.api.response import Response
from duly.api.views.runs import find_run
from duly.domain.errors import NotFound
from duly.domain.jobs.filter import DEAD, parse
from duly.domain.tenancy.audit import Action
from duly.moves import dead as moves
from duly.moves.dead import Bulk, discard, replay
from duly.store.reads import lists
from duly.store.reads.lists import DeadAt
from duly.wire.runs import (
    BulkEdit,
    BulkReplay,
    BulkRequest,
    BulkResponse,
    DeadEdit,
    DeadGroup,
    DeadLetter,
    DeadList,
    DeadQuery,
    RunMoved,
)
from duly.wire.schema.shapes import Nothing

routes = Routes("dead letters", reads="jobs:read", writes="jobs:write")


@routes.add("GET /v1/dead", responses={200: DeadList}, refuses=("invalid_filter",), may_lag=True)
async def list_dead(call: Call[DeadQuery, None]) -> Response:
    """List dead letters, the last buried first; with group=error, count them by normalized reason."""
    requested, of = call.query, f"dead {call.query.filter or ''}"
    if requested.group is not None:
        chosen = parse(requested.filter or "", DEAD)
        found = await lists.dead_groups(call.database, call.tenant, chosen, requested.page_size, lists.GROUPED_MAX)
        groups = [DeadGroup.of(row) for row in found]
        return Response(200, DeadList(items=[], next_page_token=None, groups=groups))
    after = paging.position(requested.page_token, of, DeadAt)
    page = await lists.dead(call.database, call.tenant, parse(requested.filter or "", DEAD), requested.page_size, after)
    items = [DeadLetter.of(row) for row in page.rows]
    return paging.page(DeadList, items, page.after, of)


@routes.add(
    "PATCH /v1/dead/{run_id}", responses={204: None}, refuses=("invalid_payload",), audits=(Action.DEAD_EDITED,)
)
async def edit_dead(call: Call[Nothing, DeadEdit]) -> Response:
    """Change the payload of a dead run, for its replay."""
    run_id = await _dead_id(call)
    if not await moves.edit(call.database, call.tenant, [run_id], call.body.payload):
        raise _not_dead(run_id)
    return Response(204)


@routes.add("POST /v1/dead/{run_id}/replay", responses={202: RunMoved}, audits=(Action.DEAD_REPLAYED,))
async def replay_dead(call: Call[Nothing, None]) -> Response:
    """Replay a dead run with a new set of attempts. It keeps its id, and attempt numbers go on."""
    run_id = await _dead_id(call)
    if not await replay(call.database, [run_id]):
        raise _not_dead(run_id)
    return Response(202, RunMoved(run_id=run_id, status="replayed"), {"Location": f"/v1/runs/{run_id}"})


@routes.add("DELETE /v1/dead/{run_id}", responses={200: RunMoved}, audits=(Action.DEAD_DISCARDED,))
async def discard_dead(call: Call[Nothing, None]) -> Response:
    """Discard a dead run for good. Its record stays."""
    run_id = await _dead_id(call)
    if not await discard(call.database, [run_id]):
        raise _not_dead(run_id)
    return Response(200, RunMoved(run_id=run_id, status="discarded"))


_CHOOSE = "No selection: give either filter or all, not both."
_BULK_REFUSED = ("invalid_filter", "invalid_query")


@routes.add(
    "POST /v1/dead:replay", responses={200: BulkResponse}, refuses=_BULK_REFUSED, audits=(Action.DEAD_REPLAYED,)
)
async def replay_matching(call: Call[Nothing, BulkReplay]) -> Response:
    """Replay the dead letters that match a filter, at once or so many a second; with `dry_run` they are only counted."""
    return await _bulk(call, partial(moves.replay_matching, rate=call.body.rate))


@routes.add(
    "POST /v1/dead:discard", responses={200: BulkResponse}, refuses=_BULK_REFUSED, audits=(Action.DEAD_DISCARDED,)
)
async def discard_matching(call: Call[Nothing, BulkRequest]) -> Response:
    """Discard the dead letters that match a filter; with `dry_run` they are only counted."""
    return await _bulk(call, moves.discard_matching)


@routes.add(
    "POST /v1/dead:edit",
    responses={200: BulkResponse},
    refuses=(*_BULK_REFUSED, "invalid_payload"),
    audits=(Action.DEAD_EDITED,),
)
async def edit_matching(call: Call[Nothing, BulkEdit]) -> Response:
    """Change the payload of the dead letters that match a filter, the same for all, for their replay."""
    return await _bulk(call, partial(moves.edit_matching, payload=call.body.payload))


async def _dead_id(call: Call[Any, Any]) -> UUID:
    """Parse the id of a dead run. Raises NotFound."""
    run_id = call.id("run_id")
    found = await find_run(call.database, call.tenant, run_id)
    if found["state"] != "dead":
        raise _not_dead(run_id)
    return run_id


def _not_dead(run_id: UUID) -> NotFound:
    return NotFound(f"no dead run {run_id}; GET /v1/dead lists them")


async def _bulk(call: Call[Nothing, Any], move: Callable[..., Awaitable[Bulk]]) -> Response:
    """Change the dead letters that match, from where an earlier request ended."""
    requested: BulkRequest = call.body
    if requested.all == bool(requested.filter.strip()):
        raise Refusal("invalid_filter", _CHOOSE, remedy='Send a filter, or `"all": true`.')
    of = f"dead {requested.filter}"
    done = await move(
        call.database,
        call.tenant,
        parse(requested.filter, DEAD),
        limit=requested.limit,
        dry_run=requested.dry_run,
        after=paging.position(requested.page_token, of, DeadAt),
    )
    more = paging.next_token(done.after, of)
    return Response(200, BulkResponse.of(done, dry_run=requested.dry_run, next_page_token=more))
