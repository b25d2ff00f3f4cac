"""`duly keys`: who may speak to the API, and what for."""

from __future__ import annotations

import asyncio

import click

from duly.cli.desk import KeyWanted, at_desk
from duly.cli.lazy import ListingGroup
from duly.cli.options import with_settings
from duly.cli.output import Listing, json_option, listing_options, moment, print_json, show_list
from duly.cli.say import say
from duly.domain.duration import parse
from duly.domain.tenancy.api_key import Scope, read_scopes
from duly.domain.tenancy.api_key import parse as parse_key
from duly.settings import Settings

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
@with_settings("url")
def list_keys(settings: Settings, listing: Listing, tenant: str | None) -> None:
    """List keys. Their secrets are known to nobody but who has them."""
    empty = "no keys; make one: duly keys create --scope jobs:read"
    show_list(settings, listing, lambda desk: desk.keys(tenant, _SHOWN_MAX), COLUMNS, empty, at_desk)


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
    asyncio.run(_create(settings, as_json, tenant, KeyWanted(name, read_scopes(scopes), span, rate)))


@keys.command("revoke")
@click.argument("key_id", metavar="ID")
@json_option
@with_settings("url")
def revoke(settings: Settings, key_id: str, as_json: bool) -> None:
    """End a key for good: by its id, or by the whole key."""
    whole = parse_key(key_id)
    asyncio.run(_revoke(settings, whole[0] if whole else key_id, as_json))


async def _create(settings: Settings, as_json: bool, tenant: str | None, wanted: KeyWanted) -> None:
    async with at_desk(settings) as desk:
        text, kept = await desk.create_key(tenant, wanted)
    if as_json:
        print_json({"key": text.reveal(), **kept})
        return
    say(text.reveal())
    until = "" if kept["expires_at"] is None else f", until {moment(kept['expires_at'])}"
    say(
        f"key {kept['key_id']} of tenant {kept['tenant_name']}, for {', '.join(sorted(wanted.scopes))}{until};"
        " its text is shown this once and kept nowhere",
        err=True,
    )


async def _revoke(settings: Settings, key_id: str, as_json: bool) -> None:
    async with at_desk(settings) as desk:
        await desk.revoke_key(key_id)
    if as_json:
        print_json({"key_id": key_id, "revoked": True})
    else:
        say(f"key {key_id} is revoked; it opens nothing from about five seconds on")
