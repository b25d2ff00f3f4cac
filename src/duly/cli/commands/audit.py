"""`duly audit`: who changed what."""

from __future__ import annotations

from datetime import datetime

import click

from duly.cli.client import lists
from duly.cli.flags.arguments import read_moment
from duly.cli.flags.filters import first
from duly.cli.flags.names import tenant_named
from duly.cli.render.output import Columns
from duly.client.asynchronous.client import AsyncClient
from duly.domain.errors import InvalidOption
from duly.domain.tenancy.audit import Action
from duly.wire.audit import AuditEntry
from duly.wire.pages import PAGE_SIZE_MAX

COLUMNS: Columns = {
    "at": "at",
    "who": "actor.name",
    "did": "action",
    "to": lambda entry: " ".join(filter(None, [entry.subject.kind, entry.subject.name or entry.subject.id])),
    "count": "count",
    "detail": lambda entry: ", ".join(f"{name} {value}" for name, value in (entry.detail or {}).items()),
}


@click.command
@click.option("--actor", metavar="WHO", help="Only changes by this actor: a key's id, or local:ACCOUNT.")
@click.option(
    "--action",
    type=click.Choice([action.value for action in Action]),
    metavar="ACTION",
    help="Only this action, such as job.paused.",
)
@click.option("--subject", metavar="ID", help="Only changes of this thing: its id, or its name.")
@click.option("--since", metavar="MOMENT", help="From this time on, such as 2026-11-16T09:00:00Z.")
@click.option("--until", metavar="MOMENT", help="Before this time.")
@click.option("--tenant", metavar="TENANT", help="Of this tenant, by name or number; operator only.")
@click.option("--limit", default=50, show_default=True, type=click.IntRange(1, 10_000), help="How many at most.")
@lists(COLUMNS, "no matching entries")
async def audit(
    client: AsyncClient,
    actor: str | None,
    action: str | None,
    subject: str | None,
    since: str | None,
    until: str | None,
    tenant: str | None,
    limit: int,
) -> list[AuditEntry]:
    """Show who changed what, the newest change first."""
    found = client.audit.list(
        actor=actor,
        action=action,
        subject=subject,
        since=_moment(since, "since"),
        until=_moment(until, "until"),
        tenant=None if tenant is None else (await tenant_named(client, tenant)).tenant,
        page_size=min(limit, PAGE_SIZE_MAX),
    )
    return await first(found, limit)


def _moment(text: str | None, name: str) -> datetime | None:
    moment = read_moment(text, name)
    if moment is not None and moment.tzinfo is None:
        raise InvalidOption(f"{name} {text!r} has no offset; write it as 2026-11-16T09:00:00Z")
    return moment
