"""Verify all cells: each tenant is in the one cell that the directory names, and nowhere else has it a row."""

from __future__ import annotations

import msgspec

from duly.domain.errors import DulyError
from duly.domain.tenancy.cells import ARRIVING, LEAVING, Cell, Placement
from duly.moves.admin.cells.directory import Directory
from duly.store.boxes import history
from duly.store.connection.database import Database
from duly.store.tenancy import cells as store
from duly.store.tenancy.cells import Resident


class Fault(msgspec.Struct, frozen=True):
    """A broken promise of a cell, and what to do about it."""

    cell: str
    broken: str
    id: str
    remedy: str


class Seen(msgspec.Struct, frozen=True):
    """A cell, and what it answered."""

    cell: Cell
    tenants: int | None = None
    schema: int | None = None
    error: str | None = None


async def look(directory: Directory) -> list[Seen]:
    """Return each cell with its tenants and schema; one that does not answer, with the error."""
    return [await _look(directory, cell) for cell in await directory.cells()]


async def _look(directory: Directory, cell: Cell) -> Seen:
    try:
        async with directory.open(cell.name) as database:
            residents = await store.residents(database)
            here = sum(one.state is None for one in residents.values())
            return Seen(cell, here, (await store.version(database)).schema)
    except DulyError as error:
        return Seen(cell, error=str(error))


async def verify(directory: Directory) -> list[Fault]:
    """Check every cell by itself, and all of them against the directory. An empty list means that all promises hold.

    A cell that does not answer is a fault, and does not hide those of the others.
    """
    await directory.identity()
    faults = list[Fault]()
    for cell in await directory.cells():
        try:
            async with directory.open(cell.name) as database:
                placements = {one.tenant: one for one in await store.placements(directory.database)}
                faults += await _faults(cell, placements, database)
        except DulyError as error:
            faults.append(Fault(cell.name, "cell cannot be verified", cell.shown, str(error)))
    return faults


async def _faults(cell: Cell, placements: dict[str, Placement], database: Database) -> list[Fault]:
    promises = [
        Fault(cell.name, row["broken"], row["id"], str(row["detail"])) for row in await history.verify(database)
    ]
    residents = await store.residents(database)
    found = [fault for name, one in residents.items() if (fault := _fault(cell, name, one, placements.get(name)))]
    missing = [
        Fault(cell.name, "tenant is not in its cell", name, f"duly cells place {name} --cell {cell.name}")
        for name, placed in placements.items()
        if placed.cell == cell.name and name not in residents
    ]
    under_way = [
        Fault(cell.name, "rows on their way without a move", tenant, f"duly cells move {tenant} {placed.cell}")
        for tenant, _, _ in await store.under_way(database)
        if (placed := placements.get(tenant)) is not None and placed.moving_to is None
    ]
    return [*promises, *found, *missing, *under_way]


def _fault(cell: Cell, name: str, here: Resident, placed: Placement | None) -> Fault | None:
    """Judge a tenant that a cell knows."""
    if placed is None:
        remedy = f"duly cells place {name} --cell {cell.name}"
        return Fault(cell.name, "tenant that the directory does not know", name, remedy) if here.state is None else None
    if here.state is None and cell.name not in (placed.cell, placed.moving_to):
        remedy = f"the directory has it in {placed.cell}; pause it here, and compare: duly pause --tenant {here.tenant}"
        return Fault(cell.name, "tenant in two cells", name, remedy)
    if here.state is not None and cell.name == placed.cell and placed.moving_to is None:
        return Fault(cell.name, "tenant is not in its cell", name, f"it is {here.state} here, by {here.cell}")
    if here.state in (LEAVING, ARRIVING) and placed.moving_to is None:
        return Fault(
            cell.name, "tenant between two cells without a move", name, f"duly cells move {name} {placed.cell}"
        )
    if placed.moving_to is not None and cell.name == placed.cell:
        remedy = f"duly cells move {name} {placed.moving_to}"
        return Fault(cell.name, "move that is not finished", name, remedy)
    return None
