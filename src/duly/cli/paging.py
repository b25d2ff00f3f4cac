"""Lists on the command line: a filter from what was typed, and pages read until there is enough."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol, TypeVar

import click

from duly.domain.jobs.filter import Field, parse
from duly.domain.jobs.filter import quoted as quoted
from duly.store.reads.lists import PAGE_SIZE_MAX

At = TypeVar("At")
At_co = TypeVar("At_co", covariant=True)

LIMIT_MAX = 1_000
filter_option = click.option(
    "--filter",
    "filter_text",
    default="",
    metavar="FILTER",
    help="Only those that fit, such as 'queue:mail AND tag:new'; see docs/lists.md.",
)
limit_option = click.option("--limit", default=50, show_default=True, type=click.IntRange(1, LIMIT_MAX))


class Page(Protocol[At_co]):
    """Some rows of a list, and where more may follow."""

    @property
    def rows(self) -> list[dict[str, Any]]:
        """What was found."""
        ...

    @property
    def after(self) -> At_co | None:
        """The position behind it; none: this was all."""
        ...


def chosen(filter_text: str, fields: Mapping[str, Field], **words: str | None) -> str:
    """Check a filter, and add what flags ask for. Raises InvalidFilter."""
    parse(filter_text, fields)
    flags = [f"{field}:{quoted(value)}" for field, value in words.items() if value is not None]
    return " AND ".join([*([filter_text] if filter_text.strip() else []), *flags])


def none_of(what: str, wanted: str, otherwise: str) -> str:
    """Say that a list is empty: nothing fits what was asked for, or, where nothing was, what else there is to say."""
    return f"no {what} fit {wanted}" if wanted else otherwise


async def gather(read: Callable[[int, At | None], Awaitable[Page[At]]], limit: int) -> list[dict[str, Any]]:
    """Read pages until there are `limit` rows, or no more."""
    rows: list[dict[str, Any]] = []
    after: At | None = None
    while len(rows) < limit:
        page = await read(min(PAGE_SIZE_MAX, limit - len(rows)), after)
        rows += page.rows
        after = page.after
        if after is None:
            break
    return rows
