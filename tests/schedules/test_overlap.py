"""Due while the last run is active: skipped, waiting, replacing, stopping the other, or beside it. A retry is part of its run."""

from datetime import timedelta

import pytest

from duly.domain.errors import InvalidOption
from duly.domain.runs.options import options_of
from duly.domain.runs.outcome import Cancelled, Outcome, Succeeded
from duly.domain.runs.retry import Retry
from duly.domain.runs.run_id import occurrence_id
from duly.moves.cancel import STOP_TIMEOUT, cancel_run, void_overstayed
from duly.moves.dead import replay
from duly.moves.schedules.edit import edit
from duly.moves.settle import hand_back
from duly.store.boxes import history, runs
from tests.builders import (
    RNG,
    a_schedule,
    a_worker,
    an_active_schedule,
    boxes_of,
    claimed,
    counts,
    history_of,
    seconds,
    settled,
    staged,
)
from tests.clock import START
from tests.schedules.stories import (
    FOR_GOOD,
    LATER,
    MINUTE,
    Driver,
    a_cron,
    fails,
    is_sound,
    lose_workers,
    minutes,
    occurrences,
    run_through,
    skipped,
    skips,
    staged_all,
    taken,
)

KINDS = {"cron": {"type": "cron", "expr": "* * * * *"}, "interval": {"type": "interval", "every": "PT1M"}}

OUTCOMES: dict[str, Outcome] = {"retrying soon": fails(1), "retrying later": LATER, "replayed": FOR_GOOD}
ENDS: dict[str, Outcome] = {"success": Succeeded(), "death": FOR_GOOD, "cancel": Cancelled("asked to")}


@pytest.fixture(params=KINDS)
def trigger(request):
    """Each minute: computed here, or by the database alone."""
    return KINDS[request.param]


def overlap(policy, limit=None):
    """Give the part of a schedule that says what to do about an overlap."""
    return {"policy": policy} | ({} if limit is None else {"limit": limit})


async def pass_minutes(database, clock, number=1):
    """Let minutes pass, and let a scheduler look at each."""
    for _ in range(number):
        await clock.advance(MINUTE)
        await staged_all(database)


class TestSkip:
    async def test_skip_is_the_default_overlap_policy(self, database, clock, trigger):
        job = await an_active_schedule(database, trigger=trigger, overlap=None)
        await staged(database)
        await pass_minutes(database, clock, 2)

        assert await occurrences(database, job.job_id) == minutes(0)
        assert await skips(database) == [skipped("overlap", 1), skipped("overlap", 2)]
        assert await is_sound(database)

    @pytest.mark.parametrize("where", ["ready", "leased", "retrying soon", "retrying later", "replayed"])
    async def test_a_run_is_active_until_it_has_ended(self, database, clock, trigger, where):
        job = await an_active_schedule(database, trigger=trigger, overlap=overlap("skip"))
        await staged(database)
        if where != "ready":
            worker_id, run = await taken(database)
            if where in OUTCOMES:
                await settled(database, worker_id, run, OUTCOMES[where])
            await replay(database, [run.run_id])

        await pass_minutes(database, clock)

        assert await skips(database) == [skipped("overlap", 1)]
        assert occurrence_id(job.job_id, START + MINUTE, "schedule") not in await runs_of(database)

    @pytest.mark.parametrize("end", ["success", "death", "cancel"])
    async def test_after_its_end_the_next_one_runs(self, database, clock, trigger, end):
        job = await an_active_schedule(database, trigger=trigger, overlap=overlap("skip"))
        await staged(database)
        worker_id, run = await taken(database)
        await settled(database, worker_id, run, ENDS[end])

        await pass_minutes(database, clock)

        assert await occurrences(database, job.job_id) == minutes(1)
        assert await skips(database) == []

    async def test_skip_policy_stages_the_next_run_if_the_active_one_ends_in_time(self, database, clock):
        job = await a_cron(database, overlap=overlap("skip"))
        await staged(database)
        worker_id, run = await taken(database)
        await clock.advance(57)
        assert await staged_all(database) == 0

        await settled(database, worker_id, run)

        assert await staged_all(database) == 1
        assert await occurrences(database, job.job_id) == minutes(1)

    @pytest.mark.parametrize(("every", "lasting", "step"), [(1, 0.3, 0.2), (10, 7, 0.2), (10, 9.9, 0.1), (1, 0.7, 0.1)])
    async def test_a_job_that_ends_before_its_next_moment_misses_none(self, database, clock, every, lasting, step):
        job = await an_active_schedule(database, every=every, overlap=overlap("skip"))
        driver = Driver(database, clock, RNG.uuid(), step)

        await driver.drive(every * 5, lasting)

        assert driver.ran[:5] == [START + seconds(every * number) for number in range(5)]
        assert await skips(database, job.job_id) == []

    async def test_a_job_that_lasts_too_long_misses_every_other(self, database, clock):
        await an_active_schedule(database, every=10, overlap=overlap("skip"))
        driver = Driver(database, clock, RNG.uuid())

        await driver.drive(93, lasting=12)

        assert driver.ran == [START + seconds(20 * number) for number in range(5)]
        assert len(await skips(database)) == 5

    async def test_a_late_one_that_overlaps_is_counted_once(self, database, clock, trigger):
        await an_active_schedule(database, trigger=trigger, overlap=overlap("skip"))
        await staged(database)
        await taken(database)
        await clock.advance(10 * MINUTE)

        await staged(database)

        assert await skips(database) == [skipped("misfire", 1, 9, 9), skipped("overlap", 10)]


class TestBufferOne:
    async def test_buffer_one_replaces_the_waiting_run_with_a_newer_one(self, database, clock, trigger):
        job = await an_active_schedule(database, trigger=trigger, overlap=overlap("buffer_one"))
        await staged(database)
        worker_id, run = await taken(database)
        await pass_minutes(database, clock, 3)

        assert await occurrences(database, job.job_id, "blocked") == minutes(3)
        assert await skips(database) == [skipped("overlap", 1), skipped("overlap", 2)]
        await settled(database, worker_id, run)
        assert await occurrences(database, job.job_id) == minutes(3)
        assert await is_sound(database)


class TestQueue:
    async def test_all_wait_oldest_first(self, database, clock, trigger):
        await an_active_schedule(database, trigger=trigger, overlap=overlap("queue"))
        await staged(database)
        worker_id, run = await taken(database)
        await pass_minutes(database, clock, 4)

        await settled(database, worker_id, run)

        assert [await run_through(database) for _ in range(4)] == [minutes(number) for number in (1, 2, 3, 4)]
        assert await skips(database) == []
        assert await counts(database) == {"timers": 1}
        assert await is_sound(database)

    async def test_beyond_the_limit_the_newest_is_skipped(self, database, clock, trigger):
        job = await an_active_schedule(database, trigger=trigger, overlap=overlap("queue", 2))
        await staged(database)
        await pass_minutes(database, clock, 4)

        assert await occurrences(database, job.job_id) == minutes(0)
        assert await occurrences(database, job.job_id, "blocked") == minutes(1, 2)
        assert await skips(database) == [skipped("overlap", 3), skipped("overlap", 4)]

    async def test_a_waiting_one_is_no_misfire_however_long_it_waits(self, database, clock):
        await a_cron(database, "0 9,10 * * *", overlap=overlap("queue"))
        await staged(database)
        worker_id, run = await taken(database)
        await clock.advance(timedelta(hours=1))
        await staged(database)
        await clock.advance(timedelta(hours=5))

        await settled(database, worker_id, run)

        assert await occurrences(database) == minutes(60)
        assert await skips(database) == []


class TestOverlapSlot:
    """A retry is part of its run, so it keeps the place; whatever ends the run gives it back."""

    @pytest.mark.parametrize("delay", [1, 600])
    async def test_run_keeps_its_overlap_slot_over_retries(self, database, clock, delay):
        job = await a_cron(database, overlap=overlap("queue"), options=options_of(retry=Retry(max_attempts=9)))
        await staged(database)
        worker_id, run = await taken(database)
        await pass_minutes(database, clock)
        for _ in range(3):
            await settled(database, worker_id, run, fails(delay))
            assert await is_sound(database)
            await clock.advance(delay)
            await staged_all(database)
            worker_id = await a_worker(database)
            [run] = await claimed(database, worker_id)
            assert run.scheduled_at == START, "nobody slips in between two attempts"

        await settled(database, worker_id, run)

        assert (await occurrences(database, job.job_id))[0] == minutes(1)[0]
        assert await is_sound(database)

    @pytest.mark.parametrize(
        "end",
        ["success", "death", "cancel", "cancelled before", "cancelled between", "lost", "handed back"],
    )
    async def test_overlap_slot_is_released_however_the_run_ends(self, database, clock, end):
        job = await a_cron(database, overlap=overlap("queue"))
        await staged(database)
        await pass_minutes(database, clock)
        first = occurrence_id(job.job_id, START, "schedule")
        worker_id = await a_worker(database)
        run = None if end == "cancelled before" else (await claimed(database, worker_id))[0]
        if run is None:
            await cancel_run(database, first)
        elif end == "cancelled between":
            await settled(database, worker_id, run, LATER)
            await cancel_run(database, first)
        elif end == "handed back":
            await cancel_run(database, first)
            await hand_back(database, worker_id, [run])
        elif end == "lost":
            await cancel_run(database, first)
            await lose_workers(database, clock)
        else:
            await settled(database, worker_id, run, ENDS[end])

        assert await occurrences(database, job.job_id) == minutes(1)
        assert await is_sound(database)

    async def test_run_of_a_lost_worker_keeps_its_overlap_slot_for_the_next_attempt(self, database, clock):
        job = await a_cron(database, overlap=overlap("queue"))
        await staged(database)
        await taken(database)
        await pass_minutes(database, clock)

        await lose_workers(database, clock)
        await clock.advance(MINUTE)
        await staged_all(database)

        assert await occurrences(database, job.job_id) == minutes(0)
        assert await is_sound(database)

    async def test_dead_run_frees_its_overlap_slot_and_waits_for_it_on_replay(self, database, clock):
        job = await a_cron(database, overlap=overlap("queue"))
        await staged(database)
        worker_id, dead = await taken(database)
        await settled(database, worker_id, dead, FOR_GOOD)
        await pass_minutes(database, clock)
        _, other = await taken(database, await a_worker(database))

        await replay(database, [dead.run_id])
        await staged_all(database)

        assert await boxes_of(database, dead.run_id) == ["blocked"]
        assert other.scheduled_at == minutes(1)[0]
        assert await is_sound(database)
        assert job.job_id == dead.job_id

    async def test_a_wrong_count_is_found(self, database):
        await a_cron(database, overlap=overlap("queue"))
        await staged(database)
        worker_id, run = await taken(database)
        await settled(database, worker_id, run, LATER)
        await database.execute("update duly.concurrency_keys set active = 2")

        assert [row["broken"] for row in await history.verify(database)] == ["concurrency key whose count is wrong"]


class TestAllow:
    async def test_allow_policy_without_a_limit_runs_all_occurrences_in_parallel(self, database, clock, trigger):
        job = await an_active_schedule(database, trigger=trigger, overlap=overlap("allow"))
        await staged(database)
        await pass_minutes(database, clock, 3)

        assert await occurrences(database, job.job_id) == minutes(0, 1, 2, 3)

    async def test_beyond_the_limit_they_are_skipped(self, database, clock, trigger):
        job = await an_active_schedule(database, trigger=trigger, overlap=overlap("allow", 2))
        await staged(database)
        await pass_minutes(database, clock, 3)
        assert await occurrences(database, job.job_id) == minutes(0, 1)
        assert await skips(database) == [skipped("overlap", 2), skipped("overlap", 3)]

        await run_through(database)
        await pass_minutes(database, clock)

        assert await occurrences(database, job.job_id) == minutes(4)
        assert await is_sound(database)


class TestCancelRunning:
    async def test_cancel_running_stops_the_active_run_before_the_new_run_starts(self, database, clock, trigger):
        job = await an_active_schedule(database, trigger=trigger, overlap=overlap("cancel_running"))
        await staged(database)
        worker_id, run = await taken(database)
        assert [signal.run_id for signal in (await runs.look(database, worker_id)).signals] == []

        await pass_minutes(database, clock)

        assert [signal.run_id for signal in (await runs.look(database, worker_id)).signals] == [run.run_id]
        assert await occurrences(database, job.job_id, "blocked") == minutes(1)
        await settled(database, worker_id, run, Cancelled("stopped"))
        assert await occurrences(database, job.job_id) == minutes(1)
        assert await is_sound(database)

    async def test_a_ready_one_is_cancelled_at_once(self, database, clock):
        job = await a_cron(database, overlap=overlap("cancel_running"))
        await staged(database)
        await pass_minutes(database, clock)

        assert await occurrences(database, job.job_id) == minutes(1)
        assert await history_of(database, occurrence_id(job.job_id, START, "schedule")) == [
            (0, "cancelled", "cancelled")
        ]
        assert await is_sound(database)

    async def test_cancel_running_cancels_a_run_that_waits_for_its_retry(self, database, clock):
        job = await a_cron(database, overlap=overlap("cancel_running"))
        await staged(database)
        worker_id, run = await taken(database)
        await settled(database, worker_id, run, LATER)
        await pass_minutes(database, clock)

        assert await occurrences(database, job.job_id) == minutes(1)
        assert [became for _, _, became in await history_of(database, run.run_id)] == ["retrying", "cancelled"]
        assert await is_sound(database)

    async def test_cancel_running_replaces_an_occurrence_that_still_waits(self, database, clock):
        job = await a_cron(database, overlap=overlap("cancel_running"))
        await staged(database)
        worker_id, run = await taken(database)
        await pass_minutes(database, clock, 3)

        assert await occurrences(database, job.job_id, "blocked") == minutes(3)
        assert [signal.run_id for signal in (await runs.look(database, worker_id)).signals] == [run.run_id]
        assert len(await skips(database)) == 2

    async def test_run_that_does_not_stop_in_time_loses_its_slot_and_is_fenced(self, database, clock):
        job = await a_cron(database, overlap=overlap("cancel_running"))
        await staged(database)
        worker_id, run = await taken(database)
        await pass_minutes(database, clock)
        await clock.advance(STOP_TIMEOUT - seconds(1))
        assert await void_overstayed(database) == []

        await clock.advance(1)
        assert await void_overstayed(database) == [run.run_id]

        assert await occurrences(database, job.job_id) == minutes(1)
        assert await history_of(database, run.run_id) == [(1, "lost", "cancelled")]
        assert [fenced.run_id for fenced in await settled(database, worker_id, run)] == [run.run_id]
        assert [signal.run_id for signal in (await runs.look(database, worker_id)).signals] == []
        assert await void_overstayed(database) == []
        assert await is_sound(database)

    async def test_run_keeps_its_overlap_slot_when_its_replacement_is_cancelled(self, database, clock):
        await a_cron(database, overlap=overlap("cancel_running"))
        await staged(database)
        worker_id, run = await taken(database)
        await pass_minutes(database, clock)
        waiting = await database.fetch("select run_id from duly.blocked")
        await runs.cancel(database, [row[0] for row in waiting], "not needed")
        await clock.advance(60)

        assert await void_overstayed(database) == []
        assert await settled(database, worker_id, run) == []

    async def test_manual_cancel_takes_no_overlap_slot_from_a_run_that_does_not_stop(self, database, clock):
        job = await a_cron(database, overlap=overlap("queue"))
        await staged(database)
        worker_id, run = await taken(database)
        await pass_minutes(database, clock)
        await cancel_run(database, run.run_id)
        await clock.advance(60)

        assert await void_overstayed(database) == []
        assert await settled(database, worker_id, run) == []
        assert await occurrences(database, job.job_id) == minutes(1)

    async def test_run_requested_to_stop_by_its_replacement_is_not_retried(self, database, clock):
        job = await a_cron(database, overlap=overlap("cancel_running"))
        await staged(database)
        worker_id, run = await taken(database)
        await pass_minutes(database, clock)

        await settled(database, worker_id, run, LATER)

        assert await boxes_of(database, run.run_id) == []
        assert await occurrences(database, job.job_id) == minutes(1)
        assert await is_sound(database)


class TestBesideAConcurrencyKey:
    OPTIONS = options_of(concurrency=("customer-7", 1))

    @pytest.mark.parametrize("policy", ["queue", "buffer_one", "cancel_running"])
    async def test_waiting_overlap_policy_is_refused_beside_a_concurrency_key(self, database, policy):
        with pytest.raises(InvalidOption, match="concurrency key"):
            await a_cron(database, overlap=overlap(policy), options=self.OPTIONS)
        job = await a_cron(database, options=self.OPTIONS)

        with pytest.raises(InvalidOption, match="concurrency key"):
            await edit(database, job.job_id, a_schedule(overlap=overlap(policy), options=self.OPTIONS))

    async def test_two_jobs_share_the_key_and_each_skips_for_itself(self, database, clock):
        jobs = [(await a_cron(database, overlap=overlap("skip"), options=self.OPTIONS)).job_id for _ in range(2)]
        await staged(database)
        assert await counts(database) == {"timers": 2, "ready": 1, "blocked": 1}

        await pass_minutes(database, clock)

        assert len(await skips(database)) == 2, "one is under way, and the other waits at the gate: both are active"
        assert await run_through(database) == minutes(0)
        assert await run_through(database) == minutes(0)
        await pass_minutes(database, clock)
        assert set(jobs) == {row[0] for row in await database.fetch("select job_id from duly.live_runs")}
        assert await is_sound(database)

    async def test_a_run_that_fails_gives_the_key_back_and_is_active_all_the_same(self, database, clock):
        job = await a_cron(database, overlap=overlap("skip"), options=self.OPTIONS)
        await staged(database)
        worker_id, run = await taken(database)
        await settled(database, worker_id, run, LATER)
        assert await database.fetchval("select count(*) from duly.concurrency_keys") == 0

        await pass_minutes(database, clock)

        assert await skips(database, job.job_id) == [skipped("overlap", 1)]


async def runs_of(database):
    """Give the ids of all runs that live."""
    return {row[0] for row in await database.fetch("select run_id from duly.live_runs")}
