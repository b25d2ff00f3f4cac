"""API keys as they are kept."""

from datetime import timedelta

import pytest

from duly.clock import Rng
from duly.domain.errors import NotFound
from duly.domain.tenancy.api_key import Scope, new_key
from duly.store.tenancy import api_keys, tenants
from duly.store.tenancy.tenants import Limits
from tests.clock import START


async def a_kept_key(database, **more) -> str:
    """Keep a key for tenant 1 that reads. Gives its id."""
    key_id, secret = new_key(Rng().secret)
    await api_keys.create(
        database, key_id, secret, **{"tenant": 1, "name": "ours", "scopes": {Scope.JOBS_READ}, **more}
    )
    return key_id


async def test_api_key_is_found_with_its_tenants_state_and_rate(database):
    other = await tenants.create(database, "other", Limits(submit_rate=3.0))
    key_id, secret = new_key(Rng().secret)
    expires_at = START + timedelta(days=1)
    scopes = frozenset({Scope.WORKER, Scope.JOBS_WRITE})
    await api_keys.create(
        database, key_id, secret, tenant=other.tenant, name="theirs", scopes=scopes, expires_at=expires_at, rate=2.0
    )

    found = await api_keys.find(database, key_id)

    assert found is not None
    assert found.is_opened_by(secret)
    assert (found.tenant, found.tenant_name, found.tenant_state, found.tenant_rate) == (
        other.tenant,
        "other",
        "active",
        3.0,
    )
    assert (found.name, found.scopes, found.rate, found.expires_at) == ("theirs", scopes, 2.0, expires_at)
    assert (found.created_at, found.revoked_at, found.last_used_at) == (START, None, None)


async def test_of_a_secret_nothing_is_kept_but_a_hash(database):
    key_id, secret = new_key(Rng().secret)
    await api_keys.create(database, key_id, secret, tenant=1, name="ours", scopes={Scope.ADMIN})

    row = await database.fetchval("select api_keys::text from duly.api_keys")

    assert key_id in row
    assert secret.reveal() not in row
    assert secret.reveal().encode().hex() not in row


async def test_unknown_api_key_is_not_found(database):
    assert await api_keys.find(database, "nobody") is None


async def test_a_key_needs_a_tenant(database):
    with pytest.raises(NotFound, match="no tenant 9"):
        await a_kept_key(database, tenant=9)


async def test_a_revoked_key_stays_revoked_at_that_moment(database, clock):
    key_id = await a_kept_key(database)

    assert await api_keys.revoke(database, key_id)
    await clock.advance(60)
    assert await api_keys.revoke(database, key_id)

    found = await api_keys.find(database, key_id)
    assert found is not None
    assert found.revoked_at == START


async def test_anothers_key_cannot_be_revoked(database):
    key_id = await a_kept_key(database)

    assert not await api_keys.revoke(database, key_id, tenant=2)
    assert not await api_keys.revoke(database, "nobody")

    found = await api_keys.find(database, key_id)
    assert found is not None
    assert found.revoked_at is None


async def test_keys_come_in_pages_of_a_tenant_or_of_all(database):
    other = await tenants.create(database, "other", Limits())
    ours = sorted([await a_kept_key(database) for _ in range(3)])
    theirs = await a_kept_key(database, tenant=other.tenant)

    first = [key.key_id for key in await api_keys.page(database, 1, None, 2)]
    second = [key.key_id for key in await api_keys.page(database, 1, first[-1], 2)]

    assert first + second == ours
    assert [key.key_id for key in await api_keys.page(database, None, None, 9)] == sorted([*ours, theirs])


async def test_its_last_use_is_written_once_a_minute(database, clock):
    key_id = await a_kept_key(database)

    async def used_at():
        await api_keys.touch(database, [key_id])
        found = await api_keys.find(database, key_id)
        assert found is not None
        return found.last_used_at

    assert await used_at() == START
    await clock.advance(59)
    assert await used_at() == START
    await clock.advance(1)
    assert await used_at() == START + timedelta(minutes=1)


async def test_a_key_is_usable_while_it_opens_something(database, clock):
    assert not await api_keys.any_usable(database)
    key_id = await a_kept_key(database, expires_at=START + timedelta(hours=1))
    assert await api_keys.any_usable(database)
    await tenants.suspend(database, 1)
    assert not await api_keys.any_usable(database)
    await tenants.resume(database, 1)
    await clock.advance(3600)
    assert not await api_keys.any_usable(database)
    await a_kept_key(database)
    assert await api_keys.any_usable(database)
    assert await api_keys.revoke(database, key_id)
