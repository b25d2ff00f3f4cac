"""`duly calendars`: stretches of time that schedules avoid, or keep to."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import click
import msgspec

from duly.cli.client import connected
from duly.cli.flags.settings import with_settings
from duly.cli.lazy import ListingGroup
from duly.cli.render.output import Listing, Row, json_option, listing_options, moment, print_json, print_rows, show_list
from duly.cli.render.say import say
from duly.cli.render.screen import some
from duly.client.asynchronous.client import AsyncClient
from duly.domain.triggers.calendars import read_calendar
from duly.settings import Settings

COLUMNS = {
    "name": lambda row: row["name"],
    "zone": lambda row: row.get("tz") or "UTC",
    "dates": lambda row: len(row.get("dates") or ()),
    "windows": lambda row: len(row.get("windows") or ()),
    "weekly": lambda row: len(row.get("weekly") or ()),
}
USER_COLUMNS = {
    "job": lambda user: user.name,
    "next": lambda user: user.scheduled_at,
}


@click.group(cls=ListingGroup)
def calendars() -> None:
    """List, show, put and delete calendars. Without a command: list."""


@calendars.command("list")
@listing_options
@with_settings("url")
def list_calendars(settings: Settings, listing: Listing) -> None:
    """List calendars by name."""

    empty = "no calendars; make one: duly calendars put FILE"

    async def read(client: AsyncClient) -> list[Row]:
        return [calendar.definition async for calendar in client.calendars.list()]

    show_list(settings, listing, read, COLUMNS, empty)


@calendars.command("show")
@click.argument("name")
@json_option
@with_settings("url")
def show(settings: Settings, name: str, as_json: bool) -> None:
    """Show the calendar NAME, and the jobs that use it."""
    asyncio.run(_show(settings, name, as_json))


@calendars.command("put")
@click.argument("file")
@json_option
@with_settings("url")
def put(settings: Settings, file: str, as_json: bool) -> None:
    """Keep the calendar in FILE, new or changed; `-` reads standard input.

    It is a JSON object with name, tz, dates, windows and weekly; see docs/triggers.md. The jobs that use it are armed anew.
    One that leaves a job nothing for 400 days is refused.
    """
    asyncio.run(_put(settings, _read(file), as_json))


@calendars.command("delete")
@click.argument("name")
@json_option
@with_settings("url")
def delete(settings: Settings, name: str, as_json: bool) -> None:
    """Forget the calendar NAME, which no job may use."""
    asyncio.run(_delete(settings, name, as_json))


async def _show(settings: Settings, name: str, as_json: bool) -> None:
    async with connected(settings) as client:
        calendar = await client.calendars.get(name)
    found, users = calendar.definition, calendar.jobs or []
    if as_json:
        print_json({**found, "jobs": users})
        return
    say(f"calendar {name}, {found.get('tz') or 'UTC'}")
    for line in _covered(found):
        say(line)
    print_rows(users, USER_COLUMNS, "no job uses it")


def _covered(found: Row) -> list[str]:
    dates = [f"dates   {', '.join(found['dates'])}"] if found.get("dates") else []
    windows = [f"window  {window['start']} to {window['end']}" for window in found.get("windows") or ()]
    weekly = [f"weekly  {hours['days']} {hours['from']} to {hours['to']}" for hours in found.get("weekly") or ()]
    return [*dates, *windows, *weekly]


async def _put(settings: Settings, definition: Any, as_json: bool) -> None:
    name = read_calendar(definition).name
    async with connected(settings) as client:
        kept = await client.calendars.put(name, definition)
    if as_json:
        print_json({"name": kept.name, "schedules": kept.schedules})
        return
    say(f"calendar {kept.name} is kept; {some(kept.schedules, 'schedule')} armed by it")
    for user in kept.jobs or ():
        say(f"next  {moment(user.scheduled_at)}  {user.name}")


async def _delete(settings: Settings, name: str, as_json: bool) -> None:
    async with connected(settings) as client:
        await client.calendars.delete(name)
    if as_json:
        print_json({"name": name, "deleted": True})
    else:
        say(f"calendar {name} is deleted")


def _read(file: str) -> Any:
    try:
        return msgspec.json.decode(sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes())
    except (OSError, UnicodeDecodeError) as error:
        raise click.UsageError(f"{file}: {error}") from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise click.UsageError(f"{file} is not JSON: {error}") from None
