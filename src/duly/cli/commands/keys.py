"""`duly keys`: API keys and their scopes."""

from __future__ import annotations

import click
import msgspec

from duly.cli.client import lists, with_client
from duly.cli.flags.names import tenant_named
from duly.cli.lazy import ListingGroup
from duly.cli.render.output import answer, moment
from duly.cli.render.say import say
from duly.client.asynchronous.client import AsyncClient
from duly.client.errors import Forbidden
from duly.domain.duration import parse, to_iso
from duly.domain.tenancy.api_key import Scope, read_scopes
from duly.domain.tenancy.api_key import parse as parse_key
from duly.wire.keys import Key
from duly.wire.keys import Scope as WireScope
from duly.wire.pages import PAGE_SIZE_MAX

_SHOWN_MAX = 10_000
COLUMNS = {
    "id": "key_id",
    "tenant": "tenant_name",
    "name": "name",
    "scopes": "scopes",
    "state": "state",
    "expires": "expires_at",
    "last used": "last_used_at",
}


@click.group(cls=ListingGroup)
def keys() -> None:
    """List, create and revoke API keys. Without a command: list."""


@keys.command("list")
@click.option("--tenant", metavar="NAME", help="Of this tenant alone.")
@lists(COLUMNS, "no keys; make one: duly keys create --scope jobs:read")
async def list_keys(client: AsyncClient, tenant: str | None) -> list[Key]:
    """List keys, without their secrets."""
    pages = [client.keys.list(tenant=owner, page_size=PAGE_SIZE_MAX) for owner in await _owners(client, tenant)]
    return [key for page in pages async for key in page][:_SHOWN_MAX]


@keys.command("create")
@click.option("--tenant", metavar="NAME", help="Tenant of the key; default: the first, or over HTTP your own.")
@click.option("--scope", "scopes", multiple=True, metavar="SCOPE", help=f"One or more of {', '.join(Scope)}.")
@click.option("--expires", metavar="DURATION", help="Time until it expires, such as P90D or PT1H; default: never.")
@click.option("--name", default="cli", show_default=True, help="Description of its purpose.")
@click.option("--rate", type=float, metavar="NUMBER", help="Maximum number of submits per second; default: no limit.")
@with_client()
async def create(
    client: AsyncClient,
    as_json: bool,
    tenant: str | None,
    scopes: tuple[str, ...],
    expires: str | None,
    name: str,
    rate: float | None,
) -> None:
    """Create a key, and show it this once."""
    expires_after = None if expires is None else to_iso(parse(expires, "expires"))
    wanted = msgspec.convert(sorted(read_scopes(scopes)), list[WireScope])
    owners = await _owners(client, tenant)  # before: the text is shown once
    owner = None if tenant is None else next(iter(owners))
    created = await client.keys.create(name, wanted, tenant=owner, expires_after=expires_after, rate=rate)
    owner_name = owners.get(created.tenant, str(created.tenant))
    kept = {field: getattr(created, field) for field in ("key_id", "tenant", "name", "scopes", "expires_at")}
    answer(
        as_json, {"key": created.key, **kept, "tenant_name": owner_name, "rate": rate, "state": "active"}, created.key
    )
    if not as_json:
        until = "" if created.expires_at is None else f", until {moment(created.expires_at)}"
        whom = f"key {created.key_id} of tenant {owner_name}, for {', '.join(wanted)}{until}"
        say(f"{whom}; its text is shown this once and kept nowhere", err=True)


@keys.command("revoke")
@click.argument("key_id", metavar="ID")
@with_client()
async def revoke(client: AsyncClient, key_id: str, as_json: bool) -> None:
    """Revoke a key: by its id, or by the whole key."""
    whole = parse_key(key_id)
    revoked = whole[0] if whole else key_id
    await client.keys.revoke(revoked)
    words = f"key {revoked} is revoked; requests with it are refused within five seconds"
    answer(as_json, {"key_id": revoked, "revoked": True}, words)


async def _owners(client: AsyncClient, tenant: str | None) -> dict[int | None, str]:
    """Return the tenant whose keys are meant, and names: one tenant; or all for the operator, and our own for others."""
    if tenant is not None:
        named = await tenant_named(client, tenant)
        return {named.tenant: named.name}
    try:
        return {each.tenant: each.name async for each in client.tenants.list(page_size=PAGE_SIZE_MAX)}
    except Forbidden:
        return {None: ""}
