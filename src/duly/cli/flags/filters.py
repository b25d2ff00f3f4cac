"""Lists on the command line: a filter from the flags, and pages read until there are enough."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import TypeVar

import click

from duly.domain.jobs.filter import Field, parse
from duly.domain.jobs.filter import quoted as quoted

T = TypeVar("T")

LIMIT_MAX = 1_000
filter_option = click.option(
    "--filter",
    "filter_text",
    default="",
    metavar="FILTER",
    help="Only those that fit, such as 'queue:mail AND tag:new'; see docs/reference/filters.md.",
)
limit_option = click.option("--limit", default=50, show_default=True, type=click.IntRange(1, LIMIT_MAX))


def chosen(filter_text: str, fields: Mapping[str, Field], **words: str | None) -> str:
    """Check a filter, and add the flags. Raises InvalidFilter."""
    parse(filter_text, fields)
    flags = [f"{field}:{quoted(value)}" for field, value in words.items() if value is not None]
    return " AND ".join([*([filter_text] if filter_text.strip() else []), *flags])


def none_of(what: str, wanted: str, otherwise: str) -> str:
    """Describe an empty list: nothing matches, or, without a filter, what else there is to say."""
    return f"no {what} fit {wanted}" if wanted else otherwise


async def first(listed: AsyncIterator[T], limit: int) -> list[T]:
    """Return the first items of a list, up to a limit; no page is read that is not needed."""
    found: list[T] = []
    async for one in listed:
        found.append(one)
        if len(found) == limit:
            break
    return found
