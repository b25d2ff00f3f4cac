"""`duly destinations`: the destinations of webhooks, their health, their limits, and their signing secrets."""

from __future__ import annotations

from uuid import UUID

import click
import msgspec
from msgspec import UNSET, UnsetType

from duly.cli.client import lists, with_client
from duly.cli.flags.arguments import OrNone
from duly.cli.flags.filters import first
from duly.cli.lazy import ListingGroup
from duly.cli.render.output import Columns, answer, moment, print_json, print_rows, print_struct
from duly.cli.render.say import say
from duly.client.asynchronous.client import AsyncClient
from duly.client.errors import NotFound
from duly.domain.duration import parse_option, to_iso
from duly.domain.targets.webhook_url import origin_of
from duly.wire.destinations import Destination
from duly.wire.pages import PAGE_SIZE_MAX

_SHOWN_MAX = 10_000
_FAILURES_MAX = 10
COLUMNS: Columns = {
    "id": "destination_id",
    "origin": "origin",
    "state": "state",
    "until": "wait_until",
    "in flight": "in_flight",
    "slots": "slots",
    "rate/s": "rate_per_second",
    "waiting_runs": "waiting_runs",
    "retries": lambda one: f"{one.retries_total} sent, {one.rejected_total} rejected",
    "failed": lambda one: f"{one.failing_total} of {one.failing_total + one.healthy_total}",
}
FAILURES = {
    "at": "finished_at",
    "run": "run_id",
    "attempt": "attempt",
    "outcome": "outcome",
    "status": "status",
    "reason": "reason",
}
which = click.argument("which", metavar="ID|URL")


@click.group(cls=ListingGroup)
def destinations() -> None:
    """Show the destinations of webhooks and their health; limits, signing secrets, circuits. Without a command: list.

    A destination is named by its id, or by any address at it.
    """


@destinations.command("list")
@lists(COLUMNS, "no webhook has been sent, and no destination created; create one: duly destinations create URL")
async def list_destinations(client: AsyncClient) -> list[Destination]:
    """List destinations, their limits, and their backlogs."""
    return await first(client.destinations.list(page_size=PAGE_SIZE_MAX), _SHOWN_MAX)


@destinations.command("show")
@which
@with_client()
async def show(client: AsyncClient, which: str, as_json: bool) -> None:
    """Show one destination, and its last failures."""
    found = await _found(client, which)
    failed = client.destinations.failures(found.destination_id, page_size=_FAILURES_MAX)
    failures = await first(failed, _FAILURES_MAX)
    if as_json:
        print_json({**msgspec.structs.asdict(found), "last_failures": failures})
        return
    print_struct(found, as_json=False)
    if failures:
        say("\nlast failures")
        print_rows(failures, FAILURES, "")


@destinations.command("create")
@click.argument("address", metavar="URL")
@with_client("secrets_key")
async def create(client: AsyncClient, address: str, as_json: bool) -> None:
    """Create a destination before the first webhook goes there, so that the receiver can be given its secret."""
    # Created again, its limits would be set.
    found = await _at(client, origin_of(address))
    print_struct(found or await client.destinations.create(address), as_json=as_json)


@destinations.command("limit")
@which
@click.option("--slots", type=int, help="Maximum number of concurrent requests.")
@click.option(
    "--rate",
    type=OrNone(click.FLOAT),
    default=UNSET,
    metavar="NUMBER",
    help="Maximum number per second. none: no limit.",
)
@click.option("--retries", type=float, help="Retries allowed per first attempt, from 0 to 1; 1: no limit.")
@with_client()
async def limit(
    client: AsyncClient,
    which: str,
    slots: int | None,
    rate: float | UnsetType | None,
    retries: float | None,
    as_json: bool,
) -> None:
    """Limit the requests to a destination, of all workers together."""
    changed = await client.destinations.limit(
        (await _found(client, which)).destination_id,
        slots=UNSET if slots is None else slots,
        rate_per_second=rate,
        retry_share=UNSET if retries is None else retries,
    )
    print_struct(changed, as_json=as_json)


@destinations.command("close")
@which
@with_client()
async def close(client: AsyncClient, which: str, as_json: bool) -> None:
    """Close the circuit by hand: the destination is called again, and waiting runs go on, at a rate."""
    print_struct(await client.destinations.close((await _found(client, which)).destination_id), as_json=as_json)


@destinations.command("open")
@which
@click.option("--for", "span", default="PT10M", show_default=True, metavar="DURATION", help="PT1S to P7D.")
@with_client()
async def open_(client: AsyncClient, which: str, span: str, as_json: bool) -> None:
    """Open the circuit by hand: for a while nothing is sent to the destination, and its runs wait."""
    chosen = to_iso(parse_option(span, "--for"))
    found = await _found(client, which)
    print_struct(await client.destinations.open(found.destination_id, duration=chosen), as_json=as_json)


@destinations.command("rotate")
@which
@with_client("secrets_key")
async def rotate(client: AsyncClient, which: str, as_json: bool) -> None:
    """Give a destination a new signing secret, and show it. The one before stays valid for 24 hours."""
    found = await _found(client, which)
    created = await client.destinations.rotate(found.destination_id)
    answer(as_json, {"origin": found.origin, "secret": created.secret}, created.secret)
    if not as_json:
        say(f"requests to {found.origin} are signed with it and, for 24 hours, with the one before", err=True)


@destinations.command("secret")
@which
@with_client("secrets_key")
async def secret(client: AsyncClient, which: str, as_json: bool) -> None:
    """Show the signing secrets of a destination, the newest first."""
    secrets = (await client.destinations.secrets((await _found(client, which)).destination_id)).items
    if as_json:
        print_json(secrets)
        return
    for one in secrets:
        say(one.secret)
        if one.retires_at is not None:
            say(f"the one above retires at {moment(one.retires_at)}", err=True)


async def _found(client: AsyncClient, which: str) -> Destination:
    """Return a destination by its id, or by any address at it. Raises NotFound."""
    try:
        return await client.destinations.get(UUID(which))
    except ValueError:
        origin = origin_of(which)
    if (found := await _at(client, origin)) is None:
        remedy = "`duly destinations` lists them, and `duly destinations create` creates one"
        raise NotFound(f"no destination {origin}; {remedy}")
    return found


async def _at(client: AsyncClient, origin: str) -> Destination | None:
    async for one in client.destinations.list(page_size=PAGE_SIZE_MAX):
        if one.origin == origin:
            return one
    return None
