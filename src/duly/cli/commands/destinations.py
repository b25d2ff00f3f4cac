"""`duly destinations`: where webhooks go to, how it is there, what it may be sent, and what is signed with."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import click
import msgspec
from msgspec import UNSET, UnsetType

from duly.cli.client import ask
from duly.cli.flags.filters import first
from duly.cli.flags.settings import with_settings
from duly.cli.lazy import ListingGroup
from duly.cli.render.output import (
    Columns,
    Listing,
    Row,
    json_option,
    listing_options,
    moment,
    print_json,
    print_rows,
    show_list,
    text,
)
from duly.cli.render.say import say
from duly.client.asynchronous.client import AsyncClient
from duly.client.errors import NotFound
from duly.domain.duration import parse_option, to_iso
from duly.domain.targets.webhook_url import origin_of
from duly.settings import Settings
from duly.wire.destinations import Destination, SigningSecret
from duly.wire.pages import PAGE_SIZE_MAX

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

    async def read(client: AsyncClient) -> list[Row]:
        return [_row(one) for one in await _all(client)]

    show_list(settings, listing, read, COLUMNS, empty)


@destinations.command("show")
@which
@json_option
@with_settings("url")
def show(settings: Settings, which: str, as_json: bool) -> None:
    """Show one destination, and what failed there last."""

    async def read(client: AsyncClient) -> tuple[Destination, list[Row]]:
        one = await _found(client, which)
        failed = client.destinations.failures(one.destination_id, page_size=_FAILURES_MAX)
        return one, [msgspec.structs.asdict(failure) for failure in await first(failed, _FAILURES_MAX)]

    found, failures = ask(settings, read)
    if as_json:
        print_json({**_row(found), "last_failures": failures})
        return
    _print(found, as_json)
    if failures:
        say("\nlast failures")
        print_rows(failures, FAILURES, "")


@destinations.command("make")
@click.argument("address", metavar="URL")
@json_option
@with_settings("url", "secrets_key")
def make(settings: Settings, address: str, as_json: bool) -> None:
    """Make a destination before the first webhook goes there, so that its secret can be told to the receiver."""
    _print(ask(settings, lambda client: _make(client, address)), as_json)


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

    async def change(client: AsyncClient) -> Destination:
        return await client.destinations.limit(
            (await _found(client, which)).destination_id,
            places=UNSET if places is None else places,
            rate_per_second=rate,
            retry_share=UNSET if retries is None else retries,
        )

    _print(ask(settings, change), as_json)


@destinations.command("close")
@which
@json_option
@with_settings("url")
def close(settings: Settings, which: str, as_json: bool) -> None:
    """Close the breaker by hand: the destination is called again, and what waits for it goes on, at a rate."""

    async def change(client: AsyncClient) -> Destination:
        return await client.destinations.close((await _found(client, which)).destination_id)

    _print(ask(settings, change), as_json)


@destinations.command("open")
@which
@click.option("--for", "span", default="PT10M", show_default=True, metavar="DURATION", help="PT1S to P7D.")
@json_option
@with_settings("url")
def open_(settings: Settings, which: str, span: str, as_json: bool) -> None:
    """Open the breaker by hand: for a while nothing is sent to the destination, and what is for it waits."""
    chosen = to_iso(parse_option(span, "--for"))

    async def change(client: AsyncClient) -> Destination:
        return await client.destinations.open((await _found(client, which)).destination_id, duration=chosen)

    _print(ask(settings, change), as_json)


@destinations.command("rotate")
@which
@json_option
@with_settings("url", "secrets_key")
def rotate(settings: Settings, which: str, as_json: bool) -> None:
    """Give a destination a new signing secret, and show it. The one before is good for 24 hours more."""

    async def change(client: AsyncClient) -> tuple[str, str]:
        one = await _found(client, which)
        return one.origin, (await client.destinations.rotate(one.destination_id)).secret

    origin, secret = ask(settings, change)
    if as_json:
        print_json({"origin": origin, "secret": secret})
        return
    say(secret)
    say(f"requests to {origin} are signed with it and, for 24 hours, with the one before", err=True)


@destinations.command("secret")
@which
@json_option
@with_settings("url", "secrets_key")
def secret(settings: Settings, which: str, as_json: bool) -> None:
    """Show what requests to a destination are signed with, the newest first."""

    async def read(client: AsyncClient) -> list[SigningSecret]:
        return (await client.destinations.secrets((await _found(client, which)).destination_id)).items

    secrets = ask(settings, read)
    if as_json:
        print_json([{name: getattr(one, name) for name in _SECRET} for one in secrets])
        return
    for one in secrets:
        say(one.secret)
        if one.retires_at is not None:
            say(f"the one above retires at {moment(one.retires_at)}", err=True)


async def _all(client: AsyncClient) -> list[Destination]:
    return await first(client.destinations.list(page_size=PAGE_SIZE_MAX), _SHOWN_MAX)


async def _found(client: AsyncClient, which: str) -> Destination:
    """Find a destination by its id, or by any address at it. Raises NotFound."""
    try:
        return await client.destinations.get(UUID(which))
    except ValueError:
        origin = origin_of(which)
    for one in await _all(client):
        if one.origin == origin:
            return one
    raise NotFound(f"no destination {origin}; `duly destinations` lists them, and `duly destinations make` makes one")


async def _make(client: AsyncClient, address: str) -> Destination:
    """Make a destination, if it is not there: made again, its limits would be set anew."""
    origin = origin_of(address)
    found = [one for one in await _all(client) if one.origin == origin]
    return found[0] if found else await client.destinations.create(address)


def _print(found: Destination, as_json: bool) -> None:
    row = _row(found)
    if as_json:
        print_json(row)
        return
    for name, value in row.items():
        say(f"{name.replace('_', ' '):16}{text(value)}")


def _row(one: Destination) -> Row:
    return {name: getattr(one, name) for name in _SHOWN}


_SECRET = ("secret", "number", "made_at", "retires_at")
_SHOWN = (
    "destination_id",
    "origin",
    "state",
    "wait_until",
    "turned_at",
    "places",
    "rate_per_second",
    "in_flight",
    "parked",
    "steady_rate",
    "ramp_rate",
    "healthy_total",
    "failing_total",
    "retry_share",
    "retries_total",
    "turned_away_total",
    "made_at",
)
