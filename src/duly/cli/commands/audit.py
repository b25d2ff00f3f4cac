"""`duly audit`: who changed what."""

from __future__ import annotations

from datetime import datetime

import click
import msgspec

from duly.cli.flags.arguments import read_moment
from duly.cli.flags.filters import first
from duly.cli.flags.names import tenant_named
from duly.cli.flags.settings import with_settings
from duly.cli.render.output import Listing, Row, listing_options, show_list
from duly.client.asynchronous.client import AsyncClient
from duly.domain.errors import InvalidOption
from duly.domain.tenancy.audit import Action
from duly.settings import Settings
from duly.wire.pages import PAGE_SIZE_MAX

COLUMNS = {
    "at": lambda row: row["at"],
    "who": lambda row: row["actor"]["name"],
    "did": lambda row: row["action"],
    "to": lambda row: " ".join(filter(None, [row["subject"]["kind"], row["subject"]["name"] or row["subject"]["id"]])),
    "count": lambda row: row["count"],
    "detail": lambda row: ", ".join(f"{name} {value}" for name, value in (row["detail"] or {}).items()),
}


@click.command
@click.option("--actor", metavar="WHO", help="By this one: a key's id, or local:ACCOUNT.")
@click.option(
    "--action",
    type=click.Choice([action.value for action in Action]),
    metavar="ACTION",
    help="Of this kind, such as job.paused.",
)
@click.option("--subject", metavar="ID", help="To this: an id, or the name of what has none.")
@click.option("--since", metavar="MOMENT", help="From this moment on, as 2026-11-16T09:00:00Z.")
@click.option("--until", metavar="MOMENT", help="Before this moment.")
@click.option("--tenant", metavar="TENANT", help="Of this tenant's things, by its name or number; for the operator.")
@click.option("--limit", default=50, show_default=True, type=click.IntRange(1, 10_000), help="How many at most.")
@listing_options
@with_settings("url")
def audit(
    settings: Settings,
    listing: Listing,
    actor: str | None,
    action: str | None,
    subject: str | None,
    since: str | None,
    until: str | None,
    tenant: str | None,
    limit: int,
) -> None:
    """Show who changed what, the newest change first."""
    start, end = _moment(since, "since"), _moment(until, "until")

    async def read(client: AsyncClient) -> list[Row]:
        number = None if tenant is None else (await tenant_named(client, tenant)).tenant
        found = client.audit.list(
            actor=actor,
            action=action,
            subject=subject,
            since=start,
            until=end,
            tenant=number,
            page_size=min(limit, PAGE_SIZE_MAX),
        )
        return [msgspec.to_builtins(entry, builtin_types=(datetime,)) for entry in await first(found, limit)]

    show_list(settings, listing, read, COLUMNS, "nothing was changed that fits")


def _moment(text: str | None, name: str) -> datetime | None:
    moment = read_moment(text, name)
    if moment is not None and moment.tzinfo is None:
        raise InvalidOption(f"{name} {text!r} has no offset; write it as 2026-11-16T09:00:00Z")
    return moment
