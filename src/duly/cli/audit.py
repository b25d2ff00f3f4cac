"""`duly audit`: who changed what, from the database or over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Protocol

import click
import msgspec

from duly.cli import tenants_over_http
from duly.cli.arguments import read_moment
from duly.cli.connect import is_remote, opened
from duly.cli.options import with_settings
from duly.cli.output import Listing, Row, listing_options, show_list
from duly.client.asynchronous.client import AsyncClient
from duly.domain.errors import InvalidOption
from duly.domain.runs.run import TENANT_DEFAULT
from duly.domain.tenancy.audit import Action, Entry, Wanted
from duly.moves.admin.tenants import tenant_named
from duly.settings import Settings
from duly.store.connection.database import Database
from duly.store.tenancy import audit as store

_DEADLINE_SECONDS = 30.0
_PAGE = 200
COLUMNS = {
    "at": lambda row: row["at"],
    "who": lambda row: row["actor"]["name"],
    "did": lambda row: row["action"],
    "to": lambda row: " ".join(filter(None, [row["subject"]["kind"], row["subject"]["name"] or row["subject"]["id"]])),
    "count": lambda row: row["count"],
    "detail": lambda row: ", ".join(f"{name} {value}" for name, value in (row["detail"] or {}).items()),
}


class AuditDesk(Protocol):
    """Reads the audit."""

    async def list(self, wanted: Wanted, tenant: str | None, limit: int) -> Sequence[Row]:
        """Give the changes that fit, the newest first."""
        ...


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
@click.option(
    "--tenant", metavar="TENANT", help="Of this tenant's things, by its name or number; over HTTP for the operator."
)
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
    wanted = Wanted(actor, action, subject, _moment(since, "since"), _moment(until, "until"))
    empty = "nothing was changed that fits"
    show_list(settings, listing, lambda desk: desk.list(wanted, tenant, limit), COLUMNS, empty, at_audit)


@asynccontextmanager
async def at_audit(settings: Settings) -> AsyncIterator[AuditDesk]:
    """Go to the desk that the settings name."""
    if is_remote(settings):
        async with AsyncClient(settings.url, settings.api_key, deadline=_DEADLINE_SECONDS) as client:
            yield HttpAudit(client)
    else:
        async with opened(settings) as database:
            yield DatabaseAudit(database)


class DatabaseAudit:
    """Asks the database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def list(self, wanted: Wanted, tenant: str | None, limit: int) -> Sequence[Row]:
        """Give the changes that fit, the newest first."""
        number = TENANT_DEFAULT if tenant is None else (await tenant_named(self._database, tenant)).tenant
        rows: list[Row] = []
        after: store.Position | None = None
        while True:
            page = await store.page(self._database, number, wanted, min(limit - len(rows), _PAGE), after)
            rows += [_row(entry) for entry in page.entries]
            after = page.after
            if after is None or len(rows) >= limit:
                return rows


class HttpAudit:
    """Asks a Duly over HTTP."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    async def list(self, wanted: Wanted, tenant: str | None, limit: int) -> Sequence[Row]:
        """Give the changes that fit, the newest first."""
        asked = {name: value for name, value in msgspec.structs.asdict(wanted).items() if value is not None}
        number = None if tenant is None else (await tenants_over_http.tenant_named(self._client, tenant)).tenant
        rows: list[Row] = []
        async for entry in self._client.audit.list(**asked, tenant=number, page_size=min(limit, _PAGE)):
            rows.append({**msgspec.to_builtins(entry), "at": entry.at})
            if len(rows) >= limit:
                break
        return rows


def _row(entry: Entry) -> Row:
    actor = entry.actor
    return {
        "audit_id": entry.audit_id,
        "at": entry.at,
        "actor": {"kind": actor.kind, "key_id": actor.key_id, "name": actor.name},
        "action": entry.action,
        "subject": msgspec.to_builtins(entry.subject),
        "count": entry.count,
        "request_id": actor.request_id,
        "detail": entry.detail,
    }


def _moment(text: str | None, name: str) -> datetime | None:
    moment = read_moment(text, name)
    if moment is not None and moment.tzinfo is None:
        raise InvalidOption(f"{name} {text!r} has no offset; write it as 2026-11-16T09:00:00Z")
    return moment
