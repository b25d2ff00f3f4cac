"""`duly tenants`: the tenants, and their limits."""

from __future__ import annotations

from typing import Any

import click
import msgspec
from msgspec import UNSET

from duly.cli.client import lists, with_client
from duly.cli.flags.arguments import OrNone, read_duration
from duly.cli.flags.filters import first
from duly.cli.flags.names import tenant_named
from duly.cli.flags.settings import together
from duly.cli.lazy import ListingGroup
from duly.cli.render.output import Row, answer
from duly.client.asynchronous.client import AsyncClient
from duly.domain.duration import parse, to_iso
from duly.domain.errors import InvalidSchedule
from duly.wire.keys import Tenant, TenantLimits
from duly.wire.pages import PAGE_SIZE_MAX

_SHOWN_MAX = 10_000
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


class _Period(click.ParamType[str]):
    """A duration, as ISO 8601 writes it."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Read it."""
        try:
            return to_iso(parse(read_duration(value), "it"))
        except InvalidSchedule as error:
            self.fail(str(error), param, ctx)


limit_options = together(
    *(
        click.option(name, type=OrNone(kind), default=UNSET, metavar=metavar, help=f"{text} none: no limit.")
        for name, kind, metavar, text in (
            ("--schedules-max", click.INT, "NUMBER", "Maximum number of schedules."),
            (
                "--ready-max",
                click.INT,
                "NUMBER",
                "Maximum number of waiting runs; the count may be a second old.",
            ),
            (
                "--submit-rate",
                click.FLOAT,
                "NUMBER",
                "Maximum number of submits per second; bursts of ten seconds' worth.",
            ),
            ("--running-max", click.INT, "NUMBER", "Maximum number of concurrent runs."),
            (
                "--least-period",
                _Period(),
                "DURATION",
                "Shortest interval between occurrences of a schedule, such as PT1M.",
            ),
        )
    ),
    click.option("--weight", type=int, help="Share relative to other tenants, from 1 to 1,000; default: 1."),
)


@click.group(cls=ListingGroup)
def tenants() -> None:
    """List, create, suspend, resume and limit tenants. Without a command: list."""


@tenants.command("list")
@lists(COLUMNS, "no tenants")
async def list_tenants(client: AsyncClient) -> list[Row]:
    """List tenants and their limits."""
    return [_row(tenant) for tenant in await first(client.tenants.list(page_size=PAGE_SIZE_MAX), _SHOWN_MAX)]


@tenants.command("create")
@click.argument("name")
@limit_options
@with_client()
async def create(client: AsyncClient, name: str, as_json: bool, **limits: Any) -> None:
    """Create a tenant. Its name is never given again."""
    created = await client.tenants.create(name, limits=_limits(TenantLimits(), **limits))
    answer(as_json, _row(created), f"tenant {created.name} created, number {created.tenant}")


@tenants.command("suspend")
@click.argument("name")
@with_client()
async def suspend(client: AsyncClient, name: str, as_json: bool) -> None:
    """Suspend a tenant: it adds nothing, and its keys grant nothing. Its jobs go on."""
    changed = await client.tenants.change((await tenant_named(client, name)).tenant, state="suspended")
    words = f"tenant {changed.name} is suspended: its keys are refused; its schedules continue"
    answer(as_json, _row(changed), words)


@tenants.command("resume")
@click.argument("name")
@with_client()
async def resume(client: AsyncClient, name: str, as_json: bool) -> None:
    """End the suspension of a tenant."""
    changed = await client.tenants.change((await tenant_named(client, name)).tenant, state="active")
    answer(as_json, _row(changed), f"tenant {changed.name} is active")


@tenants.command("limits")
@click.argument("name")
@limit_options
@with_client()
async def limits(client: AsyncClient, name: str, as_json: bool, **limits: Any) -> None:
    """Show a tenant's limits, or change the given ones."""
    tenant = await tenant_named(client, name)
    wanted = _limits(tenant.limits, **limits)
    if wanted != tenant.limits:
        tenant = await client.tenants.change(tenant.tenant, limits=wanted)
    shown = ", ".join(f"{name} {_words(value)}" for name, value in msgspec.structs.asdict(tenant.limits).items())
    answer(as_json, _row(tenant), f"tenant {tenant.name}: {shown}")


@tenants.command("redact")
@click.argument("name")
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@click.option("--none", "is_none", is_flag=True, help="Redact nothing but what jobs and the installation name.")
@with_client()
async def redact(client: AsyncClient, name: str, paths: tuple[str, ...], as_json: bool, is_none: bool) -> None:
    """Show the parts of payloads that are shown as *** in all jobs of a tenant, or set them: '$.card' '$..password'."""
    if paths and is_none:
        raise click.UsageError("give paths or --none, not both")
    tenant = await tenant_named(client, name)
    if paths or is_none:
        tenant = await client.tenants.change(tenant.tenant, redact=paths)
    answer(as_json, _row(tenant), f"tenant {tenant.name} redacts {', '.join(tenant.redact) or 'nothing of its own'}")


def _limits(before: TenantLimits, weight: int | None, **given: Any) -> TenantLimits:
    """Change the given limits only."""
    changes = {name: value for name, value in given.items() if value is not UNSET}
    return msgspec.structs.replace(before, weight=before.weight if weight is None else weight, **changes)


def _row(tenant: Tenant) -> dict[str, object]:
    row = msgspec.structs.asdict(tenant)
    return {**row, **msgspec.structs.asdict(row.pop("limits"))}


def _words(value: object) -> str:
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
