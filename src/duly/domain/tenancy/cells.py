"""Cells: several primaries, and the choice of one for a new tenant.

A tenant's cell is chosen once and written down, so a cell that is added moves nobody. The choice is a rendezvous hash of
the tenant's name: every process makes the same one, and tenants spread evenly.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256

import msgspec

from duly.domain.errors import InvalidOption, Refused
from duly.domain.jobs.job import check_name

REGION_DEFAULT = "default"
ACTIVE, DRAINING = "active", "draining"
LEAVING, DEPARTED, ARRIVING, GONE = "leaving", "departed", "arriving", "gone"


class Cell(msgspec.Struct, frozen=True):
    """A cell, as the directory lists it; `shown` is its address without the password."""

    name: str
    number: int
    region: str
    state: str
    shown: str


class Identity(msgspec.Struct, frozen=True):
    """The cell that a database says it is, and the directory that this cell belongs to."""

    name: str
    number: int
    region: str
    directory: str


class Placement(msgspec.Struct, frozen=True):
    """A tenant's cell. During a move it has the next one, too; `epoch` is raised by each move."""

    tenant: str
    cell: str
    epoch: int
    moving_to: str | None = None
    phase: str | None = None


def choose(tenant: str, cells: Iterable[Cell], region: str | None = None, *, other_than: str | None = None) -> Cell:
    """Choose the cell of a new tenant among the active ones, of its region if it names one. Raises InvalidOption."""
    fit = [cell for cell in cells if cell.state == ACTIVE and region in (None, cell.region) and cell.name != other_than]
    if not fit:
        where = "" if region is None else f" in region {region!r}"
        raise InvalidOption(
            f"no active cell{where} for tenant {tenant!r}; add one: duly cells add NAME URL --region REGION"
        )
    return max(fit, key=lambda cell: (_weight(tenant, cell.name), cell.name))


def check_cell(name: str) -> str:
    """Return the name of a cell. Raises InvalidOption."""
    check_name(name, "cell")
    if name != name.strip():
        raise InvalidOption(f"cell {name!r} begins or ends with a space; remove it")
    return name


def check_agreed(one: Cell, found: Identity | None, directory: str) -> None:
    """Check that a database is the cell that the directory lists. Raises Refused."""
    if found is None:
        raise Refused(f"{one.shown} is no cell; the directory lists it as {one.name}: duly cells add {one.name} URL")
    if found.directory != directory:
        raise Refused(f"{one.shown} is cell {found.name} of another directory; correct the address of cell {one.name}")
    if (found.name, found.number) != (one.name, one.number):
        raise Refused(
            f"{one.shown} is cell {found.name}, and the directory lists it as {one.name}; correct the address"
        )


def about_cell(name: str) -> bytes:
    """Return the associated data of a cell's sealed address: one copied to another cell does not open."""
    return msgspec.json.encode(["cell", name])


def _weight(tenant: str, cell: str) -> bytes:
    return sha256(msgspec.json.encode([cell, tenant])).digest()
