"""`duly gates`: the keys that hold runs back, who is inside and who waits, and limits that are set while they wait."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import click

from duly.cli.arguments import read_duration
from duly.cli.desk import Row
from duly.cli.gate_desk import GateDesk, at_gates
from duly.cli.lazy import ListingGroup
from duly.cli.options import with_settings
from duly.cli.output import Listing, json_option, listing_options, print_json, show_list, text
from duly.cli.say import say
from duly.domain.limits.concurrency import Rate
from duly.settings import Settings

_Answer = TypeVar("_Answer")
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
    show_list(settings, listing, lambda desk: desk.list(_SHOWN_MAX), COLUMNS, empty, at_gates)


@gates.command("show")
@which
@json_option
@with_settings("url")
def show(settings: Settings, key: str, as_json: bool) -> None:
    """Show one key."""
    _print(_at(settings, lambda desk: desk.get(key)), as_json)


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
    asked = None if rate is None else _rate(key, rate, burst)
    _print(_at(settings, lambda desk: desk.limit(key, places, asked)), as_json)


@gates.command("lift")
@which
@json_option
@with_settings("url")
def lift(settings: Settings, key: str, as_json: bool) -> None:
    """Take the limits of KEY away: what its runs carry counts again."""
    _at(settings, lambda desk: desk.lift(key))
    if as_json:
        print_json({"key": key, "limit": None, "rate_limit": None})
    else:
        say(f"no limit is set for {key!r} any more")


def _rate(key: str, written: str, burst: int) -> Rate:
    number, _, per = written.partition("/")
    try:
        return Rate(key, float(number), read_duration(per or "PT1S"), burst)
    except ValueError:
        raise click.UsageError(f"--rate {written!r} is not N/PER, as 10/PT1S") from None


def _at(settings: Settings, ask: Callable[[GateDesk], Awaitable[_Answer]]) -> _Answer:
    async def asked() -> _Answer:
        async with at_gates(settings) as desk:
            return await ask(desk)

    return asyncio.run(asked())


def _print(row: Row, as_json: bool) -> None:
    if as_json:
        print_json(row)
        return
    for name, value in row.items():
        say(f"{name.replace('_', ' '):16}{text(value)}")
