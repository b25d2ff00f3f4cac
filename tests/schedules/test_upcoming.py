"""Until its handler has been called, a run is coming, not running: it can be paused, changed, skipped, cancelled and passed."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any
from uuid import UUID

import msgspec
import pytest

from duly.domain.errors import InvalidOption, Unsettled
from duly.domain.jobs.job import Recurring
from duly.domain.runs.run import Run
from duly.domain.runs.run_id import occurrence_id
from duly.domain.tenancy.audit import Actor
from duly.domain.triggers.schedule.preview import fires_left
from duly.moves import recall
from duly.moves.cancel import CancelAnswer, cancel_job, cancel_run
from duly.moves.recall import ABANDONED_AFTER, put_back, recalled
from duly.moves.schedules.calendars import put_calendar
from duly.moves.schedules.change_one_shot import change_one_shot
from duly.moves.schedules.edit import amend
from duly.moves.schedules.pause import Paused, pause, pause_naming, resume, skip_next
from duly.moves.settle import hand_back
from duly.moves.trigger import TriggerState, trigger
from duly.store.boxes import runs
from duly.store.connection.database import Database
from duly.store.tables import jobs, workers
from duly.worker.heartbeat.stall import Report
from tests.builders import (
    a_row,
    a_submission,
    a_waiting_run,
    a_worker,
    an_active_schedule,
    boxes_of,
    claimed,
    counts,
    history_of,
    jobs_listed,
    many_ready_runs,
    seconds,
    settled,
    staged,
)
from tests.clock import START
from tests.schedules.stories import (
    MINUTE,
    a_cron,
    a_delay,
    is_sound,
    next_fire,
    occurrences,
    pending,
    run_through,
    skipped,
    skips,
    staged_all,
    state_of,
)

ONCE = {"type": "at", "at": "2026-11-02T09:00:04Z"}
MINUTELY = {"type": "interval", "every": "PT60S", "anchor": "2026-11-02T09:00:04Z"}
EACH_SECOND = {"type": "interval", "every": "PT1S"}
BESIDE = {"policy": "allow"}
AHEAD = START + seconds(4)


@asynccontextmanager
async def a_worker_that_holds(
    database: Database, *, passing: Awaitable[None] | None = None, **claim: Any
) -> AsyncIterator[list[Run]]:
    """Claim what is ready, let time pass, and answer recalls as a worker does that has started nothing."""
    worker_id = await a_worker(database)
    held = await claimed(database, worker_id, **claim)
    if passing is not None:
        await passing  # Before it looks: no statement may be under way while the clock is moved.

    async def listen() -> None:
        while True:
            news = await runs.look(database, worker_id)
            asked = {(signal.run_id, signal.fence) for signal in news.signals if signal.kind == "recall"}
            await hand_back(database, worker_id, [run for run in held if (run.run_id, run.fence) in asked])
            await asyncio.sleep(0.005)

    listening = asyncio.create_task(listen())
    try:
        with pytest.MonkeyPatch.context() as patched:  # The clock stands, so a second of looks would be over at once.
            patched.setattr(recall, "_LOOKS_MAX", 100_000)
            yield held
    finally:
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)


def answered_for(unanswered: Any, run_id: UUID) -> Any:
    """Answer recalls of one run as its worker does when it has started it."""

    async def left(database: Database, asked: Any) -> list[UUID]:
        return [one for one in await unanswered(database, asked) if one != run_id]

    return left


def with_a_new_payload(job: Recurring) -> Recurring:
    return msgspec.structs.replace(job, payload='{"new": true}')


async def stalled(database: Database, worker_id: UUID, *, started: list[Run]) -> None:
    """Report as the heartbeat does while the engine stands still, and hand nothing back."""
    handles = [(run.run_id, run.fence) for run in started]
    report = Report(4.0, handles, None, is_safe=False, started=handles)
    await database.fetch(workers.SQL["stall"], worker_id, *report.arguments)


async def holder_of(database: Database, run: Run) -> UUID:
    return UUID(str(await database.fetchval("select worker_id from duly.leased where run_id = $1", run.run_id)))


async def shown(database: Database, job_id: UUID) -> dict[str, Any]:
    found = await jobs.find(database, job_id)
    assert found is not None
    return found


async def a_minutely_held_ahead(database: Database, clock: Any, **more: Any) -> UUID:
    """Give a schedule whose next fire, in three seconds, is staged."""
    job = await a_cron(database, **more)
    await staged(database)
    await run_through(database)
    await clock.advance(57)
    await staged(database)
    return job.job_id


class TestPause:
    async def test_pause_recalls_a_run_that_a_worker_holds_ahead(self, database, clock):
        job_id = await a_minutely_held_ahead(database, clock)
        async with a_worker_that_holds(database) as held:
            assert [run.scheduled_at for run in held] == [START + MINUTE]

            assert await pause(database, job_id) == "paused"

        assert await counts(database) == {"timers": 1}
        assert (await next_fire(database, job_id) or {})["scheduled_at"] == START + MINUTE
        assert await is_sound(database)

    async def test_resumed_before_its_moment_it_fires_after_all(self, database, clock):
        job_id = await a_minutely_held_ahead(database, clock)
        async with a_worker_that_holds(database):
            await pause(database, job_id)

        await resume(database, job_id)
        await staged(database)

        assert await occurrences(database, job_id) == [START + MINUTE]
        assert await is_sound(database)

    async def test_an_occurrence_skipped_behind_an_unstarted_run_is_recorded_once(self, database, clock):
        job_id = await a_minutely_held_ahead(database, clock, overlap={"policy": "skip"})

        async def pass_the_next_occurrence() -> None:
            await clock.advance(64)
            await staged(database)

        async with a_worker_that_holds(database, passing=pass_the_next_occurrence()):
            assert await pause(database, job_id) == "paused"
        await resume(database, job_id)

        assert await skips(database, job_id) == [skipped("paused", 1), skipped("overlap", 2)]
        assert (await next_fire(database, job_id) or {})["scheduled_at"] == START + 3 * MINUTE
        assert await is_sound(database)

    async def test_pause_names_the_run_that_a_silent_worker_keeps(self, database, clock):
        job_id = await a_minutely_held_ahead(database, clock)
        [run] = await claimed(database, await a_worker(database))

        async with recalled(database, job_ids=[job_id]) as silent:
            assert silent == [run.run_id]
        assert await pause_naming(database, job_id, "why") == Paused("paused", (run.run_id,))

        assert await boxes_of(database, run.run_id) == ["leased"]
        assert await database.fetchval("select count(*) from duly.signals") == 0, "nobody waits for its answer"

    async def test_pause_leaves_a_recalled_one_shot_paused_until_resumed(self, database):
        job = await an_active_schedule(database, trigger=ONCE)
        await staged(database)
        async with a_worker_that_holds(database):
            assert await pause(database, job.job_id) == "paused"

        assert await state_of(database, job.job_id) == "paused"
        await resume(database, job.job_id)
        await staged(database)
        assert await occurrences(database, job.job_id) == [AHEAD]
        assert await is_sound(database)

    async def test_due_one_shot_completes_when_its_worker_stays_silent(self, database, clock):
        job = await an_active_schedule(database, trigger=ONCE)
        await staged(database)
        await claimed(database, await a_worker(database))
        await clock.advance(4)

        with pytest.raises(Unsettled):
            await pause(database, job.job_id)
        await clock.advance(5)
        await staged(database)
        assert await state_of(database, job.job_id) == "completed"

    async def test_pause_recalls_a_one_shot_whose_worker_has_no_free_slot(self, database, clock):
        job = await an_active_schedule(database, trigger=ONCE)
        await staged(database)
        async with a_worker_that_holds(database, passing=clock.advance(5)) as [run]:
            await workers.name_unstarted(database, await holder_of(database, run), [run.run_id])
            await staged(database)
            found = await shown(database, job.job_id)
            assert (found["state"], found["next_run_at"]) == ("active", AHEAD), "it has not started"

            assert await pause_naming(database, job.job_id, "later") == Paused("paused")
        assert await state_of(database, job.job_id) == "paused"
        assert await boxes_of(database, run.run_id) == []

    async def test_runs_that_were_due_before_are_named_wherever_they_wait(self, database, clock):
        every = {"type": "interval", "every": "PT1S"}
        job = await an_active_schedule(database, trigger=every, overlap={"policy": "allow"})
        for _ in range(3):
            await staged(database)
        await clock.advance(2)
        worker_id = await a_worker(database)
        [first] = await claimed(database, worker_id, limit=1)
        await workers.name_unstarted(database, worker_id, [first.run_id])

        paused = await pause_naming(database, job.job_id, "later")

        due = await database.fetch("select run_id from duly.live_runs where due_at <= $1", START + seconds(2))
        assert set(paused.may_start) == {row["run_id"] for row in due} | {first.run_id}
        assert len(paused.may_start) > 1

    async def test_recall_remains_when_another_caller_withdraws_its_own(self, database, clock):
        job_id = await a_minutely_held_ahead(database, clock)
        [run] = await claimed(database, await a_worker(database))
        async with recalled(database, job_ids=[job_id]) as silent:
            assert silent == [run.run_id]
            ours = await runs.recall(database, [job_id], [])
        assert await runs.unanswered(database, ours) == [run.run_id], "the worker has answered nobody"

    async def test_a_due_run_behind_one_that_has_started_is_left_out_and_nothing_is_staged_twice(self, database, clock):
        every = {"type": "interval", "every": "PT1S"}
        job = await an_active_schedule(database, trigger=every, overlap={"policy": "allow"})
        for _ in range(3):
            await staged(database)
        await clock.advance(2)
        async with a_worker_that_holds(database, limit=1) as [waiting]:
            [started] = await claimed(database, await a_worker(database), limit=1)
            assert waiting.scheduled_at < started.scheduled_at
            with pytest.MonkeyPatch.context() as patched:
                patched.setattr(runs, "unanswered", answered_for(runs.unanswered, started.run_id))
                paused = await pause_naming(database, job.job_id, "later")

        assert waiting.run_id not in paused.may_start
        armed = await database.fetchval("select scheduled_at from duly.timers where job_id = $1", job.job_id)
        assert armed > started.scheduled_at
        assert await is_sound(database)


class TestEdit:
    async def test_edit_gives_a_run_held_ahead_the_new_payload(self, database, clock):
        job_id = await a_minutely_held_ahead(database, clock)
        async with a_worker_that_holds(database):
            await amend(database, job_id, lambda job: msgspec.structs.replace(job, payload='{"new": true}'))
        await staged(database)

        [run] = await claimed(database, await a_worker(database))
        assert (run.scheduled_at, run.payload, run.attempt) == (START + MINUTE, '{"new": true}', 1)
        assert await is_sound(database)

    async def test_a_one_shot_can_be_moved_until_it_starts(self, database, clock):
        job = await an_active_schedule(database, trigger=ONCE)
        await staged(database)
        later = {"trigger": {"type": "at", "at": "2026-11-02T10:00:00Z"}}
        async with a_worker_that_holds(database):
            await amend(database, job.job_id, lambda job: msgspec.structs.replace(job, schedule=later))

        assert await pending(database, job.job_id) == START + timedelta(hours=1)
        assert await counts(database) == {"timers": 1}
        assert await is_sound(database)

    async def test_edit_moves_an_unnamed_one_shot_that_a_worker_holds(self, database):
        run_id = await a_waiting_run(database, delay=4)
        await staged(database)
        later = a_submission(at=START + timedelta(hours=1), payload='{"new": true}')
        async with a_worker_that_holds(database):
            assert await change_one_shot(database, 1, run_id, 1, later)

        row = await a_row(database, "timers", run_id)
        assert (row["due_at"], row["generation"], row["attempt"]) == (START + timedelta(hours=1), 2, 0)
        assert await is_sound(database)

    @pytest.mark.parametrize("later", [0, 5])
    async def test_unnamed_one_shot_is_not_reported_started_while_its_worker_is_silent(self, database, clock, later):
        run_id = await a_waiting_run(database, delay=4)
        await staged(database)
        await claimed(database, await a_worker(database))
        await clock.advance(later)

        with pytest.raises(Unsettled, match=f"job {run_id}: a worker that does not respond"):
            await change_one_shot(database, 1, run_id, 1, a_submission(payload='{"new": true}'))

    async def test_a_run_that_falls_due_while_its_worker_is_silent_has_the_edit_refused(
        self, database, clock, monkeypatch
    ):
        job_id = await a_minutely_held_ahead(database, clock)
        await claimed(database, await a_worker(database))
        waited = recall._until_answered

        async def until_it_is_due(*asked: Any) -> list[UUID]:
            silent = await waited(*asked)
            await clock.advance(5)
            return silent

        monkeypatch.setattr(recall, "_until_answered", until_it_is_due)
        with pytest.raises(Unsettled):
            await amend(database, job_id, lambda before: msgspec.structs.replace(before, payload='{"new": true}'))
        assert await is_sound(database)

    async def test_last_run_is_not_reported_started_while_its_worker_is_silent(self, database, clock):
        job = await an_active_schedule(database, trigger=ONCE)
        await staged(database)
        await claimed(database, await a_worker(database))
        await clock.advance(5)
        for change in (pause(database, job.job_id), skip_next(database, job.job_id)):
            with pytest.raises(Unsettled):
                await change

    async def test_the_last_run_is_changed_as_long_as_its_worker_has_not_started_it(self, database, clock):
        job = await an_active_schedule(database, trigger=ONCE)
        await staged(database)
        async with a_worker_that_holds(database, passing=clock.advance(5)) as [run]:
            await amend(database, job.job_id, lambda before: msgspec.structs.replace(before, payload='{"new": true}'))

        await staged(database)
        [again] = await claimed(database, await a_worker(database))
        assert (again.run_id, again.payload) == (run.run_id, '{"new": true}')
        assert await is_sound(database)

    async def test_a_due_run_that_its_worker_has_not_started_runs_with_the_new_payload(self, database, clock):
        job_id = await a_minutely_held_ahead(database, clock)
        async with a_worker_that_holds(database, passing=clock.advance(5)) as [run]:
            await amend(database, job_id, with_a_new_payload)

        await staged(database)
        [again] = await claimed(database, await a_worker(database))
        assert (again.run_id, again.payload) == (run.run_id, '{"new": true}')
        assert await is_sound(database)

    async def test_a_due_run_with_a_silent_worker_has_the_edit_refused(self, database, clock):
        job_id = await a_minutely_held_ahead(database, clock)
        await claimed(database, await a_worker(database))
        await clock.advance(5)

        with pytest.raises(Unsettled):
            await amend(database, job_id, with_a_new_payload)

        assert (await shown(database, job_id))["generation"] == 1

    async def test_a_run_that_holds_its_worker_up_does_not_hold_up_an_edit(self, database, clock):
        job_id = await a_minutely_held_ahead(database, clock)
        worker_id = await a_worker(database)
        [run] = await claimed(database, worker_id)
        await clock.advance(10)
        await stalled(database, worker_id, started=[run])

        assert await amend(database, job_id, with_a_new_payload) == 2

    async def test_a_run_that_a_stalled_worker_has_not_started_has_the_edit_refused(self, database, clock):
        job_id = await a_minutely_held_ahead(database, clock)
        worker_id = await a_worker(database)
        await claimed(database, worker_id)
        await clock.advance(10)
        await stalled(database, worker_id, started=[])

        with pytest.raises(Unsettled):
            await amend(database, job_id, with_a_new_payload)

    @pytest.mark.parametrize("ends", [{"end": "2026-11-02T09:00:30Z"}, {"max_runs": 1}])
    async def test_the_payload_of_the_last_run_is_changed_though_its_moment_is_past(self, database, clock, ends):
        job = await an_active_schedule(database, trigger=MINUTELY, **ends)
        await staged(database)
        async with a_worker_that_holds(database, passing=clock.advance(5)) as [run]:
            await amend(database, job.job_id, with_a_new_payload)

        await staged(database)
        [again] = await claimed(database, await a_worker(database))
        assert (again.run_id, again.payload) == (run.run_id, '{"new": true}')
        assert await is_sound(database)

    async def test_a_refused_edit_lets_the_run_go_on(self, database, clock):
        job_id = await a_minutely_held_ahead(database, clock)

        def refuse(_: Any) -> Any:
            raise InvalidOption("no")

        async with a_worker_that_holds(database) as held:
            with pytest.raises(InvalidOption):
                await amend(database, job_id, refuse)

        assert await boxes_of(database, held[0].run_id) == ["leased"], "its worker was not asked"
        assert await is_sound(database)


class TestSkipNext:
    async def test_skip_next_skips_the_run_that_a_worker_holds_ahead(self, database, clock):
        job_id = await a_minutely_held_ahead(database, clock)
        async with a_worker_that_holds(database):
            assert await skip_next(database, job_id) == START + MINUTE

        assert await pending(database, job_id) == START + 2 * MINUTE
        assert await skips(database, job_id) == [skipped("on_request", 1)]
        assert await is_sound(database)

    async def test_with_a_silent_worker_it_is_refused_and_not_the_one_after_it(self, database, clock):
        job_id = await a_minutely_held_ahead(database, clock)
        await claimed(database, await a_worker(database))

        with pytest.raises(Unsettled):
            await skip_next(database, job_id)

        assert await skips(database, job_id) == []

    async def test_a_due_run_that_its_worker_has_not_started_is_the_next_one(self, database, clock):
        job_id = await a_minutely_held_ahead(database, clock)
        async with a_worker_that_holds(database, passing=clock.advance(5)) as [run]:
            assert await skip_next(database, job_id) == run.scheduled_at

        assert await skips(database, job_id) == [skipped("on_request", 1)]
        assert await is_sound(database)

    async def test_while_a_silent_worker_holds_a_due_run_it_is_refused(self, database, clock):
        job_id = await a_minutely_held_ahead(database, clock)
        await claimed(database, await a_worker(database))
        await clock.advance(5)

        with pytest.raises(Unsettled):
            await skip_next(database, job_id)

        assert await skips(database, job_id) == []

    async def test_of_a_one_shot_it_is_the_end(self, database):
        job = await an_active_schedule(database, trigger=ONCE)
        await staged(database)
        async with a_worker_that_holds(database):
            assert await skip_next(database, job.job_id) == AHEAD

        assert await state_of(database, job.job_id) == "completed"
        assert await counts(database) == {}
        assert await is_sound(database)

    async def test_skip_next_of_the_last_run_arms_another_occurrence(self, database):
        job = await an_active_schedule(database, trigger=MINUTELY, max_runs=1)
        await staged(database)

        assert await skip_next(database, job.job_id) == AHEAD

        assert await pending(database, job.job_id) == AHEAD + MINUTE
        assert await state_of(database, job.job_id) == "active"
        assert await is_sound(database)


class TestTrigger:
    @pytest.mark.parametrize("place", ["ready", "leased"])
    async def test_before_a_fire_it_runs_and_the_fire_is_judged_by_it(self, database, clock, place):
        job_id = await a_minutely_held_ahead(database, clock, overlap={"policy": "skip"})
        queues = ["default"] if place == "leased" else ["another"]
        async with a_worker_that_holds(database, queues=queues):
            assert await counts(database) == {"timers": 1, place: 1}
            made = await trigger(database, job_id, key="k")

        assert made.state is TriggerState.READY
        worker_id = await a_worker(database)
        [run] = await claimed(database, worker_id)
        assert run.run_id == made.run_id
        await clock.advance(3)
        await staged(database)
        assert await skips(database, job_id) == [skipped("overlap", 1)], "the triggered run is active when it is due"
        await settled(database, worker_id, run)
        assert await is_sound(database)

    async def test_a_schedule_of_two_seconds_can_be_triggered(self, database, clock):
        every = {"type": "interval", "every": "PT2S"}
        job = await an_active_schedule(database, trigger=every, overlap={"policy": "skip"})
        await staged(database)
        await run_through(database)
        await staged(database)
        async with a_worker_that_holds(database):
            made = await trigger(database, job.job_id, key="k")

        assert made.state is TriggerState.READY
        await run_through(database)
        await clock.advance(2)
        await staged(database)
        assert START + seconds(2) in await occurrences(database, job.job_id)
        assert await skips(database, job.job_id) == []
        assert await is_sound(database)

    async def test_between_two_runs_of_a_fixed_delay_it_runs(self, database, clock):
        job = await a_delay(database)
        await staged(database)
        await run_through(database)
        await clock.advance(57)
        await staged(database)
        assert await occurrences(database, job.job_id) == [START + MINUTE]

        made = await trigger(database, job.job_id, key="k")

        assert made.state is TriggerState.READY
        assert await is_sound(database)


class TestCancel:
    async def test_a_run_held_ahead_is_cancelled_for_certain(self, database):
        await a_waiting_run(database, delay=4)
        await staged(database)
        async with a_worker_that_holds(database) as held:
            assert await cancel_run(database, held[0].run_id) is CancelAnswer.CANCELLED

        assert await history_of(database, held[0].run_id) == [(0, "cancelled", "cancelled")]
        assert await is_sound(database)

    async def test_many_at_once_do_not_wait_for_each_others_connections(self, database):
        await many_ready_runs(database, 30)
        held = await claimed(database, await a_worker(database))
        somebody = database.acting_as(Actor("key", "k", "somebody", "r"))

        async with asyncio.timeout(30):
            answers = await asyncio.gather(*(cancel_run(somebody, run.run_id) for run in held))

        assert answers == [CancelAnswer.REQUESTED] * 30

    async def test_cancelled_schedule_cancels_its_run_held_ahead(self, database, clock):
        job_id = await a_minutely_held_ahead(database, clock)
        async with a_worker_that_holds(database) as held:
            assert await cancel_job(database, job_id) is CancelAnswer.CANCELLED

        assert await boxes_of(database, held[0].run_id) == []
        assert await is_sound(database)

    async def test_a_one_shot_with_a_name_is_cancelled_until_it_starts(self, database):
        job = await an_active_schedule(database, trigger=ONCE)
        await staged(database)
        async with a_worker_that_holds(database) as held:
            assert await cancel_job(database, job.job_id) is CancelAnswer.CANCELLED

        assert await history_of(database, held[0].run_id) == [(0, "cancelled", "cancelled")]
        assert await state_of(database, job.job_id) == "cancelled"
        assert await is_sound(database)


class TestShownState:
    async def test_a_one_shot_is_active_until_it_starts(self, database, clock):
        job = await an_active_schedule(database, trigger=ONCE, name="once")
        await staged(database)
        found = await shown(database, job.job_id)
        assert (found["state"], found["next_run_at"]) == ("active", AHEAD)

        await claimed(database, await a_worker(database))
        found = await shown(database, job.job_id)
        assert (found["state"], found["next_run_at"]) == ("active", AHEAD)
        [listed] = await jobs_listed(database, f'next_run_at<"{(AHEAD + seconds(1)).isoformat()}"')
        assert (listed["state"], listed["next_run_at"]) == ("active", AHEAD)

        await clock.advance(9)
        await staged(database)
        found = await shown(database, job.job_id)
        assert (found["state"], found["next_run_at"]) == ("completed", None)
        assert await is_sound(database)

    async def test_the_next_run_is_the_imminent_one(self, database, clock):
        every = {"type": "interval", "every": "PT1S"}
        job = await an_active_schedule(database, trigger=every, overlap={"policy": "allow"})
        await staged(database)
        await staged(database)
        await staged(database)
        assert len(await occurrences(database, job.job_id)) > 1
        await run_through_due(database)

        assert (await shown(database, job.job_id))["next_run_at"] == START + seconds(1)

    async def test_the_last_of_several_runs_completes_the_schedule_when_it_starts(self, database, clock):
        job = await an_active_schedule(database, trigger=MINUTELY, max_runs=1)
        await staged(database)
        assert await state_of(database, job.job_id) == "active"

        await clock.advance(4)
        await staged(database)
        found = await shown(database, job.job_id)
        assert (found["state"], found["next_run_at"]) == ("active", AHEAD), "it waits for a worker"
        await claimed(database, await a_worker(database))
        await clock.advance(5)
        await staged(database)

        assert await state_of(database, job.job_id) == "completed"
        assert await is_sound(database)

    async def test_a_one_shot_that_waits_for_a_worker_can_still_be_changed(self, database, clock):
        job = await an_active_schedule(database, trigger=ONCE)
        await staged(database)
        await clock.advance(60)
        await staged(database)
        await amend(database, job.job_id, lambda job: msgspec.structs.replace(job, payload='{"new": true}'))
        await staged(database)

        [run] = await claimed(database, await a_worker(database))
        assert (run.scheduled_at, run.payload) == (AHEAD, '{"new": true}')
        assert await is_sound(database)


class TestASpentSchedule:
    async def test_a_changed_calendar_leaves_its_last_run_alone(self, database, clock):
        await put_calendar(database, {"name": "holidays", "dates": ["2026-12-25"]})
        job = await a_cron(database, "1 9 * * *", calendars=[{"name": "holidays"}], max_runs=1)
        await clock.advance(57)
        await staged(database)
        assert (await next_fire(database, job.job_id) or {})["runs_left"] == 0

        await put_calendar(database, {"name": "holidays", "dates": ["2026-12-26"]})

        assert await run_through(database) == [START + MINUTE]
        await staged(database)
        assert await state_of(database, job.job_id) == "completed"
        assert await is_sound(database)

    async def test_skip_next_of_a_last_run_adds_a_further_run(self, database, clock):
        job = await an_active_schedule(database, trigger=EACH_SECOND, overlap=BESIDE, max_runs=3)
        await staged_all(database)
        assert len(await occurrences(database, job.job_id)) == 3
        await run_through_due(database)

        assert await skip_next(database, job.job_id) == START + seconds(1)

        await clock.advance(10)
        await staged_all(database)
        assert await run_through(database) == [START + seconds(2), START + seconds(3)]
        await staged_all(database)
        assert await state_of(database, job.job_id) == "completed"
        assert await is_sound(database)

    async def test_the_last_by_its_end_is_not_bounded_by_runs_when_taken_back(self, database):
        job = await an_active_schedule(database, trigger=MINUTELY, end="2026-11-02T09:00:30Z")
        await staged(database)
        await pause(database, job.job_id)
        assert (await next_fire(database, job.job_id) or {})["runs_left"] is None

    async def test_its_next_fires_are_those_that_come(self, database):
        job = await an_active_schedule(database, trigger=MINUTELY, max_runs=1)
        await staged(database)

        found = await shown(database, job.job_id)
        assert fires_left(found, 3) == 1


class TestAGap:
    async def test_pause_skips_held_runs_before_a_cancelled_one(self, database, clock):
        job = await an_active_schedule(database, trigger=EACH_SECOND, overlap=BESIDE)
        await staged_all(database)
        await run_through_due(database)
        await cancel_run(database, occurrence_id(job.job_id, START + seconds(4), "schedule"))
        async with a_worker_that_holds(database, limit=2) as held:
            assert [run.scheduled_at for run in held] == [START + seconds(1), START + seconds(2)]

            await pause(database, job.job_id)

        assert await counts(database) == {"timers": 1}
        assert [skip.first for skip in await skips(database)] == [START + seconds(number) for number in (1, 2, 3)]
        assert (await next_fire(database, job.job_id) or {})["scheduled_at"] == START + seconds(5)
        assert await is_sound(database)


class TestRunsByHand:
    async def test_a_recalled_one_is_no_fire_of_its_schedule(self, database, clock):
        job_id = await a_minutely_held_ahead(database, clock)
        await pause(database, job_id)
        made = await trigger(database, job_id, key="k")
        async with a_worker_that_holds(database), recalled(database, run_ids=[made.run_id]):
            assert await boxes_of(database, made.run_id) == ["blocked"]
            await amend(database, job_id, lambda job: msgspec.structs.replace(job, payload='{"new": true}'))
            assert await boxes_of(database, made.run_id) == ["blocked"]
        assert await boxes_of(database, made.run_id) == ["ready"]

    async def test_triggered_while_paused_it_arms_nothing(self, database, clock):
        job_id = await a_minutely_held_ahead(database, clock, overlap={"policy": "skip"})
        worker_id = await a_worker(database)
        held = await claimed(database, worker_id)
        await pause(database, job_id)  # Its worker does not answer,
        await hand_back(database, worker_id, held)  # and gives the run back later.

        await trigger(database, job_id, key="k")

        assert await pending(database, job_id) is None
        assert await is_sound(database)


class TestATimingEdit:
    async def test_timing_edit_records_a_run_that_falls_due_during_its_recall(self, database, clock):
        job_id = await a_minutely_held_ahead(database, clock)
        async with a_worker_that_holds(database) as held:
            await runs.recall(database, [job_id], [])
            while await boxes_of(database, held[0].run_id) == ["leased"]:
                await asyncio.sleep(0.005)
        await clock.advance(4)

        later = {"trigger": {"type": "cron", "expr": "30 * * * *", "tz": "UTC"}}
        await amend(database, job_id, lambda job: msgspec.structs.replace(job, schedule=later))

        assert await skips(database, job_id) == [skipped("edit", 1)]
        assert await counts(database) == {"timers": 1}
        assert await is_sound(database)

    async def test_a_run_held_back_by_jitter_is_taken_back(self, database, clock):
        while True:  # The jitter follows from the job's id, which is random.
            job = await a_cron(database, "1 * * * *", jitter={"max": "PT50S", "per": "job"})
            fire = await next_fire(database, job.job_id)
            assert fire is not None
            if fire["due_at"] > fire["scheduled_at"] + seconds(6):
                break
            await cancel_job(database, job.job_id)
        await clock.advance(fire["due_at"] - START - seconds(3))
        await staged(database)
        assert await occurrences(database, job.job_id) == [START + MINUTE]

        later = {"trigger": {"type": "cron", "expr": "30 * * * *", "tz": "UTC"}}
        await amend(database, job.job_id, lambda job: msgspec.structs.replace(job, schedule=later))

        assert await skips(database, job.job_id) == [skipped("edit", 1)]
        assert await counts(database) == {"timers": 1}


class TestAnAbandonedRecall:
    async def test_abandoned_recall_returns_its_run_to_ready(self, database, clock):
        job_id = await a_minutely_held_ahead(database, clock)
        async with a_worker_that_holds(database) as held:
            await runs.recall(database, [job_id], [])
            while await boxes_of(database, held[0].run_id) == ["leased"]:
                await asyncio.sleep(0.005)
        assert await boxes_of(database, held[0].run_id) == ["blocked"]
        assert await put_back(database) == 0, "its caller may still be there"

        await clock.advance(ABANDONED_AFTER + seconds(1))

        assert await put_back(database) == 1
        row = await a_row(database, "ready", held[0].run_id)
        assert (row["attempt"], row["due_at"]) == (0, START + MINUTE)
        assert await is_sound(database)


async def run_through_due(database: Database) -> None:
    """Run what is due, and leave what is ahead of its moment where it is."""
    worker_id = await a_worker(database)
    for run in await claimed(database, worker_id, limit=10):
        if run.scheduled_at <= START:
            await settled(database, worker_id, run)
        else:
            await hand_back(database, worker_id, [run])
