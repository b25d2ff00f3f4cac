"""API keys, by their ids. Only the engine's role reads and writes them: the API's role cannot see even a hash."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from hmac import compare_digest

import asyncpg
import msgspec

from duly.domain.errors import NotFound
from duly.domain.tenancy.api_key import ApiKey, Scope, Secret
from duly.store.connection.database import Database
from duly.store.connection.statements import load

SQL = load("tenancy/api_keys")


async def find(database: Database, key_id: str) -> ApiKey | None:
    """Read a key with the limits of its tenant, whether or not it is usable."""
    return await database.fetch_row_with(_key, SQL["find"], key_id)


class MovedKey(msgspec.Struct, frozen=True):
    """A key of a tenant that has left this cell, for another one."""

    secret_hash: bytes
    state: str
    cell: str
    tenant_name: str

    def is_opened_by(self, secret: Secret) -> bool:
        """Return whether `secret` is this key's, in constant time."""
        return compare_digest(self.secret_hash, secret.digest())


async def find_moved(database: Database, key_id: str) -> MovedKey | None:
    """Read a key that is not in this cell any more."""
    return await database.fetch_row_as(MovedKey, SQL["moved"], key_id)


async def create(
    database: Database,
    key_id: str,
    secret: Secret,
    *,
    tenant: int,
    name: str,
    scopes: Collection[Scope],
    expires_at: datetime | None = None,
    rate: float | None = None,
) -> None:
    """Store a key, with only a hash of its secret. Raises NotFound when there is no such tenant."""
    words = sorted(scope.value for scope in scopes)
    if not await database.fetch(SQL["create"], key_id, tenant, name, secret.digest(), words, rate, expires_at):
        raise NotFound(f"no tenant {tenant}; `duly tenants` lists them")


class Revoked(msgspec.Struct, frozen=True):
    """The owner of a revoked key, and whether it had been revoked before."""

    tenant: int
    name: str
    was_revoked: bool


async def revoke(database: Database, key_id: str, *, tenant: int | None = None) -> Revoked | None:
    """Revoke a key, of a tenant or of any. None: there is none of that id."""
    return await database.fetch_row_as(Revoked, SQL["revoke"], key_id, tenant)


async def page(database: Database, tenant: int | None, after: str | None, limit: int) -> list[ApiKey]:
    """Read keys, of a tenant or of all, in order of their ids."""
    return [_key(row) for row in await database.fetch(SQL["page"], tenant, after, limit)]


async def touch(database: Database, key_ids: Sequence[str]) -> None:
    """Record that keys were used, to the minute."""
    await database.execute(SQL["touch"], list(key_ids))


async def any_usable(database: Database) -> bool:
    """Return whether there is a usable key."""
    return bool(await database.fetchval(SQL["any_usable"]))


def _key(row: asyncpg.Record) -> ApiKey:
    return ApiKey(**{**row, "scopes": frozenset(map(Scope, row["scopes"]))})
