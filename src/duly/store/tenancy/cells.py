"""Cells: the directory, what a database says that it is, and the steps of a tenant's move. Only the engine's role calls
them.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import msgspec

from duly.domain.tenancy.cells import Cell, Identity, Placement
from duly.domain.tenancy.sealing import Sealed
from duly.store.connection.database import Database
from duly.store.connection.statements import load

SQL = load("tenancy/cells")


class Version(msgspec.Struct, frozen=True):
    """The versions that two cells must have in common, and two tasks that no tenant may move beside."""

    schema: int
    edition: int
    tzdb: str | None
    is_retiming: bool
    is_recovering: bool


class Resident(msgspec.Struct, frozen=True):
    """A tenant as one cell knows it; with a state where it is not entirely there, and then the other cell."""

    tenant: int
    state: str | None
    epoch: int | None
    cell: str | None


class Horizon(msgspec.Struct, frozen=True):
    """The transactions that were open at one moment: virtual ids, and a number that prepared ones are below."""

    number: int
    transactions: Sequence[str]


class Held(msgspec.Struct, frozen=True):
    """The obstacles to a departure, some of each: server processes with an older transaction, an older prepared
    transaction, and runs that workers hold.
    """

    processes: Sequence[int]
    is_prepared: bool
    runs: Sequence[UUID]

    @property
    def is_clear(self) -> bool:
        """Return whether nothing is in the way."""
        return not self.processes and not self.is_prepared and not self.runs


class Departed(msgspec.Struct, frozen=True):
    """One row on its way."""

    number: int
    table: str
    body: str


class Sequences(msgspec.Struct, frozen=True):
    """The newest numbers of a cell, above which those of the next have to be."""

    fence: int
    fifo_number: int


# -------------------------------------------------------------------------------------------------------------- identity


async def identity(database: Database) -> Identity | None:
    """Read which cell a database is; None: it is none."""
    return await database.fetch_row_as(Identity, SQL["identity"])


async def become(database: Database, name: str, number: int, region: str, directory: str) -> str | None:
    """Make a database a cell, or find that it is that one. Returns why it cannot be."""
    answer: str | None = await database.fetchval(SQL["become"], name, number, region, directory)
    return answer


async def leave(database: Database, name: str, directory: str) -> None:
    """Make a database no cell any more."""
    await database.execute(SQL["leave"], name, directory)


async def version(database: Database) -> Version:
    """Read what a move compares."""
    return Version(*await database.fetch_one(SQL["version"]))


async def new_directory(database: Database) -> str:
    """Draw the identity of a directory."""
    return str(await database.fetchval(SQL["found"]))


# ------------------------------------------------------------------------------------------------------------- directory


async def cells(directory: Database) -> list[Cell]:
    """Read all cells, by name."""
    return [Cell(*row) for row in await directory.fetch(SQL["cells"])]


async def put_first(directory: Database, name: str, region: str, shown: str, sealed: Sealed) -> None:
    """Store the directory's own cell, and place in it the tenants that it has."""
    await directory.execute(SQL["add_first"], name, region, shown, sealed.body, sealed.key_id)


async def put_cell(directory: Database, name: str, region: str, shown: str, sealed: Sealed) -> int | None:
    """Store a cell, or another address of one. Returns its number; None: it exists in another region."""
    number: int | None = await directory.fetchval(SQL["add"], name, region, shown, sealed.body, sealed.key_id)
    return number


async def address(directory: Database, name: str) -> Sealed | None:
    """Read the sealed address of a cell; None: there is no such cell."""
    row = await directory.fetchrow(SQL["address"], name)
    return None if row is None else Sealed(row["key_id"], row["sealed"])


async def set_state(directory: Database, name: str, state: str) -> bool:
    """Set the state of a cell; false: there is no such cell."""
    return bool(await directory.fetch(SQL["drain"], name, state))


async def remove(directory: Database, name: str) -> bool:
    """Remove a cell that has no tenants and not the directory. Returns whether it was removed."""
    return bool(await directory.fetch(SQL["remove"], name))


async def sealed_before(directory: Database, key_id: str) -> list[tuple[str, Sealed]]:
    """Read addresses that are sealed with another key than this one."""
    rows = await directory.fetch(SQL["sealed_before"], key_id)
    return [(row["name"], Sealed(row["key_id"], row["sealed"])) for row in rows]


async def reseal(directory: Database, name: str, before: Sealed, sealed: Sealed) -> bool:
    """Store an address as it is sealed anew; False: it has changed since."""
    return bool(await directory.fetch(SQL["reseal"], name, before.body, sealed.body, sealed.key_id))


async def placement(directory: Database, tenant: str) -> Placement | None:
    """Read the placement of a tenant."""
    return await directory.fetch_row_as(Placement, SQL["placement"], tenant)


async def placements(directory: Database, cell: str | None = None) -> list[Placement]:
    """Read the placements, of all cells or of one."""
    return [Placement(*row) for row in await directory.fetch(SQL["placements"], cell)]


async def place(directory: Database, tenant: str, cell: str) -> None:
    """Place a tenant in an active cell, if it is placed in none."""
    await directory.execute(SQL["place"], tenant, cell)


async def begin(directory: Database, seen: Placement, to: str) -> Placement | None:
    """Begin a move of a placement as it was seen; None: it has changed since, or the cell takes nobody."""
    return await directory.fetch_row_as(Placement, SQL["begin"], seen.tenant, seen.epoch, to)


async def undo(directory: Database, move: Placement) -> None:
    """Undo a move that has not arrived."""
    await directory.execute(SQL["undo"], move.tenant, move.epoch)


async def advance(directory: Database, seen: Placement) -> Placement | None:
    """Raise the epoch of a placement as it was seen; None: it has changed since."""
    return await directory.fetch_row_as(Placement, SQL["advance"], seen.tenant, seen.epoch)


async def arriving(directory: Database, move: Placement) -> bool:
    """Record that a move can only go on. Returns whether it is under way."""
    return bool(await directory.fetch(SQL["arriving"], move.tenant, move.epoch))


async def finish(directory: Database, move: Placement) -> None:
    """Record that a tenant is in its next cell."""
    await directory.execute(SQL["finish"], move.tenant, move.epoch)


# ---------------------------------------------------------------------------------------------------------- in one cell


async def resident(cell: Database, tenant: str) -> Resident | None:
    """Read what a cell knows of a tenant; None: nothing."""
    return await cell.fetch_row_as(Resident, SQL["tenant"], tenant)


async def residents(cell: Database) -> dict[str, Resident]:
    """Read all tenants that a cell knows but the operator's, by name."""
    return {row["name"]: Resident(*list(row)[1:]) for row in await cell.fetch(SQL["tenants"])}


async def strays(cell: Database) -> list[tuple[str, str]]:
    """Read the tenants that have rows in a cell where they are not, and the tables."""
    return [(row[0], row[1]) for row in await cell.fetch(SQL["strays"])]


async def under_way(cell: Database) -> list[tuple[str, int, int]]:
    """Read the departures that a cell still keeps: tenant, epoch and number of rows."""
    return [(row[0], row[1], row[2]) for row in await cell.fetch(SQL["departures"])]


async def create_tenant(cell: Database, tenant: str) -> None:
    """Create a tenant without limits, unless there is one of that name."""
    await cell.execute(SQL["create_tenant"], tenant)


async def freeze(cell: Database, tenant: int, move: Placement) -> str:
    """Let a tenant begin to leave. Returns its state; `other`: another move has it."""
    return str(await cell.fetchval(SQL["freeze"], tenant, move.epoch, move.moving_to))


async def unfreeze(cell: Database, tenant: int, epoch: int) -> bool:
    """Let it stay after all; false: it has departed."""
    return bool(await cell.fetchval(SQL["unfreeze"], tenant, epoch))


async def horizon(cell: Database) -> Horizon:
    """Read the transactions that are open."""
    return Horizon(*await cell.fetch_one(SQL["horizon"]))


async def held(cell: Database, tenant: int, horizon: Horizon) -> Held:
    """Read the obstacles to a departure."""
    return Held(*await cell.fetch_one(SQL["held"], tenant, horizon.number, horizon.transactions))


async def depart(cell: Database, tenant: int, epoch: int) -> int:
    """Take all rows of a tenant out. Returns how many are on their way."""
    return int(await cell.fetchval(SQL["depart"], tenant, epoch))


async def departed(cell: Database, tenant: int, epoch: int, after: int, limit: int) -> list[Departed]:
    """Read rows on their way behind a number."""
    return [Departed(*row) for row in await cell.fetch(SQL["departed"], tenant, epoch, after, limit)]


async def sequences(cell: Database) -> Sequences:
    """Read the newest numbers of a cell."""
    return Sequences(*await cell.fetch_one(SQL["sequences"]))


async def finish_departure(cell: Database, tenant: int, epoch: int) -> None:
    """Forget rows that have arrived."""
    await cell.execute(SQL["finish_departure"], tenant, epoch)


async def leave_late(cell: Database, tenant: int, move: Placement) -> None:
    """Let rows depart that came after their tenant had gone."""
    await cell.execute(SQL["leave_late"], tenant, move.epoch, move.cell)


async def prepare_arrival(cell: Database, tenant: int, move: Placement) -> str | None:
    """Make room for a tenant. Returns why it cannot arrive."""
    answer: str | None = await cell.fetchval(SQL["prepare_arrival"], tenant, move.tenant, move.epoch, move.cell)
    return answer


async def undo_arrival(cell: Database, tenant: int, epoch: int) -> None:
    """Undo that."""
    await cell.execute(SQL["undo_arrival"], tenant, epoch)


async def begin_arrival(transaction: Database, tenant: int, epoch: int, *, is_late: bool) -> bool:
    """Begin the transaction in which a tenant, or what came late of it, arrives; false: it has."""
    return bool(await transaction.fetchval(SQL["begin_arrival"], tenant, epoch, is_late))


async def put_rows(transaction: Database, tenant: int, table: str, bodies: Sequence[str], *, is_late: bool) -> None:
    """Put rows that have departed into a table; of those that came late, none that is there already."""
    await transaction.execute(SQL["put_rows"], tenant, table, list(bodies), is_late)


async def finish_arrival(transaction: Database, tenant: int, epoch: int, above: Sequences) -> None:
    """Let the tenant be here, above the numbers of its last cell."""
    await transaction.execute(SQL["finish_arrival"], tenant, epoch, above.fence, above.fifo_number)
