"""Cells and placements: add, drain and remove a cell; place a new tenant."""

from __future__ import annotations

from duly.clock import Rng
from duly.domain.errors import InvalidOption, Refused
from duly.domain.jobs.job import check_name
from duly.domain.tenancy.api_key import Secret
from duly.domain.tenancy.cells import ACTIVE, REGION_DEFAULT, Cell, Placement, about_cell, check_cell, choose
from duly.moves.admin.cells.directory import Directory
from duly.settings import redacted
from duly.store.connection.database import Database
from duly.store.connection.together import together
from duly.store.tenancy import cells as store


async def add_first(directory: Directory, name: str, region: str | None, rng: Rng) -> Cell:
    """Make the database of the directory its first cell; its tenants are placed there. Raises Refused, InvalidOption."""
    check_cell(name)
    region = check_cell(region or REGION_DEFAULT)
    database = directory.database
    sealed = directory.keyring().seal(Secret(database.url), about_cell(name), rng.secret)

    async def begin(transaction: Database) -> None:
        found = await store.identity(transaction)
        identity = await store.new_directory(transaction) if found is None else found.directory
        why = await store.become(transaction, name, 0, region, identity)
        if why is not None:
            raise Refused(f"this database cannot be cell {name}: {why}")
        await store.put_first(transaction, name, region, redacted(database.url), sealed)

    await together(database, begin)
    return await directory.cell(name)


async def add(directory: Directory, name: str, url: str, region: str | None, rng: Rng) -> Cell:
    """Add a cell, or give one another address. Repeated, it goes on where it stopped.

    Raises Refused where the database is another cell, has tenants or another schema; InvalidOption, DatabaseUnusable.
    """
    check_cell(name)
    identity = await directory.identity()
    known = {cell.name: cell for cell in await directory.cells()}.get(name)
    if known is not None and known.number == 0:
        raise Refused(f"cell {name} has the directory: it is reached as this command reaches it, and needs no address")
    region = check_cell(region or (known.region if known else REGION_DEFAULT))
    shown = redacted(url)
    async with directory.reach(name, Secret(url)) as database:
        found = await store.identity(database)
        if found is not None and (found.name, found.directory) != (name, identity):
            whose = "" if found.directory == identity else " of another directory"
            raise Refused(f"{shown} is cell {found.name}{whose} already; give another database, or that cell's name")
        sealed = directory.keyring().seal(Secret(url), about_cell(name), rng.secret)
        number = await store.put_cell(directory.database, name, region, shown, sealed)
        if number is None:
            raise Refused(f"cell {name} is in another region, and never changes it; choose another name")
        why = await store.become(database, name, number, region, identity)
        if why is not None:
            if known is None:
                await store.remove(directory.database, name)
            raise Refused(f"{shown} cannot be cell {name}: {why}")
    return await directory.cell(name)


async def set_state(directory: Directory, name: str, state: str) -> None:
    """Let a cell take no new tenants (draining), or take them again (active). Raises NotFound."""
    await directory.identity()
    await directory.cell(name)
    await store.set_state(directory.database, name, state)


async def remove(directory: Directory, name: str) -> None:
    """Remove a cell that has no tenants. Raises NotFound, Refused."""
    identity = await directory.identity()
    cell = await directory.cell(name)
    if cell.number == 0:
        raise Refused(f"cell {name} has the directory and cannot be removed")
    async with directory.open(name) as database:
        if here := [tenant for tenant, one in (await store.residents(database)).items() if one.state is None]:
            raise Refused(f"cell {name} has tenants, such as {here[0]}; move them away first: duly cells drain {name}")
        if not await store.remove(directory.database, name):
            raise Refused(f"cell {name} has tenants in the directory; move them away first: duly cells drain {name}")
        await store.leave(database, name, identity)


async def place(directory: Directory, tenant: str, *, region: str | None = None, cell: str | None = None) -> Placement:
    """Choose the cell of a new tenant, once, and create it there. Repeated, it answers alike.

    Raises NotFound for an unknown cell; InvalidOption for a name that is none, or where no active cell fits; Refused
    where the tenant is in another cell or region.
    """
    await directory.identity()
    check_name(tenant, "tenant")
    if tenant == "default":
        raise Refused("tenant default is the operator's own: every cell has one, and none moves")
    if tenant != tenant.strip() or tenant.isdecimal():
        raise InvalidOption(
            f"tenant {tenant!r} is a number, or begins or ends with a space; choose another name", "tenant"
        )
    known = await store.placement(directory.database, tenant)
    if known is None:
        await store.place(directory.database, tenant, (await _chosen(directory, tenant, region, cell)).name)
        known = await directory.placement(tenant)
    is_in = await directory.cell(known.cell)
    if (cell is not None and cell != known.cell) or (region is not None and region != is_in.region):
        raise Refused(
            f"tenant {tenant} is in cell {is_in.name} of region {is_in.region}; to move it: duly cells move {tenant} CELL"
        )
    if known.moving_to is None:
        async with directory.open(known.cell) as database:
            await store.create_tenant(database, tenant)
    return known


async def _chosen(directory: Directory, tenant: str, region: str | None, cell: str | None) -> Cell:
    if cell is None:
        return choose(tenant, await directory.cells(), region)
    named = await directory.cell(cell)
    if named.state != ACTIVE:
        raise Refused(
            f"cell {cell} is drained and takes no new tenants; choose another, or: duly cells drain {cell} --undo"
        )
    if region not in (None, named.region):
        raise Refused(f"cell {cell} is in region {named.region}, not {region}")
    return named
