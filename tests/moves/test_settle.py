"""Settle: exactly one outcome of an attempt is accepted, and the run moves on by it."""

from datetime import timedelta

import asyncpg
import msgspec
import pytest

from duly.domain.jobs.job import DELAY_MAX
from duly.domain.runs.options import RunPolicy
from duly.domain.runs.outcome import Cancelled, Failed, Outcome, Snoozed, Succeeded, TimedOut
from duly.domain.runs.retry import Retry
from duly.moves.cancel import CancelAnswer, cancel_run
from duly.moves.settle import Settled, Unstorable, hand_back, settle
from duly.store.boxes import history, leased, runs
from duly.store.connection.database import Database, Unavailable
from tests.builders import (
    RNG,
    a_leased_run,
    a_ready_run,
    a_row,
    a_worker,
    boxes_of,
    claimed,
    counts,
    ended,
    history_of,
    seconds,
    settled,
    staged,
)
from tests.clock import START


class TestSuccess:
    async def test_a_success_leaves_the_boxes_and_one_record(self, database, clock):
        worker_id, run = await a_leased_run(database)
        await clock.advance(2)

        assert await settle(database, worker_id, [Settled(run, START, clock.at, Succeeded('{"rows": 42}'))], RNG) == []

        assert await boxes_of(database, run.run_id) == []
        found = await runs.find(database, run.run_id)
        assert found is not None
        [attempt] = found["attempts"]
        assert (found["state"], attempt["result"], attempt["fence"]) == ("succeeded", '{"rows": 42}', run.fence)
        assert (attempt["started_at"], attempt["finished_at"]) == (START, clock.at)

    async def test_success_is_settled_by_its_row_position(self, database, monkeypatch):
        worker_id, run = await a_leased_run(database)
        monkeypatch.setattr(leased, "settle", None)

        assert await settled(database, worker_id, run) == []

    async def test_story_03_moved_row_is_found_by_run_and_fence(self, database):
        worker_id, run = await a_leased_run(database)
        await database.execute("update duly.leased set priority = priority")
        assert (await a_row(database, "leased", run.run_id))["fence"] == run.fence

        assert await settled(database, worker_id, run) == []

        assert await history_of(database, run.run_id) == [(1, "succeeded", "succeeded")]

    async def test_story_07_other_run_at_the_same_row_position_is_not_touched(self, database):
        worker_id, first = await a_leased_run(database)
        _, second = await a_leased_run(database, worker_id)
        elsewhere = msgspec.structs.replace(first, tid=second.tid)

        assert await settled(database, worker_id, elsewhere) == []

        assert await boxes_of(database, first.run_id) == []
        assert await boxes_of(database, second.run_id) == ["leased"]

    async def test_checkpoint_of_a_left_behind_run_is_deleted_on_success(self, database):
        worker_id, run = await a_leased_run(database)
        await runs.save_checkpoint(database, run.run_id, run.fence, worker_id, '{"page": 3}')

        await settle(database, worker_id, [Settled(run, START, START, Succeeded(), left_behind=True)], RNG)

        assert await runs.checkpoints(database, [run.run_id]) == {}


class TestRetry:
    async def test_a_retry_within_the_horizon_is_ready_at_once_and_due_later(self, database):
        worker_id, run = await a_leased_run(database, retry=Retry(base_seconds=0, cap_seconds=0))

        await settled(database, worker_id, run, Failed("broken", retry_after=seconds(5)))

        row = await a_row(database, "ready", run.run_id)
        assert (row["attempt"], row["due_at"], row["scheduled_at"]) == (1, START + seconds(5), START)
        assert await history_of(database, run.run_id) == [(1, "failed", "retrying")]

    async def test_a_retry_beyond_the_horizon_waits_in_timers(self, database, clock):
        worker_id, run = await a_leased_run(database, retry=Retry(base_seconds=0, cap_seconds=0))

        await settled(database, worker_id, run, Failed("broken", retry_after=seconds(5.1)))

        assert await boxes_of(database, run.run_id) == ["timers"]
        await clock.advance(1)
        await staged(database)
        [again] = await claimed(database, worker_id)
        assert (again.run_id, again.attempt, again.due_at) == (run.run_id, 2, START + seconds(5.1))

    async def test_a_run_is_carried_whole_through_every_box(self, database, clock):
        worker_id, first = await a_leased_run(database, payload='{"n": 1}', priority=3, retry=Retry(max_attempts=9))
        await settled(database, worker_id, first, Failed("broken", retry_after=seconds(10)))
        await clock.advance(10)
        await staged(database)

        [second] = await claimed(database, worker_id)

        changed = {"tid": second.tid, "fence": second.fence, "attempt": 2, "due_at": START + seconds(10)}
        assert second == msgspec.structs.replace(first, **changed)

    async def test_the_last_attempt_buries_the_run(self, database, clock):
        worker_id, run = await a_leased_run(database, retry=Retry(max_attempts=2, base_seconds=0, cap_seconds=0))
        await settled(database, worker_id, run, Failed("once"))
        [run] = await claimed(database, worker_id)

        await settled(database, worker_id, run, TimedOut(3.0))

        dead = await a_row(database, "dead", run.run_id)
        assert (dead["attempt"], dead["reason"], dead["buried_at"]) == (2, "timed out after 3 s", clock.at)
        assert await history_of(database, run.run_id) == [(1, "failed", "retrying"), (2, "timed_out", "dead")]

    async def test_detail_of_a_success_is_stored_with_it(self, database):
        worker_id, run = await a_leased_run(database)

        await settled(database, worker_id, run, Succeeded('"done"', '{"used": {"cpu_seconds": 0.2}}'))

        found = await runs.find(database, run.run_id)
        assert found is not None
        assert found["attempts"][0]["detail"] == '{"used": {"cpu_seconds": 0.2}}'
        assert found["attempts"][0]["result"] == '"done"'

    async def test_a_failure_that_no_retry_mends_buries_the_run_at_once(self, database):
        worker_id, run = await a_leased_run(database)

        await settled(
            database, worker_id, run, Failed("no such customer", retryable=False, detail='{"type": "LookupError"}')
        )

        assert (await a_row(database, "dead", run.run_id))["reason"] == "no such customer"
        found = await runs.find(database, run.run_id)
        assert found is not None
        assert found["attempts"][0]["detail"] == '{"type": "LookupError"}'

    async def test_a_snooze_does_not_count_against_max_attempts(self, database, clock):
        worker_id, run = await a_leased_run(database, retry=Retry(max_attempts=2, base_seconds=0, cap_seconds=0))
        for _ in range(5):
            await settled(database, worker_id, run, Snoozed(seconds(1)))
            await clock.advance(1)
            [run] = await claimed(database, worker_id)
        assert run.attempt == 6, "numbers go on, so that none is ever used twice"

        await settled(database, worker_id, run, Failed("first failure"))
        [run] = await claimed(database, worker_id)
        await settled(database, worker_id, run, Failed("second failure"))

        assert await boxes_of(database, run.run_id) == ["dead"]

    async def test_a_delay_beyond_all_measure_is_cut_instead_of_holding_up_the_batch(self, database):
        worker_id, forever = await a_leased_run(database)
        _, beside = await a_leased_run(database, worker_id)
        outcomes = [ended(database, forever, Snoozed(timedelta.max)), ended(database, beside, Failed("broken"))]

        assert await settle(database, worker_id, outcomes, RNG) == []

        assert (await a_row(database, "timers", forever.run_id))["due_at"] == START + DELAY_MAX

    async def test_an_attempt_that_was_cancelled_ends_the_run(self, database):
        worker_id, run = await a_leased_run(database)

        await settled(database, worker_id, run, Cancelled())

        assert await boxes_of(database, run.run_id) == []
        assert await history_of(database, run.run_id) == [(1, "cancelled", "cancelled")]

    async def test_a_checkpoint_is_kept_for_the_next_attempt_and_in_the_grave(self, database):
        worker_id, run = await a_leased_run(database, retry=Retry(max_attempts=2, base_seconds=0, cap_seconds=0))
        await runs.save_checkpoint(database, run.run_id, run.fence, worker_id, '{"page": 3}')
        for _ in range(2):
            await settled(database, worker_id, run, Failed("broken"))
            assert await runs.checkpoints(database, [run.run_id]) == {run.run_id: '{"page": 3}'}
            for again in await claimed(database, worker_id):
                run = again

        assert await boxes_of(database, run.run_id) == ["dead"]


class TestFence:
    async def test_an_outcome_of_a_lost_lease_is_refused_and_recorded(self, database):
        sleepy, stale = await a_leased_run(database)
        await hand_back(database, sleepy, [stale])
        awake = await a_worker(database)
        [fresh] = await claimed(database, awake)

        assert await settled(database, sleepy, stale) == [stale]
        assert await settled(database, awake, fresh) == []

        assert await history_of(database, stale.run_id) == [(1, "fenced", "running"), (1, "succeeded", "succeeded")]
        found = await runs.find(database, stale.run_id)
        assert found is not None
        assert found["state"] == "succeeded"

    async def test_a_failure_of_a_lost_lease_moves_nothing(self, database):
        sleepy, stale = await a_leased_run(database)
        await hand_back(database, sleepy, [stale])
        awake = await a_worker(database)
        await claimed(database, awake)

        assert await settled(database, sleepy, stale, Failed("late", retryable=False)) == [stale]

        assert await boxes_of(database, stale.run_id) == ["leased"]

    @pytest.mark.parametrize(
        "outcome", [Succeeded(), Failed("late", retryable=False)], ids=["plain", "with consequences"]
    )
    async def test_new_lease_of_a_worker_at_an_old_row_position_is_not_touched(self, database, outcome):
        await database.execute("vacuum duly.leased")
        worker_id, stale = await a_leased_run(database)
        await hand_back(database, worker_id, [stale])
        await database.execute("vacuum duly.leased")
        [fresh] = await claimed(database, worker_id)
        assert (fresh.tid, fresh.fence > stale.fence) == (stale.tid, True), "where the old one was"

        assert await settled(database, worker_id, stale, outcome) == [stale]

        assert (await a_row(database, "leased", fresh.run_id))["fence"] == fresh.fence

    async def test_another_workers_lease_cannot_be_settled(self, database):
        _, run = await a_leased_run(database)
        stranger = await a_worker(database)

        assert await settled(database, stranger, run) == [run]
        assert await boxes_of(database, run.run_id) == ["leased"]

    async def test_a_refusal_with_no_moments_is_recorded_too(self, database):
        worker_id, run = await a_leased_run(database)
        await hand_back(database, worker_id, [run])

        assert await settle(database, worker_id, [Settled(run, None, None, Cancelled())], RNG) == [run]

        assert await history_of(database, run.run_id) == [(1, "fenced", "running")]

    async def test_refusal_repeated_after_an_unknown_commit_is_recorded_once(self, database):
        worker_id, run = await a_leased_run(database)
        await hand_back(database, worker_id, [run])
        for _ in range(3):
            assert await settled(database, worker_id, run, Failed("late")) == [run]

        assert await history_of(database, run.run_id) == [(1, "fenced", "running")]


class TestUnknownCommit:
    @pytest.mark.parametrize(
        ("outcome", "became"),
        [
            (Succeeded(), "succeeded"),
            (Failed("x"), "retrying"),
            (Failed("x", retryable=False), "dead"),
            (Cancelled(), "cancelled"),
        ],
    )
    async def test_story_10_repeated_settle_is_neither_refused_nor_recorded_twice(self, database, outcome, became):
        worker_id, run = await a_leased_run(database)
        assert await settled(database, worker_id, run, outcome) == []

        assert await settled(database, worker_id, run, outcome) == []

        [(_, _, state)] = await history_of(database, run.run_id)
        assert state == became

    async def test_story_10_settle_repeated_after_a_new_claim_changes_nothing(self, database):
        worker_id, run = await a_leased_run(database, retry=Retry(base_seconds=0, cap_seconds=0))
        await settled(database, worker_id, run, Failed("broken"))
        [again] = await claimed(database, worker_id)

        assert await settled(database, worker_id, run, Failed("broken")) == []

        assert await boxes_of(database, run.run_id) == ["leased"]
        assert await settled(database, worker_id, again) == []

    async def test_settle_reports_unavailable_when_the_response_is_lost(self, database, monkeypatch):
        async def lost(*_):
            raise ConnectionResetError("gone")

        worker_id, run = await a_leased_run(database)
        monkeypatch.setattr(asyncpg.Connection, "fetch", lost)

        with pytest.raises(Unavailable, match="did not respond: ConnectionResetError"):
            await settled(database, worker_id, run)


class TestBatch:
    async def test_each_of_a_mixed_batch_moves_to_where_it_belongs(self, database):
        worker_id = await a_worker(database)
        for _ in range(6):
            await a_ready_run(database)
        taken = await claimed(database, worker_id)
        outcomes: list[Outcome] = [
            Succeeded(),
            Failed("x", retry_after=seconds(2)),
            Failed("x", retry_after=seconds(99)),
            Failed("x", retryable=False),
            Cancelled(),
            Snoozed(seconds(60)),
        ]

        await settle(database, worker_id, [ended(database, *pair) for pair in zip(taken, outcomes, strict=True)], RNG)

        assert [await boxes_of(database, run.run_id) for run in taken] == [
            [],
            ["ready"],
            ["timers"],
            ["dead"],
            [],
            ["timers"],
        ]
        assert await database.fetchval("select count(*) from duly.attempts") == 6
        assert await history.verify(database) == []

    @pytest.mark.parametrize("outcome", [Succeeded('{"n": 1}'), Failed("x", retryable=False), Failed("x")])
    async def test_the_same_run_twice_in_one_batch_is_settled_once(self, database, outcome):
        worker_id, run = await a_leased_run(database)

        assert await settle(database, worker_id, [ended(database, run, outcome)] * 2, RNG) == []

        assert len(await history_of(database, run.run_id)) == 1
        assert len(await boxes_of(database, run.run_id)) <= 1

    async def test_two_outcomes_of_one_run_in_one_batch_leave_one(self, database):
        worker_id, run = await a_leased_run(database)
        both = [ended(database, run, Succeeded()), ended(database, run, Failed("too"))]

        assert await settle(database, worker_id, both, RNG) == []

        assert await history_of(database, run.run_id) == [(1, "succeeded", "succeeded")]

    async def test_nothing_to_settle_is_nothing_to_do(self, database):
        assert await settle(database, RNG.uuid(), [], RNG) == []


BAD = {
    "NUL escaped in JSON": '{"error": "a\\u0000b"}',
    "NUL as it is": '{"error": "a\0b"}',
    "lone surrogate": '{"error": "\ud800"}',
    "not JSON": "{oops",
    "too deep": "[" * 20_000 + "]" * 20_000,
}


class TestBadRow:
    @pytest.mark.parametrize("bad", BAD.values(), ids=BAD.keys())
    async def test_story_19_bad_result_is_settled_bare_and_blocks_no_other(self, database, bad):
        worker_id = await a_worker(database)
        for _ in range(9):
            await a_ready_run(database)
        taken = await claimed(database, worker_id)
        outcomes = [
            ended(database, run, Succeeded(bad if number == 4 else '"fine"')) for number, run in enumerate(taken)
        ]

        assert await settle(database, worker_id, outcomes, RNG) == []

        results = dict(await database.fetch("select run_id, result::text from duly.attempts"))
        assert await counts(database) == {}
        assert [results[run.run_id] for run in taken] == ['"fine"'] * 4 + [None] + ['"fine"'] * 4

    @pytest.mark.parametrize("bad", BAD.values(), ids=BAD.keys())
    async def test_story_19_a_bad_error_is_settled_bare_and_the_run_still_moves_on(self, database, bad):
        worker_id = await a_worker(database)
        for _ in range(3):
            await a_ready_run(database)
        taken = await claimed(database, worker_id)
        outcomes = [ended(database, run, Failed("broken", retryable=False, detail=bad)) for run in taken]

        assert await settle(database, worker_id, outcomes, RNG) == []

        assert await counts(database) == {"dead": 3}
        assert await database.fetch("select distinct reason from duly.dead") == [("the outcome could not be stored",)]

    async def test_story_19_bad_reason_is_sanitized_for_storage(self, database):
        worker_id, run = await a_leased_run(database)

        await settled(database, worker_id, run, Failed("a\0b\ud800" + "x" * 9000, retryable=False))

        reason = (await a_row(database, "dead", run.run_id))["reason"]
        assert reason.startswith("a\ufffdb?xxx")
        assert len(reason) == 2000

    async def test_story_19_a_moment_with_no_partition_lands_in_the_default_one(self, database):
        worker_id, run = await a_leased_run(database)
        year_3000 = START.replace(year=3000)

        assert await settle(database, worker_id, [Settled(run, year_3000, year_3000, Succeeded())], RNG) == []

        assert await database.fetchval("select count(*) from duly.attempts_succeeded_default") == 1

    async def test_a_bad_row_costs_a_logarithm_of_statements_not_one_each(self, database, monkeypatch):
        calls = []
        send = Database.fetch

        async def counting(self, query, *args):
            calls.append(query)
            return await send(self, query, *args)

        worker_id = await a_worker(database)
        for _ in range(64):
            await a_ready_run(database)
        taken = await claimed(database, worker_id)
        monkeypatch.setattr(Database, "fetch", counting)
        outcomes = [
            ended(database, run, Succeeded("{oops" if number == 40 else None)) for number, run in enumerate(taken)
        ]

        await settle(database, worker_id, outcomes, RNG)

        assert len(calls) == 14, "one, twice six halvings, and the bad row bare"


class TestHandBack:
    async def test_a_hand_back_uses_up_no_attempt_and_leaves_no_record(self, database):
        worker_id, run = await a_leased_run(database)

        assert await hand_back(database, worker_id, [run]) == {(run.run_id, run.fence)}

        assert (await a_row(database, "ready", run.run_id))["attempt"] == 0
        assert await history_of(database, run.run_id) == []
        [again] = await claimed(database, worker_id)
        assert again.attempt == 1

    async def test_a_lease_that_is_lost_cannot_be_handed_back(self, database):
        worker_id, run = await a_leased_run(database)
        await hand_back(database, worker_id, [run])
        await claimed(database, worker_id)

        assert await hand_back(database, worker_id, [run]) == set()
        assert await boxes_of(database, run.run_id) == ["leased"]

    async def test_nothing_to_hand_back_is_nothing_to_do(self, database):
        assert await hand_back(database, RNG.uuid(), []) == set()

    async def test_story_04_leases_that_the_worker_does_not_know_of_are_found(self, database):
        worker_id, _ = await a_leased_run(database)

        [forgotten] = await leased.held_by(database, worker_id, 10)

        assert await hand_back(database, worker_id, [forgotten]) == {(forgotten.run_id, forgotten.fence)}


class TestCancelling:
    @pytest.mark.parametrize("outcome", [Failed("broken"), TimedOut(1.0), Snoozed(seconds(1))])
    async def test_a_run_that_is_being_cancelled_is_not_tried_again(self, database, outcome):
        worker_id, run = await a_leased_run(database)
        assert await cancel_run(database, run.run_id) is CancelAnswer.REQUESTED

        await settled(database, worker_id, run, outcome)

        assert await boxes_of(database, run.run_id) == []
        assert [became for _, _, became in await history_of(database, run.run_id)] == ["cancelled"]

    async def test_a_run_that_is_being_cancelled_is_not_handed_back(self, database):
        worker_id, run = await a_leased_run(database)
        await cancel_run(database, run.run_id)

        assert await hand_back(database, worker_id, [run]) == {(run.run_id, run.fence)}

        assert await boxes_of(database, run.run_id) == []
        assert await history_of(database, run.run_id) == [(0, "cancelled", "cancelled")]

    async def test_a_run_that_finished_before_it_heard_of_the_cancel_has_succeeded(self, database):
        worker_id, run = await a_leased_run(database)
        await cancel_run(database, run.run_id)

        await settled(database, worker_id, run)

        assert await history_of(database, run.run_id) == [(1, "succeeded", "succeeded")]

    async def test_the_cancel_of_another_lease_does_not_count(self, database):
        worker_id, run = await a_leased_run(database)
        await cancel_run(database, run.run_id)
        await database.execute("update duly.signals set fence = fence - 1")

        await settled(database, worker_id, run, Failed("broken", retry_after=seconds(60)))

        assert await boxes_of(database, run.run_id) == ["timers"]


async def test_undecidable_outcome_blocks_no_other(database):
    """Whatever stands in a row's options: it was written by somebody, and the others' outcomes must not wait for it."""
    worker_id = await a_worker(database)
    await a_ready_run(database)
    await a_ready_run(database)
    odd, plain = await claimed(database, worker_id)
    policy = RunPolicy(Retry(base_seconds=1e300, cap_seconds=float("nan")))
    odd = msgspec.structs.replace(odd, policy=policy)

    assert (
        await settle(database, worker_id, [ended(database, odd, Failed("x")), ended(database, plain, Succeeded())], RNG)
        == []
    )
    assert "leased" not in await counts(database)


async def test_outcome_refused_even_bare_blocks_no_other(database):
    worker_id = await a_worker(database)
    for _ in range(4):
        await a_ready_run(database)
    held = await claimed(database, worker_id)
    outcomes: list[Outcome] = [Succeeded(), Failed("x"), Succeeded(), Failed("y")]
    batch = [ended(database, run, outcome) for run, outcome in zip(held, outcomes, strict=True)]
    bad = [held[0].run_id, held[1].run_id]
    await database.execute(
        f"alter table duly.attempts add constraint odd check (run_id not in ('{bad[0]}', '{bad[1]}'))"
    )

    with pytest.raises(Unstorable) as refused:
        await settle(database, worker_id, batch, RNG)

    assert {run.run_id for run in refused.value.runs} == set(bad)
    assert refused.value.fenced == []
    assert [await boxes_of(database, run.run_id) for run in held[:2]] == [["leased"], ["leased"]]
    assert "leased" not in [box for run in held[2:] for box in await boxes_of(database, run.run_id)]
    await database.execute("alter table duly.attempts drop constraint odd")
    assert await settle(database, worker_id, batch, RNG) == []
    assert "leased" not in await counts(database)
