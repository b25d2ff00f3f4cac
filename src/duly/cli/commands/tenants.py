"""`duly tenants`: who shares this Duly, and what each may have."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Literal

import click
import msgspec

from duly.cli.client import connected
from duly.cli.flags.filters import first
from duly.cli.flags.names import tenant_named
from duly.cli.flags.settings import with_settings
from duly.cli.lazy import ListingGroup
from duly.cli.render.output import Listing, Row, json_option, listing_options, print_json, show_list
from duly.cli.render.say import say
from duly.client.asynchronous.client import AsyncClient
from duly.domain.duration import parse, to_iso
from duly.domain.errors import InvalidSchedule
from duly.settings import Settings
from duly.wire.keys import Tenant, TenantLimits
from duly.wire.pages import PAGE_SIZE_MAX

_SHOWN_MAX = 10_000
_NONE = "none"
COLUMNS = {
    "tenant": lambda row: row["tenant"],
    "name": lambda row: row["name"],
    "state": lambda row: row["state"],
    "schedules": lambda row: _words(row["schedules_max"]),
    "ready": lambda row: _words(row["ready_max"]),
    "submits/s": lambda row: _words(row["submit_rate"]),
    "running": lambda row: _words(row["running_max"]),
    "weight": lambda row: row["weight"],
    "least period": lambda row: _words(row["least_period"]),
}


class _Limit(click.ParamType[Any]):
    """A number, or `none` for no limit."""

    name = "number"

    def __init__(self, kind: click.ParamType[Any]) -> None:
        self._kind = kind

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read it."""
        return value if value == _NONE else self._kind.convert(value, param, ctx)


class _Period(click.ParamType[timedelta]):
    """A duration."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        """Read it."""
        try:
            return parse(float(value) if value.replace(".", "", 1).isdigit() else value, "it")
        except InvalidSchedule as error:
            self.fail(str(error), param, ctx)


def limit_options(function: Callable[..., object]) -> Callable[..., object]:
    """Add a flag for each limit."""
    weight = click.option(
        "--weight", type=click.INT, help="Its share beside other tenants, from 1 to 1,000; 1 unless set."
    )
    function = weight(function)
    for name, kind, text in reversed(
        (
            ("--schedules-max", click.INT, "How many schedules it may have."),
            ("--ready-max", click.INT, "How many of its runs may wait, by a count that is a second old or so."),
            ("--submit-rate", click.FLOAT, "How many submits a second, and ten seconds' worth at once."),
            ("--running-max", click.INT, "How many of its runs may be under way at once."),
            ("--least-period", _Period(), "How close together the occurrences of a schedule may be, such as PT1M."),
        )
    ):
        metavar = "DURATION" if isinstance(kind, _Period) else "NUMBER"
        function = click.option(name, type=_Limit(kind), metavar=metavar, help=f"{text} none: no limit.")(function)
    return function


@click.group(cls=ListingGroup)
def tenants() -> None:
    """List, create, suspend, resume and limit tenants. Without a command: list."""


@tenants.command("list")
@listing_options
@with_settings("url")
def list_tenants(settings: Settings, listing: Listing) -> None:
    """List tenants and what each may have."""

    async def read(client: AsyncClient) -> list[Row]:
        found = await first(client.tenants.list(page_size=PAGE_SIZE_MAX), _SHOWN_MAX)
        return [_row(tenant) for tenant in found]

    show_list(settings, listing, read, COLUMNS, "no tenants")


@tenants.command("create")
@click.argument("name")
@limit_options
@json_option
@with_settings("url")
def create(settings: Settings, name: str, as_json: bool, **limits: object) -> None:
    """Make a tenant. Its name is never given again."""
    asyncio.run(_create(settings, name, _limits(TenantLimits(), limits), as_json))


@tenants.command("suspend")
@click.argument("name")
@json_option
@with_settings("url")
def suspend(settings: Settings, name: str, as_json: bool) -> None:
    """Let a tenant add nothing, and its keys open nothing, for now. What it has goes on."""
    told = "is suspended: its keys open nothing; its schedules go on"
    asyncio.run(_change(settings, name, "suspended", told, as_json))


@tenants.command("resume")
@click.argument("name")
@json_option
@with_settings("url")
def resume(settings: Settings, name: str, as_json: bool) -> None:
    """Let a suspended tenant go on."""
    asyncio.run(_change(settings, name, "active", "is active", as_json))


@tenants.command("limits")
@click.argument("name")
@limit_options
@json_option
@with_settings("url")
def limits(settings: Settings, name: str, as_json: bool, **limits: object) -> None:
    """Show what a tenant may have, or change what is named."""
    asyncio.run(_limit(settings, name, limits, as_json))


async def _create(settings: Settings, name: str, limits: TenantLimits, as_json: bool) -> None:
    async with connected(settings) as client:
        made = await client.tenants.create(name, limits=limits)
    _show(made, as_json, f"tenant {made.name} is made, number {made.tenant}")


async def _change(
    settings: Settings, name: str, state: Literal["active", "suspended"], told: str, as_json: bool
) -> None:
    async with connected(settings) as client:
        changed = await client.tenants.change((await tenant_named(client, name)).tenant, state=state)
    _show(changed, as_json, f"tenant {changed.name} {told}")


async def _limit(settings: Settings, name: str, changes: dict[str, object], as_json: bool) -> None:
    async with connected(settings) as client:
        tenant = await tenant_named(client, name)
        wanted = _limits(tenant.limits, changes)
        if wanted != tenant.limits:
            tenant = await client.tenants.change(tenant.tenant, limits=wanted)
    shown = ", ".join(f"{name} {_words(value)}" for name, value in msgspec.structs.asdict(tenant.limits).items())
    _show(tenant, as_json, f"tenant {tenant.name}: {shown}")


def _limits(before: TenantLimits, given: dict[str, object]) -> TenantLimits:
    """Change what is named, and nothing else."""
    changes = {name: _written(value) for name, value in given.items() if value is not None}
    return msgspec.structs.replace(before, **changes)


def _written(value: object) -> object:
    if isinstance(value, timedelta):
        return to_iso(value)
    return None if value == _NONE else value


def _show(tenant: Tenant, as_json: bool, sentence: str) -> None:
    if as_json:
        print_json(_row(tenant))
    else:
        say(sentence)


def _row(tenant: Tenant) -> dict[str, object]:
    row = msgspec.structs.asdict(tenant)
    return {**row, **msgspec.structs.asdict(row.pop("limits"))}


def _words(value: object) -> str:
    return _NONE if value is None else f"{value:g}" if isinstance(value, float) else str(value)
