"""`duly keys`: who may speak to the API, and what for."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import click
import msgspec

from duly.cli.connect import opened
from duly.cli.lazy import ListingGroup
from duly.cli.options import with_settings
from duly.cli.output import Listing, Row, json_option, listing_options, moment, print_json, show_list
from duly.clock import Rng
from duly.domain.api_key import ApiKey, Scope, read_scopes
from duly.domain.api_key import parse as parse_key
from duly.domain.duration import parse
from duly.moves.api_keys import create_key, revoke_key
from duly.moves.tenants import tenant_named
from duly.settings import Settings
from duly.store import api_keys as store
from duly.store.database import Database

_SHOWN_MAX = 10_000
COLUMNS = {
    "id": lambda row: row["key_id"],
    "tenant": lambda row: row["tenant_name"],
    "name": lambda row: row["name"],
    "scopes": lambda row: row["scopes"],
    "state": lambda row: row["state"],
    "expires": lambda row: row["expires_at"],
    "last used": lambda row: row["last_used_at"],
}


@click.group(cls=ListingGroup)
def keys() -> None:
    """List, create and revoke API keys. Without a command: list."""


@keys.command("list")
@click.option("--tenant", metavar="NAME", help="Of this tenant alone.")
@listing_options
@with_settings()
def list_keys(settings: Settings, listing: Listing, tenant: str | None) -> None:
    """List keys. Their secrets are known to nobody but who has them."""

    async def read(database: Database) -> Sequence[Row]:
        number = None if tenant is None else (await tenant_named(database, tenant)).tenant
        now = await database.read_clock()
        found = await store.page(database, number, None, _SHOWN_MAX)
        return [_row(key, is_usable=key.is_usable(now)) for key in found]

    show_list(settings, listing, read, COLUMNS, "no keys; make one: duly keys create --scope jobs:read", opened)


@keys.command("create")
@click.option("--tenant", default="default", show_default=True, metavar="NAME", help="Whose key it is.")
@click.option("--scope", "scopes", multiple=True, metavar="SCOPE", help=f"One or more of {', '.join(Scope)}.")
@click.option("--expires", metavar="DURATION", help="In how long, as P90D or PT1H; without it, never.")
@click.option("--name", default="cli", show_default=True, help="What it is for.")
@click.option("--rate", type=float, metavar="NUMBER", help="How many submits a second; without it, no limit.")
@json_option
@with_settings()
def create(settings: Settings, as_json: bool, scopes: tuple[str, ...], **given: Any) -> None:
    """Make a key, and show it this once."""
    asyncio.run(_create(settings, as_json, read_scopes(scopes), **given))


@keys.command("revoke")
@click.argument("key_id", metavar="ID")
@with_settings()
def revoke(settings: Settings, key_id: str) -> None:
    """End a key for good: by its id, or by the whole key."""
    whole = parse_key(key_id)
    asyncio.run(_revoke(settings, whole[0] if whole else key_id))


async def _create(
    settings: Settings,
    as_json: bool,
    scopes: frozenset[Scope],
    *,
    tenant: str,
    expires: str | None,
    name: str,
    rate: float | None,
) -> None:
    async with opened(settings) as database:
        owner = await tenant_named(database, tenant)
        expires_at = None if expires is None else await database.read_clock() + parse(expires, "expires")
        made = await create_key(
            database, Rng(), tenant=owner.tenant, name=name, scopes=scopes, expires_at=expires_at, rate=rate
        )
        kept = await store.find(database, made.key_id)
    assert kept is not None
    if as_json:
        print_json({"key": made.text.reveal(), **_row(kept, is_usable=True)})
        return
    click.echo(made.text.reveal())
    until = "" if expires_at is None else f", until {moment(expires_at)}"
    click.echo(
        f"key {made.key_id} of tenant {owner.name}, for {', '.join(sorted(scopes))}{until};"
        " its text is shown this once and kept nowhere",
        err=True,
    )


async def _revoke(settings: Settings, key_id: str) -> None:
    async with opened(settings) as database:
        await revoke_key(database, key_id)
    click.echo(f"key {key_id} is revoked; it opens nothing from about five seconds on")


def _row(key: ApiKey, *, is_usable: bool) -> dict[str, Any]:
    row = msgspec.structs.asdict(key)
    del row["secret_hash"], row["tenant_rate"], row["tenant_is_counted"]
    return {**row, "scopes": sorted(key.scopes), "state": _state(key, is_usable)}


def _state(key: ApiKey, is_usable: bool) -> str:
    if is_usable:
        return key.tenant_state
    return "revoked" if key.revoked_at is not None else "expired"
