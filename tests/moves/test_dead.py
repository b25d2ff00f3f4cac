"""Dead letters in bulk: what a filter chooses, up to a cap, counted by a dry run, edited, replayed, discarded."""

import pytest

from duly.domain.errors import InvalidOption, InvalidPayload
from duly.domain.jobs.filter import DEAD, EVERYTHING, parse
from duly.domain.runs.outcome import Failed, Succeeded
from duly.domain.runs.payload import DEPTH_MAX, PAYLOAD_BYTES_MAX
from duly.moves import dead
from duly.moves.dead import replay
from duly.store.boxes import runs
from duly.store.reads import lists, overview
from tests.builders import (
    RNG,
    a_dead_run,
    a_leased_run,
    a_row,
    a_worker,
    boxes_of,
    claimed,
    counts,
    dead_listed,
    history_of,
    settled,
)


@pytest.fixture
async def worker_id(database):
    """Somebody to let runs fail."""
    return await a_worker(database)


class TestEdit:
    async def test_replay_uses_the_new_payload_and_continues_the_attempt_count(self, database, worker_id):
        run_id = await a_dead_run(database, worker_id)

        assert await dead.edit(database, 1, [run_id], {"customer": 8}) == [run_id]
        assert await boxes_of(database, run_id) == ["dead"]
        await replay(database, [run_id])
        [run] = await claimed(database, worker_id)

        assert (run.run_id, run.attempt, run.payload) == (run_id, 2, '{"customer": 8}')
        assert run.history.replays == 1
        await settled(database, worker_id, run, Succeeded())
        assert [attempt for attempt, _, _ in await history_of(database, run_id)] == [1, 2]

    async def test_nothing_else_of_it_changes(self, database, worker_id):
        run_id = await a_dead_run(database, worker_id, tags=["new"])
        before = await a_row(database, "dead", run_id)
        await dead.edit(database, 1, [run_id], {"customer": 8})

        assert await a_row(database, "dead", run_id) == before | {"payload": '{"customer": 8}'}

    async def test_a_payload_that_stood_outside_its_row_is_replaced(self, database, worker_id):
        run_id = await a_dead_run(database, worker_id, payload='{"text": "' + "x" * 2_000 + '"}')
        await dead.edit(database, 1, [run_id], {"text": "y" * 3_000})

        assert "yyy" in (await overview.arguments(database, run_id))["payload"]
        await replay(database, [run_id])
        [run] = await claimed(database, worker_id)
        assert run.payload is not None
        assert not run.payload_stored

    async def test_edit_of_a_dead_run_refuses_a_payload_too_large_or_too_deep(self, database, worker_id):
        run_id = await a_dead_run(database, worker_id)
        deep: list = []
        for _ in range(DEPTH_MAX + 1):
            deep = [deep]

        for payload in ({"text": "x" * PAYLOAD_BYTES_MAX}, {"deep": deep}):
            with pytest.raises(InvalidPayload):
                await dead.edit(database, 1, [run_id], payload)

    async def test_edit_ignores_unknown_runs_and_those_of_another_tenant(self, database, worker_id):
        run_id = await a_dead_run(database, worker_id)

        assert await dead.edit(database, 2, [run_id], {}) == []
        assert await dead.edit(database, 1, [RNG.uuid()], {}) == []


class TestBulk:
    async def test_a_dry_run_counts_and_shows_a_few_and_changes_nothing(self, database, worker_id):
        made = [await a_dead_run(database, worker_id) for _ in range(12)]

        found = await dead.replay_matching(database, 1, EVERYTHING, dry_run=True)

        assert (found.matched, found.moved, len(found.sample), found.after) == (12, 0, 10, None)
        assert set(found.sample) <= set(made)
        assert await counts(database) == {"dead": 12}

    async def test_bulk_replay_moves_only_the_matching_runs(self, database, worker_id):
        wanted = [await a_dead_run(database, worker_id, tags=["new"]) for _ in range(3)]
        await a_dead_run(database, worker_id)

        found = await dead.replay_matching(database, 1, parse("tag:new", DEAD))

        assert (found.matched, found.moved) == (3, 3)
        assert await counts(database) == {"ready": 3, "dead": 1}
        assert {run.run_id for run in await claimed(database, worker_id)} == set(wanted)

    async def test_bulk_discard_respects_its_limit_and_returns_the_next_position(self, database, worker_id):
        for _ in range(5):
            await a_dead_run(database, worker_id)

        first = await dead.discard_matching(database, 1, EVERYTHING, limit=3)
        second = await dead.discard_matching(database, 1, EVERYTHING, limit=3, after=first.after)

        assert (first.matched, first.moved, first.after is None) == (3, 3, False)
        assert (second.matched, second.moved, second.after) == (2, 2, None)
        assert await counts(database) == {}

    async def test_a_dry_run_counts_all_while_there_is_time(self, database, worker_id, monkeypatch):
        monkeypatch.setattr(dead, "LIMIT_DEFAULT", 3)
        monkeypatch.setattr(dead, "_COUNTED", 2)
        for _ in range(5):
            await a_dead_run(database, worker_id)

        all_of_them = await dead.discard_matching(database, 1, EVERYTHING, dry_run=True)
        assert (all_of_them.matched, all_of_them.moved, all_of_them.after, all_of_them.is_partial) == (
            5,
            0,
            None,
            False,
        )

        monkeypatch.setattr(dead, "_COUNT_SECONDS", 0)
        least = await dead.discard_matching(database, 1, EVERYTHING, dry_run=True)
        assert (least.matched, least.is_partial, least.after is None) == (2, True, False)
        assert (await dead.discard_matching(database, 1, EVERYTHING)).moved == 3, "as many as by default"

    async def test_a_cap_that_is_reached_exactly_leaves_nothing_to_go_on_with(self, database, worker_id):
        await a_dead_run(database, worker_id)
        await a_dead_run(database, worker_id)

        assert (await dead.replay_matching(database, 1, EVERYTHING, limit=2, dry_run=True)).after is None

    async def test_statements_are_bounded_and_nothing_is_left_out(self, database, worker_id, monkeypatch):
        monkeypatch.setattr(dead, "_STATEMENT_MAX", 2)
        for _ in range(5):
            await a_dead_run(database, worker_id)

        assert (await dead.replay_matching(database, 1, EVERYTHING)).moved == 5

    async def test_bulk_replay_leaves_runs_that_die_again_meanwhile(self, database, worker_id, monkeypatch):
        monkeypatch.setattr(dead, "_STATEMENT_MAX", 1)
        for _ in range(3):
            await a_dead_run(database, worker_id)
        plainly = runs.replay

        async def to_die_again(database, run_ids, delays):
            moved = await plainly(database, run_ids, delays)
            await database.clock.advance(1)
            for run in await claimed(database, worker_id):
                await settled(database, worker_id, run, Failed("again", retryable=False))
            return moved

        monkeypatch.setattr(runs, "replay", to_die_again)

        assert (await dead.replay_matching(database, 1, EVERYTHING)).moved == 3
        assert [row["replays"] for row in await dead_listed(database)] == [1, 1, 1]

    async def test_all_that_fit_are_edited_alike(self, database, worker_id):
        made = [await a_dead_run(database, worker_id) for _ in range(2)]

        found = await dead.edit_matching(database, 1, EVERYTHING, {"customer": 8})

        assert found.moved == 2
        assert [(await a_row(database, "dead", run_id))["payload"] for run_id in made] == ['{"customer": 8}'] * 2

    async def test_another_tenants_are_not_touched(self, database, worker_id):
        await a_dead_run(database, worker_id)

        assert (await dead.discard_matching(database, 2, EVERYTHING)).matched == 0

    @pytest.mark.parametrize("limit", [0, -1, dead.LIMIT_MAX + 1])
    async def test_a_limit_out_of_bounds_is_refused(self, database, limit):
        with pytest.raises(InvalidOption, match="outside 1 to 10000"):
            await dead.replay_matching(database, 1, EVERYTHING, limit=limit)


class TestRate:
    async def test_bulk_replay_at_a_rate_continues_from_its_last_due_time(
        self, database, clock, worker_id, monkeypatch
    ):
        monkeypatch.setattr(dead, "_STATEMENT_MAX", 2)
        for _ in range(6):
            await a_dead_run(database, worker_id)

        first = await dead.replay_matching(database, 1, EVERYTHING, limit=3, rate=2)
        second = await dead.replay_matching(database, 1, EVERYTHING, limit=3, rate=2, after=first.after)

        assert (first.moved, second.moved, second.after) == (3, 3, None)
        due = await database.fetch("select due_at from duly.ready order by due_at")
        assert [(row[0] - clock.at).total_seconds() for row in due] == [0, 0.5, 1, 1.5, 2, 2.5]

    @pytest.mark.parametrize("rate", [0, -1, 100_001, float("nan")])
    async def test_a_rate_that_is_none_is_refused(self, database, rate):
        with pytest.raises(InvalidOption, match="runs a second; leave it out for all at once"):
            await dead.replay_matching(database, 1, EVERYTHING, rate=rate)


class TestGroups:
    async def test_reasons_that_differ_only_from_run_to_run_are_one_group(self, database, worker_id):
        reasons = ["customer 7 is gone", "customer 812 is gone", "smtp down", "at 0x7f3a: lost\nsecond line"]
        for reason in reasons:
            _, run = await a_leased_run(database, worker_id)
            await settled(database, worker_id, run, Failed(reason, retryable=False))

        groups = await lists.dead_groups(database, 1, EVERYTHING, 10, 1000)

        assert [(group["error"], group["count"]) for group in groups] == [
            ("customer … is gone", 2),
            ("at …: lost", 1),
            ("smtp down", 1),
        ]
        assert groups[0]["handlers"] == ["greet"]
        assert len(groups[0]["sample"]) == 2

    async def test_dead_run_groups_count_at_most_the_requested_rows(self, database, worker_id):
        for _ in range(4):
            await a_dead_run(database, worker_id)

        [group] = await lists.dead_groups(database, 1, EVERYTHING, 10, 3)

        assert group["count"] == 3
