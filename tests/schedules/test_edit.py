"""Edit: a schedule changes from now on. What no worker holds is made anew; no slot comes twice, and none gets lost unsaid."""

from datetime import timedelta
from typing import Any

import pytest

from duly.domain.errors import JobEnded, NameTaken, NotFound, Unsettled
from duly.domain.runs.run_id import occurrence_id
from duly.domain.triggers.errors import TriggerError
from duly.moves.cancel import cancel_job
from duly.moves.schedules.edit import edit
from duly.moves.schedules.pause import pause, resume, skip_next
from duly.store.boxes import runs
from duly.store.tables import jobs
from tests.builders import (
    RNG,
    a_row,
    a_schedule,
    a_worker,
    all_started,
    an_active_schedule,
    claimed,
    counts,
    seconds,
    settled,
    staged,
)
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
    staged_all,
    taken,
)

LARGE = '{"text": "' + "x" * 5000 + '"}'


def cron(expr="* * * * *", **more):
    """Give a job by cron."""
    return a_schedule(trigger={"type": "cron", "expr": expr, "tz": "UTC"}, **more)


async def staged_ahead(database, clock, **more):
    """Give a job each minute whose next occurrence, in three seconds, is staged; the first has run."""
    job = await a_cron(database, **more)
    await staged(database)
    await run_through(database)
    await clock.advance(57)
    await staged(database)
    assert await occurrences(database) == minutes(1)
    return job.job_id


class TestAnotherDefinition:
    """The timing stays as it was."""

    @pytest.mark.parametrize("kind", ["cron", "interval", "interval with an anchor", "interval with jitter", "text"])
    async def test_pending_fire_stays_when_an_edit_keeps_the_timing(self, database, clock, kind):
        shapes: dict[str, dict[str, Any]] = {
            "cron": {"trigger": {"type": "cron", "expr": "*/7 * * * *", "tz": "UTC"}},
            "interval": {"trigger": {"type": "interval", "every": "PT7M"}},
            "interval with an anchor": {
                "trigger": {"type": "interval", "every": "PT7M", "anchor": "2026-11-02T09:00:00Z"}
            },
            "interval with jitter": {"trigger": {"type": "interval", "every": "PT7M"}, "jitter": {"max": "PT1M"}},
            "text": {"trigger": {"type": "text", "text": "every 7 minutes"}},
        }
        shape = shapes[kind]
        job = await an_active_schedule(database, **shape)
        await clock.advance(timedelta(minutes=1))
        await staged_all(database)
        before = await next_fire(database, job.job_id)
        assert before is not None
        await clock.advance(timedelta(minutes=3, seconds=11))

        for number in (2, 3):  # The second one must still know what was asked for at first.
            assert (
                await edit(database, job.job_id, a_schedule(**shape, payload=f'{{"n": {number}}}', priority=2))
                == number
            )

        after = await next_fire(database, job.job_id)
        assert after is not None
        assert {**after, "generation": 1} == before
        assert after["generation"] == 3
        assert await skips(database) == []
        assert await is_sound(database)

    async def test_edit_of_the_definition_restages_the_staged_run_with_the_new_payload(self, database, clock):
        job_id = await staged_ahead(database, clock, max_runs=7)

        await edit(database, job_id, cron(payload='{"new": true}', max_runs=7))

        assert await occurrences(database) == []
        assert await pending(database, job_id) == START + MINUTE
        await staged_all(database)
        run = await a_row(database, "ready", occurrence_id(job_id, START + MINUTE, "schedule"))
        assert (run["payload"], run["generation"], run["previous_scheduled_at"]) == ('{"new": true}', 2, START)
        assert await is_sound(database)

    async def test_edit_keeps_an_overdue_fire_pending(self, database, clock):
        """The scheduler was away: nothing of what it has missed gets lost by an edit."""
        job = await a_cron(database)
        await clock.advance(10 * MINUTE)

        await edit(database, job.job_id, cron(payload='{"new": true}'))
        await staged_all(database)

        assert await occurrences(database) == minutes(10)
        assert await skips(database) == [skipped("misfire", 0, 9, 10)]

    async def test_edit_keeps_the_due_moment_of_a_fire_delayed_by_jitter(self, database, clock):
        job = await a_cron(database, "0 * * * *", jitter={"max": "PT50M"})
        due_at = (await next_fire(database, job.job_id) or {})["due_at"]
        await clock.advance(due_at - START - seconds(3))
        await staged(database)

        await edit(database, job.job_id, cron("0 * * * *", jitter={"max": "PT50M"}, payload='{"new": true}'))

        fire = await next_fire(database, job.job_id)
        assert fire is not None
        assert (fire["scheduled_at"], fire["due_at"]) == (START, due_at)

    async def test_max_runs_starts_a_new_count(self, database, clock):
        job_id = await staged_ahead(database, clock, max_runs=3)
        assert (await next_fire(database, job_id) or {})["runs_left"] == 1

        await edit(database, job_id, cron(max_runs=3))
        assert (await next_fire(database, job_id) or {})["runs_left"] == 1, "nothing was changed"
        await edit(database, job_id, cron(max_runs=3, priority=1))

        assert (await next_fire(database, job_id) or {})["runs_left"] == 3

    async def test_runs_under_way_keep_their_payload(self, database, clock):
        job = await a_cron(database, payload=LARGE)
        await staged(database)
        _, run = await taken(database)

        with all_started():
            await edit(database, job.job_id, cron(payload='{"small": true}'))
            await edit(database, job.job_id, cron(payload=LARGE.replace("x", "y")))
        await clock.advance(MINUTE)
        await staged(database)
        _, later = await taken(database, await a_worker(database))

        bodies = await runs.payloads(database, [(item.job_id, item.generation) for item in (run, later)])
        assert bodies[run.job_id, 1] == LARGE
        assert bodies[later.job_id, 3] == LARGE.replace("x", "y")

    async def test_overlap_can_change_while_a_run_is_active(self, database, clock):
        job = await a_cron(database, overlap={"policy": "queue"})
        await staged(database)
        worker_id, run = await taken(database)
        await edit(database, job.job_id, cron(overlap={"policy": "skip"}))
        await clock.advance(MINUTE)
        await staged(database)
        assert await skips(database) == [skipped("overlap", 1)]

        await settled(database, worker_id, run)

        assert await database.fetchval("select count(*) from duly.concurrency_keys") == 0
        assert await is_sound(database)


class TestAnotherTiming:
    async def test_edited_timing_counts_from_the_edit(self, database, clock):
        job = await a_cron(database, "0 * * * *")
        await staged(database)
        await clock.advance(timedelta(minutes=20, seconds=30))

        await edit(database, job.job_id, cron("*/7 * * * *"))

        fire = await next_fire(database, job.job_id)
        assert fire is not None
        assert (fire["scheduled_at"], fire["previous_scheduled_at"]) == (START + 21 * MINUTE, START)
        assert await skips(database) == [], "what was to come under the old rule is nobody's loss"
        found = await jobs.find(database, job.job_id)
        assert found is not None
        assert "*/7 * * * *" in found["schedule"]

    async def test_timing_edit_removes_the_staged_run(self, database, clock):
        job_id = await staged_ahead(database, clock)

        await edit(database, job_id, cron("*/5 * * * *"))

        assert await occurrences(database) == []
        assert await pending(database, job_id) == START + 5 * MINUTE
        assert await is_sound(database)

    async def test_timing_edit_is_refused_while_a_silent_worker_holds_a_run_ahead(self, database, clock):
        job_id = await staged_ahead(database, clock)
        worker_id, held = await taken(database)

        with pytest.raises(Unsettled):
            await edit(database, job_id, cron("*/30 * * * * *"))

        assert held.scheduled_at == START + MINUTE
        assert await pending(database, job_id) == START + 2 * MINUTE, "nothing was changed"
        await settled(database, worker_id, held)
        assert await is_sound(database)

    async def test_a_slot_that_was_left_out_stays_out(self, database, clock):
        job_id = await staged_ahead(database, clock)
        await skip_next(database, job_id)

        await edit(database, job_id, cron("*/30 * * * * *"))

        assert await pending(database, job_id) == START + seconds(90)

    async def test_timing_edit_does_not_repeat_a_run_that_ended_during_the_edit(self, database, clock, monkeypatch):
        """The clock goes on while we think."""
        job_id = await staged_ahead(database, clock)
        look, looks = jobs.find, list[object]()

        async def slow_look(*arguments):
            seen = await look(*arguments)
            if not looks:
                looks.append(seen)
                await clock.advance(3.5)
                assert await run_through(database) == minutes(1)
            return seen

        monkeypatch.setattr(jobs, "find", slow_look)
        await edit(database, job_id, cron("*/30 * * * * *"))

        assert await pending(database, job_id) == START + seconds(90)

    async def test_timing_edit_does_not_repeat_a_run_staged_during_the_edit(self, database, clock, monkeypatch):
        job = await a_cron(database)
        await staged(database)
        await run_through(database)
        await clock.advance(57)
        look, looks = jobs.find, list[object]()

        async def slow_look(*arguments):
            seen = await look(*arguments)
            if not looks:
                looks.append(seen)
                await staged(database)
                await claimed(database, await a_worker(database))
            return seen

        monkeypatch.setattr(jobs, "find", slow_look)
        with pytest.raises(Unsettled):
            await edit(database, job.job_id, cron("*/30 * * * * *"))
        await clock.advance(4)
        with all_started():
            await edit(database, job.job_id, cron("*/30 * * * * *"))

        assert await occurrences(database, box="leased") == minutes(1)
        assert await pending(database, job.job_id) == START + seconds(90)

    async def test_timing_edit_records_the_unfired_occurrences_of_the_old_rule(self, database, clock):
        job = await a_cron(database)
        await clock.advance(10 * MINUTE + seconds(30))

        await edit(database, job.job_id, cron("*/7 * * * *"))

        assert await skips(database) == [skipped("edit", 0, 10, 11)]
        assert await pending(database, job.job_id) == START + 14 * MINUTE

    @pytest.mark.parametrize(
        ("old", "new", "first"),
        [
            ({"type": "cron", "expr": "0 * * * *"}, {"type": "interval", "every": "PT10M"}, seconds(1)),
            ({"type": "interval", "every": "PT1H"}, {"type": "interval", "every": "PT10M"}, seconds(1)),
            ({"type": "interval", "every": "PT1H"}, {"type": "cron", "expr": "*/10 * * * *"}, timedelta(minutes=5)),
            (
                {"type": "interval", "every": "PT1H"},
                {"type": "at", "at": "2026-11-02T09:30:00Z"},
                timedelta(minutes=25),
            ),
        ],
    )
    async def test_from_one_kind_to_another(self, database, clock, old, new, first):
        job = await an_active_schedule(database, trigger=old)
        await staged(database)
        await run_through(database)
        await clock.advance(timedelta(minutes=5))

        await edit(database, job.job_id, a_schedule(trigger=new))

        assert await pending(database, job.job_id) == clock.at + first
        await clock.advance(first)
        await staged(database)
        assert await occurrences(database) == [clock.at]
        assert await is_sound(database)


class TestPaused:
    async def test_with_the_same_timing_all_it_missed_is_on_record_when_it_is_resumed(self, database, clock):
        job = await a_cron(database)
        await staged(database)
        await pause(database, job.job_id)
        await clock.advance(5 * MINUTE)
        await edit(database, job.job_id, cron(payload='{"new": true}'))
        assert await pending(database, job.job_id) is None
        assert await is_sound(database)
        await clock.advance(5 * MINUTE)

        await resume(database, job.job_id)

        assert await skips(database) == [skipped("paused", 1, 10, 10)]
        assert await pending(database, job.job_id) == START + 11 * MINUTE

    async def test_timing_edit_of_a_paused_job_records_the_skips_under_each_timing(self, database, clock):
        job = await a_cron(database)
        await staged(database)
        await pause(database, job.job_id)
        await clock.advance(5 * MINUTE)
        await edit(database, job.job_id, cron("*/10 * * * *"))
        assert await pending(database, job.job_id) is None
        await clock.advance(20 * MINUTE)

        await resume(database, job.job_id)

        assert await skips(database) == [skipped("paused", 1, 5, 5), skipped("paused", 10, 20, 2)]
        assert await pending(database, job.job_id) == START + 30 * MINUTE
        assert await is_sound(database)


class TestRefusals:
    async def test_a_definition_that_cannot_be_kept_changes_nothing(self, database, clock):
        job_id = await staged_ahead(database, clock, name="nightly")
        await a_cron(database, name="taken")
        before = await next_fire(database, job_id)

        with pytest.raises(TriggerError):
            await edit(database, job_id, cron("61 * * * *"))
        with pytest.raises(NameTaken):
            await edit(database, job_id, cron(name="taken"))

        assert await next_fire(database, job_id) == before
        assert await occurrences(database, job_id) == minutes(1)
        assert await is_sound(database)

    async def test_edit_refuses_an_ended_job(self, database):
        job = await a_cron(database)
        await cancel_job(database, job.job_id)

        for job_id, error in ((job.job_id, JobEnded), (RNG.uuid(), NotFound)):
            with pytest.raises(NotFound) as raised:
                await edit(database, job_id, cron())
            assert raised.type is error


async def test_schedule_edited_many_times_fires_each_slot_once(database, clock):
    """A schedule each second, edited again and again, at odd moments, while a worker takes what it can."""
    job = await a_cron(database, "* * * * * *")
    worker_id = await a_worker(database, lease=timedelta(days=1))
    ran = []
    for number in range(40):
        await staged(database)
        for run in await claimed(database, worker_id, limit=2):
            ran.append(run.scheduled_at)
            await settled(database, worker_id, run)
        if number % 3 == 0:
            await edit(database, job.job_id, cron("* * * * * *" if number % 2 else "*/2 * * * * *"))
        await clock.advance(0.37)

    assert len(set(ran)) == len(ran) > 10
    assert await counts(database) == {"timers": 1} | (
        {"ready": left} if (left := len(await occurrences(database))) else {}
    )
    assert all(skip.reason == "skipped_edit" for skip in await skips(database))
    assert await is_sound(database)
