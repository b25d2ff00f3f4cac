"""Jobs and tenants, found by name."""

from __future__ import annotations

from uuid import UUID

from duly.cli.flags.filters import first, quoted
from duly.client.asynchronous.client import AsyncClient
from duly.client.errors import NotFound
from duly.wire.keys import Tenant
from duly.wire.pages import PAGE_SIZE_MAX


async def job_id_of(client: AsyncClient, job: str) -> UUID:
    """Return the id of a job, given by its id or its name. Raises NotFound."""
    try:
        return UUID(job)
    except ValueError:
        found = await first(client.jobs.list(f"name:{quoted(job)} AND state:(active,paused)"), 1)
    if not found:
        raise NotFound(f"no schedule is named {job!r}; `duly jobs` lists them, and those that are over by their id")
    return found[0].job_id


async def tenant_named(client: AsyncClient, name: str) -> Tenant:
    """Return a tenant by its name, or by its number. Raises NotFound."""
    by_number = None
    async for tenant in client.tenants.list(page_size=PAGE_SIZE_MAX):
        if tenant.name == name:
            return tenant
        if str(tenant.tenant) == name:
            by_number = tenant
    if by_number is None:
        raise NotFound(f"no tenant {name!r}; `duly tenants` lists them")
    return by_number
