"""Concurrent moves of people, schedulers and workers on one schedule, in every order: no slot twice, and no next fire lost."""

from datetime import datetime
from typing import Any, ClassVar
from uuid import UUID

import pytest

from duly.domain.errors import Unsettled
from duly.domain.runs.outcome import Succeeded
from duly.domain.runs.run import HORIZON, Run
from duly.moves.cancel import CancelAnswer, cancel_run
from duly.moves.schedules.backfill import backfill, go_on
from duly.moves.schedules.edit import edit
from duly.moves.schedules.pause import pause, resume, skip_next
from duly.moves.settle import Settled, hand_back, settle
from duly.moves.stage import Cohorts, stage
from duly.moves.trigger import TriggerState, trigger
from duly.store.boxes import runs, timers
from duly.store.connection.database import Database
from duly.store.tables import shards
from tests.builders import (
    RNG,
    a_schedule,
    a_scheduler,
    a_worker,
    all_started,
    claimed,
    counts,
    seconds,
    settled,
    staged,
)
from tests.clock import START
from tests.interleavings.test_pairs import both_claims
from tests.schedules.stories import (
    FOR_GOOD,
    MINUTE,
    a_cron,
    a_delay,
    minutes,
    next_fire,
    occurrences,
    pending,
    run_through,
    skipped,
    skips,
    staged_all,
    state_of,
    taken,
)

STORIES: list[type] = []


def story(told: type) -> type:
    """Take a story up: `set_up` gives its two moves, `check` hears what they answered."""
    STORIES.append(told)
    return told


def cron(expr: str, **more: Any):
    """Give a job by cron."""
    return a_schedule(trigger={"type": "cron", "expr": expr, "tz": "UTC"}, **more)


def settling(worker_id, run: Run):
    """Give the settle of one run as a move."""
    return lambda side: settle(side, worker_id, [Settled(run, START, START, Succeeded())], RNG)


class OnOneSchedule:
    """A job each minute that has fired once; its next occurrence comes within the horizon."""

    more: ClassVar[dict[str, Any]] = {}
    holder: UUID | None = None

    async def set_up(self, database):
        self.job_id = (await a_cron(database, **self.more)).job_id
        await staged(database)
        await run_through(database)
        await database.clock.advance(57)
        return await self.moves(database)

    async def moves(self, database):
        raise NotImplementedError

    async def staging(self, database):
        """Give the stage as a move, of a scheduler that knows the cohort."""
        self.holder, epochs = await a_scheduler(database)
        cohorts = Cohorts()
        await cohorts.answers(database, await timers.due_fires(database, list(epochs), HORIZON, 10))
        return lambda side: stage(side, self.holder, epochs, cohorts=cohorts)

    async def hand_over(self, database: Database) -> None:
        """Let another scheduler take the shards."""
        if self.holder is not None:
            await shards.release(database, self.holder)

    async def all_of(self, database: Database) -> list[datetime]:
        """Let two and a half minutes pass, and tell for which moments a run was made, each as often as it was."""
        await self.hand_over(database)
        ran = []
        for _ in range(4):
            await staged_all(database)
            ran += await run_through(database)
            await database.clock.advance(45)  # type: ignore[attr-defined]
        return ran


@story
class PauseAndStage(OnOneSchedule):
    async def moves(self, database):
        return lambda side: pause(side, self.job_id), await self.staging(database)

    async def check(self, database, paused, _):
        assert paused == "paused"
        assert await occurrences(database) == [], "what was staged is taken back"
        assert (await next_fire(database, self.job_id) or {})["scheduled_at"] == START + MINUTE
        await self.hand_over(database)
        await database.clock.advance(MINUTE)
        assert await staged_all(database) == 0
        await resume(database, self.job_id)
        assert await skips(database) == [skipped("paused", 1)]
        assert await pending(database, self.job_id) == START + 2 * MINUTE


@story
class EditOfTheTimingAndStage(OnOneSchedule):
    async def moves(self, database):
        return lambda side: edit(side, self.job_id, cron("*/30 * * * * *")), await self.staging(database)

    async def check(self, database, edited, _):
        assert edited == 2
        assert await self.all_of(database) == minutes(1, 1.5, 2, 2.5, 3)


@story
class EditOfThePayloadAndStage(OnOneSchedule):
    async def moves(self, database):
        new = cron("* * * * *", payload='{"new": true}')
        return lambda side: edit(side, self.job_id, new), await self.staging(database)

    async def check(self, database, edited, _):
        assert edited == 2
        await self.hand_over(database)
        await staged_all(database)
        [(payload, generation)] = await database.fetch("select payload, generation from duly.ready")
        assert (payload, generation) == ('{"new": true}', 2)
        assert await self.all_of(database) == minutes(1, 2, 3)


@story
class EditAndClaim(OnOneSchedule):
    """The run that is about to be taken back is claimed."""

    async def moves(self, database):
        await staged(database)
        worker_id = await a_worker(database)
        return lambda side: edit(side, self.job_id, cron("*/30 * * * * *")), lambda side: claimed(side, worker_id)

    async def check(self, database, edited, held):
        assert len(held) <= 1
        if held:
            assert isinstance(edited, Unsettled)
            assert await pending(database, self.job_id) == START + 2 * MINUTE, "its worker does not answer: as it was"
        else:
            assert edited == 2
            assert await pending(database, self.job_id) == START + MINUTE


@story
class EditOfThePayloadAndClaim(OnOneSchedule):
    """The timing stays, so only the lease tells that a run of the old version may still start."""

    async def moves(self, database):
        await staged(database)
        worker_id = await a_worker(database)
        new = cron("* * * * *", payload='{"new": true}')
        return lambda side: edit(side, self.job_id, new), lambda side: claimed(side, worker_id)

    async def check(self, database, edited, held):
        assert isinstance(edited, Unsettled) if held else edited == 2


@story
class PauseAndClaim(OnOneSchedule):
    async def moves(self, database):
        await staged(database)
        worker_id = await a_worker(database)
        return lambda side: pause(side, self.job_id), lambda side: claimed(side, worker_id)

    async def check(self, database, paused, held):
        assert paused == "paused"
        fire = await next_fire(database, self.job_id)
        assert fire is not None
        assert fire["scheduled_at"] == START + (2 * MINUTE if held else MINUTE)
        assert await counts(database) == {"timers": 1} | ({"leased": 1} if held else {})


class OnARecalledRun(OnOneSchedule):
    """The next occurrence was held by a worker, who gave it back on request; whoever asked is gone."""

    async def recall_next(self, database: Database) -> Run:
        await staged(database)
        worker_id = await a_worker(database)
        [run] = await claimed(database, worker_id)
        await runs.recall(database, [self.job_id], [])
        await hand_back(database, worker_id, [run])
        assert await counts(database) == {"timers": 1, "blocked": 1}
        return run


@story
class PauseAndHandBackOfARecalledRun(OnOneSchedule):
    async def moves(self, database):
        await staged(database)
        worker_id = await a_worker(database)
        [run] = await claimed(database, worker_id)
        await runs.recall(database, [self.job_id], [])
        return lambda side: pause(side, self.job_id), lambda side: hand_back(side, worker_id, [run])

    async def check(self, database, paused, _):
        assert paused == "paused"
        fire = await next_fire(database, self.job_id)
        assert fire is not None
        boxes = await counts(database)
        assert boxes in ({"timers": 1}, {"timers": 1, "ready": 1}), "taken back, or handed back after the answer"
        assert fire["scheduled_at"] == START + (2 * MINUTE if "ready" in boxes else MINUTE)


@story
class PauseAndPutBack(OnARecalledRun):
    async def moves(self, database):
        await self.recall_next(database)
        return lambda side: pause(side, self.job_id), lambda side: runs.put_back(side, None, seconds(-1))

    async def check(self, database, paused, _):
        assert paused == "paused"
        assert await counts(database) == {"timers": 1}, "wherever it was found, it is taken back"
        assert (await next_fire(database, self.job_id) or {})["scheduled_at"] == START + MINUTE


@story
class CancelAndPutBack(OnARecalledRun):
    async def moves(self, database):
        self.run = await self.recall_next(database)
        return lambda side: cancel_run(side, self.run.run_id), lambda side: runs.put_back(side, None, seconds(-1))

    async def check(self, database, cancelled, _):
        assert cancelled is CancelAnswer.CANCELLED
        assert await counts(database) == {"timers": 1}


@story
class PauseAndStageOfASpentSchedule(OnOneSchedule):
    """Its last occurrence is staged and has not started: whoever looks whether it has must not end it."""

    more: ClassVar = {"max_runs": 2}

    async def moves(self, database):
        await staged(database)
        assert (await next_fire(database, self.job_id) or {})["runs_left"] == 0
        return lambda side: pause(side, self.job_id), await self.staging(database)

    async def check(self, database, paused, _):
        assert paused == "paused"
        assert await counts(database) == {"timers": 1}
        fire = await next_fire(database, self.job_id)
        assert fire is not None
        assert (fire["scheduled_at"], fire["runs_left"]) == (START + MINUTE, 1)


@story
class SkipNextAndStage(OnOneSchedule):
    more: ClassVar = {"max_runs": 9}

    async def moves(self, database):
        return lambda side: skip_next(side, self.job_id), await self.staging(database)

    async def check(self, database, left_out, _):
        assert left_out == START + MINUTE, "staged or not, it is the next"
        assert await skips(database) == [skipped("on_request", 1)]
        assert (await next_fire(database, self.job_id) or {})["runs_left"] == 8
        assert await self.all_of(database) == minutes(2, 3)


@story
class SkipNextAndSkipNext(OnOneSchedule):
    async def moves(self, database):
        return lambda side: skip_next(side, self.job_id), lambda side: skip_next(side, self.job_id)

    async def check(self, database, left, right):
        assert {left, right} == set(minutes(1, 2)), "two were asked for, and two are left out"
        assert await self.all_of(database) == minutes(3)


@story
class TriggerAndStageUnderSkip(OnOneSchedule):
    """Story 05: two creators of one job's runs, of which one must see the other."""

    more: ClassVar = {"overlap": {"policy": "skip"}}

    async def moves(self, database):
        return lambda side: trigger(side, self.job_id, key="k"), await self.staging(database)

    async def check(self, database, made, _):
        live = await database.fetchval("select count(*) from duly.live_runs")
        assert live == 1, "never two at once"
        await run_through(database)
        await self.hand_over(database)
        await staged_all(database)
        fire = await next_fire(database, self.job_id)
        assert fire is not None
        if made.state is TriggerState.SKIPPED:
            assert fire["scheduled_at"] == START + 2 * MINUTE
        assert len(await skips(database)) == (made.state is TriggerState.SKIPPED)


@story
class TriggerAndTriggerUnderSkip(OnOneSchedule):
    more: ClassVar = {"overlap": {"policy": "skip"}}

    async def moves(self, database):
        return lambda side: trigger(side, self.job_id, key="a"), lambda side: trigger(side, self.job_id, key="b")

    async def check(self, database, left, right):
        assert {left.state, right.state} == {TriggerState.READY, TriggerState.SKIPPED}
        assert await database.fetchval("select count(*) from duly.live_runs") == 1


@story
class TriggerAndTheSameTrigger(OnOneSchedule):
    async def moves(self, database):
        return lambda side: trigger(side, self.job_id, key="k"), lambda side: trigger(side, self.job_id, key="k")

    async def check(self, database, left, right):
        assert left.run_id == right.run_id
        assert {left.state, right.state} == {TriggerState.READY, TriggerState.REPLAYED}


@story
class TriggerAndTriggerAtAFullQueue(OnOneSchedule):
    more: ClassVar = {"overlap": {"policy": "queue", "limit": 1}}

    async def moves(self, database):
        await trigger(database, self.job_id, key="active")
        return lambda side: trigger(side, self.job_id, key="a"), lambda side: trigger(side, self.job_id, key="b")

    async def check(self, database, left, right):
        assert TriggerState.BLOCKED in {left.state, right.state} <= {TriggerState.BLOCKED, TriggerState.SKIPPED}
        assert len(await skips(database)) == 1, "of the same age, either may be the one too many"
        assert await counts(database) == {"timers": 1, "ready": 1, "blocked": 1}


@story
class SettleAndTriggerAtAQueue(OnOneSchedule):
    """The last place comes free while somebody comes for it: nobody waits at a free place."""

    more: ClassVar = {"overlap": {"policy": "queue"}}

    async def moves(self, database):
        await trigger(database, self.job_id, key="active")
        worker_id, run = await taken(database)
        return settling(worker_id, run), lambda side: trigger(side, self.job_id, key="k")

    async def check(self, database, refused, made):
        assert refused == []
        assert made.state in (TriggerState.READY, TriggerState.BLOCKED)
        assert await counts(database) == {"timers": 1, "ready": 1}


@story
class TriggerAndSettleUnderCancelRunning(OnOneSchedule):
    more: ClassVar = {"overlap": {"policy": "cancel_running"}}

    async def moves(self, database):
        await trigger(database, self.job_id, key="active")
        worker_id, run = await taken(database)
        return settling(worker_id, run), lambda side: trigger(side, self.job_id, key="k")

    async def check(self, database, refused, made):
        assert refused == []
        assert await counts(database) == {"timers": 1, "ready": 1}


@story
class ResumeAndResume(OnOneSchedule):
    async def moves(self, database):
        await pause(database, self.job_id)
        await database.clock.advance(2 * MINUTE)
        return lambda side: resume(side, self.job_id), lambda side: resume(side, self.job_id)

    async def check(self, database, left, right):
        assert {left, right} == {"active", "already"}
        assert await skips(database) == [skipped("paused", 1, 2, 2)], "on record once"
        assert await pending(database, self.job_id) == START + 3 * MINUTE


@story
class PauseAndResume(OnOneSchedule):
    async def moves(self, database):
        return lambda side: pause(side, self.job_id), lambda side: resume(side, self.job_id)

    async def check(self, database, paused, resumed):
        assert paused == "paused"
        assert await state_of(database, self.job_id) == ("active" if resumed == "active" else "paused")
        assert await skips(database) == []


@story
class PauseAndPause(OnOneSchedule):
    async def moves(self, database):
        await staged(database)
        return lambda side: pause(side, self.job_id), lambda side: pause(side, self.job_id)

    async def check(self, database, left, right):
        assert {left, right} == {"paused", "already"}
        assert await counts(database) == {"timers": 1}


@story
class EditAndEdit(OnOneSchedule):
    async def moves(self, database):
        await staged(database)
        one, other = cron("*/30 * * * * *"), cron("*/20 * * * * *")
        return lambda side: edit(side, self.job_id, one), lambda side: edit(side, self.job_id, other)

    async def check(self, database, left, right):
        assert {left, right} == {2, 3}, "each is a version of its own"
        step = 30 if left == 3 else 20
        assert await self.all_of(database) == [START + seconds(number) for number in range(60, 198, step)]


@story
class EditAndEditOfThePayload(OnOneSchedule):
    """The pending fire stays where it is, so only the version tells that somebody was faster."""

    async def moves(self, database):
        one, other = (cron("* * * * *", payload=f'{{"n": {number}}}') for number in (1, 2))
        return lambda side: edit(side, self.job_id, one), lambda side: edit(side, self.job_id, other)

    async def check(self, database, left, right):
        assert {left, right} == {2, 3}
        [(generation, payload)] = await database.fetch("select generation, payload->>'n' from duly.jobs")
        assert (generation, payload) == (3, "1" if left == 3 else "2")
        assert await pending(database, self.job_id) == START + MINUTE


@story
class EditAndPause(OnOneSchedule):
    async def moves(self, database):
        await staged(database)
        return lambda side: edit(side, self.job_id, cron("*/30 * * * * *")), lambda side: pause(side, self.job_id)

    async def check(self, database, edited, paused):
        assert (edited, paused) == (2, "paused")
        assert await counts(database) == {"timers": 1}
        await resume(database, self.job_id)
        assert await pending(database, self.job_id) == START + MINUTE


@story
class EditAndSkipNext(OnOneSchedule):
    async def moves(self, database):
        await staged(database)
        new = cron("* * * * *", payload='{"new": true}')
        return lambda side: edit(side, self.job_id, new), lambda side: skip_next(side, self.job_id)

    async def check(self, database, edited, left_out):
        assert (edited, left_out) == (2, START + MINUTE)
        assert await self.all_of(database) == minutes(2, 3)


class OnOneDelay:
    """A job with a fixed delay whose first run is in a worker's hands."""

    async def set_up(self, database):
        self.job_id = (await a_delay(database)).job_id
        await staged(database)
        self.worker_id, self.run = await taken(database)
        await database.clock.advance(10)
        return await self.moves(database)

    async def moves(self, database):
        raise NotImplementedError


@story
class EndAndPauseOfADelay(OnOneDelay):
    async def moves(self, database):
        return settling(self.worker_id, self.run), lambda side: pause(side, self.job_id)

    async def check(self, database, refused, paused):
        assert (refused, paused) == ([], "paused")
        assert await pending(database, self.job_id) is None
        await resume(database, self.job_id)
        assert await pending(database, self.job_id) == START + seconds(70)


@story
class EndAndResumeOfADelay(OnOneDelay):
    async def moves(self, database):
        await pause(database, self.job_id)
        return settling(self.worker_id, self.run), lambda side: resume(side, self.job_id)

    async def check(self, database, refused, resumed):
        assert (refused, resumed) == ([], "active")
        assert await pending(database, self.job_id) == START + seconds(70)


@story
class EndAndEditOfADelay(OnOneDelay):
    async def moves(self, database):
        new = a_schedule(trigger={"type": "interval", "every": "PT30S", "mode": "fixed_delay"})

        async def editing(side):
            with all_started():
                return await edit(side, self.job_id, new)

        return settling(self.worker_id, self.run), editing

    async def check(self, database, refused, edited):
        assert (refused, edited) == ([], 2)
        assert await pending(database, self.job_id) == START + seconds(40)


@story
class EndAndTriggerOfADelay(OnOneDelay):
    async def moves(self, database):
        return settling(self.worker_id, self.run), lambda side: trigger(side, self.job_id, key="k")

    async def check(self, database, refused, made):
        assert refused == []
        assert made.state in (TriggerState.READY, TriggerState.SKIPPED)
        assert await pending(database, self.job_id) == START + seconds(70)


@story
class FailuresOfTwoRunsThatAreCounted:
    async def set_up(self, database):
        self.job_id = (await a_cron(database, pause_on_failure=2)).job_id
        for _ in range(2):
            await staged(database)
            await database.clock.advance(MINUTE)
        worker_id = await a_worker(database)
        left, right = await claimed(database, worker_id)
        return self.failing(worker_id, left), self.failing(worker_id, right)

    def failing(self, worker_id, run):
        """Give the failure of a run as a move."""
        return lambda side: settled(side, worker_id, run, FOR_GOOD)

    async def check(self, database, left, right):
        assert (left, right) == ([], [])
        assert await state_of(database, self.job_id) == "paused"
        assert await database.fetchval("select failures from duly.jobs") == 2


@story
class BackfillAndBackfill:
    """Two schedulers that both believe to hold the shard: the cursor decides."""

    async def set_up(self, database):
        self.job_id = (await a_cron(database)).job_id
        await backfill(database, self.job_id, START - 5 * MINUTE, START, RNG, rate=1)
        going_on = lambda side: go_on(side, range(64), database.clock.at, 100)  # noqa: E731 - it is told twice
        return going_on, going_on

    async def check(self, database, left, right):
        assert left.created + right.created == 1
        made = await occurrences(database) + await occurrences(database, box="blocked")
        assert made == minutes(-5)
        assert await database.fetchval("select created from duly.backfills") == 1


@story
class StageAndStageOfACohort(OnOneSchedule):
    async def moves(self, database):
        return await self.staging_twice(database)

    async def staging_twice(self, database):
        """Give two processes that believe to be the same holder."""
        staging = await self.staging(database)
        return staging, staging

    async def check(self, database, left, right):
        assert left.count + right.count == 1
        assert await self.all_of(database) == minutes(1, 2, 3)


@both_claims(STORIES)
@pytest.mark.usefixtures("way_to_claim")
@pytest.mark.timeout(120)
async def test_interleaved_moves_repeat_no_occurrence_and_lose_no_next_fire(story, every_order):
    assert await every_order(story) >= 4
