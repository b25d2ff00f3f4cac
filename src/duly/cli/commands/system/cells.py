"""`duly cells`: several primaries, the tenants in each, and the move of a tenant from one to another."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, TypeVar

import click
import msgspec

from duly.cli.connect import opened
from duly.cli.failures import REFUSED
from duly.cli.flags.settings import with_settings
from duly.cli.lazy import ListingGroup
from duly.cli.render.output import answer, json_option, print_json, print_rows
from duly.cli.render.say import say
from duly.clock import Rng
from duly.domain.duration import parse, to_iso
from duly.domain.tenancy.cells import ACTIVE, DRAINING
from duly.moves.admin.cells import move as moves
from duly.moves.admin.cells import place as placing
from duly.moves.admin.cells import verify as checks
from duly.moves.admin.cells.directory import Directory
from duly.settings import Settings

T = TypeVar("T")
_SETTINGS = ("pooler", "secrets_key")
COLUMNS = {
    "cell": lambda row: row["name"],
    "region": lambda row: row["region"],
    "state": lambda row: row["state"],
    "tenants": lambda row: "" if row["tenants"] is None else row["tenants"],
    "schema": lambda row: "" if row["schema"] is None else row["schema"],
    "address": lambda row: row["shown"],
    "error": lambda row: row["error"] or "",
}
FAULT_COLUMNS = {name: (lambda row, name=name: row[name]) for name in ("cell", "broken", "id", "remedy")}
PLACED_COLUMNS = {
    "tenant": lambda row: row["tenant"],
    "cell": lambda row: row["cell"],
    "epoch": lambda row: row["epoch"],
    "moving to": lambda row: row["moving_to"] or "",
}
_grace = click.option(
    "--grace",
    metavar="DURATION",
    default=to_iso(moves.GRACE_DEFAULT),
    help="How long runs of the tenant may go on; after that it stays where it is. Default: PT1M.",
)
_region = click.option(
    "--region", metavar="NAME", help="Its region; a tenant's data never leaves it. Default: default."
)


@click.group(cls=ListingGroup)
def cells() -> None:
    """Run several primaries as one Duly: list, add, drain and remove cells; place and move tenants. Without a command: list.

    The commands open the database of the directory, the first cell. Each repeats safely, and goes on where it stopped.
    """


@cells.command("list")
@json_option
@with_settings(*_SETTINGS)
def list_cells(settings: Settings, as_json: bool) -> int:
    """List cells, their tenants, and whether they answer."""
    seen = _run(settings, checks.look)
    rows = [
        {**msgspec.structs.asdict(one.cell), "tenants": one.tenants, "schema": one.schema, "error": one.error}
        for one in seen
    ]
    print_rows(rows, COLUMNS, "no cells; make this database the first: duly cells add NAME", as_json=as_json)
    return REFUSED if any(one.error for one in seen) else 0


@cells.command("tenants")
@click.argument("cell", required=False)
@json_option
@with_settings(*_SETTINGS)
def list_tenants(settings: Settings, cell: str | None, as_json: bool) -> None:
    """List the cell of each tenant, or the tenants of a cell."""
    found = _run(settings, lambda directory: directory.placements(cell))
    print_rows([msgspec.structs.asdict(one) for one in found], PLACED_COLUMNS, "no tenants", as_json=as_json)


@cells.command("add")
@click.argument("name")
@click.argument("url", required=False)
@_region
@json_option
@with_settings(*_SETTINGS)
def add(settings: Settings, name: str, url: str | None, region: str | None, as_json: bool) -> None:
    """Add a cell: first, without a URL, this database, which then has the directory; then others, migrated and empty.

    Given again with another URL, a cell is found there from now on.
    """

    async def act(directory: Directory) -> Any:
        if url is None:
            return await placing.add_first(directory, name, region, Rng())
        return await placing.add(directory, name, url, region, Rng())

    cell = _run(settings, act)
    answer(as_json, msgspec.structs.asdict(cell), f"cell {cell.name} in region {cell.region}: {cell.shown}")


@cells.command("drain")
@click.argument("name")
@click.option("--undo", is_flag=True, help="Let it take new tenants again; those that have left stay where they are.")
@_grace
@json_option
@with_settings(*_SETTINGS)
def drain(settings: Settings, name: str, undo: bool, grace: str, as_json: bool) -> int:
    """Let a cell take no new tenants, and move those that it has to active cells of its region, one by one."""

    async def act(directory: Directory) -> list[moves.Moved | moves.NotMoved]:
        await placing.set_state(directory, name, ACTIVE if undo else DRAINING)
        return [] if undo else await moves.drain(directory, name, grace=_span(grace))

    done = _run(settings, act)
    left = [one for one in done if isinstance(one, moves.NotMoved)]
    if as_json:
        print_json([msgspec.structs.asdict(one) for one in done])
        return REFUSED if left else 0
    for one in done:
        say(_words(one) if isinstance(one, moves.Moved) else f"tenant {one.tenant} stays: {one.error}")
    if undo:
        say(f"cell {name} takes new tenants")
    elif not left:
        say(f"cell {name} has no tenants, and takes none")
    return REFUSED if left else 0


@cells.command("place")
@click.argument("tenant")
@click.option("--region", metavar="NAME", help="Choose among the cells of this region.")
@click.option("--cell", metavar="NAME", help="Choose this cell.")
@json_option
@with_settings(*_SETTINGS)
def place(settings: Settings, tenant: str, region: str | None, cell: str | None, as_json: bool) -> None:
    """Choose the cell of a new tenant, and create it there. Without options, the hash of its name chooses."""
    placed = _run(settings, lambda directory: placing.place(directory, tenant, region=region, cell=cell))
    answer(as_json, msgspec.structs.asdict(placed), f"tenant {tenant} is in cell {placed.cell}")


@cells.command("move")
@click.argument("tenant")
@click.argument("cell")
@_grace
@json_option
@with_settings(*_SETTINGS)
def move(settings: Settings, tenant: str, cell: str, grace: str, as_json: bool) -> None:
    """Move a tenant to another cell of its region while it is in use: nothing is lost, and nothing fires twice.

    For some seconds its requests are answered 503 and its runs wait. Interrupted, give it again: it goes on. Given for a
    tenant that is there already, it brings after it rows that came late.
    """
    moved = _run(settings, lambda directory: moves.move_tenant(directory, tenant, cell, grace=_span(grace)))
    answer(as_json, msgspec.structs.asdict(moved), _words(moved))


@cells.command("remove")
@click.argument("name")
@json_option
@with_settings(*_SETTINGS)
def remove(settings: Settings, name: str, as_json: bool) -> None:
    """Remove a cell that has no tenants. Its database stays as it is."""
    _run(settings, lambda directory: placing.remove(directory, name))
    answer(as_json, {"name": name}, f"cell {name} is removed; its database still has the operator's own jobs")


@cells.command("verify")
@json_option
@with_settings(*_SETTINGS)
def verify(settings: Settings, as_json: bool) -> int:
    """Check each cell as `duly verify` does, and that each tenant is in the one cell that the directory names."""
    faults = _run(settings, checks.verify)
    rows = [msgspec.structs.asdict(one) for one in faults]
    print_rows(rows, FAULT_COLUMNS, "every promise holds in every cell", as_json=as_json)
    return REFUSED if faults else 0


def _run(settings: Settings, act: Callable[[Directory], Awaitable[T]]) -> T:
    async def inside() -> T:
        async with opened(settings) as database:
            return await act(Directory(database))

    return asyncio.run(inside())


def _span(grace: str) -> timedelta:
    return parse(grace, "--grace")


def _words(moved: moves.Moved) -> str:
    if moved.from_cell == moved.to_cell:
        return f"tenant {moved.tenant} is in cell {moved.to_cell}; nothing came late"
    where = f"from cell {moved.from_cell} to {moved.to_cell}"
    return f"tenant {moved.tenant} moved {where} (epoch {moved.epoch}, {moved.rows:,} rows)"
