"""`duly keys`: who may speak to the API, and what for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import click
import msgspec

from duly.cli.client import connected
from duly.cli.flags.names import tenant_named
from duly.cli.flags.settings import with_settings
from duly.cli.lazy import ListingGroup
from duly.cli.render.output import Listing, json_option, listing_options, moment, print_json, show_list
from duly.cli.render.say import say
from duly.client.asynchronous.client import AsyncClient
from duly.client.errors import Forbidden
from duly.domain.duration import parse, to_iso
from duly.domain.tenancy.api_key import Scope, read_scopes
from duly.domain.tenancy.api_key import parse as parse_key
from duly.settings import Settings
from duly.wire.keys import Key
from duly.wire.keys import Scope as WireScope
from duly.wire.pages import PAGE_SIZE_MAX

_SHOWN_MAX = 10_000
COLUMNS = {
    "id": lambda key: key.key_id,
    "tenant": lambda key: key.tenant_name,
    "name": lambda key: key.name,
    "scopes": lambda key: key.scopes,
    "state": lambda key: key.state,
    "expires": lambda key: key.expires_at,
    "last used": lambda key: key.last_used_at,
}


@click.group(cls=ListingGroup)
def keys() -> None:
    """List, create and revoke API keys. Without a command: list."""


@keys.command("list")
@click.option("--tenant", metavar="NAME", help="Of this tenant alone.")
@listing_options
@with_settings("url")
def list_keys(settings: Settings, listing: Listing, tenant: str | None) -> None:
    """List keys. Their secrets are known to nobody but who has them."""
    empty = "no keys; make one: duly keys create --scope jobs:read"

    async def read(client: AsyncClient) -> list[Key]:
        found = [key for owner in await _owners(client, tenant) async for key in _keys_of(client, owner)]
        return found[:_SHOWN_MAX]

    show_list(settings, listing, read, COLUMNS, empty)


@keys.command("create")
@click.option(
    "--tenant", metavar="NAME", help="Whose key it is; without it, the first tenant's, or over HTTP your own."
)
@click.option("--scope", "scopes", multiple=True, metavar="SCOPE", help=f"One or more of {', '.join(Scope)}.")
@click.option("--expires", metavar="DURATION", help="In how long, as P90D or PT1H; without it, never.")
@click.option("--name", default="cli", show_default=True, help="What it is for.")
@click.option("--rate", type=float, metavar="NUMBER", help="How many submits a second; without it, no limit.")
@json_option
@with_settings("url")
def create(
    settings: Settings,
    as_json: bool,
    tenant: str | None,
    scopes: tuple[str, ...],
    expires: str | None,
    name: str,
    rate: float | None,
) -> None:
    """Make a key, and show it this once."""
    span = None if expires is None else parse(expires, "expires")
    wanted = msgspec.convert(sorted(read_scopes(scopes)), list[WireScope])
    asyncio.run(_create(settings, as_json, tenant, name, wanted, span, rate))


@keys.command("revoke")
@click.argument("key_id", metavar="ID")
@json_option
@with_settings("url")
def revoke(settings: Settings, key_id: str, as_json: bool) -> None:
    """End a key for good: by its id, or by the whole key."""
    whole = parse_key(key_id)
    asyncio.run(_revoke(settings, whole[0] if whole else key_id, as_json))


async def _owners(client: AsyncClient, tenant: str | None) -> dict[int | None, str]:
    """Say whose keys are meant, and their names: a tenant's; or of all for the operator, and of our own for others."""
    if tenant is not None:
        named = await tenant_named(client, tenant)
        return {named.tenant: named.name}
    try:
        return {each.tenant: each.name async for each in client.tenants.list(page_size=PAGE_SIZE_MAX)}
    except Forbidden:
        return {None: ""}


def _keys_of(client: AsyncClient, tenant: int | None) -> AsyncIterator[Key]:
    return client.keys.list(tenant=tenant, page_size=PAGE_SIZE_MAX)


async def _create(
    settings: Settings,
    as_json: bool,
    tenant: str | None,
    name: str,
    scopes: list[WireScope],
    expires: timedelta | None,
    rate: float | None,
) -> None:
    async with connected(settings) as client:
        owners = await _owners(client, tenant)  # Before: the text is told once.
        made = await client.keys.create(
            name,
            scopes,
            tenant=None if tenant is None else next(iter(owners)),
            expires_after=None if expires is None else to_iso(expires),
            rate=rate,
        )
    whose = owners.get(made.tenant, str(made.tenant))
    if as_json:
        kept = {field: getattr(made, field) for field in ("key_id", "tenant", "name", "scopes", "expires_at")}
        print_json({"key": made.key, **kept, "tenant_name": whose, "rate": rate, "state": "active"})
        return
    say(made.key)
    until = "" if made.expires_at is None else f", until {moment(made.expires_at)}"
    say(
        f"key {made.key_id} of tenant {whose}, for {', '.join(scopes)}{until};"
        " its text is shown this once and kept nowhere",
        err=True,
    )


async def _revoke(settings: Settings, key_id: str, as_json: bool) -> None:
    async with connected(settings) as client:
        await client.keys.revoke(key_id)
    if as_json:
        print_json({"key_id": key_id, "revoked": True})
    else:
        say(f"key {key_id} is revoked; it opens nothing from about five seconds on")
