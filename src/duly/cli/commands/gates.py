"""`duly gates`: the keys that hold runs back, who is inside and who waits, and limits that are set while they wait."""

from __future__ import annotations

import click

from duly.cli.client import ask
from duly.cli.flags.arguments import read_duration
from duly.cli.flags.filters import first
from duly.cli.flags.settings import with_settings
from duly.cli.lazy import ListingGroup
from duly.cli.render.output import Listing, Row, json_option, listing_options, print_json, show_list, text
from duly.cli.render.say import say
from duly.client.asynchronous.client import AsyncClient
from duly.settings import Settings
from duly.wire.gates import Gate, GateRate
from duly.wire.pages import PAGE_SIZE_MAX

_SHOWN_MAX = 10_000
COLUMNS = {
    "key": lambda row: row["key"],
    "kind": lambda row: row["kind"],
    "inside": lambda row: row["inside"],
    "places": lambda row: row["places"],
    "waiting": lambda row: row["waiting"],
    "rate": lambda row: row["rate"],
    "in turn": lambda row: row["waiting_turn"],
    "limit set": lambda row: row["limit"],
    "rate set": lambda row: row["rate_limit"],
}
which = click.argument("key", metavar="KEY")


@click.group(cls=ListingGroup)
def gates() -> None:
    """Show the keys that hold runs back: places, lines, rates; set and lift their limits. Without a command: list."""


@gates.command("list")
@listing_options
@with_settings("url")
def list_gates(settings: Settings, listing: Listing) -> None:
    """List the keys that are in use, or limited."""
    empty = "no run is held back by a key, and no key is limited"

    async def read(client: AsyncClient) -> list[Row]:
        return [_row(one) for one in await first(client.gates.list(page_size=PAGE_SIZE_MAX), _SHOWN_MAX)]

    show_list(settings, listing, read, COLUMNS, empty)


@gates.command("show")
@which
@json_option
@with_settings("url")
def show(settings: Settings, key: str, as_json: bool) -> None:
    """Show one key."""
    _print(ask(settings, lambda client: client.gates.get(key)), as_json)


@gates.command("limit")
@which
@click.option("--places", type=int, help="How many runs of the key are under way at once, at most.")
@click.option("--rate", metavar="N/PER", help="How many start, at most, as 10/PT1S.")
@click.option("--burst", type=int, default=1, show_default=True, help="Of --rate: how many at once after a rest.")
@json_option
@with_settings("url")
def limit(settings: Settings, key: str, places: int | None, rate: str | None, burst: int, as_json: bool) -> None:
    """Set what KEY allows, whatever its runs carry. It holds within two seconds; `lift` takes it away.

    What is left out is left to the runs. A lower limit lets those finish that are under way.
    """
    asked = None if rate is None else _rate(rate, burst)
    _print(ask(settings, lambda client: client.gates.limit(key, limit=places, rate=asked)), as_json)


@gates.command("lift")
@which
@json_option
@with_settings("url")
def lift(settings: Settings, key: str, as_json: bool) -> None:
    """Take the limits of KEY away: what its runs carry counts again."""
    ask(settings, lambda client: client.gates.lift(key))
    if as_json:
        print_json({"key": key, "limit": None, "rate_limit": None})
    else:
        say(f"no limit is set for {key!r} any more")


def _rate(written: str, burst: int) -> GateRate:
    number, _, per = written.partition("/")
    try:
        return GateRate(limit=float(number), per=read_duration(per or "PT1S"), burst=burst)
    except ValueError:
        raise click.UsageError(f"--rate {written!r} is not N/PER, as 10/PT1S") from None


def _print(found: Gate, as_json: bool) -> None:
    row = _row(found)
    if as_json:
        print_json(row)
        return
    for name, value in row.items():
        say(f"{name.replace('_', ' '):16}{text(value)}")


def _row(one: Gate) -> Row:
    limits = one.limits
    return {
        **{name: getattr(one, name) for name in ("key", "kind", "places", "inside", "waiting")},
        "rate": _rate_text(one.rate),
        "waiting_turn": one.waiting_turn,
        "limit": None if limits is None else limits.limit,
        "rate_limit": None if limits is None else _rate_text(limits.rate),
    }


def _rate_text(rate: GateRate | None) -> str | None:
    if rate is None:
        return None
    at_once = f", {rate.burst} at once" if rate.burst > 1 else ""
    return f"{rate.limit:g}/{rate.per}{at_once}"
