"""`duly limits`: how much may be under way at once, of everything, a queue, a tenant, or a tenant's share of a queue."""

from __future__ import annotations

import asyncio

import click

from duly.cli.client import connected
from duly.cli.commands.pause import Asked, scope_options
from duly.cli.flags.settings import with_settings
from duly.cli.lazy import ListingGroup
from duly.cli.render.output import Listing, Row, json_option, listing_options, print_json, show_list
from duly.cli.render.say import say
from duly.client.asynchronous.client import AsyncClient
from duly.domain.limits.limit import PLACES_MAX
from duly.domain.limits.pause import Scope
from duly.settings import Settings
from duly.wire.limits import Limit

COLUMNS = {
    "of": lambda row: row["of"],
    "places": lambda row: row["places"],
    "running": lambda row: row["running"],
    "set by": lambda row: row["set_by"],
    "set at": lambda row: row["set_at"],
}


@click.group(cls=ListingGroup)
def limits() -> None:
    """Show, set and remove limits on what is under way at once. Without a command: show."""


@limits.command("list")
@listing_options
@with_settings("url")
def list_limits(settings: Settings, listing: Listing) -> None:
    """Show every limit, and how much of it is under way."""

    async def read(client: AsyncClient) -> list[Row]:
        return [_row(one) async for one in client.limits.list()]

    show_list(settings, listing, read, COLUMNS, "no limits: as much is under way as the workers have room for")


@limits.command("set")
@click.argument("places", type=click.IntRange(1, PLACES_MAX))
@scope_options
@json_option
@with_settings("url")
def set_limit(settings: Settings, places: int, asked: Asked, as_json: bool) -> None:
    """Let at most PLACES runs be under way at once, from the next claim on. What runs goes on."""
    asyncio.run(_set(settings, asked, places, as_json))


@limits.command("remove")
@scope_options
@json_option
@with_settings("url")
def remove(settings: Settings, asked: Asked, as_json: bool) -> None:
    """Take away the limit that was set with the same flags."""
    asyncio.run(_remove(settings, asked, as_json))


async def _set(settings: Settings, asked: Asked, places: int, as_json: bool) -> None:
    async with connected(settings) as client:
        scope = await asked.at(client)
        made = await client.limits.put(places, everything=scope == Scope(), queue=scope.queue, tenant=scope.tenant)
    if as_json:
        print_json(_row(made))
    else:
        say(f"{scope}: at most {places} at once, from the next claim on; {made.running} are under way")


async def _remove(settings: Settings, asked: Asked, as_json: bool) -> None:
    async with connected(settings) as client:
        scope = await asked.at(client)
        await client.limits.remove(everything=scope == Scope(), queue=scope.queue, tenant=scope.tenant)
    if as_json:
        print_json({"of": str(scope), "tenant": scope.tenant, "queue": scope.queue, "places": None})
    else:
        say(f"{scope}: no limit of its own any more")


def _row(limit: Limit) -> dict[str, object]:
    return {
        "of": str(Scope(limit.tenant, limit.queue)),
        "tenant": limit.tenant,
        "queue": limit.queue,
        "places": limit.places,
        "running": limit.running,
        "set_by": limit.set_by,
        "set_at": limit.set_at,
    }
