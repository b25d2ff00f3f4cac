"""Canaries: schedulers that name their shards; and hosts whose schedulers have none."""

from collections.abc import Mapping
from uuid import UUID

import pytest
from click.testing import CliRunner

from duly.cli.up.scheduler import Shards, scheduler
from duly.scheduler.service import LEASE, RENEW_SECONDS
from duly.store.tables import clocks, hosts, shards
from tests.builders import RNG

Held = dict[UUID, set[int]]
ALL = set(range(shards.SHARDS))


async def settled_down(database, clock, named: Mapping[UUID, set[int] | None], rounds: int = 4, **more) -> Held:
    """Let each renew `rounds` times. Gives what each holds in the end."""
    held: Held = {}
    for _ in range(rounds):
        for scheduler_id, own in named.items():
            epochs = await shards.lease(database, scheduler_id, "s", "0", LEASE, named=own, **more)
            held[scheduler_id] = set(epochs)
        await clock.advance(RENEW_SECONDS)
    return held


async def test_a_canary_takes_its_shards_and_the_others_take_them_back_when_it_dies(database, clock):
    first, second, canary = RNG.uuid(), RNG.uuid(), RNG.uuid()
    others = {first: None, second: None}
    await settled_down(database, clock, others)

    held = await settled_down(database, clock, {**others, canary: {0, 1, 2, 3}})
    assert held[canary] == {0, 1, 2, 3}
    assert held[first] | held[second] == ALL - {0, 1, 2, 3}
    assert (len(held[first]), len(held[second])) == (30, 30)

    held = await settled_down(database, clock, others, rounds=int(LEASE.total_seconds() / RENEW_SECONDS) + 2)
    assert held[first] | held[second] == ALL
    assert not held[first] & held[second]


async def test_a_shard_that_two_canaries_name_is_the_firsts_by_id(database, clock):
    first, second = sorted((RNG.uuid(), RNG.uuid()))
    other = RNG.uuid()

    held = await settled_down(database, clock, {other: None, second: {3, 4, 5}, first: {1, 2, 3}})

    assert held == {first: {1, 2, 3}, second: {4, 5}, other: ALL - {1, 2, 3, 4, 5}}


async def test_canaries_alone_take_no_shard_that_they_do_not_name(database, clock):
    canary = RNG.uuid()

    assert await settled_down(database, clock, {canary: {60, 61}}) == {canary: {60, 61}}


async def test_schedulers_of_a_drained_host_give_up_their_shards(database, clock):
    here, there = RNG.uuid(), RNG.uuid()
    await clocks.record(database, ["scheduler"], "s")
    host = await database.fetchval("select host from duly.processes")
    await settled_down(database, clock, {here: None})

    assert await hosts.drain(database, host) is True
    assert await hosts.drain(database, host) is False, "it is already"
    held = await settled_down(database, clock, {here: None})
    held |= await settled_down(database, clock, {there: None}, host="another")
    assert held == {here: set(), there: ALL}

    await hosts.resume(database, host)
    held = await settled_down(database, clock, {here: None}, rounds=6)
    assert held == {here: ALL}


@pytest.mark.parametrize(
    ("text", "named"),
    [("0-3", {0, 1, 2, 3}), ("63", {63}), ("0-1, 5,60-61", {0, 1, 5, 60, 61})],
)
def test_shards_are_read_as_people_write_them(text, named):
    assert Shards().convert(text, None, None) == named


@pytest.mark.parametrize("text", ["", "64", "3-1", "0-64", "a", "-1", "1-2-3", "0,,1"])
def test_shards_that_do_not_exist_are_refused(text):
    done = CliRunner().invoke(scheduler, ["--shards", text])

    assert (done.exit_code, "0 to 63" in done.output) == (2, True), done.output
