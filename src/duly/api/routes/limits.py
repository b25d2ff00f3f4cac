"""Limits: how much may be under way at once, of everything, a queue, a tenant, or a tenant's share of a queue."""

from __future__ import annotations

from typing import Any

from duly.api.operations import Answer, Call, Routes
from duly.api.refusals import Refusal
from duly.domain.errors import InvalidOption, NotFound
from duly.domain.limits.limit import Limit as Known
from duly.domain.limits.pause import Scope
from duly.moves.admin.limit import limit, unlimit
from duly.store.tables import limits
from duly.store.tenancy import tenants
from duly.wire.limits import Limit, LimitList, LimitQuery, LimitRequest
from duly.wire.schema.shapes import Nothing

routes = Routes("limits")
_BY_CHARACTERS_MAX = 180


@routes.add("GET", "/v1/limits", scope="jobs:read", answers={200: LimitList}, in_session=False)
async def list_limits(call: Call[Nothing, None]) -> Answer:
    """Show the limits of the caller's own; to the operator, all."""
    standing = await limits.standing(call.database)
    return Answer(200, LimitList(items=[_shown(one) for one in standing if _is_seen(call, one)]))


@routes.add(
    "PUT",
    "/v1/limits",
    scope="admin",
    body=LimitRequest,
    answers={200: Limit},
    refuses=("invalid_option", "not_found", "conflict"),
    in_session=False,
    is_keyed=False,
)
async def put_limit(call: Call[Nothing, LimitRequest]) -> Answer:
    """Let at most so many runs be under way at once, from the next claim on. What runs goes on.

    Where the operator has limited a tenant's share of a queue, an admin of the tenant is refused with 409: that limit stays.
    """
    scope = _scope(call, call.body)
    if scope.tenant is not None and await tenants.find(call.database, scope.tenant) is None:
        raise NotFound(f"no tenant {scope.tenant}; GET /v1/tenants lists them")
    by, is_operator = f"key {call.identity.key.name}"[:_BY_CHARACTERS_MAX], call.identity.is_operator
    made = await limit(call.database, scope, call.body.places, set_by=by, is_operator=is_operator)
    return Answer(200, _shown(made))


@routes.add(
    "DELETE",
    "/v1/limits",
    scope="admin",
    query=LimitQuery,
    answers={204: None},
    refuses=("invalid_option", "not_found", "conflict"),
    in_session=False,
)
async def remove_limit(call: Call[LimitQuery, None]) -> Answer:
    """Take a limit away; other limits stay. What the operator has set of a tenant's share, only the operator takes away."""
    await unlimit(call.database, _scope(call, call.query), is_operator=call.identity.is_operator)
    return Answer(204)


def _scope(call: Call[Any, Any], asked: LimitRequest | LimitQuery) -> Scope:
    """Say what is meant. A tenant's whole is its quota, and so the operator's to set."""
    if asked.all and (asked.queue is not None or asked.tenant is not None):
        raise InvalidOption("all is everything; give it alone, or name a queue, a tenant or both")
    if not asked.all and asked.queue is None and asked.tenant is None:
        raise InvalidOption("nothing is named; give all, a queue, a tenant, or a queue and a tenant")
    if call.identity.is_operator:
        return Scope(asked.tenant, asked.queue)
    if asked.queue is None or asked.tenant not in (None, call.tenant):
        raise Refusal(
            "forbidden", "More than one's own share of a queue is for the operator: an admin of the first tenant."
        )
    return Scope(call.tenant, asked.queue)


def _is_seen(call: Call[Any, Any], one: Known) -> bool:
    return call.identity.is_operator or one.scope.tenant == call.tenant


def _shown(one: Known) -> Limit:
    return Limit(
        tenant=one.scope.tenant,
        queue=one.scope.queue,
        places=one.places,
        running=one.running,
        set_by=one.set_by,
        set_at=one.set_at,
    )
