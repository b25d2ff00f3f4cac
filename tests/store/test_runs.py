"""A run's state for people in every box, and what lies beside a run: checkpoints, progress, logs."""

import asyncio

import pytest

from duly.domain.runs.outcome import Failed, Succeeded
from duly.domain.runs.progress import Progress
from duly.moves.cancel import cancel_run
from duly.moves.settle import hand_back
from duly.store.boxes import runs
from duly.store.boxes.runs import LogLine
from tests.builders import (
    RNG,
    a_dead_run,
    a_leased_run,
    a_ready_run,
    a_retrying_run,
    a_waiting_run,
    a_worker,
    claimed,
    runs_listed,
    seconds,
    settled,
)
from tests.clock import START


async def state_of(database, run_id) -> str | None:
    """Give the state people see."""
    found = await runs.find(database, run_id)
    return found["state"] if found else None


class TestState:
    async def test_each_box_has_its_word(self, database):
        worker_id = await a_worker(database)
        _, running = await a_leased_run(database, worker_id)

        assert await state_of(database, running.run_id) == "running"
        assert await state_of(database, await a_waiting_run(database)) == "scheduled"
        assert await state_of(database, await a_dead_run(database, worker_id)) == "dead"
        assert await state_of(database, await a_retrying_run(database, worker_id, after=60)) == "retrying"
        assert await state_of(database, await a_retrying_run(database, worker_id, after=2)) == "retrying"
        assert await state_of(database, await a_ready_run(database)) == "ready"

    @pytest.mark.parametrize(("outcome", "state"), [(Succeeded(), "succeeded"), (Failed("x", retryable=False), "dead")])
    async def test_a_run_that_has_ended_is_known_by_its_attempts(self, database, outcome, state):
        worker_id, run = await a_leased_run(database)
        await settled(database, worker_id, run, outcome)

        assert await state_of(database, run.run_id) == state

    async def test_fenced_outcome_does_not_change_the_state_of_a_run(self, database, clock):
        sleepy, stale = await a_leased_run(database)
        await hand_back(database, sleepy, [stale])
        awake = await a_worker(database)
        [fresh] = await claimed(database, awake)
        await settled(database, awake, fresh)
        await clock.advance(1)

        await settled(database, sleepy, stale)

        assert await state_of(database, stale.run_id) == "succeeded"

    async def test_a_run_cancelled_while_it_waited_for_its_retry_is_cancelled(self, database, clock):
        run_id = await a_retrying_run(database)
        await clock.advance(1)
        await cancel_run(database, run_id)

        assert await state_of(database, run_id) == "cancelled"

    async def test_unknown_run_is_not_found(self, database):
        assert await runs.find(database, RNG.uuid()) is None

    async def test_attempts_are_listed_in_order_with_reason_detail_and_result(self, database, clock):
        worker_id, run = await a_leased_run(database)
        await settled(database, worker_id, run, Failed("broken", retry_after=seconds(1), detail='{"type": "E"}'))
        await clock.advance(1)
        [run] = await claimed(database, worker_id)
        await settled(database, worker_id, run, Succeeded("7"))

        found = await runs.find(database, run.run_id)

        assert found is not None
        told = [
            (attempt["attempt"], attempt["reason"], attempt["detail"], attempt["result"])
            for attempt in found["attempts"]
        ]
        assert told == [(1, "broken", '{"type": "E"}', None), (2, None, None, "7")]


class TestCheckpoint:
    async def test_a_checkpoint_survives_its_attempt_and_is_handed_to_the_next(self, database):
        worker_id, run = await a_leased_run(database)

        assert await runs.save_checkpoint(database, run.run_id, run.fence, worker_id, '{"page": 1}')
        assert await runs.save_checkpoint(database, run.run_id, run.fence, worker_id, '{"page": 2}')

        assert await runs.checkpoints(database, [run.run_id, RNG.uuid()]) == {run.run_id: '{"page": 2}'}

    async def test_a_worker_that_lost_its_lease_saves_nothing(self, database):
        sleepy, stale = await a_leased_run(database)
        await hand_back(database, sleepy, [stale])
        awake = await a_worker(database)
        [fresh] = await claimed(database, awake)
        await runs.save_checkpoint(database, fresh.run_id, fresh.fence, awake, '"fresh"')

        assert await runs.save_checkpoint(database, stale.run_id, stale.fence, sleepy, '"stale"') is False
        assert await runs.save_progress(database, stale.run_id, stale.fence, sleepy, Progress(9)) is False

        assert await runs.checkpoints(database, [fresh.run_id]) == {fresh.run_id: '"fresh"'}

    async def test_a_save_that_was_under_way_when_the_lease_was_lost_does_not_undo_a_later_one(self, database):
        sleepy, stale = await a_leased_run(database)
        await runs.save_checkpoint(database, stale.run_id, stale.fence, sleepy, '"first"')
        async with database.transaction() as slow:
            await slow.execute("select from duly.checkpoints for update")
            saving = asyncio.create_task(runs.save_checkpoint(database, stale.run_id, stale.fence, sleepy, '"stale"'))
            await asyncio.sleep(0.05)
            await hand_back(database, sleepy, [stale])
            awake = await a_worker(database)
            [fresh] = await claimed(database, awake)
            assert await slow.fetch(runs.SQL["save_checkpoint"], fresh.run_id, fresh.fence, awake, '"fresh"')

        assert await saving is False
        assert await runs.checkpoints(database, [fresh.run_id]) == {fresh.run_id: '"fresh"'}

    async def test_progress_shows_the_latest_report(self, database, clock):
        worker_id, run = await a_leased_run(database)
        assert await runs.read_progress(database, run.run_id) is None
        await runs.save_progress(database, run.run_id, run.fence, worker_id, Progress(1, 4, "a quarter"))
        await clock.advance(1)
        await runs.save_progress(database, run.run_id, run.fence, worker_id, Progress(2, None, "half"))

        assert await runs.read_progress(database, run.run_id) == {
            "done": 2,
            "total": None,
            "fraction": None,
            "note": "half",
            "updated_at": clock.at,
        }


class TestLogs:
    async def test_lines_are_read_in_order_from_where_one_left_off(self, database):
        worker_id, run = await a_leased_run(database)
        run_id = run.run_id
        lines = [
            LogLine(run_id, run.fence, attempt, number, START, "info", f"{attempt}.{number}", None)
            for attempt in (1, 2)
            for number in (1, 2)
        ]
        await runs.append_logs(database, worker_id, lines[::-1])

        assert [row["message"] for row in await runs.read_logs(database, run_id, (0, 0))] == [
            "1.1",
            "1.2",
            "2.1",
            "2.2",
        ]
        assert [row["message"] for row in await runs.read_logs(database, run_id, (1, 2))] == ["2.1", "2.2"]

    async def test_fields_are_kept_as_json(self, database):
        worker_id, run = await a_leased_run(database)
        said = LogLine(run.run_id, run.fence, 70_000, 1, START, "info", "built", '{"rows": 42}')
        await runs.append_logs(database, worker_id, [said])

        [line] = await runs.read_logs(database, run.run_id, (0, 0))

        assert (line["fields"], line["attempt"]) == ('{"rows": 42}', 70_000)

    @pytest.mark.parametrize("again", [False, True])
    async def test_log_lines_of_an_ended_lease_are_refused_and_others_are_kept(self, database, again):
        worker_id, over = await a_leased_run(database)
        _, held = await a_leased_run(database, worker_id)
        lines = [LogLine(run.run_id, run.fence, 1, 1, START, "info", "late", None) for run in (over, held)]
        await settled(database, worker_id, over)

        await runs.append_logs(database, worker_id, lines, may_repeat=again)

        assert await database.fetch("select run_id from duly.logs") == [(held.run_id,)]

    async def test_lines_under_an_old_fence_are_refused_though_the_worker_holds_the_run_again(self, database):
        worker_id, first = await a_leased_run(database)
        await hand_back(database, worker_id, [first])
        [second] = await claimed(database, worker_id)
        assert (second.run_id, second.fence > first.fence) == (first.run_id, True)

        await runs.append_logs(
            database, worker_id, [LogLine(first.run_id, first.fence, 1, 1, START, "info", "late", None)]
        )

        assert await runs.read_logs(database, first.run_id, (0, 0)) == []

    async def test_lines_that_meet_the_settle_of_their_run_under_way_are_refused_after_it(self, database):
        worker_id, run = await a_leased_run(database)
        line = LogLine(run.run_id, run.fence, 1, 1, START, "info", "late", None)
        async with database.transaction() as settling:
            await settling.execute("delete from duly.leased where run_id = $1", run.run_id)  # as every settle does
            appending = asyncio.create_task(runs.append_logs(database, worker_id, [line]))
            await asyncio.sleep(0.05)
            assert not appending.done(), "it waits for the settle to commit"
        await appending

        assert await runs.read_logs(database, run.run_id, (0, 0)) == []


async def test_a_run_that_a_worker_claimed_ahead_of_its_moment_is_not_running_yet(database, clock):
    await a_ready_run(database, delay=3)
    await claimed(database, await a_worker(database))
    [early] = await runs_listed(database)

    await clock.advance(3)
    [due] = await runs_listed(database)

    assert (early["state"], due["state"]) == ("ready", "running")
