"""New time zone data: what is pending is timed anew, once all schedulers have it, and nobody's occurrence is lost or repeated."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import pytest

from duly.clock import Rng
from duly.domain.runs.run import TENANT_DEFAULT
from duly.domain.triggers.schedule.timing import schedule_of
from duly.domain.triggers.zones import zones
from duly.log import Log
from duly.moves.schedules import zones as retiming
from duly.moves.schedules.calendars import put_calendar
from duly.moves.schedules.pause import pause, resume, skip_next
from duly.moves.submit import submit_recurring
from duly.scheduler.service import LEASE, Scheduler
from duly.store.retention import Aging, forget_older
from duly.store.tables import shards
from duly.store.tables import zones as store
from tests.builders import a_key, a_schedule, counts, seconds
from tests.schedules.stories import a_cron, is_sound, next_fire, occurrences, pending, run_through, skips, state_of
from tests.triggers.editions import CHANGING, QUIET, an_edition

LOG = Log("test")
OLD = an_edition("2026a")


def at(hour, minute=0, *, day=2):
    return datetime(2026, 11, day, hour, minute, tzinfo=UTC)  # The story begins on the 2nd at 09:00 UTC.


NEW = an_edition("2026b", 1, [(at(0, day=3), 2)])  # from tomorrow on two hours ahead
AHEAD = an_edition("2026b", 1, [(at(0), 2)])  # since this midnight, as it turns out
BEHIND = an_edition("2026b", 1, [(at(0), 0)])


class Node:
    """A scheduler with its edition of the time zone data."""

    def __init__(self, database, edition):
        self.edition = edition
        self.scheduler = Scheduler(database, name=edition.version, rng=Rng(), log=LOG)

    @property
    def shards(self):
        return self.scheduler.health.shards

    async def renew(self):
        with zones.using(self.edition):
            await self.scheduler.renew()

    async def step(self):
        with zones.using(self.edition):
            await self.scheduler.renew()
            return await self.scheduler.step()

    async def look_at_zones(self):
        with zones.using(self.edition):
            await self.scheduler.renew()
            return await self.scheduler.keep_zones()

    async def settle(self, clock):
        """Let it time all anew that is to be."""
        for _ in range(40):
            await self.look_at_zones()
            if (await store.state(self.scheduler._database)).is_settled:
                return
            await clock.advance(1)
        raise AssertionError("not settled")

    async def leave(self):
        await self.scheduler._release_shards()


@contextmanager
def on(edition: zones.Edition) -> Iterator[None]:
    """Do what a program with that edition does."""
    with zones.using(edition):
        yield


async def a_node(database, edition=OLD):
    node = Node(database, edition)
    await node.renew()
    return node


async def a_noon(database, day="*", tz=CHANGING, **more):
    return (await a_cron(database, f"0 12 {day} * *", tz=tz, **more)).job_id


async def updated(database, clock, old, edition):
    """Replace a scheduler by one with another edition, and let that time all anew."""
    await old.leave()
    node = await a_node(database, edition)
    await node.settle(clock)
    return node


async def listed(database):
    return {(move.was_at, move.next_at) for move in await store.moves(database, TENANT_DEFAULT, None, 10)}


async def until(clock, moment):
    await clock.advance(moment - clock.at)


@pytest.fixture
async def old(database, clock):
    """The only scheduler, with the older data in force."""
    node = await a_node(database)
    await node.settle(clock)
    return node


async def test_zone_update_times_anew_and_lists_only_the_affected_pending_fires(database, clock, old):
    with on(OLD):
        moved, today = await a_noon(database, "3"), await a_noon(database)
        elsewhere = await a_noon(database, "3", tz=QUIET)
        await a_cron(database, "*/5 * * * *", tz="UTC")
    place = "select ctid::text from duly.timers where job_id = $1"
    untouched = await database.fetchval(place, elsewhere)

    await updated(database, clock, old, NEW)

    assert await pending(database, moved) == at(10, day=3)
    assert await pending(database, today) == at(11)
    assert await pending(database, elsewhere) == at(11, day=3)
    assert await database.fetchval(place, elsewhere) == untouched
    assert await listed(database) == {(at(11, day=3), at(10, day=3))}
    assert await database.fetchval("select changed from duly.zone_data") == [CHANGING]
    assert await is_sound(database)


async def test_the_older_data_decides_until_the_last_scheduler_has_the_newer(database, clock, old):
    with on(OLD):
        job_id = await a_noon(database, "3")
    newer = await a_node(database, NEW)
    await newer.look_at_zones()
    await old.renew()

    assert (old.shards, newer.shards) == (64, 0)
    assert (await store.state(database)).version == "2026a"
    assert await pending(database, job_id) == at(11, day=3)

    await old.leave()
    await newer.renew()
    assert newer.shards == 64
    await newer.settle(clock)
    assert await pending(database, job_id) == at(10, day=3)


async def test_a_version_is_not_put_in_force_though_another_scheduler_came_after_the_look(database, old):
    with on(NEW):
        seen = await store.state(database)
        assert not seen.is_unanimous
        assert not await store.adopt(database, seen, [], {})
    assert (await store.state(database)).version == "2026a"


async def test_expired_scheduler_delays_newer_zone_data_no_longer_than_its_lease(database, clock, old):
    newer = await a_node(database, NEW)
    assert newer.shards == 0

    await clock.advance(LEASE + seconds(1))
    await newer.renew()

    assert newer.shards == 64


async def test_scheduler_with_older_zone_data_changes_nothing_when_it_joins_later(database, clock, old):
    newer = await updated(database, clock, old, NEW)

    stray = await a_node(database, OLD)
    await newer.renew()

    assert (newer.shards, stray.shards) == (64, 0)
    assert (await store.state(database)).version == "2026b"


async def test_a_roll_back_times_all_back(database, clock, old):
    with on(OLD):
        job_id = await a_noon(database, "3")
    newer = await updated(database, clock, old, NEW)

    await updated(database, clock, newer, OLD)

    assert await pending(database, job_id) == at(11, day=3)
    assert len(await store.moves(database, TENANT_DEFAULT, job_id, 10)) == 2


async def test_a_next_time_that_moved_into_the_past_is_a_misfire(database, clock, old):
    with on(OLD):
        job_id = await a_noon(database)
    await until(clock, at(10, 30))

    newer = await updated(database, clock, old, AHEAD)  # It was noon at 10:00.
    assert await pending(database, job_id) == at(10)
    await newer.step()

    assert await occurrences(database, job_id) == [at(10)]
    assert await database.fetchval("select options->>'missed' from duly.ready") == "1"
    assert await pending(database, job_id) == at(10, day=3)


async def test_occurrence_does_not_run_again_when_new_zone_data_delays_its_time(database, clock, old):
    with on(OLD):
        job_id = await a_noon(database)
    await until(clock, at(11))
    await old.step()
    assert await run_through(database) == [at(11)]

    newer = await updated(database, clock, old, BEHIND)  # It will be noon at 12:00.

    assert await pending(database, job_id) == at(12, day=3)
    await until(clock, at(12, 1))
    await newer.step()
    assert await occurrences(database, job_id) == []


async def test_due_fire_waits_until_new_zone_data_has_timed_it_anew(database, clock, old):
    with on(OLD):
        job_id, other = await a_noon(database), await a_noon(database, tz=QUIET)
    await until(clock, at(11))
    await old.leave()
    newer = await a_node(database, BEHIND)

    await newer.step()
    assert await occurrences(database) == [at(11)], "what another zone decides about goes on"
    assert await occurrences(database, other) == [at(11)]

    await newer.settle(clock)
    assert await pending(database, job_id) == at(12)
    await newer.step()
    assert await occurrences(database, job_id) == []
    await until(clock, at(12))
    await newer.step()
    assert await occurrences(database, job_id) == [at(12)]
    assert await skips(database, job_id) == []


async def test_wildcard_cron_keeps_its_interval_across_a_zone_data_update(database, clock, old):
    with on(OLD):
        job_id = (await a_cron(database, "*/15 * * * *", tz=CHANGING)).job_id
    fired = []
    node = old
    for step in range(80):
        if step == 30:
            await node.leave()
            node = await a_node(database, BEHIND)
        await node.look_at_zones()
        await node.step()
        fired += await run_through(database)
        await clock.advance(60)

    assert fired == [at(9, 15), at(9, 30), at(9, 45), at(10), at(10, 15)]
    assert await skips(database, job_id) == []


async def test_interrupted_zone_update_is_continued_by_another_scheduler(database, clock, old, monkeypatch):
    monkeypatch.setattr("duly.moves.schedules.zones._PAGE", 2)
    with on(OLD):
        job_ids = [await a_noon(database, "3") for _ in range(7)]
    await old.leave()
    first = await a_node(database, NEW)
    assert await first.look_at_zones() == 0.0
    assert len(await listed(database)) == 1
    moved = [job_id for job_id in job_ids if await pending(database, job_id) == at(10, day=3)]
    assert len(moved) == 2
    await first.leave()

    second = await a_node(database, NEW)
    await second.settle(clock)

    assert {await pending(database, job_id) for job_id in job_ids} == {at(10, day=3)}
    assert len(await store.moves(database, TENANT_DEFAULT, None, 10)) == 7, "each is listed once"


async def test_a_page_that_is_timed_anew_twice_moves_nothing_twice(database, clock, old):
    with on(OLD):
        job_id = await a_noon(database)
    await until(clock, at(11))
    await old.step()
    await run_through(database)
    await old.leave()
    newer = await a_node(database, BEHIND)
    await newer.look_at_zones()
    await database.execute(
        "update duly.zone_data set after = null"
    )  # It died before it could note how far it had come.

    await newer.settle(clock)

    assert await pending(database, job_id) == at(12, day=3)
    assert len(await store.moves(database, TENANT_DEFAULT, None, 10)) == 1


async def test_zone_update_keeps_pauses_and_skips_of_schedules(database, clock, old):
    with on(OLD):
        paused, skipped = await a_noon(database, "3"), await a_noon(database, "3,4")
        await pause(database, paused)
        await skip_next(database, skipped)

    await updated(database, clock, old, NEW)

    fire = await next_fire(database, paused)
    assert fire is not None
    assert (fire["scheduled_at"], fire["is_armed"]) == (at(10, day=3), False)
    assert await pending(database, skipped) == at(10, day=4)
    with on(NEW):
        assert await resume(database, paused) == "active"
    assert await pending(database, paused) == at(10, day=3)


async def test_the_zone_of_a_calendar_counts_too(database, clock, old):
    with on(OLD):
        await put_calendar(
            database, {"name": "nights", "tz": CHANGING, "weekly": [{"days": "TUE", "from": "00:00", "to": "09:00"}]}
        )
        uses = [{"name": "nights", "on_hit": "defer"}]
        job_id = (await a_cron(database, "0 5 3 * *", calendars=uses)).job_id
    assert await pending(database, job_id) == at(8, day=3)

    await updated(database, clock, old, NEW)

    assert await pending(database, job_id) == at(7, day=3)


async def test_zone_update_completes_and_lists_a_schedule_without_further_fires(database, clock, old):
    with on(OLD):
        job_id = await a_noon(database, "3", end="2026-11-03T12:00:00Z")

    await updated(database, clock, old, an_edition("2026b", 1, [(at(0, day=3), 0)]))

    assert await state_of(database, job_id) == "completed"
    assert await listed(database) == {(at(11, day=3), None)}


async def test_a_program_with_newer_data_than_the_fleet_is_corrected(database, clock, old):
    with on(NEW):
        job_id = await a_noon(database, "3")
        noon = await a_noon(database)
    assert await pending(database, job_id) == at(10, day=3)

    await old.look_at_zones()

    assert (await pending(database, job_id), await pending(database, noon)) == (at(11, day=3), at(11))
    assert await database.fetchval("select count(*) from duly.jobs where tzdb is not null") == 0
    await updated(database, clock, old, NEW)
    assert await pending(database, job_id) == at(10, day=3)


async def test_fire_timed_by_newer_zone_data_stays_when_that_data_comes_into_force(database, clock, old):
    with on(NEW):
        job_id = await a_noon(database, "3")
    await old.leave()

    newer = await a_node(database, NEW)
    await newer.settle(clock)
    await newer.look_at_zones()

    assert await pending(database, job_id) == at(10, day=3)
    assert await listed(database) == set()
    assert await database.fetchval("select count(*) from duly.jobs where tzdb is not null") == 0


async def test_fires_of_skips_and_resumes_under_other_zone_data_are_corrected(database, clock, old):
    with on(OLD):
        skipped, resumed = await a_noon(database), await a_noon(database, "3")
        await pause(database, resumed)
    with on(NEW):
        await skip_next(database, skipped)
        await resume(database, resumed)
    assert await pending(database, skipped) == at(10, day=3)

    await old.look_at_zones()

    assert await pending(database, skipped) == at(11, day=3)
    assert await pending(database, resumed) == at(11, day=3)


async def test_a_schedule_that_is_committed_after_we_have_passed_is_found_by_the_last_pass(database, clock, old):
    async with database.transaction() as transaction:
        with on(OLD):
            job = a_schedule(trigger={"type": "cron", "expr": "0 12 3 * *", "tz": CHANGING})
            job_id = (await submit_recurring(transaction, job, key=a_key())).job_id
        await old.leave()
        newer = await a_node(database, NEW)
        for _ in range(15):
            await newer.look_at_zones()
            await clock.advance(1)
        assert not (await store.state(database)).is_settled

    await newer.settle(clock)

    assert await pending(database, job_id) == at(10, day=3)


async def test_another_update_in_the_middle_of_one_leaves_nothing_behind(database, clock, old, monkeypatch):
    monkeypatch.setattr("duly.moves.schedules.zones._PAGE", 2)
    with on(OLD):
        job_ids = [await a_noon(database, "3") for _ in range(5)]
    await old.leave()
    second = await a_node(database, NEW)
    await second.look_at_zones()
    await second.leave()

    third = await a_node(database, an_edition("2026c", 1, [(at(0, day=3), 3)]))
    await third.settle(clock)

    assert {await pending(database, job_id) for job_id in job_ids} == {at(9, day=3)}


async def test_zone_data_with_unchanged_zones_comes_into_force_and_lists_nothing(database, clock, old):
    with on(OLD):
        await a_noon(database, "3")

    await updated(database, clock, old, an_edition("2026b"))

    assert await listed(database) == set()
    assert await database.fetchval("select changed from duly.zone_data") == []


async def test_where_nothing_was_in_force_every_zoned_schedule_is_looked_at(database, clock):
    with on(OLD):
        job_id, plain = await a_noon(database, "3"), (await a_cron(database, "0 5 * * *")).job_id

    newer = await a_node(database, NEW)
    assert newer.shards == 64
    await newer.settle(clock)

    assert await pending(database, job_id) == at(10, day=3)
    assert await pending(database, plain) == at(5, day=3)


async def test_moves_are_forgotten_after_a_while(database, clock, old):
    with on(OLD):
        await a_noon(database, "3")
    await updated(database, clock, old, NEW)

    await forget_older(database, Aging.ZONE_MOVES, seconds(3600), 100)
    assert len(await listed(database)) == 1
    await clock.advance(3601)
    await forget_older(database, Aging.ZONE_MOVES, seconds(3600), 100)
    assert await listed(database) == set()


async def test_shard_holders_include_schedulers_on_standby(database, old):
    newer = await a_node(database, NEW)
    await old.renew()

    found = {holder["scheduler_id"]: holder["shards"] for holder in await shards.holders(database)}
    assert found == {old.scheduler.scheduler_id: 64, newer.scheduler.scheduler_id: 0}
    assert (await counts(database)).get("ready", 0) == 0


@pytest.fixture
def compiled(monkeypatch):
    """The schedules that are compiled to be timed anew, in order, a page for each job."""
    texts = []

    def noted(text, *rest):
        texts.append(text)
        return schedule_of(text, *rest)

    monkeypatch.setattr(retiming, "_PAGE", 1)
    monkeypatch.setattr(retiming, "schedule_of", noted)
    return texts


async def test_schedules_that_are_alike_are_compiled_once_for_all_pages(database, clock, old, compiled):
    with on(OLD):
        jobs = [await a_noon(database, "3") for _ in range(4)]

    await updated(database, clock, old, NEW)

    assert len(compiled) == 2  # by the old rules and by the new
    assert [await pending(database, job_id) for job_id in jobs] == [at(10, day=3)] * 4


async def test_no_more_compiled_schedules_are_kept_than_there_is_room_for(database, clock, old, compiled, monkeypatch):
    monkeypatch.setattr(retiming, "_KEPT_MAX", 1)
    with on(OLD):
        jobs = [await a_noon(database, "3") for _ in range(3)]

    await updated(database, clock, old, NEW)

    assert len(compiled) > 2
    assert [await pending(database, job_id) for job_id in jobs] == [at(10, day=3)] * 3
