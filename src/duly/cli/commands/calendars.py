"""`duly calendars`: spans of time that schedules avoid, or keep to."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click
import msgspec

from duly.cli.client import lists, with_client
from duly.cli.lazy import ListingGroup
from duly.cli.render.output import Row, answer, moment, print_json, print_rows
from duly.cli.render.say import say
from duly.client.asynchronous.client import AsyncClient
from duly.domain.counting import some
from duly.domain.triggers.calendars import read_calendar

COLUMNS = {
    "name": lambda row: row["name"],
    "zone": lambda row: row.get("tz") or "UTC",
    "dates": lambda row: len(row.get("dates") or ()),
    "windows": lambda row: len(row.get("windows") or ()),
    "weekly": lambda row: len(row.get("weekly") or ()),
}
USER_COLUMNS = {
    "job": "name",
    "next": "scheduled_at",
}


@click.group(cls=ListingGroup)
def calendars() -> None:
    """List, show, put and delete calendars. Without a command: list."""


@calendars.command("list")
@lists(COLUMNS, "no calendars; make one: duly calendars put FILE")
async def list_calendars(client: AsyncClient) -> list[Row]:
    """List calendars by name."""
    return [calendar.definition async for calendar in client.calendars.list()]


@calendars.command("show")
@click.argument("name")
@with_client()
async def show(client: AsyncClient, name: str, as_json: bool) -> None:
    """Show the calendar NAME, and the jobs that use it."""
    calendar = await client.calendars.get(name)
    found, users = calendar.definition, calendar.jobs or []
    if as_json:
        print_json({**found, "jobs": users})
        return
    say(f"calendar {name}, {found.get('tz') or 'UTC'}")
    for line in _covered(found):
        say(line)
    print_rows(users, USER_COLUMNS, "no job uses it")


@calendars.command("put")
@click.argument("file")
@with_client()
async def put(client: AsyncClient, file: str, as_json: bool) -> None:
    """Store the calendar in FILE, new or changed; `-` reads standard input.

    It is a JSON object with name, tz, dates, windows and weekly; see docs/reference/triggers.md. The jobs that use it are
    rearmed. One that leaves a job nothing for 400 days is refused.
    """
    definition = _read(file)
    kept = await client.calendars.put(read_calendar(definition).name, definition)
    words = f"calendar {kept.name} is kept; {some(kept.schedules, 'schedule')} armed by it"
    fires = [f"next  {moment(user.scheduled_at)}  {user.name}" for user in kept.jobs or ()]
    answer(as_json, {"name": kept.name, "schedules": kept.schedules}, words, *fires)


@calendars.command("delete")
@click.argument("name")
@with_client()
async def delete(client: AsyncClient, name: str, as_json: bool) -> None:
    """Delete the calendar NAME, which no job may use."""
    await client.calendars.delete(name)
    answer(as_json, {"name": name, "deleted": True}, f"calendar {name} is deleted")


def _covered(found: Row) -> list[str]:
    dates = [f"dates   {', '.join(found['dates'])}"] if found.get("dates") else []
    windows = [f"window  {window['start']} to {window['end']}" for window in found.get("windows") or ()]
    weekly = [f"weekly  {hours['days']} {hours['from']} to {hours['to']}" for hours in found.get("weekly") or ()]
    return [*dates, *windows, *weekly]


def _read(file: str) -> Any:
    try:
        return msgspec.json.decode(sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes())
    except (OSError, UnicodeDecodeError) as error:
        raise click.UsageError(f"{file}: {error}") from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise click.UsageError(f"{file} is not JSON: {error}") from None
