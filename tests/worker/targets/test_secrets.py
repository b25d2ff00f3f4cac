"""Signing secrets in a worker: asked for once, however many want them, and heard of again within seconds of a rotation."""

import asyncio

import pytest

from duly.clock import Rng
from duly.domain.targets.destination import signing_key
from duly.domain.tenancy.sealing import new_key_line, read_keyring
from duly.moves.admin.destinations import make, rotate
from duly.worker.targets import secrets as module
from duly.worker.targets.secrets import KEPT_SECONDS, PATIENCE_SECONDS, RETRY_SECONDS, STALE_SECONDS, Secrets
from duly.worker.targets.webhook import CannotSign
from tests.builders import a_worker

ORIGIN = "https://hooks.example"
RNG = Rng(13)
LINE = new_key_line(RNG.secret).reveal()
KEYRING = read_keyring(LINE, "test")


@pytest.fixture
async def secrets(database, monkeypatch):
    monkeypatch.setattr(module, "PATIENCE_SECONDS", 20.0)  # A machine may have other things to do.
    opened = Secrets(KEYRING, rng=RNG, clock=database.clock)
    await opened.begin(database, await a_worker(database))
    return opened


async def test_the_first_use_makes_one(secrets, database):
    [key] = await secrets.of(1, ORIGIN)

    assert len(key) == 32
    assert await database.fetchval("select count(*) from duly.destination_secrets") == 1


async def test_concurrent_requests_for_a_signing_secret_get_the_same_one(secrets, database):
    found = await asyncio.gather(*(secrets.of(1, ORIGIN) for _ in range(20)))

    assert len({tuple(keys) for keys in found}) == 1
    assert await database.fetchval("select count(*) from duly.destination_secrets") == 1


async def test_cancelled_request_for_a_signing_secret_does_not_fail_the_others(secrets):
    first = asyncio.create_task(secrets.of(1, ORIGIN))
    second = asyncio.create_task(secrets.of(1, ORIGIN))
    await asyncio.sleep(0)
    first.cancel()

    assert len(await second) == 1


async def test_each_destination_of_each_tenant_has_its_own(secrets):
    keys = [(await secrets.of(tenant, origin))[0] for tenant in (1, 2) for origin in (ORIGIN, "http://other.example")]
    assert len(set(keys)) == 4


async def test_a_rotation_is_heard_of_within_seconds_the_newest_first(secrets, database, clock):
    [old] = await secrets.of(1, ORIGIN)
    new = await rotate(database, KEYRING, 1, await make(database, KEYRING, 1, ORIGIN, RNG), RNG)
    assert await secrets.of(1, ORIGIN) == [old]

    await clock.advance(KEPT_SECONDS)

    assert await secrets.of(1, ORIGIN) == [signing_key(new.text), old]


async def test_before_the_worker_lives_there_are_none(database):
    with pytest.raises(CannotSign):
        await Secrets(KEYRING, rng=RNG, clock=database.clock).of(1, ORIGIN)


async def test_missing_key_is_named_to_the_operator_and_looked_up_again(secrets, database, clock, caplog):
    other = read_keyring(new_key_line(RNG.secret).reveal(), "other")
    await make(database, other, 1, ORIGIN, RNG)
    for _ in range(3):
        with pytest.raises(CannotSign) as raised:
            await secrets.of(1, ORIGIN)
        assert other.key_id not in str(raised.value)
    [line] = caplog.records
    assert "restore that key's line" in line.fields["error"]

    await database.execute("delete from duly.destination_secrets")
    await clock.advance(RETRY_SECONDS)

    assert len(await secrets.of(1, ORIGIN)) == 1


async def test_known_secret_signs_while_the_newest_cannot_be_decrypted(secrets, database, clock):
    [old] = await secrets.of(1, ORIGIN)
    both = read_keyring(f"{new_key_line(RNG.secret).reveal()}\n{LINE}", "both")
    await rotate(database, both, 1, await make(database, both, 1, ORIGIN, RNG), RNG)

    await clock.advance(KEPT_SECONDS)
    assert await secrets.of(1, ORIGIN) == [old]

    await clock.advance(STALE_SECONDS)
    with pytest.raises(CannotSign):
        await secrets.of(1, ORIGIN)


async def test_known_secret_signs_while_the_database_does_not_respond(secrets, database, clock, monkeypatch):
    known = await secrets.of(1, ORIGIN)
    await clock.advance(KEPT_SECONDS)
    monkeypatch.setattr(module, "PATIENCE_SECONDS", PATIENCE_SECONDS)

    async with database.transaction() as blocker:
        await blocker.execute("lock table duly.destinations, duly.destination_secrets in access exclusive mode")
        assert await secrets.of(1, ORIGIN) == known
        with pytest.raises(CannotSign):
            await secrets.of(1, "http://other.example")


async def test_destination_lookup_does_not_create_the_destination(secrets, database):
    assert not secrets.are_known(1, ORIGIN)
    assert not await secrets.are_kept(1, ORIGIN)
    assert await database.fetchval("select count(*) from duly.destinations") == 0

    await secrets.of(1, ORIGIN)

    assert secrets.are_known(1, ORIGIN)
    assert await secrets.are_kept(1, ORIGIN)
    assert not await secrets.are_kept(2, ORIGIN)
