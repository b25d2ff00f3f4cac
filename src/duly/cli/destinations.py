"""`duly destinations`: where webhooks go to, how it is there, what it may be sent, and what is signed with."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import click
from msgspec import UNSET, UnsetType

from duly.cli.desk import Row
from duly.cli.destination_desk import DestinationDesk, at_destinations, found
from duly.cli.lazy import ListingGroup
from duly.cli.options import with_settings
from duly.cli.output import (
    Columns,
    Listing,
    json_option,
    listing_options,
    moment,
    print_json,
    print_rows,
    show_list,
    text,
)
from duly.cli.say import say
from duly.domain.duration import parse_option
from duly.settings import Settings

_Answer = TypeVar("_Answer")
_SHOWN_MAX = 10_000
_FAILURES_MAX = 10
_NONE = "none"
COLUMNS = {
    "id": lambda row: row["destination_id"],
    "origin": lambda row: row["origin"],
    "state": lambda row: row["state"],
    "until": lambda row: row["wait_until"],
    "in flight": lambda row: row["in_flight"],
    "places": lambda row: row["places"],
    "rate/s": lambda row: row["rate_per_second"],
    "parked": lambda row: row["parked"],
    "retries": lambda row: f"{row['retries_total']} sent, {row['turned_away_total']} kept back",
    "failed": lambda row: f"{row['failing_total']} of {row['failing_total'] + row['healthy_total']}",
}
FAILURES: Columns = {
    "at": lambda row: row["finished_at"],
    "run": lambda row: row["run_id"],
    "attempt": lambda row: row["attempt"],
    "outcome": lambda row: row["outcome"],
    "status": lambda row: row["status"],
    "reason": lambda row: row["reason"],
}
which = click.argument("which", metavar="ID|URL")


class _Rate(click.ParamType[Any]):
    """A number, or `none` for no limit."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read it."""
        return None if value == _NONE else value if value is UNSET else click.FLOAT.convert(value, param, ctx)


@click.group(cls=ListingGroup)
def destinations() -> None:
    """Show where webhooks go and how it is there; limits, signing secrets, breaker. Without a command: list.

    A destination is named by its id, or by any address at it.
    """


@destinations.command("list")
@listing_options
@with_settings("url")
def list_destinations(settings: Settings, listing: Listing) -> None:
    """List destinations, what each may be sent, and what waits for it."""
    empty = "no webhook has been sent, and no destination made; make one: duly destinations make URL"
    show_list(settings, listing, lambda desk: desk.list(_SHOWN_MAX), COLUMNS, empty, at_destinations)


@destinations.command("show")
@which
@json_option
@with_settings("url")
def show(settings: Settings, which: str, as_json: bool) -> None:
    """Show one destination, and what failed there last."""

    async def read(desk: DestinationDesk) -> tuple[Row, Sequence[Row]]:
        row = await found(desk, which, _SHOWN_MAX)
        return row, await desk.failures(row, _FAILURES_MAX)

    row, failures = _at(settings, read)
    if as_json:
        print_json({**row, "last_failures": failures})
        return
    _print(row, as_json)
    if failures:
        say("\nlast failures")
        print_rows(failures, FAILURES, "")


@destinations.command("make")
@click.argument("address", metavar="URL")
@json_option
@with_settings("url", "secrets_key")
def make(settings: Settings, address: str, as_json: bool) -> None:
    """Make a destination before the first webhook goes there, so that its secret can be told to the receiver."""
    _print(_at(settings, lambda desk: desk.make(address)), as_json)


@destinations.command("limit")
@which
@click.option("--places", type=int, help="How many requests are under way at once, at most.")
@click.option(
    "--rate", type=_Rate(), default=UNSET, metavar="NUMBER", help="How many a second, at most. none: no limit."
)
@click.option("--retries", type=float, help="How many retries for each first attempt, from 0 to 1; 1: any number.")
@json_option
@with_settings("url")
def limit(
    settings: Settings,
    which: str,
    places: int | None,
    rate: float | UnsetType | None,
    retries: float | None,
    as_json: bool,
) -> None:
    """Say what a destination may be sent. All workers together keep to it."""

    async def change(desk: DestinationDesk) -> Row:
        return await desk.limit((await found(desk, which, _SHOWN_MAX))["destination_id"], places, rate, retries)

    _print(_at(settings, change), as_json)


@destinations.command("close")
@which
@json_option
@with_settings("url")
def close(settings: Settings, which: str, as_json: bool) -> None:
    """Close the breaker by hand: the destination is called again, and what waits for it goes on, at a rate."""

    async def change(desk: DestinationDesk) -> Row:
        return await desk.close((await found(desk, which, _SHOWN_MAX))["destination_id"])

    _print(_at(settings, change), as_json)


@destinations.command("open")
@which
@click.option("--for", "span", default="PT10M", show_default=True, metavar="DURATION", help="PT1S to P7D.")
@json_option
@with_settings("url")
def open_(settings: Settings, which: str, span: str, as_json: bool) -> None:
    """Open the breaker by hand: for a while nothing is sent to the destination, and what is for it waits."""
    chosen = parse_option(span, "--for")

    async def change(desk: DestinationDesk) -> Row:
        return await desk.open((await found(desk, which, _SHOWN_MAX))["destination_id"], chosen)

    _print(_at(settings, change), as_json)


@destinations.command("rotate")
@which
@json_option
@with_settings("url", "secrets_key")
def rotate(settings: Settings, which: str, as_json: bool) -> None:
    """Give a destination a new signing secret, and show it. The one before is good for 24 hours more."""

    async def change(desk: DestinationDesk) -> tuple[Row, str]:
        row = await found(desk, which, _SHOWN_MAX)
        return row, (await desk.rotate(row["destination_id"])).reveal()

    row, secret = _at(settings, change)
    if as_json:
        print_json({"origin": row["origin"], "secret": secret})
        return
    say(secret)
    say(f"requests to {row['origin']} are signed with it and, for 24 hours, with the one before", err=True)


@destinations.command("secret")
@which
@json_option
@with_settings("url", "secrets_key")
def secret(settings: Settings, which: str, as_json: bool) -> None:
    """Show what requests to a destination are signed with, the newest first."""

    async def read(desk: DestinationDesk) -> list[dict[str, Any]]:
        row = await found(desk, which, _SHOWN_MAX)
        return [{"secret": one.reveal(), **about} for one, about in await desk.secrets(row["destination_id"])]

    secrets = _at(settings, read)
    if as_json:
        print_json(secrets)
        return
    for one in secrets:
        say(one["secret"])
        if one["retires_at"] is not None:
            say(f"the one above retires at {moment(one['retires_at'])}", err=True)


def _at(settings: Settings, ask: Callable[[DestinationDesk], Awaitable[_Answer]]) -> _Answer:
    async def asked() -> _Answer:
        async with at_destinations(settings) as desk:
            return await ask(desk)

    return asyncio.run(asked())


def _print(row: Row, as_json: bool) -> None:
    if as_json:
        print_json(row)
        return
    for name, value in row.items():
        say(f"{name.replace('_', ' '):16}{text(value)}")
