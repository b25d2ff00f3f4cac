"""Tenants and their keys, asked of a Duly over HTTP. Only its operator may see other tenants than their own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping

import msgspec

from duly.cli.desk import KeyWanted, Row
from duly.cli.key_rows import told_key_row
from duly.client.asynchronous.client import AsyncClient
from duly.client.errors import Forbidden, NotFound
from duly.clock import host_now
from duly.domain.duration import parse, to_iso
from duly.domain.tenancy.api_key import Secret
from duly.store.tenancy.tenants import Limits, Tenant
from duly.wire import keys as wire

_PAGE = 200  # The API gives no more at once.


async def each_tenant(client: AsyncClient) -> AsyncIterator[Tenant]:
    """Give all tenants."""
    async for told in client.tenants.list(page_size=_PAGE):
        yield tenant_of(told)


async def tenant_named(client: AsyncClient, name: str) -> Tenant:
    """Find a tenant by its name, or by its number. Raises NotFound."""
    by_number = None
    async for tenant in each_tenant(client):
        if tenant.name == name:
            return tenant
        if str(tenant.tenant) == name:
            by_number = tenant
    if by_number is None:
        raise NotFound(f"no tenant {name!r}; `duly tenants` lists them")
    return by_number


async def keys(client: AsyncClient, tenant: str | None, limit: int) -> list[Row]:
    """List the keys of a tenant; without one, of all for the operator, and of our own for others."""
    now, found = host_now(), list[Row]()
    for number, owner in (await _owners(client, tenant)).items():
        async for key in client.keys.list(tenant=number, page_size=_PAGE):
            found.append(told_key_row(key, *_shown(owner, key.tenant), now))
            if len(found) == limit:
                return found
    return found


async def create_key(client: AsyncClient, tenant: str | None, wanted: KeyWanted) -> tuple[Secret, Row]:
    """Make a key. Everything else is asked first: the text is told once."""
    owners = await _owners(client, tenant)
    made = await client.keys.create(
        wanted.name,
        msgspec.convert([scope.value for scope in sorted(wanted.scopes)], list[wire.Scope]),
        tenant=None if tenant is None else next(iter(owners)),
        expires_after=None if wanted.expires is None else to_iso(wanted.expires),
        rate=wanted.rate,
    )
    name, state = _shown(owners.get(made.tenant), made.tenant)
    row = {field: getattr(made, field) for field in ("key_id", "tenant", "name", "scopes", "expires_at")}
    return Secret(made.key), {**row, "tenant_name": name, "rate": wanted.rate, "state": state}


def tenant_of(told: wire.Tenant) -> Tenant:
    """Give a tenant as we know it."""
    least = None if told.limits.least_period is None else parse(told.limits.least_period, "least_period")
    limits = Limits(**{**msgspec.structs.asdict(told.limits), "least_period": least})
    return Tenant(told.tenant, told.name, told.state, limits, told.created_at)


def limits_of(limits: Limits) -> wire.TenantLimits:
    """Give limits as they cross HTTP."""
    least = None if limits.least_period is None else to_iso(limits.least_period)
    return wire.TenantLimits(**{**msgspec.structs.asdict(limits), "least_period": least})


async def _owners(client: AsyncClient, tenant: str | None) -> Mapping[int | None, Tenant | None]:
    """Say whose keys are meant; our own, of whom we know nothing more, when others are not for us to see."""
    if tenant is not None:
        named = await tenant_named(client, tenant)
        return {named.tenant: named}
    try:
        return {each.tenant: each async for each in each_tenant(client)}
    except Forbidden:
        return {None: None}


def _shown(owner: Tenant | None, number: int) -> tuple[str, str]:
    """Name a tenant and say how it stands: by its number, and active, where it is our own and we are let in."""
    return (str(number), "active") if owner is None else (owner.name, owner.state)
