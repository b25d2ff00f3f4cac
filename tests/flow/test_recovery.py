"""After downtime: what was missed waits for a person, what is on time goes on, and what is approved is made at its rate."""

from datetime import timedelta
from itertools import pairwise

import msgspec
import pytest

from duly.clock import Rng
from duly.domain.errors import InvalidOption, Refused
from duly.domain.jobs.recovery import Rule
from duly.log import Log
from duly.moves.schedules import recover
from duly.moves.schedules.edit import amend
from duly.scheduler.service import Scheduler
from duly.store.tables import recovery
from tests.builders import a_ready_run, a_waiting_run, a_worker, an_active_schedule, claimed, counts, seconds, settled
from tests.clock import START
from tests.schedules.stories import (
    MINUTE,
    a_cron,
    is_sound,
    minutes,
    next_fire,
    occurrences,
    pending,
    run_through,
    skipped,
    skips,
    state_of,
)

HOUR = timedelta(hours=1)
LOG = Log("test")
ALL = {"policy": "fire_all"}


class Place:
    """A scheduler that can be stopped and started again, and a person who decides."""

    def __init__(self, database, clock, after=HOUR) -> None:
        self.database, self.clock, self.after, self.starts = database, clock, after, 0

    async def start(self, seed: int = 1) -> Scheduler:
        scheduler = Scheduler(
            self.database, name="scheduler", rng=Rng(seed), log=Log("scheduler"), recovery_after=self.after
        )
        await scheduler.renew()
        self.scheduler = scheduler
        return scheduler

    async def run(self, span: float, step: float = 1.0) -> list[int]:
        """Let the scheduler go on for a while. Gives how many runs of the lane it made with each look."""
        made = []
        for _ in range(int(span / step)):
            await self.scheduler.renew()
            before = self.scheduler.health.backfilled
            await self.scheduler.step()
            made.append(self.scheduler.health.backfilled - before)
            await self.clock.advance(step)
        return made

    async def stop(self) -> None:
        await self.scheduler._release_shards()

    async def down(self, span: timedelta) -> None:
        """Be down for a while, and come back."""
        await self.stop()
        await self.clock.advance(span)
        self.starts += 1
        await self.start(100 + self.starts)

    async def approve(self, *rules: Rule, rate: float | None = None) -> None:
        await recover.approve(self.database, Rng(3), LOG, rules=rules, rate=rate, by="somebody")

    async def dismiss(self) -> None:
        await recover.dismiss(self.database, Rng(3), LOG, by="somebody")

    async def state(self) -> str | None:
        found = await recovery.last(self.database)
        return None if found is None else found.state


@pytest.fixture
async def place(database, clock):
    place = Place(database, clock)
    await place.start()
    return place


async def test_missed_occurrences_wait_for_approval_while_timely_runs_continue(place, database):
    by_cron, by_interval = await a_cron(database), await an_active_schedule(database)
    one_shot = await a_waiting_run(database, delay=600)
    await place.run(1)
    await run_through(database)

    await place.down(3 * HOUR + seconds(29))
    await place.run(1)

    assert await place.state() == "open"
    assert {row["run_id"] for row in await database.fetch("select run_id from duly.ready")} == {one_shot}, (
        "it has no policy for being late"
    )
    for job in (by_cron, by_interval):
        assert await pending(database, job.job_id) == START + 181 * MINUTE
        fire = await next_fire(database, job.job_id)
        assert fire is not None
        assert fire["previous_scheduled_at"] == START + 180 * MINUTE
    held = await database.fetch("select job_id, from_at, total, due_at from duly.backfills order by job_id")
    assert {row["job_id"]: (row["from_at"], row["total"]) for row in held} == {
        job.job_id: (START + MINUTE, 180) for job in (by_cron, by_interval)
    }
    assert await skips(database) == []

    await place.run(31)

    assert await occurrences(database, by_cron.job_id) == minutes(181), "on time, while nobody has decided yet"
    assert await is_sound(database)


async def test_by_approval_each_schedule_has_its_own_policy(place, database):
    jobs = {
        policy: await a_cron(
            database, misfire={"policy": policy, "limit": 5} | ({"rate": 5} if policy == "fire_all" else {})
        )
        for policy in ("skip", "fire_once", "fire_all")
    }
    await place.run(1)
    await run_through(database)
    await place.down(2 * HOUR + seconds(29))
    await place.run(1)

    await place.approve()
    await place.run(12)

    runs = {policy: await occurrences(database, job.job_id, "ready") for policy, job in jobs.items()}
    waiting = await occurrences(database, jobs["fire_all"].job_id, "blocked")
    assert (runs["skip"], runs["fire_once"]) == ([], minutes(120))
    assert sorted(runs["fire_all"] + waiting) == minutes(116, 117, 118, 119, 120)
    assert await skips(database, jobs["skip"].job_id) == [skipped("misfire", 1, 120, 120)]
    assert await skips(database, jobs["fire_once"].job_id) == [skipped("misfire", 1, 119, 119)]
    assert await skips(database, jobs["fire_all"].job_id) == [skipped("limit", 1, 115, 115)]
    assert await place.state() == "done"
    assert await is_sound(database)


async def test_recovery_rule_overrides_wider_rules_and_the_misfire_policy(place, database):
    chosen, tenants, other = [await a_cron(database, misfire=ALL) for _ in range(3)]
    await database.execute("insert into duly.tenants (tenant, name, created_at) values (2, 'other', $1)", START)
    for table in ("jobs", "timers"):
        await database.execute(f"update duly.{table} set tenant = 2 where job_id = $1", tenants.job_id)
    await place.run(1)
    await database.execute("delete from duly.ready")
    await place.down(2 * HOUR)
    await place.run(1)

    await place.approve(Rule("skip"), Rule("fire_once", tenant=2), Rule("fire_once", job_id=chosen.job_id))
    await place.run(12)

    for job, ran in ((chosen, minutes(120)), (tenants, minutes(120)), (other, [])):
        assert await occurrences(database, job.job_id) == ran


async def test_six_hours_down_with_hundreds_of_schedules(place, database):
    await six_hours_down(place, database, each=100, rate=50, span=25)


@pytest.mark.proof
@pytest.mark.timeout(900)
async def test_six_hours_down_with_thousands_of_schedules(place, database):
    await six_hours_down(place, database, each=1_000, rate=500, span=25)


async def six_hours_down(place, database, *, each: int, rate: int, span: int) -> None:
    """N25: exactly one run for each that fires once, five for each that makes up for five, at the rate; new work is taken."""
    for _ in range(each):
        await a_cron(database)
        await an_active_schedule(database)
        await a_cron(database, misfire=ALL | {"limit": 5, "rate": 10})
    await place.run(1)
    await database.execute("delete from duly.ready")
    await place.down(6 * HOUR + seconds(20))
    await place.run(1)
    await place.approve(rate=rate)

    worker_id, made, ran = await a_worker(database, lease=HOUR), [], 0
    for second in range(span):
        fresh = await a_ready_run(database) if second % 5 == 0 else None
        made += await place.run(1)
        runs = await claimed(database, worker_id, limit=1_000)
        if fresh is not None:
            assert fresh in {run.run_id for run in runs}, "what is new is not held up"
        ran += sum(run.priority >= 100 for run in runs)
        for run in runs:
            await settled(database, worker_id, run)

    assert max(made) <= 2 * rate, "the rate, and what it kept of the second before"
    assert sum(made) == ran == 7 * each
    assert sum(made[:8]) <= 9 * rate
    assert await place.state() == "done"
    assert await is_sound(database)


async def test_recovery_continues_across_a_scheduler_restart(place, database):
    await a_cron(database, misfire=ALL | {"rate": 1})
    await place.run(1)
    await run_through(database)
    await place.down(2 * HOUR)
    await place.run(1)
    await place.approve()
    await place.run(5)

    await place.stop()
    await place.start(5)
    await place.run(20)

    assert await place.state() == "approved"
    found = await counts(database)
    assert found["ready"] + found["blocked"] >= 20
    assert await database.fetchval("select count(*) from duly.recoveries") == 1


def in_a_second(made: list[int], step: float) -> int:
    """Give the most runs that any second has, of looks that are so far apart."""
    looks = round(1 / step)
    return max(sum(made[first : first + looks]) for first in range(len(made)))


@pytest.mark.parametrize("rate", [1, 3])
async def test_the_rate_approved_holds_for_all_schedules_and_over_restarts(place, database, rate):
    for _ in range(5):
        await a_cron(database, misfire=ALL)
    await place.run(1)
    await place.down(2 * HOUR)
    await place.run(1)
    await place.approve(rate=rate)

    made = []
    for seed in range(3, 33):
        made += await place.run(0.4, step=0.2)
        await place.stop()
        await place.start(seed)

    assert in_a_second(made, 0.2) == rate
    assert sum(made) >= 8 * rate, "it goes on"


async def test_the_rate_approved_holds_for_two_schedulers_together(place, database, clock):
    for _ in range(20):
        await a_cron(database, misfire=ALL)
    await place.run(1)
    await place.down(2 * HOUR)
    await place.run(1)
    await place.approve(rate=2)
    first, second = place.scheduler, await place.start(7)

    made, before = [], first.health.backfilled
    for _ in range(60):
        for scheduler in (first, second):
            await scheduler.renew()
            await scheduler.step()
        now = first.health.backfilled + second.health.backfilled
        made.append(now - before)
        before = now
        await clock.advance(0.2)

    assert in_a_second(made, 0.2) == 2
    assert sum(made) >= 18, "it goes on"
    assert min(first.health.shards, second.health.shards) > 0, "both held some"


async def test_a_scheduler_looks_when_the_lane_may_go_on(place, database, clock):
    await a_cron(database, "0 0 1 1 *")  # Nothing else makes it look.
    await a_cron(database, misfire=ALL)
    place.after = None
    await place.run(1)
    await place.down(30 * MINUTE + seconds(1))
    made = []
    while clock.at < START + 30 * MINUTE + seconds(20):
        await place.scheduler.renew()
        before = place.scheduler.health.backfilled
        pause = await place.scheduler._step_safely()
        made += [clock.at] * (place.scheduler.health.backfilled - before)
        await clock.advance(min(pause, 0.7))  # as where something else is due, too

    apart = {(after - before).total_seconds() for before, after in pairwise(made)}
    assert apart
    assert all(1 <= gap < 1.3 for gap in apart), made


async def test_dismissed_recovery_skips_missed_occurrences_with_a_record(place, database):
    by_cron, by_interval = await a_cron(database), await an_active_schedule(database)
    await place.run(1)
    await run_through(database)
    await place.down(2 * HOUR)
    await place.run(1)

    await place.dismiss()
    await place.run(12)

    assert await occurrences(database) == []
    for job in (by_cron, by_interval):
        [left_out] = await skips(database, job.job_id)
        assert (left_out.reason, left_out.first, left_out.count) == ("skipped_on_request", START + MINUTE, 120)
    assert await place.state() == "dismissed"


@pytest.mark.parametrize("schedules", [2, 4])
async def test_a_second_outage_right_after_a_dismissal_is_noticed(place, database, monkeypatch, schedules):
    monkeypatch.setattr("duly.moves.schedules.recover.BATCH_MAX", 2)
    for _ in range(schedules):
        await a_cron(database)
    await place.run(1)
    await run_through(database)
    await place.down(2 * HOUR)
    await place.run(1)
    await place.dismiss()
    await place.run(1)
    first = await recovery.last(database)
    assert first is not None
    assert first.state == "dismissing", "it lasts ten seconds at the least"

    await place.down(2 * HOUR)
    await place.run(20)

    second = await recovery.last(database)
    assert second is not None
    assert (second.state, second.recovery_id != first.recovery_id) == ("open", True)
    held = await database.fetch("select recovery_id, from_at from duly.backfills where state = 'active'")
    assert {tuple(row) for row in held} == {(second.recovery_id, START + 121 * MINUTE)}
    assert len(held) == schedules
    left_out = await skips(database)
    assert [(one.reason, one.count) for one in left_out] == [("skipped_on_request", 120)] * schedules
    states = await database.fetch("select state from duly.recoveries order by opened_at")
    assert [row[0] for row in states] == ["dismissed", "open"]
    await place.approve()
    await place.run(15)
    assert await place.state() == "done"
    assert await is_sound(database)


async def test_second_outage_right_after_a_finished_catch_up_opens_a_recovery(place, database):
    await a_cron(database)
    await place.run(1)
    await run_through(database)
    await place.down(2 * HOUR)
    await place.run(1)
    await place.approve()
    await place.run(3)
    assert await place.state() == "approved"

    await place.down(2 * HOUR)
    await place.run(1)

    assert await place.state() == "open"
    assert await is_sound(database)


async def test_recovery_dismissed_half_way_removes_its_waiting_runs(place, database):
    job = await a_cron(database, misfire=ALL | {"rate": 2})
    await place.run(1)
    await run_through(database)
    await place.down(2 * HOUR)
    await place.run(1)
    await place.approve()
    await place.run(5)

    await place.dismiss()
    await place.run(12)

    assert await occurrences(database, job.job_id, "blocked") == []
    assert await place.state() == "dismissed"
    assert await is_sound(database)


@pytest.mark.parametrize("after", [None, 4 * HOUR])
async def test_without_the_setting_or_after_less_than_it_policies_act_at_once(database, clock, after):
    place = Place(database, clock, after)
    await place.start()
    job = await a_cron(database)
    await place.run(1)
    await run_through(database)

    await place.down(2 * HOUR)
    await place.run(1)

    assert await place.state() is None
    assert await occurrences(database, job.job_id) == minutes(120)


async def test_the_first_start_of_all_opens_nothing(place, database):
    await place.run(2)

    assert await place.state() is None


async def test_two_that_start_at_once_open_one(place, database, clock):
    await a_cron(database)
    await place.run(1)
    await place.stop()
    await clock.advance(2 * HOUR)

    first, second = await place.start(7), await place.start(8)
    await first.renew()
    await second.renew()
    await first.step()
    await second.step()

    assert await database.fetchval("select count(*) from duly.recoveries") == 1
    assert await database.fetchval("select count(*) from duly.backfills") == 1


async def test_a_recovery_that_finds_nothing_missed_ends_by_itself(place, database):
    await place.run(1)
    await place.down(2 * HOUR)
    await place.run(2)
    assert await place.state() == "open"

    await place.run(70, step=5)

    assert await place.state() == "done"


async def test_schedule_that_ends_during_an_outage_catches_up_its_missed_occurrences(place, database):
    end = (START + 30 * MINUTE).isoformat()
    job = await a_cron(database, "*/10 * * * *", end=end, misfire=ALL | {"rate": 5})
    await place.run(1)
    await run_through(database)
    await place.down(2 * HOUR)
    await place.run(1)

    assert await state_of(database, job.job_id) == "completed"
    await place.approve()
    await place.run(12)

    assert sorted(
        await occurrences(database, job.job_id) + await occurrences(database, job.job_id, "blocked")
    ) == minutes(10, 20)


async def test_an_edit_meanwhile_makes_no_other_past(place, database):
    job = await a_cron(database)
    await place.run(1)
    await run_through(database)
    await place.down(2 * HOUR)
    await place.run(1)

    await amend(database, job.job_id, lambda old: msgspec.structs.replace(old, priority=3))
    await place.approve()
    await place.run(12)

    assert await occurrences(database, job.job_id) == minutes(120)


class TestWithoutARecovery:
    async def test_the_rate_of_catch_ups_under_way_is_changed_by_taking_them_over(self, database, clock):
        place = Place(database, clock, None)
        await place.start()
        for _ in range(10):
            await a_cron(database, misfire=ALL | {"rate": 10})
        await place.run(1)
        await database.execute("delete from duly.ready")
        await place.down(2 * HOUR)
        await place.run(2)

        await place.approve(rate=2)
        made = await place.run(10)

        assert 15 <= sum(made) <= 24
        assert await place.state() == "approved"

    async def test_they_are_stopped(self, database, clock):
        place = Place(database, clock, None)
        await place.start()
        job = await a_cron(database, misfire=ALL)
        await place.run(1)
        await database.execute("delete from duly.ready")
        await place.down(2 * HOUR)
        await place.run(2)

        await place.dismiss()
        await place.run(12)

        assert await place.state() == "dismissed"
        assert [one.reason for one in await skips(database, job.job_id)] == ["skipped_on_request"]

    async def test_approve_and_dismiss_report_that_no_recovery_is_open(self, place):
        for decide in (place.approve, place.dismiss):
            with pytest.raises(Refused, match="no recovery is open; `duly recover`"):
                await decide()


class TestRejections:
    async def test_a_rate_that_is_none(self, place):
        for rate in (0, -1, 501):
            with pytest.raises(InvalidOption, match=rf"^rate {rate} .*\b500\b"):
                await place.approve(rate=rate)

    async def test_approved_recovery_accepts_a_new_rate_only(self, place, database):
        await a_cron(database, misfire=ALL)
        await place.run(1)
        await run_through(database)
        await place.down(2 * HOUR)
        await place.run(1)
        await place.approve()

        with pytest.raises(Refused, match=r"is approved: .* new rate only"):
            await place.approve(Rule("skip"))
        await place.approve(rate=7)
        found = await recovery.last(database)
        assert found is not None
        assert found.rate == 7
