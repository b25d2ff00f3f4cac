"""Shards: those who live share all 64, and a right that was given up cannot be used."""

import asyncio
from collections import Counter
from uuid import UUID

import pytest

from duly.moves.stage import stage
from duly.scheduler.service import LEASE, RENEW_SECONDS
from duly.store.retention import forget_expired_schedulers
from duly.store.tables import shards
from tests.builders import RNG, a_scheduler, a_waiting_run, hold, seconds


async def settle_down(database, clock, schedulers: list[UUID], rounds: int = 4) -> dict[UUID, dict[int, int]]:
    """Let each renew as often as it does in `rounds` half seconds. Gives what each holds."""
    held: dict[UUID, dict[int, int]] = {}
    for _ in range(rounds):
        for scheduler_id in schedulers:
            held[scheduler_id] = await hold(database, scheduler_id)
        await clock.advance(RENEW_SECONDS)
    return held


def assert_fair(held: dict[UUID, dict[int, int]]) -> None:
    """Every shard is held once, and nobody holds more than one more than another."""
    holders = Counter(shard for epochs in held.values() for shard in epochs)
    sizes = [len(epochs) for epochs in held.values()]
    assert holders == Counter(range(shards.SHARDS))
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("number", [1, 2, 3, 5, 7, 10, 64])
async def test_any_number_of_schedulers_that_start_together_share_fairly(database, clock, number):
    schedulers = [RNG.uuid() for _ in range(number)]

    assert_fair(await settle_down(database, clock, schedulers))


async def test_more_schedulers_than_shards_leave_some_with_nothing(database, clock):
    held = await settle_down(database, clock, [RNG.uuid() for _ in range(70)])

    assert Counter(len(epochs) for epochs in held.values()) == {1: 64, 0: 6}


async def test_a_third_scheduler_has_its_share_within_three_seconds(database, clock):
    old = [RNG.uuid(), RNG.uuid()]
    await settle_down(database, clock, old)

    held = await settle_down(database, clock, [*old, RNG.uuid()], rounds=int(3 / RENEW_SECONDS))

    assert_fair(held)


async def test_the_shards_of_a_scheduler_that_died_are_taken_over_when_its_lease_has_run_out(database, clock):
    dead, *living = [RNG.uuid() for _ in range(3)]
    await settle_down(database, clock, [dead, *living])

    held = await settle_down(database, clock, living, rounds=int(LEASE.total_seconds() / RENEW_SECONDS) + 2)

    assert_fair(held)


async def test_at_a_hand_over_the_shards_are_free_at_once(database):
    first, _ = await a_scheduler(database)
    await shards.release(database, first)

    _, epochs = await a_scheduler(database)

    assert len(epochs) == shards.SHARDS
    assert [holder["shards"] for holder in await shards.holders(database)] == [64]


async def test_shard_epoch_only_rises_and_only_when_the_shard_changes_its_holder(database, clock):
    scheduler_id, first = await a_scheduler(database)
    assert await hold(database, scheduler_id) == first
    seen = dict.fromkeys(range(shards.SHARDS), 0)
    for _ in range(5):
        _, epochs = await a_scheduler(database)
        for shard, epoch in epochs.items():
            assert epoch > seen[shard]
            seen[shard] = epoch
        await clock.advance(LEASE + seconds(0.1))


async def test_a_scheduler_that_was_taken_over_from_learns_it_at_its_next_renewal(database, clock):
    sleepy, epochs = await a_scheduler(database)
    await clock.advance(LEASE + seconds(0.1))
    _, taken = await a_scheduler(database)
    assert len(taken) == 64
    await a_waiting_run(database, delay=6)

    assert (await stage(database, sleepy, epochs, horizon=seconds(60))).count == 0
    assert await hold(database, sleepy) == {}


async def test_a_step_back_of_the_clock_does_not_let_a_dead_scheduler_keep_its_shards(database, clock):
    dead, living = RNG.uuid(), RNG.uuid()
    await settle_down(database, clock, [dead, living])

    await clock.step(-600)
    held = await settle_down(database, clock, [living], rounds=2)

    assert len(held[living]) == 64


async def test_live_schedulers_share_the_shards_again_after_a_clock_step_forward(database, clock):
    schedulers = [RNG.uuid() for _ in range(3)]
    await settle_down(database, clock, schedulers)

    await clock.step(3600)

    assert_fair(await settle_down(database, clock, schedulers, rounds=6))


async def test_renewed_at_the_same_instant_no_shard_is_given_twice(database):
    schedulers = [RNG.uuid() for _ in range(8)]
    for _ in range(5):
        held = await asyncio.gather(*(hold(database, scheduler_id) for scheduler_id in schedulers))
        await asyncio.gather(*(hold(database, scheduler_id) for scheduler_id in schedulers))
        current = dict(await database.fetch("select shard, epoch from duly.shards"))
        valid = Counter(shard for epochs in held for shard, epoch in epochs.items() if current[shard] == epoch)
        assert all(number == 1 for number in valid.values())

    assert_fair({scheduler_id: await hold(database, scheduler_id) for scheduler_id in schedulers})


async def test_expired_schedulers_are_deleted_a_minute_after_their_lease(database, clock):
    await a_scheduler(database)
    await clock.advance(LEASE + seconds(59))
    await forget_expired_schedulers(database)
    assert await database.fetchval("select count(*) from duly.schedulers") == 1

    await clock.advance(2)
    await forget_expired_schedulers(database)

    assert await database.fetchval("select count(*) from duly.schedulers") == 0
