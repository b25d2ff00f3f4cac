"""The directory: which cells there are, which of them a tenant is in, and how each is reached.

It is a few rows in one of the databases. What routes by tenant asks `Directory.find`, which remembers its answers. An
answer may be outdated: then the cell itself refuses with TenantMoved or TenantMoving, writes nothing, and the caller
calls `forget` and asks again. So a cached answer costs a round trip, and never a run.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from duly.domain.errors import InvalidOption, NotFound, Refused
from duly.domain.tenancy.api_key import Secret
from duly.domain.tenancy.cells import Cell, Placement, about_cell, check_agreed
from duly.domain.tenancy.sealing import NEW_KEY, Keyring
from duly.store.connection.database import Database
from duly.store.schema import migrate
from duly.store.tenancy import cells as store

REMEMBERED_SECONDS = 5.0
_REMEMBERED_MAX = 100_000
_STATEMENT_SECONDS_MAX = 3_600.0  # a large tenant leaves in one statement


class Place(msgspec.Struct, frozen=True):
    """The cell of a tenant, that cell's address, and the epoch of the move that brought the tenant there.

    While it moves it is neither here nor there for some seconds; `is_moving` says so.
    """

    tenant: str
    cell: str
    region: str
    url: Secret
    epoch: int
    is_moving: bool


class Directory:
    """The directory of an installation, over the database that has it."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self._places: dict[str, tuple[Place, float]] = {}

    async def find(self, tenant: str) -> Place:
        """Return where a tenant is, as of some seconds ago. Raises NotFound."""
        now = self.database.clock.monotonic()
        known = self._places.get(tenant)
        if known is not None and now < known[1]:
            return known[0]
        found = await self.placement(tenant)
        cell = await self.cell(found.cell)
        url = await self._address(cell)
        place = Place(tenant, cell.name, cell.region, url, found.epoch, found.moving_to is not None)
        if len(self._places) >= _REMEMBERED_MAX:
            self._places.clear()
        self._places[tenant] = (place, now + REMEMBERED_SECONDS)
        return place

    def forget(self, place: Place) -> None:
        """Forget an answer that a cell has contradicted, unless a newer one is known by now."""
        known = self._places.get(place.tenant)
        if known is not None and known[0].epoch <= place.epoch:
            del self._places[place.tenant]

    async def placement(self, tenant: str) -> Placement:
        """Read the placement of a tenant. Raises NotFound."""
        found = await store.placement(self.database, tenant)
        if found is None:
            raise NotFound(f"the directory has no tenant {tenant!r}; place it: duly cells place {tenant}")
        return found

    async def placements(self, cell: str | None = None) -> list[Placement]:
        """Read the cell of each tenant, or of those of one cell. Raises NotFound."""
        if cell is not None:
            await self.cell(cell)
        return await store.placements(self.database, cell)

    async def cells(self) -> list[Cell]:
        """Read all cells, by name."""
        return await store.cells(self.database)

    async def cell(self, name: str) -> Cell:
        """Read one cell. Raises NotFound."""
        found = {cell.name: cell for cell in await self.cells()}
        if name not in found:
            known = ", ".join(found) or "none: add this database as the first, duly cells add NAME"
            raise NotFound(f"no cell {name!r}; there are {known}")
        return found[name]

    async def identity(self) -> str:
        """Return the identity of the directory. Raises Refused where this database has none."""
        found = await store.identity(self.database)
        if found is None:
            raise Refused("this database has no directory of cells; make it the first cell: duly cells add NAME")
        if found.number != 0:
            raise Refused(f"this is cell {found.name}, and the directory is in another; name that one's database")
        return found.directory

    @asynccontextmanager
    async def open(self, name: str) -> AsyncIterator[Database]:
        """Open the database of a cell, and check that it is that cell and of this version.

        Raises NotFound, Refused, DatabaseUnusable.
        """
        cell, directory = await self.cell(name), await self.identity()
        if cell.number == 0:
            unhurried = self.database.beside(2, command_timeout=_STATEMENT_SECONDS_MAX)
            try:
                yield unhurried
            finally:
                await unhurried.close()
            return
        async with self.reach(name, await self._address(cell)) as database:
            check_agreed(cell, await store.identity(database), directory)
            yield database

    @asynccontextmanager
    async def reach(self, name: str, url: Secret) -> AsyncIterator[Database]:
        """Open a database that may become a cell, and check that its schema is ours. Raises Refused, DatabaseUnusable."""
        ours = self.database
        reached = Database(
            url.reveal(),
            size_max=2,
            pooler=ours.pooler,
            command_timeout=_STATEMENT_SECONDS_MAX,
            application="duly cells",
            keyring=ours.keyring,
        )
        async with reached as database:
            await migrate.check(database)
            theirs, here = await store.version(database), await store.version(ours)
            if (theirs.schema, theirs.edition) != (here.schema, here.edition):
                raise Refused(
                    f"cell {name} has schema {theirs.schema}, edition {theirs.edition}, and the directory has"
                    f" schema {here.schema}, edition {here.edition}; upgrade the older one: duly migrate"
                )
            yield database

    async def _address(self, cell: Cell) -> Secret:
        sealed = await store.address(self.database, cell.name)
        if sealed is None:
            raise NotFound(f"no cell {cell.name!r}; it was removed meanwhile")
        return self.keyring().open(sealed, about_cell(cell.name))

    def keyring(self) -> Keyring:
        """Return the keyring that addresses are sealed with. Raises InvalidOption where there is none."""
        keyring = self.database.keyring()
        if keyring is None:
            raise InvalidOption(f"addresses of cells are sealed, and there is no key for that; create one: {NEW_KEY}")
        return keyring
