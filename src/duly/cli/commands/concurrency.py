"""`duly concurrency`: concurrency keys and rate limits, their runs, and limits that override those of the runs."""

from __future__ import annotations

import click

from duly.cli.client import lists, with_client
from duly.cli.flags.arguments import read_duration
from duly.cli.flags.filters import first
from duly.cli.lazy import ListingGroup
from duly.cli.render.output import Row, answer, print_struct
from duly.client.asynchronous.client import AsyncClient
from duly.wire.concurrency_keys import ConcurrencyKey, ConcurrencyKeyRate
from duly.wire.pages import PAGE_SIZE_MAX

_SHOWN_MAX = 10_000
COLUMNS = {
    "key": lambda row: row["key"],
    "kind": lambda row: row["kind"],
    "slots_used": lambda row: row["slots_used"],
    "slots": lambda row: row["slots"],
    "waiting": lambda row: row["waiting"],
    "rate": lambda row: row["rate"],
    "waiting for rate": lambda row: row["waiting_for_rate"],
    "limit set": lambda row: row["limit"],
    "rate set": lambda row: row["rate_limit"],
}
which = click.argument("key", metavar="KEY")


@click.group(cls=ListingGroup)
def concurrency_keys() -> None:
    """Show concurrency keys and rate limits; set and remove their limits. Without a command: list."""


@concurrency_keys.command("list")
@lists(COLUMNS, "no run waits for a concurrency key, and no limit is set")
async def list_concurrency_keys(client: AsyncClient) -> list[Row]:
    """List the keys that are in use, or limited."""
    return [_row(one) for one in await first(client.concurrency_keys.list(page_size=PAGE_SIZE_MAX), _SHOWN_MAX)]


@concurrency_keys.command("show")
@which
@with_client()
async def show(client: AsyncClient, key: str, as_json: bool) -> None:
    """Show one key."""
    print_struct(_row(await client.concurrency_keys.get(key)), as_json=as_json)


@concurrency_keys.command("limit")
@which
@click.option("--slots", type=int, help="Maximum number of concurrent runs of the key.")
@click.option("--rate", metavar="N/PER", help="Maximum number of starts, such as 10/PT1S.")
@click.option(
    "--burst", type=int, default=1, show_default=True, help="With --rate: starts allowed at once after an idle period."
)
@with_client()
async def limit(client: AsyncClient, key: str, slots: int | None, rate: str | None, burst: int, as_json: bool) -> None:
    """Set the limits of KEY, which override those of its runs. They apply within two seconds; `unlimit` removes them.

    A limit that is left out comes from the runs. A lower limit lets active runs finish.
    """
    override = None if rate is None else _rate(rate, burst)
    print_struct(_row(await client.concurrency_keys.limit(key, limit=slots, rate=override)), as_json=as_json)


@concurrency_keys.command("unlimit")
@which
@with_client()
async def unlimit(client: AsyncClient, key: str, as_json: bool) -> None:
    """Remove the limits of KEY: those of its runs apply again."""
    await client.concurrency_keys.unlimit(key)
    document = {"key": key, "limit": None, "rate_limit": None}
    answer(as_json, document, f"no limit is set for {key!r} any more")


def _rate(written: str, burst: int) -> ConcurrencyKeyRate:
    number, _, per = written.partition("/")
    try:
        return ConcurrencyKeyRate(limit=float(number), per=read_duration(per or "PT1S"), burst=burst)
    except ValueError:
        raise click.UsageError(f"--rate {written!r} is not N/PER, as 10/PT1S") from None


def _row(one: ConcurrencyKey) -> Row:
    limits = one.limits
    return {
        **{name: getattr(one, name) for name in ("key", "kind", "slots", "slots_used", "waiting")},
        "rate": _rate_text(one.rate),
        "waiting_for_rate": one.waiting_for_rate,
        "limit": None if limits is None else limits.limit,
        "rate_limit": None if limits is None else _rate_text(limits.rate),
    }


def _rate_text(rate: ConcurrencyKeyRate | None) -> str | None:
    if rate is None:
        return None
    at_once = f", {rate.burst} at once" if rate.burst > 1 else ""
    return f"{rate.limit:g}/{rate.per}{at_once}"
