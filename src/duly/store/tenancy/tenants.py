"""Tenants: their quotas, and how much of them is used. Only the engine's role reads and writes them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import asyncpg
import msgspec

from duly.domain.errors import NameTaken, NotFound
from duly.store.connection.database import Database
from duly.store.connection.statements import load

SQL = load("tenancy/tenants")


class Limits(msgspec.Struct, frozen=True):
    """The limits of a tenant; None: unlimited. The rate is of submits, a second.

    `running_max` is the tenant's row among the limits of claims. `weight` is its share beside other tenants.
    `least_period` is the minimum distance of the occurrences of one of its schedules.
    """

    schedules_max: int | None = None
    ready_max: int | None = None
    submit_rate: float | None = None
    running_max: int | None = None
    weight: int = 1
    least_period: timedelta | None = None


class Tenant(msgspec.Struct, frozen=True):
    """One tenant."""

    tenant: int
    name: str
    state: str
    limits: Limits
    created_at: datetime
    redact: Sequence[str] = ()  # rules of redaction for all its jobs


class Drawn(msgspec.Struct, frozen=True):
    """The tokens drawn from a bucket, and the tokens left in it; a negative number is a debt."""

    tokens: int
    left: float


async def create(database: Database, name: str, limits: Limits) -> Tenant:
    """Create a tenant. Raises NameTaken: a name is given once, even if its tenant is suspended."""
    rows = await database.fetch(SQL["create"], name, *_values(limits))
    if not rows:
        raise NameTaken(f"a tenant named {name!r} exists; choose another name")
    return _tenant(rows[0])


async def find(database: Database, tenant: int) -> Tenant | None:
    """Read a tenant by its number."""
    return await database.fetch_row_with(_tenant, SQL["find"], tenant)


async def number_of(database: Database, tenant: str) -> int:
    """Find a tenant by its name, or by its number as text. Raises NotFound."""
    number = await database.fetchval(SQL["number_of"], tenant)
    if number is None:
        raise NotFound(f"no tenant {tenant!r}; `duly tenants` lists them")
    return int(number)


async def page(database: Database, after: int | None, limit: int) -> list[Tenant]:
    """Read tenants in order of their numbers."""
    return [_tenant(row) for row in await database.fetch(SQL["page"], after, limit)]


async def suspend(database: Database, tenant: int) -> None:
    """Suspend a tenant: it adds nothing, and its keys grant nothing, while its jobs go on. Raises NotFound."""
    await _change(database, "set_state", tenant, "suspended")


async def resume(database: Database, tenant: int) -> None:
    """End the suspension of a tenant. Raises NotFound."""
    await _change(database, "set_state", tenant, "active")


async def set_limits(database: Database, tenant: int, limits: Limits) -> None:
    """Set the limits of a tenant. Raises NotFound."""
    await _change(database, "set_limits", tenant, *_values(limits))


async def set_rules(database: Database, tenant: int | None, rules: Sequence[str]) -> bool:
    """Set the rules of redaction of a tenant, or of the installation. Returns whether they were others before."""
    return bool(await database.fetchval(SQL["set_rules"], tenant, list(rules)))


async def draw(database: Database, bucket: str, rate: float, burst: float, least: int, wanted: int) -> Drawn:
    """Take between `least` and `wanted` tokens out of a bucket that all processes share, or none."""
    return Drawn(*await database.fetch_one(SQL["draw"], bucket, rate, burst, least, wanted))


async def count_usage(database: Database) -> int:
    """Count what waits, for the tenants with a quota. Returns how many these are."""
    return int(await database.fetchval(SQL["count_usage"]))


async def _change(database: Database, name: str, tenant: int, *values: object) -> None:
    if not await database.fetch(SQL[name], tenant, *values):
        raise NotFound(f"no tenant {tenant}; `duly tenants` lists them")


def _values(limits: Limits) -> tuple[Any, ...]:
    return (
        limits.schedules_max,
        limits.ready_max,
        limits.submit_rate,
        limits.running_max,
        limits.weight,
        limits.least_period,
    )


def _tenant(row: asyncpg.Record) -> Tenant:
    limits = Limits(*(row[name] for name in Limits.__struct_fields__))
    return Tenant(row["tenant"], row["name"], row["state"], limits, row["created_at"], row["redact"])
