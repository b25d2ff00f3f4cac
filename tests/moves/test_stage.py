"""Stage: what falls due within the horizon becomes ready, once, and the next fire is armed with it."""

from datetime import timedelta

import pytest

from duly.domain.runs.run_id import occurrence_id
from duly.moves import stage_around
from duly.moves.stage import GRACE, stage
from duly.moves.stage_around import LeftOut
from duly.store.boxes import history
from duly.store.tables import shards
from tests.builders import (
    RNG,
    a_retrying_run,
    a_row,
    a_scheduler,
    a_waiting_run,
    an_active_schedule,
    boxes_of,
    claimed,
    counts,
    history_of,
    hold,
    seconds,
    staged,
)
from tests.builders import a_worker as a_worker_of
from tests.clock import START


async def fires(database) -> list[dict]:
    """Read what was staged of schedules, in order of their moments."""
    return [
        dict(row)
        for row in await database.fetch("select * from duly.ready where run_id <> job_id order by scheduled_at")
    ]


async def next_fire(database) -> dict:
    """Read the one next fire there is."""
    [row] = await database.fetch("select * from duly.timers where run_id is null")
    return dict(row)


async def test_run_due_within_the_horizon_becomes_ready_and_a_later_one_stays(database, clock):
    soon, later = await a_waiting_run(database, delay=64), await a_waiting_run(database, delay=66)
    await clock.advance(60)

    answer = await staged(database)

    assert (await boxes_of(database, soon), await boxes_of(database, later)) == (["ready"], ["timers"])
    assert (answer.count, answer.next_due_at, answer.read_at) == (1, START + seconds(66), clock.at)


async def test_idle_stage_step_moves_nothing_and_returns_the_next_due_time(database):
    await a_waiting_run(database, delay=3600)

    answer = await staged(database)

    assert (answer.count, answer.next_due_at) == (0, START + seconds(3600))


async def test_full_batch_reports_the_next_due_moment(database, clock):
    for delay in (62, 60, 61, 61):
        await a_waiting_run(database, delay=delay)
    await database.execute("update duly.timers set shard = 7")
    await clock.advance(70)

    answers = [await staged(database, batch=shards.SHARDS) for _ in range(4)]

    assert [answer.count for answer in answers] == [1, 1, 1, 1]
    assert [answer.next_due_at for answer in answers] == [*(START + seconds(at) for at in (61, 61, 62)), None]


async def test_with_no_timer_at_all_there_is_nothing_to_look_for(database):
    assert (await staged(database)).next_due_at is None


async def test_the_horizon_counts_to_the_microsecond(database, clock):
    await a_waiting_run(database, delay=60)
    await clock.advance(54.999999)
    assert (await staged(database)).count == 0

    await clock.advance(0.000001)

    assert (await staged(database)).count == 1


async def test_a_batch_is_limited_in_each_shard_and_takes_the_oldest_first(database, clock):
    for delay in range(60, 260):
        await a_waiting_run(database, delay=delay)
    await clock.advance(300)

    answer = await staged(database, batch=64)

    taken = await database.fetch("select duly.shard_of(job_id), due_at from duly.ready")
    left = dict(await database.fetch("select shard, min(due_at) from duly.timers group by shard"))
    assert answer.count == len(taken) == len({shard for shard, _ in taken}) <= 64
    assert all(due_at <= left[shard] for shard, due_at in taken if shard in left)


async def test_a_run_is_copied_whole(database, clock):
    run_id = await a_retrying_run(database)
    before = await a_row(database, "timers", run_id)
    await clock.advance(60)

    await staged(database)

    after = await a_row(database, "ready", run_id)
    shared = before.keys() & after.keys()
    assert len(shared) == 16
    assert {name: after[name] for name in shared} == {name: before[name] for name in shared}
    assert after["attempt"] == 1


class TestNextFire:
    async def test_a_fire_makes_its_run_and_arms_the_next_one(self, database):
        submitted = await an_active_schedule(database, every=60)

        await staged(database)

        [run] = await fires(database)
        timer = await next_fire(database)
        assert run["run_id"] == occurrence_id(submitted.job_id, START, "schedule")
        assert (run["scheduled_at"], run["due_at"], run["attempt"]) == (START, START, 0)
        assert (timer["scheduled_at"], timer["previous_scheduled_at"]) == (START + seconds(60), START)

    async def test_lateness_never_shifts_the_grid(self, database, clock):
        await an_active_schedule(database, every=60)
        for _ in range(5):
            await staged(database)
            await clock.advance(60.7)

        moments = [run["scheduled_at"] for run in await fires(database)]

        assert moments == [START + seconds(60 * number) for number in range(5)]

    async def test_each_run_knows_the_moment_before_it(self, database, clock):
        await an_active_schedule(database, every=60)
        await staged(database)
        await clock.advance(60)

        await staged(database)

        assert [run["previous_scheduled_at"] for run in await fires(database)] == [None, START]

    async def test_a_one_second_schedule_is_staged_ahead_one_fire_after_the_other(self, database):
        await an_active_schedule(database, every=1)

        for _ in range(10):
            await staged(database)

        assert [run["scheduled_at"] - START for run in await fires(database)] == [
            seconds(number) for number in range(6)
        ]
        assert await history.verify(database) == []

    async def test_a_year_of_fires_leaves_exactly_one_next_fire(self, database, clock):
        await an_active_schedule(database, every=86_400)
        for _ in range(365):
            await staged(database)
            await clock.advance(timedelta(days=1))

        assert await counts(database) == {"timers": 1, "ready": 365}


class TestMisfire:
    @pytest.mark.parametrize(("late", "runs", "skipped"), [(0, 1, 0), (60, 1, 0), (61, 1, 6), (3600, 1, 360)])
    async def test_after_an_outage_there_is_one_run_for_the_latest_moment_and_one_record_for_the_rest(
        self, database, clock, late, runs, skipped
    ):
        submitted = await an_active_schedule(database, every=10, anchor=START)
        await clock.advance(late)

        await staged(database)

        [run] = await fires(database)
        first = occurrence_id(submitted.job_id, START, "schedule")
        assert run["scheduled_at"] == START + seconds(10 * skipped)
        assert (await next_fire(database))["scheduled_at"] == run["scheduled_at"] + seconds(10)
        if skipped:
            [record] = await database.fetch("select run_id, reason, detail from duly.attempts")
            assert (record["run_id"], record["reason"]) == (first, "skipped_misfire")
            assert await database.fetchrow(
                "select (detail->>'first')::timestamptz, (detail->>'last')::timestamptz, (detail->>'count')::int"
                "  from duly.attempts"
            ) == (START, START + seconds(10 * (skipped - 1)), skipped)
        else:
            assert await database.fetchval("select count(*) from duly.attempts") == 0

    async def test_every_expected_occurrence_ran_or_is_counted_as_skipped(self, database, clock):
        await an_active_schedule(database, every=10, anchor=START)
        await staged(database)
        await clock.advance(1234)
        for _ in range(5):
            await staged(database)

        ran = len(await fires(database))
        skipped = await database.fetchval("select sum((detail->>'count')::int) from duly.attempts")
        last = (await fires(database))[-1]["scheduled_at"]

        assert last == START + seconds(1230)
        assert ran + skipped == 124

    async def test_an_occurrence_within_grace_is_run_late_not_skipped(self, database, clock):
        await an_active_schedule(database, every=10, anchor=START)
        await clock.advance(GRACE)

        for _ in range(10):
            await staged(database)

        assert len(await fires(database)) == 7
        assert await database.fetchval("select count(*) from duly.attempts") == 0

    async def test_a_one_shot_is_never_too_late_to_run(self, database, clock):
        run_id = await a_waiting_run(database, delay=60)
        await clock.advance(timedelta(days=30))

        await staged(database)

        assert await boxes_of(database, run_id) == ["ready"]

    async def test_a_daily_schedule_missed_by_an_hour_runs_for_its_own_moment(self, database, clock):
        await an_active_schedule(database, every=86_400, anchor=START)
        await clock.advance(3600)

        await staged(database)

        [run] = await fires(database)
        assert run["scheduled_at"] == START
        assert await database.fetchval("select count(*) from duly.attempts") == 0


class TestEpoch:
    async def test_a_stale_epoch_stages_nothing(self, database, clock):
        await a_waiting_run(database, delay=10)
        stale, epochs = await a_scheduler(database)
        await shards.release(database, stale)
        fresh, _ = await a_scheduler(database)
        await shards.release(database, fresh)
        await hold(database, stale)
        await clock.advance(1.9)
        await hold(database, stale)
        await clock.advance(1.9)
        await hold(database, stale)
        await clock.advance(1.9)

        assert (await stage(database, stale, epochs, horizon=seconds(10))).count == 0
        assert (await stage(database, stale, await hold(database, stale), horizon=seconds(10))).count == 1

    async def test_expired_scheduler_stages_nothing(self, database, clock):
        await a_waiting_run(database, delay=10)
        sleepy, epochs = await a_scheduler(database)
        await clock.advance(8)

        assert (await stage(database, sleepy, epochs)).count == 0

    async def test_another_schedulers_shards_are_not_ours(self, database):
        await a_waiting_run(database, delay=10)
        _, epochs = await a_scheduler(database)
        late = RNG.uuid()
        assert await hold(database, late) == {}, "it lives, but nothing is free yet"

        assert (await stage(database, late, epochs, horizon=seconds(10))).count == 0


class TestStories:
    async def test_story_02_after_a_step_back_of_the_clock_no_slot_is_staged_again(self, database, clock):
        await an_active_schedule(database, every=60, anchor=START)
        await staged(database)
        worker_id = await a_worker_of(database)
        assert len(await claimed(database, worker_id)) == 1

        await clock.step(-600)
        for _ in range(3):
            await staged(database)

        assert await fires(database) == []
        assert (await next_fire(database))["scheduled_at"] == START + seconds(60)

    async def test_story_02_an_occurrence_that_is_ready_already_is_not_staged_twice_but_recorded(self, database):
        submitted = await an_active_schedule(database, every=60, anchor=START)
        await staged(database)
        await database.execute("update duly.timers set scheduled_at = $1, due_at = $1", START)
        await a_waiting_run(database, delay=5.5)

        answer = await staged(database, horizon=seconds(6))

        assert answer.count == 2, "the rest of the batch is staged all the same"
        assert len(await fires(database)) == 1
        first = occurrence_id(submitted.job_id, START, "schedule")
        assert await history_of(database, first) == [(0, "skipped", "ready")]
        assert await database.fetchval("select reason from duly.attempts") == "skipped_duplicate"

    async def test_story_06_a_schedule_submitted_between_two_stages_is_fired_and_rearmed(self, database):
        scheduler_id, epochs = await a_scheduler(database)
        await stage(database, scheduler_id, epochs)
        await an_active_schedule(database, every=60, anchor=START)

        await stage(database, scheduler_id, epochs)

        assert await counts(database) == {"timers": 1, "ready": 1}

    async def test_story_14_one_full_shard_does_not_hold_up_the_others(self, database, clock):
        await a_waiting_run(database, delay=100)
        [shard] = [row[0] for row in await database.fetch("select shard from duly.timers")]
        for _ in range(20):
            await a_waiting_run(database, delay=60)
        await database.execute(
            "update duly.timers set shard = ($1 + 1) % 64 where due_at < $2", shard, START + seconds(100)
        )
        await clock.advance(120)

        await staged(database, batch=64)

        assert await database.fetch("select shard, count(*) from duly.timers group by 1") == [((shard + 1) % 64, 19)]


# Whatever it may be that the database has against a row; what is at the door does not know of it.
REFUSING = """
create function duly.refuse() returns trigger language plpgsql as $$ begin perform 1 / 0; return new; end $$;
create trigger refuse before insert on duly.ready for each row when (new.handler = 'bad') execute function duly.refuse();
"""
OVERLOADED = (
    "insert into duly.overloads (tenant, queue, oldest_due_at, recorded_at)"
    " values (1, 'default', duly.clock_now(), duly.clock_now())"
)


class TestRefused:
    """One bad row holds up no other."""

    async def test_good_rows_are_staged_around_refused_rows_that_stay(self, own_database, clock, caplog):
        database = own_database
        await database.execute(REFUSING)
        bad = [await a_waiting_run(database, handler="bad") for _ in range(3)]
        schedule = await an_active_schedule(database, anchor=START + seconds(60))
        await database.execute("update duly.timers set handler = 'bad' where run_id is null")
        good = [await a_waiting_run(database) for _ in range(300)]
        await clock.advance(60)

        left_out = LeftOut()
        staged_in_all = sum(
            [(await staged(database, left_out=left_out)).count for _ in bad]
        )  # Two may be in one shard.

        assert staged_in_all == len(good)
        assert await counts(database) == {"ready": 300, "timers": 4}
        assert [await boxes_of(database, run_id) for run_id in bad] == [["timers"]] * 3
        told = {record.fields["timer"] for record in caplog.records if record.message == "stage_refused"}
        assert told == {*bad, schedule.job_id}

    async def test_several_of_one_shard_are_found_one_by_one(self, own_database, clock):
        database, left_out = own_database, LeftOut()
        await database.execute(REFUSING)
        for handler in ("bad", "good") * 10:
            await a_waiting_run(database, handler=handler)
        await database.execute("update duly.timers set shard = 7")
        await clock.advance(60)

        staged_in_all = sum([(await staged(database, left_out=left_out)).count for _ in range(11)])

        assert (staged_in_all, len(left_out)) == (10, 10)
        assert (await staged(database, left_out=left_out)).next_due_at is None, "what is left out is not waited for"

    async def test_refused_row_is_found_behind_rows_that_stay_without_blaming_them(
        self, own_database, clock, caplog, monkeypatch
    ):
        """Next fires of low priority stay while their queue is overloaded: more of them than one look for the bad row takes."""
        database, left_out = own_database, LeftOut()
        monkeypatch.setattr(stage_around, "SUSPECTS_MAX", 2)
        await database.execute(REFUSING)
        await database.execute(OVERLOADED)
        for _ in range(5):
            await an_active_schedule(database, anchor=START + seconds(30), priority=9)
        bad = [await a_waiting_run(database, delay=delay, handler="bad") for delay in (40, 41)]
        good = [await a_waiting_run(database, delay=50) for _ in range(3)]
        await database.execute("update duly.timers set shard = 7")
        await clock.advance(60)

        assert (await staged(database, left_out=left_out, batch=64)).count == 0, "there is another"
        assert sum([(await staged(database, left_out=left_out, batch=64)).count for _ in range(3)]) == len(good)
        told = [record.fields["timer"] for record in caplog.records if record.message == "stage_refused"]
        assert told == bad

    async def test_refused_row_is_retried_less_and_less_often(self, own_database, clock, caplog):
        database, left_out = own_database, LeftOut()
        await database.execute(REFUSING)
        run_id = await a_waiting_run(database, handler="bad")
        await clock.advance(60)
        for _ in range(40):
            await staged(database, left_out=left_out)
            await clock.advance(1)
        assert [record.fields["again_seconds"] for record in caplog.records] == [10, 20, 40]

        await database.execute("drop trigger refuse on duly.ready")
        await clock.advance(40)
        await staged(database, left_out=left_out)

        assert await boxes_of(database, run_id) == ["ready"]

    @pytest.mark.parametrize("rate", ["1e-9", "1e-12", "1e-14", "1e-300", "1e-320"])
    async def test_stored_rate_close_to_zero_blocks_no_other(self, database, clock, rate):
        for _ in range(3):
            kept = await a_waiting_run(database)
            options = f'{{"rate": ["slow", {rate}, 1]}}'
            await database.execute("update duly.timers set options = $2::text::jsonb where run_id = $1", kept, options)
        run_id = await a_waiting_run(database)
        await clock.advance(60)

        answer = await staged(database)

        assert answer.count == 4
        assert await boxes_of(database, run_id) == ["ready"]
        assert await counts(database) == {"ready": 2, "blocked": 2}
        await database.fetch("select * from duly.reserve_due(10)")


async def test_a_fire_reads_no_definition_because_its_timer_carries_it(database):
    submitted = await an_active_schedule(database, payload='{"a": 1}', priority=3)
    await database.execute("delete from duly.jobs")

    await staged(database)

    [row] = await database.fetch("select job_id, payload::text, priority from duly.ready")
    assert tuple(row) == (submitted.job_id, '{"a": 1}', 3)
