"""`duly limits`: limits on runs at once, of everything, a queue, a tenant, or a tenant's share of a queue."""

from __future__ import annotations

import click
import msgspec

from duly.cli.client import lists, with_client
from duly.cli.commands.pause import ScopeFlags, scope_options
from duly.cli.lazy import ListingGroup
from duly.cli.render.output import Row, answer
from duly.client.asynchronous.client import AsyncClient
from duly.domain.limits.limit import SLOTS_MAX
from duly.domain.limits.pause import Scope
from duly.wire.limits import Limit

COLUMNS = {
    "of": lambda row: row["of"],
    "slots": lambda row: row["slots"],
    "running": lambda row: row["running"],
    "set by": lambda row: row["set_by"],
    "set at": lambda row: row["set_at"],
}


@click.group(cls=ListingGroup)
def limits() -> None:
    """Show, set and remove limits on concurrent runs. Without a command: show."""


@limits.command("list")
@lists(COLUMNS, "no limits are set")
async def list_limits(client: AsyncClient) -> list[Row]:
    """Show every limit, and how many runs of it are under way."""
    return [_row(one) async for one in client.limits.list()]


@limits.command("set")
@click.argument("slots", type=click.IntRange(1, SLOTS_MAX))
@scope_options
@with_client()
async def set_limit(client: AsyncClient, slots: int, scope_flags: ScopeFlags, as_json: bool) -> None:
    """Let at most SLOTS runs run at once, from the next claim on. Active runs go on."""
    scope = await scope_flags.at(client)
    created = await client.limits.put(slots, everything=scope == Scope(), queue=scope.queue, tenant=scope.tenant)
    words = f"{scope}: at most {slots} at once, from the next claim on; {created.running} are under way"
    answer(as_json, _row(created), words)


@limits.command("remove")
@scope_options
@with_client()
async def remove(client: AsyncClient, scope_flags: ScopeFlags, as_json: bool) -> None:
    """Remove the limit that was set with the same flags."""
    scope = await scope_flags.at(client)
    await client.limits.remove(everything=scope == Scope(), queue=scope.queue, tenant=scope.tenant)
    document = {"of": str(scope), "tenant": scope.tenant, "queue": scope.queue, "slots": None}
    answer(as_json, document, f"{scope}: no limit of its own any more")


def _row(limit: Limit) -> dict[str, object]:
    return {"of": str(Scope(limit.tenant, limit.queue)), **msgspec.structs.asdict(limit)}
