"""Tenants, for the operator: create, limit and suspend them."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET

from duly.api import paging
from duly.api.operations import Call, Routes
from duly.api.response import Response
from duly.domain.duration import parse_option, to_iso
from duly.domain.errors import NotFound
from duly.domain.tenancy.audit import Action
from duly.moves.admin import tenants as moves
from duly.store.tenancy import tenants
from duly.store.tenancy.tenants import Limits
from duly.wire.keys import Tenant, TenantChange, TenantLimits, TenantList, TenantRequest
from duly.wire.pages import PageQuery
from duly.wire.schema.shapes import Nothing

routes = Routes("tenants", scope="admin", in_session=False, takes_key=False, is_operators=True)


@routes.add("GET /v1/tenants", responses={200: TenantList})
async def list_tenants(call: Call[PageQuery, None]) -> Response:
    """List tenants."""
    after = paging.position(call.query.page_token, "tenants", int)
    found = await tenants.page(call.database, after, call.query.page_size)
    last = found[-1].tenant if len(found) == call.query.page_size else None
    return paging.page(TenantList, [_shown(tenant) for tenant in found], last, "tenants")


@routes.add(
    "POST /v1/tenants",
    responses={201: Tenant},
    refuses=("invalid_option", "name_taken"),
    audits=(Action.TENANT_CREATED,),
)
async def create_tenant(call: Call[Nothing, TenantRequest]) -> Response:
    """Create a tenant. Its name is unique and never given again, so a repeat creates no second one."""
    created = await moves.create_tenant(call.database, call.body.name, _limits(call.body.limits), call.body.redact)
    return Response(201, _shown(created), {"Location": f"/v1/tenants/{created.tenant}"})


@routes.add("GET /v1/tenants/{tenant}", responses={200: Tenant})
async def read_tenant(call: Call[Nothing, None]) -> Response:
    """Read a tenant."""
    return Response(200, _shown(await _found(call)))


@routes.add(
    "PATCH /v1/tenants/{tenant}", responses={200: Tenant}, refuses=("invalid_option",), audits=(Action.TENANT_CHANGED,)
)
async def change_tenant(call: Call[Nothing, TenantChange]) -> Response:
    """Change a tenant's limits or rules of redaction, or suspend it.

    A suspended one adds nothing and its keys grant nothing; its schedules go on.
    """
    tenant, requested = (await _found(call)).tenant, call.body
    await moves.change_tenant(
        call.database,
        tenant,
        limits=None if requested.limits is UNSET else _limits(requested.limits),
        redact=None if requested.redact is UNSET else requested.redact,
        is_suspended=None if requested.state is UNSET else requested.state == "suspended",
    )
    return Response(200, _shown(await _found(call)))


async def _found(call: Call[Any, Any]) -> tenants.Tenant:
    number = call.path["tenant"]
    found = None
    if number.isascii() and number.isdigit() and len(number) < 10:
        found = await tenants.find(call.database, int(number))
    if found is None:
        raise NotFound(f"no tenant {number!r}; GET /v1/tenants lists them")
    return found


def _limits(requested: TenantLimits) -> Limits:
    least = None if requested.least_period is None else parse_option(requested.least_period, "least_period")
    return Limits(**{**msgspec.structs.asdict(requested), "least_period": least})


def _shown_limits(limits: Limits) -> TenantLimits:
    least = None if limits.least_period is None else to_iso(limits.least_period)
    return TenantLimits(**{**msgspec.structs.asdict(limits), "least_period": least})


def _shown(tenant: tenants.Tenant) -> Tenant:
    state = "active" if tenant.state == "active" else "suspended"
    return Tenant.of(tenant, state=state, limits=_shown_limits(tenant.limits), redact=list(tenant.redact))
