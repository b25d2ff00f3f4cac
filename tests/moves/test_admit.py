"""Admit: no more than the rate is let in, whichever process it comes to."""

import asyncio

import msgspec

from duly.moves.admin.admit import Admission
from tests.domain.test_api_key import a_key


async def admitted(admission: Admission, key, times: int) -> int:
    """Ask so many times. Gives how often the answer was yes."""
    verdicts = [await admission.admit(key) for _ in range(times)]
    return sum(1 for verdict in verdicts if verdict is None or verdict.is_allowed)


async def test_api_key_without_a_rate_limit_uses_no_token_bucket(database):
    assert await Admission(database).admit(a_key()) is None
    assert await database.fetchval("select count(*) from duly.token_buckets") == 0


async def test_a_full_bucket_lets_ten_seconds_worth_in_and_then_the_rate(database, clock):
    admission, key = Admission(database), a_key(rate=5.0)

    assert await admitted(admission, key, 60) == 50
    await clock.advance(2)
    assert await admitted(admission, key, 60) == 10


async def test_two_processes_share_one_bucket(database, clock):
    key = a_key(rate=2.0)
    one, other = Admission(database), Admission(database)

    counts = await asyncio.gather(admitted(one, key, 30), admitted(other, key, 30))

    assert sum(counts) == 20
    await clock.advance(1)
    assert await admitted(one, key, 5) + await admitted(other, key, 5) == 2


async def test_at_a_high_rate_few_requests_ask_the_database(database):
    admission, key = Admission(database), a_key(rate=1000.0)

    await admitted(admission, key, 250)

    assert await database.fetchval("select tokens from duly.token_buckets") == 10_000 - 300


async def test_admissions_drawn_ahead_never_exceed_the_rate(database, clock):
    admission, key = Admission(database), a_key(rate=100.0)

    first = await admitted(admission, key, 1500)
    await clock.advance(1)

    assert first == 1000
    assert await admitted(admission, key, 500) == 100


async def test_the_tenants_limit_holds_for_all_its_keys(database):
    admission = Admission(database)
    one = a_key(tenant_rate=1.0)
    other = msgspec.structs.replace(one, key_id="klmnopqrst")

    assert await admitted(admission, one, 6) + await admitted(admission, other, 10) == 10


async def test_refused_request_gives_retry_after(database, clock):
    admission, key = Admission(database), a_key(rate=0.1)
    assert await admitted(admission, key, 1) == 1

    verdict = await admission.admit(key)

    assert verdict is not None
    assert not verdict.is_allowed
    assert verdict.headers["Retry-After"] == "10"
    await clock.advance(9.9)
    assert await admitted(admission, key, 1) == 0
    await clock.advance(0.1)
    assert await admitted(admission, key, 1) == 1


async def test_a_batch_beyond_the_bucket_is_let_in_when_it_is_full_and_paid_for_after(database, clock):
    admission, key = Admission(database), a_key(rate=10.0)

    batch = await admission.admit(key, 300)
    assert batch is not None
    assert batch.is_allowed
    assert await admitted(admission, key, 1) == 0
    await clock.advance(20)
    assert await admitted(admission, key, 1) == 0
    await clock.advance(0.2)
    assert await admitted(admission, key, 5) == 2


async def test_refused_batch_does_not_block_single_admissions(database):
    admission, key = Admission(database), a_key(rate=1.0)
    assert await admitted(admission, key, 5) == 5

    batch = await admission.admit(key, 8)

    assert batch is not None
    assert not batch.is_allowed
    assert await admitted(admission, key, 10) == 5
