"""Limits: of concurrency keys and rate limits, and of runs at once, by scope."""

from __future__ import annotations

from typing import Any

from duly.api import paging
from duly.api.operations import Call, Routes
from duly.api.response import Response
from duly.api.routes.queues import check_tenant, scope_of
from duly.domain.errors import NotFound
from duly.domain.limits.concurrency import Rate, in_words, kind_of
from duly.domain.limits.limit import Limit as Known
from duly.domain.limits.pause import Scope
from duly.domain.tenancy.audit import Action
from duly.moves.admin import concurrency_keys as moves
from duly.moves.admin.limit import limit, unlimit
from duly.store.tables import concurrency_keys, limits
from duly.wire.concurrency_keys import (
    ConcurrencyKey,
    ConcurrencyKeyLimits,
    ConcurrencyKeyList,
    ConcurrencyKeyRate,
    SetLimits,
)
from duly.wire.limits import Limit, LimitList, LimitQuery, LimitRequest
from duly.wire.pages import PageQuery
from duly.wire.schema.shapes import Nothing

routes = Routes("limits", reads="jobs:read", writes="admin", in_session=False)
_OF_ANOTHER = "A limit beyond the own tenant is for the operator: use an admin key of the first tenant."


@routes.add("GET /v1/limits", responses={200: LimitList})
async def list_limits(call: Call[Nothing, None]) -> Response:
    """List the limits of the caller's own; for the operator, all."""
    standing = await limits.standing(call.database)
    return Response(200, LimitList(items=[_shown(one) for one in standing if _is_seen(call, one)]))


@routes.add(
    "PUT /v1/limits",
    responses={200: Limit},
    refuses=("invalid_option", "not_found", "conflict"),
    audits=(Action.LIMIT_SET,),
)
async def put_limit(call: Call[Nothing, LimitRequest]) -> Response:
    """Let at most so many runs run at once, from the next claim on. Active runs go on.

    Where the operator has limited a tenant's share of a queue, an admin of the tenant is refused with 409: that limit
    stays.
    """
    scope = _scope(call, call.body)
    await check_tenant(call, scope)
    by, is_operator = call.identity.shown_name, call.identity.is_operator
    created = await limit(call.database, scope, call.body.slots, set_by=by, is_operator=is_operator)
    return Response(200, _shown(created))


@routes.add(
    "DELETE /v1/limits",
    responses={204: None},
    refuses=("invalid_option", "not_found", "conflict"),
    audits=(Action.LIMIT_REMOVED,),
)
async def remove_limit(call: Call[LimitQuery, None]) -> Response:
    """Remove a limit; other limits stay. A limit that the operator set on a tenant's share, only the operator removes."""
    await unlimit(call.database, _scope(call, call.query), is_operator=call.identity.is_operator)
    return Response(204)


def _scope(call: Call[Any, Any], requested: LimitRequest | LimitQuery) -> Scope:
    """Return the scope. A limit of a whole tenant is its quota, and so the operator's to set."""
    scope = scope_of(call, requested, _OF_ANOTHER)
    if scope.queue is None:
        call.check_operator(_OF_ANOTHER)
    return scope


def _is_seen(call: Call[Any, Any], one: Known) -> bool:
    return call.identity.is_operator or one.scope.tenant == call.tenant


def _shown(one: Known) -> Limit:
    return Limit.of(one, tenant=one.scope.tenant, queue=one.scope.queue)


concurrency_key_routes = Routes("concurrency keys", reads="jobs:read", writes="jobs:write")


@concurrency_key_routes.add("GET /v1/concurrency-keys", responses={200: ConcurrencyKeyList})
async def list_concurrency_keys(call: Call[PageQuery, None]) -> Response:
    """List the concurrency keys and rate limits that are in use or limited."""
    after = paging.position(call.query.page_token, "concurrency keys", str)
    found = await concurrency_keys.page(call.database, call.tenant, after, call.query.page_size)
    last = found[-1].key if len(found) == call.query.page_size else None
    return paging.page(ConcurrencyKeyList, [_shown_key(one) for one in found], last, "concurrency keys")


@concurrency_key_routes.add("GET /v1/concurrency-keys/{name}", responses={200: ConcurrencyKey})
async def read_concurrency_key(call: Call[Nothing, None]) -> Response:
    """Read a key: how many of its runs hold a slot, how many wait, and its limits."""
    key = call.known_name
    found = await concurrency_keys.find(call.database, call.tenant, key)
    if found is None:
        raise NotFound(f"no concurrency key {key!r}: no run waits for it, and no limit is set")
    return Response(200, _shown_key(found))


@concurrency_key_routes.add(
    "PUT /v1/concurrency-keys/{name}",
    responses={200: ConcurrencyKey},
    refuses=("invalid_option",),
    audits=(Action.CONCURRENCY_KEY_LIMITED,),
)
async def limit_concurrency_key(call: Call[Nothing, ConcurrencyKeyLimits]) -> Response:
    """Set the limits of a key, which override those of its runs. They hold within two seconds, across the whole fleet."""
    requested = call.body
    rate = (
        None
        if requested.rate is None
        else Rate(call.name, requested.rate.limit, requested.rate.per, requested.rate.burst)
    )
    return Response(
        200, _shown_key(await moves.limit(call.database, call.tenant, call.name, slots=requested.limit, rate=rate))
    )


@concurrency_key_routes.add(
    "DELETE /v1/concurrency-keys/{name}", responses={204: None}, audits=(Action.CONCURRENCY_KEY_UNLIMITED,)
)
async def unlimit_concurrency_key(call: Call[Nothing, None]) -> Response:
    """Remove the limits of a key: those of its runs count again."""
    await moves.unlimit(call.database, call.tenant, call.known_name)
    return Response(204)


def _shown_key(one: concurrency_keys.ConcurrencyKey) -> ConcurrencyKey:
    limits = None
    if one.changed_at is not None:
        rate = _rate(one.limit_per_second, one.limit_burst)
        limits = SetLimits(limit=one.limit_slots, rate=rate, changed_at=one.changed_at)
    has_slots = one.slots is not None or one.waiting > 0 or one.limit_slots is not None
    kind: Any = kind_of(one.key, is_fifo=one.is_fifo, has_slots=has_slots)
    return ConcurrencyKey.of(one, kind=kind, rate=_rate(one.per_second, one.burst), limits=limits)


def _rate(per_second: float | None, burst: int | None) -> ConcurrencyKeyRate | None:
    return None if per_second is None or burst is None else ConcurrencyKeyRate(**in_words(per_second), burst=burst)
