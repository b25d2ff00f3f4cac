"""Output of commands: tables for people, JSON for programs, repeatedly with --watch."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import wraps
from operator import attrgetter
from typing import Any, TypeVar

import click
import msgspec

from duly.cli.render.say import in_one_line, say, say_json
from duly.clock import SystemClock

T = TypeVar("T")
Row = Any  # a struct of the client, or a mapping
Columns = Mapping[str, str | Callable[[Row], object]]  # title → the attribute to show, or a function of the row

_WIDTH_OF_A_PIPE = 240
_WHOLE = ("id", "run", "job", "node", "local", "offset", "UTC")  # columns that are never broken
_STYLES = {
    "succeeded": "green",
    "running": "cyan",
    "retrying": "yellow",
    "dead": "red",
    "failed": "red",
    "timed_out": "red",
    "lost": "red",
    "active": "green",
    "paused": "yellow",
    "skipped": "yellow",
    "expired": "yellow",
    "cancelled": "dim",
}


json_option = click.option("--json", "as_json", is_flag=True, help="Write JSON, for programs.")


class Listing(msgspec.Struct, frozen=True):
    """The options of showing a list."""

    as_json: bool
    watch: bool
    interval: float


def listing_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add --json, --watch and --interval to a command that takes `listing`."""

    @wraps(function)
    def call(*, as_json: bool, watch: bool, interval: float, **given: Any) -> Any:
        return function(listing=Listing(as_json, watch, interval), **given)

    pause = click.option(
        "--interval", default=2.0, show_default=True, type=click.FloatRange(0.1), help="Seconds between looks."
    )
    watch = click.option("--watch", is_flag=True, help="Look again and again, until Ctrl-C.")
    return json_option(watch(pause(call)))


async def show_list(
    listing: Listing, read: Callable[[], Awaitable[Sequence[Row]]], columns: Columns, empty: str
) -> None:
    """Read rows and show them, once or until interrupted."""

    def show(rows: Sequence[Row]) -> None:
        print_rows(rows, columns, empty, as_json=listing.as_json, is_one_line=listing.watch)

    await watch(listing, read, show)


async def watch(
    listing: Listing,
    look: Callable[[], Awaitable[T]],
    show: Callable[[T], None],
    is_over: Callable[[T], bool] = lambda found: False,
) -> None:
    """Look and show, once; with --watch repeatedly, until it is over or interrupted."""
    while True:
        found = await look()
        if listing.watch and not listing.as_json and sys.stdout.isatty():
            click.clear()
        show(found)
        if not listing.watch or is_over(found):
            return
        await SystemClock().sleep(listing.interval)


def print_rows(
    rows: Sequence[Row], columns: Columns, empty: str, *, as_json: bool = False, is_one_line: bool = False
) -> None:
    """Print rows as a table, or as one JSON array."""
    if as_json:
        print_json(rows, is_one_line=is_one_line)
    elif rows:
        readers = [attrgetter(column) if isinstance(column, str) else column for column in columns.values()]
        print_table([[text(read(row)) for read in readers] for row in rows], list(columns))
    else:
        say(empty)


def print_json(value: object, *, is_one_line: bool = False) -> None:
    """Print one JSON document."""
    document = msgspec.json.encode(value)
    say_json(document if is_one_line else msgspec.json.format(document, indent=2))


def answer(as_json: bool, document: object, *lines: str) -> None:
    """Print a result: a document for programs, or lines for people."""
    if as_json:
        print_json(document)
    else:
        say("\n".join(lines))


def print_struct(row: Row, *, as_json: bool) -> None:
    """Print the fields of one thing, a line each, or as one JSON object."""
    fields = row if isinstance(row, dict) else msgspec.structs.asdict(row)
    lines = [f"{name.replace('_', ' '):18}{text(value)}" for name, value in fields.items()]
    answer(as_json, row, *lines)


def print_table(lines: Sequence[Sequence[str]], titles: Sequence[str]) -> None:
    """Print a table that fits the terminal; a pipe gets every column whole."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in titles:
        table.add_column(title, overflow="fold", no_wrap=title in _WHOLE)
    for line in lines:
        table.add_row(*(Text(in_one_line(cell), style=_STYLES.get(cell, "")) for cell in line))
    is_terminal = sys.stdout.isatty()
    Console(width=None if is_terminal else _WIDTH_OF_A_PIPE, highlight=False).print(table)


def json_text(value: object) -> str:
    """Write a value as JSON in one line, for a person."""
    return msgspec.json.format(msgspec.json.encode(value), indent=0).decode()


def text(value: object) -> str:
    """Write one value for a person."""
    match value:
        case None:
            return ""
        case datetime():
            return moment(value)
        case timedelta():
            return duration(value)
        case list() | tuple():
            return ", ".join(map(str, value))
    return str(value)


def moment(value: datetime) -> str:
    """Write a moment in UTC, to the second."""
    return f"{value:%Y-%m-%d %H:%M:%S}Z"


def duration(value: timedelta) -> str:
    """Write a span in the most telling unit."""
    seconds = value.total_seconds()
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if abs(seconds) >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    if abs(seconds) >= 10:
        return f"{seconds:.0f} s"
    if abs(seconds) >= 1:
        return f"{seconds:.1f} s"
    return f"{seconds * 1000:.0f} ms" if abs(seconds) >= 0.001 else "<1 ms"
