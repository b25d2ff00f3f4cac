"""API keys: create one, whose text is shown this once; and revoke one."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

import msgspec

from duly.clock import Rng
from duly.domain.errors import InvalidOption, NotFound
from duly.domain.jobs.job import check_name
from duly.domain.limits.rate_limit import check_rate
from duly.domain.tenancy.api_key import Scope, Secret, new_key, written
from duly.domain.tenancy.audit import Action, Subject
from duly.moves.admin.audit import audited, record
from duly.store.connection.database import Database
from duly.store.tenancy import api_keys


class NewKey(msgspec.Struct, frozen=True):
    """A new key. Its text cannot be shown again."""

    key_id: str
    text: Secret


@audited
async def create_key(
    database: Database,
    rng: Rng,
    *,
    tenant: int,
    name: str,
    scopes: Collection[Scope],
    expires_at: datetime | None = None,
    rate: float | None = None,
) -> NewKey:
    """Create a key for a tenant. Raises NotFound, InvalidOption."""
    check_name(name, "key")
    check_rate(rate)
    if expires_at is not None and expires_at <= await database.read_clock():
        raise InvalidOption(
            f"expiry {expires_at.isoformat()} is in the past; give a later time, or leave it out for none"
        )
    key_id, secret = new_key(rng.secret)
    await api_keys.create(
        database, key_id, secret, tenant=tenant, name=name, scopes=scopes, expires_at=expires_at, rate=rate
    )
    subject, words = Subject("key", key_id, name), sorted(scope.value for scope in scopes)
    await record(database, tenant, Action.KEY_CREATED, subject, scopes=words, expires_at=expires_at, rate=rate)
    return NewKey(key_id, written(key_id, secret))


@audited
async def revoke_key(database: Database, key_id: str, *, tenant: int | None = None) -> None:
    """Revoke a key, of a tenant or of any. Raises NotFound."""
    revoked = await api_keys.revoke(database, key_id, tenant=tenant)
    if revoked is None:
        raise NotFound(f"no key {key_id}; `duly keys` lists them")
    subject = Subject("key", key_id, revoked.name)
    await record(database, revoked.tenant, Action.KEY_REVOKED, subject, int(not revoked.was_revoked))
