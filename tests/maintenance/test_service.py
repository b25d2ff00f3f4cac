"""Maintenance: each duty at its own pace, each surviving the failure of the others."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from duly.clock import Rng, SystemClock
from duly.domain.diagnosis.loops import NAMES
from duly.domain.runs.outcome import Failed, Succeeded
from duly.log import Log
from duly.maintenance import service
from duly.maintenance.service import Maintenance, Retention
from duly.moves.cancel import cancel_run
from duly.moves.settle import settle
from duly.moves.submit import submit
from duly.moves.unroutable import UnroutableLimits
from duly.store.boxes import history
from duly.store.boxes.runs import LogLine, append_logs
from duly.store.connection.database import Database, Unavailable
from duly.store.reads import maintenance_tasks
from tests.builders import (
    RNG,
    a_leased_run,
    a_ready_run,
    a_submission,
    a_worker,
    boxes_of,
    claimed,
    ended,
    many_ready_runs,
    settled,
)
from tests.clock import START


async def partitions(database, parent: str) -> list[str]:
    """Name the days for which a partition exists."""
    rows = await database.fetch(history.SQL["partitions"])
    return sorted(row["name"][-8:] for row in rows if row["parent"] == parent)


async def kept(database) -> tuple[int, int, int]:
    """Count what stands in no partition of a day: successes, failures, logs."""
    tables = ("attempts_succeeded_default", "attempts_failed_default", "logs_default")
    counts = [await database.fetchval(f"select count(*) from duly.{table}") for table in tables]
    return counts[0], counts[1], counts[2]


async def all_the_way(database, worker_id, number: int) -> None:
    """Let so many runs go through ready and leased."""
    await many_ready_runs(database, number)
    taken = await claimed(database, worker_id, limit=number)
    assert len(taken) == number
    assert await settle(database, worker_id, [ended(database, run, Succeeded()) for run in taken], RNG) == []


async def pages(database) -> dict[str, int]:
    """Give the size of the boxes that runs go through."""
    rows = await database.fetch(
        "select relname, pg_relation_size(oid) / 8192 from pg_class"
        " where relnamespace = 'duly'::regnamespace and relname in ('ready', 'leased')"
    )
    return dict(rows)


async def waits_for_a_lock(database) -> None:
    """Wait until somebody waits for a lock."""
    waiting = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
    while not await database.fetchval(waiting):
        await asyncio.sleep(0.01)


@pytest.fixture
def maintenance(own_database) -> Maintenance:
    """One that has done nothing yet."""
    return Maintenance(own_database, rng=Rng(1), log=Log("test"))


class TestHistory:
    async def test_history_partitions_are_created_for_today_and_the_next_days(self, own_database, maintenance):
        await maintenance.keep_history()

        for parent in ("attempts_succeeded", "attempts_failed", "logs"):
            assert await partitions(own_database, parent) == ["20261102", "20261103", "20261104", "20261105"]

    async def test_history_partitions_stay_unchanged_when_created_again(self, own_database, maintenance):
        await maintenance.keep_history()

        assert await history.create_partitions(own_database, 4) == 0

    async def test_history_stores_successes_and_failures_in_separate_daily_partitions(self, own_database, maintenance):
        await maintenance.keep_history()
        worker_id, good = await a_leased_run(own_database)
        _, bad = await a_leased_run(own_database, worker_id)
        await settled(own_database, worker_id, good)
        await settled(own_database, worker_id, bad, Failed("broken"))

        rows = await own_database.fetch("select run_id, tableoid::regclass::text from duly.attempts")

        assert dict(rows) == {good.run_id: "attempts_succeeded_20261102", bad.run_id: "attempts_failed_20261102"}

    async def test_history_moves_earlier_rows_into_a_partition_when_it_is_created(self, own_database, maintenance):
        worker_id, run = await a_leased_run(own_database)
        await settled(own_database, worker_id, run)
        assert await own_database.fetchval("select count(*) from duly.attempts_succeeded_default") == 1

        await maintenance.keep_history()

        assert await own_database.fetchval("select count(*) from duly.attempts_succeeded_default") == 0
        assert await own_database.fetchval("select count(*) from duly.attempts_succeeded_20261102") == 1

    async def test_a_partition_has_the_indexes_of_its_parent(self, own_database, maintenance):
        await maintenance.keep_history()

        indexes = await own_database.fetch(
            "select h.inhparent from pg_index i join pg_inherits h on h.inhrelid = i.indexrelid"
            " where i.indrelid = 'duly.attempts_succeeded_20261102'::regclass"
        )
        parents = await own_database.fetch(
            "select indexrelid from pg_index where indrelid = 'duly.attempts_succeeded'::regclass"
        )

        assert {row[0] for row in indexes} == {row[0] for row in parents}
        assert len(parents) >= 2

    async def test_old_days_are_dropped_whole_each_kind_after_its_own_time(self, own_database, clock, maintenance):
        await maintenance.keep_history()
        worker_id, good = await a_leased_run(own_database)
        _, bad = await a_leased_run(own_database, worker_id)
        await settled(own_database, worker_id, good)
        await settled(own_database, worker_id, bad, Failed("broken", retryable=False))

        await clock.advance(timedelta(days=7))
        await maintenance.keep_history()
        assert await own_database.fetchval("select count(*) from duly.attempts") == 2, "seven whole days are kept"
        await clock.advance(timedelta(days=1))
        await maintenance.keep_history()

        assert await own_database.fetch("select run_id from duly.attempts") == [(bad.run_id,)]
        assert "20261102" not in await partitions(own_database, "attempts_succeeded")
        assert "20261102" in await partitions(own_database, "attempts_failed")
        await clock.advance(timedelta(days=83))
        await maintenance.keep_history()
        assert await own_database.fetchval("select count(*) from duly.attempts") == 0
        assert await boxes_of(own_database, bad.run_id) == ["dead"], "the dead outlive their history"

    async def test_a_day_is_dropped_once_its_last_moment_is_older_than_the_retention(self, own_database, clock):
        kept = Retention(succeeded=timedelta(hours=36))
        maintenance = Maintenance(own_database, rng=Rng(1), log=Log("test"), retention=kept)
        await maintenance.keep_history()
        midnight = datetime(2026, 11, 3, tzinfo=UTC)

        await clock.advance(midnight + timedelta(hours=35) - await own_database.read_clock())
        await maintenance.keep_history()
        assert "20261102" in await partitions(own_database, "attempts_succeeded"), "its last rows are 35 hours old"
        await clock.advance(timedelta(hours=2))
        await maintenance.keep_history()

        assert "20261102" not in await partitions(own_database, "attempts_succeeded")
        assert "20261103" in await partitions(own_database, "attempts_succeeded")

    async def test_history_rows_without_a_partition_are_deleted_after_the_same_retention(
        self, own_database, clock, maintenance, monkeypatch
    ):
        monkeypatch.setattr(service, "BATCH_MAX", 2)
        worker_id = await a_worker(own_database)
        for _ in range(5):
            await settled(own_database, *await a_leased_run(own_database, worker_id))
        _, bad = await a_leased_run(own_database, worker_id)
        await settled(own_database, worker_id, bad, Failed("broken", retryable=False))
        await own_database.execute(
            "insert into duly.logs values ($1, 1, 1, duly.clock_now(), 'info', 'begun')", bad.run_id
        )

        await clock.advance(timedelta(days=7))
        await maintenance.keep_history()
        assert await kept(own_database) == (5, 1, 1), "seven whole days are kept"
        await clock.advance(timedelta(days=1))
        await maintenance.keep_history()
        assert await kept(own_database) == (0, 1, 0)
        await clock.advance(timedelta(days=83))
        await maintenance.keep_history()
        assert await kept(own_database) == (0, 0, 0)

    async def test_the_time_to_keep_can_be_chosen(self, own_database, clock):
        brief = Maintenance(own_database, rng=Rng(1), log=Log("test"), retention=Retention(succeeded=timedelta(days=1)))
        await brief.keep_history()
        await clock.advance(timedelta(days=2))

        await brief.keep_history()

        assert (await partitions(own_database, "attempts_succeeded"))[0] == "20261103"

    async def test_a_reader_in_the_way_is_not_waited_for(self, own_database, maintenance):
        worker_id, run = await a_leased_run(own_database)
        async with own_database.transaction() as reader:
            await reader.fetch("select count(*) from duly.attempts")

            assert await history.create_partitions(own_database, 1) == 1, "that of logs, which nobody reads"
            await settled(own_database, worker_id, run)

        assert await history.create_partitions(own_database, 1) == 2

    async def test_a_day_that_somebody_reads_is_dropped_the_next_time(self, own_database, maintenance):
        await maintenance.keep_history()
        tomorrow = START.date() + timedelta(days=1)
        async with own_database.transaction() as reader:
            await reader.fetch("select count(*) from duly.attempts")
            assert await history.drop_partitions(own_database, "attempts_failed", tomorrow) == []

        assert await history.drop_partitions(own_database, "attempts_failed", tomorrow) == ["attempts_failed_20261102"]

    @pytest.mark.parametrize("outcome", [Succeeded('"whole"'), Failed("whole")], ids=["success", "failure"])
    async def test_an_outcome_that_waited_for_them_is_stored_whole(self, own_database, outcome):
        """It was on its way into the default partition, which no longer takes rows of that day."""
        worker_id, run = await a_leased_run(own_database)
        async with own_database.transaction() as making:
            await making.fetchval("select duly.create_partitions($1, 1)", START.date())
            settling = asyncio.create_task(settled(own_database, worker_id, run, outcome))
            await waits_for_a_lock(own_database)
        await settling

        [row] = await own_database.fetch("select result::text, reason from duly.attempts")
        assert "whole" in (row["result"] or row["reason"])

    async def test_a_line_that_waited_for_them_is_stored_whole(self, own_database):
        worker_id, run = await a_leased_run(own_database)
        line = LogLine(run.run_id, run.fence, run.attempt, 1, START, "info", "whole", None)
        async with own_database.transaction() as making:
            await making.fetchval("select duly.create_partitions($1, 1)", START.date())
            writing = asyncio.create_task(append_logs(own_database, worker_id, [line]))
            await waits_for_a_lock(own_database)
        await writing

        assert await own_database.fetchval("select message from duly.logs") == "whole"

    async def test_five_processes_may_make_them_at_once(self, own_database):
        made = await asyncio.gather(*(history.create_partitions(own_database, 2) for _ in range(5)))

        assert sum(made) == 6


class TestSweep:
    async def test_sweep_deletes_rows_that_no_run_needs(self, database, clock):
        worker_id, run = await a_leased_run(database, payload='"' + "x" * 5000 + '"')
        await database.execute(
            "insert into duly.progress values ($1, $2, 1, 2, 'half', duly.clock_now())", run.run_id, run.fence
        )
        await settled(database, worker_id, run)
        await database.execute(
            "insert into duly.checkpoints values ($1, $2, '1', duly.clock_now())", run.run_id, run.fence
        )
        await clock.advance(timedelta(days=8))

        await Maintenance(database, rng=Rng(1), log=Log("test"))._sweep()

        for table in ("idempotency_keys", "payloads", "progress", "checkpoints"):
            assert await database.fetchval(f"select count(*) from duly.{table}") == 0, table

    async def test_sweep_keeps_rows_that_a_run_needs(self, database, clock):
        await a_worker(database)
        run_id = await a_ready_run(database, payload='"' + "x" * 5000 + '"')
        await database.execute("insert into duly.progress values ($1, 1, 1, 2, 'half', duly.clock_now())", run_id)
        await database.execute("insert into duly.checkpoints values ($1, 1, '1', duly.clock_now())", run_id)
        await clock.advance(timedelta(days=8))

        await Maintenance(database, rng=Rng(1), log=Log("test"))._sweep()

        for table in ("payloads", "progress", "checkpoints"):
            assert await database.fetchval(f"select count(*) from duly.{table}") == 1, table

    async def test_the_way_to_a_subtask_stays_while_anything_is_known_of_it(self, database, clock):
        parent = await a_ready_run(database)
        ended, waiting = [
            (await submit(database, a_submission(delay=delay, parent=parent), key=f"in {delay}")).job_id
            for delay in (0, 100_000_000)
        ]
        await cancel_run(database, ended)
        maintenance = Maintenance(database, rng=Rng(1), log=Log("test"))
        left = []
        for days in (8, 100):
            await clock.advance(timedelta(days=days))
            await maintenance._sweep()
            left.append({row[0] for row in await database.fetch("select run_id from duly.subtasks")})

        assert left == [{ended, waiting}, {waiting}]

    async def test_story_15_vacuum_makes_the_space_of_moved_runs_reusable(self, own_database, maintenance):
        """Autovacuum comes by once a minute, which is too seldom for boxes that are filled and emptied all the time."""
        worker_id = await a_worker(own_database, lease=timedelta(hours=1))
        await all_the_way(own_database, worker_id, 1_000)
        once = await pages(own_database)

        for _ in range(3):
            await maintenance._vacuum()
            await all_the_way(own_database, worker_id, 1_000)

        grown = {box: (await pages(own_database))[box] / once[box] for box in once}
        assert all(share < 1.5 for share in grown.values()), grown

    async def test_sweep_releases_the_disk_space_of_a_drained_backlog(self, own_database, maintenance, monkeypatch):
        monkeypatch.setattr(service, "HOLLOW_BYTES", 80_000)
        worker_id = await a_worker(own_database, lease=timedelta(hours=1))
        await many_ready_runs(own_database, 3_000)
        await own_database.execute(
            "delete from duly.ready where ctid = any (array(select ctid from duly.ready order by ctid desc limit 1500))"
        )
        full = await pages(own_database)
        await maintenance._sweep()
        assert await pages(own_database) == full, "while there is much in it, nobody asks for the whole of it"

        await own_database.execute("delete from duly.ready")
        await all_the_way(own_database, worker_id, 1_000)
        await own_database.execute("select pg_stat_force_next_flush()")
        await maintenance._sweep()
        assert (await pages(own_database))["ready"] >= full["ready"], "what passes through now would be held up"
        await maintenance._vacuum()
        await maintenance._sweep()

        assert all(size < 10 for size in (await pages(own_database)).values())

    async def test_story_15_every_table_of_which_rows_come_and_go_is_vacuumed(self, own_database, maintenance):
        await maintenance._vacuum()

        rows = await own_database.fetch("select relname from pg_stat_user_tables where vacuum_count = 1")

        assert {row[0] for row in rows} == {"ready", "leased", "ended_nodes", "ended_dependencies", "tallies"}

    async def test_the_hot_boxes_are_vacuumed_without_waiting_for_anyone(self, database):
        worker_id, run = await a_leased_run(database)
        async with database.transaction() as busy:
            await busy.execute("lock table duly.leased in share update exclusive mode")

            await Maintenance(database, rng=Rng(1), log=Log("test"))._vacuum()

        assert await settled(database, worker_id, run) == []


# By duty: the least that it has to look at.
WORK = {
    "_carry_out": "insert into duly.signals values (gen_random_uuid(), gen_random_uuid(), 1, 'cancel', now())",
    "_release": """
        insert into duly.blocked (run_id, job_id, scheduled_at, due_at, generation, tenant, attempt, priority, losses, suspect,
                                  payload_stored, queue, handler, waits_for, key, blocked_at)
        values (gen_random_uuid(), gen_random_uuid(), now(), now(), 1, 1, 0, 5, 0, false, false, 'any', 'any', 'concurrency',
                'any', now())""",
    "_time_out": """
        insert into duly.awaited (run_id, fence, worker_id, deadline_at)
        values (gen_random_uuid(), 1, gen_random_uuid(), now() + interval '1 hour')""",
    "_deliver_callbacks": "insert into duly.completion_callbacks values (gen_random_uuid(), 1, gen_random_uuid(), '{}', now())",
    "_run_workflow_tasks": (
        "insert into duly.workflow_tasks (workflow_id, kind, due_at) values (gen_random_uuid(), 'look', now())"
    ),
    "_run_workflow_tasks of a run that is gone": """
        insert into duly.workflows (workflow_id, tenant, name, nodes, open_nodes, run_id, submitted_at)
        values (gen_random_uuid(), 1, 'any', 1, 1, gen_random_uuid(), now())""",
    "_check_dependents": "insert into duly.dependency_checks (child, due_at) values (gen_random_uuid(), now())",
    "_restore_routable": """
        insert into duly.ready (run_id, job_id, scheduled_at, due_at, generation, tenant, attempt, priority, losses, suspect,
                                payload_stored, queue, handler, is_unroutable)
        values (gen_random_uuid(), gen_random_uuid(), now(), now(), 1, 1, 0, 5, 0, false, false, 'any', 'any', true)""",
    "fold": "insert into duly.tallies values (now(), 1, 'default', 'succeeded', 'succeeded', 1, 1, 1)",
}


class TestUnroutable:
    async def test_maintenance_marks_and_restores_all_unroutable_runs_in_batches(self, database):
        maintenance = Maintenance(database, rng=Rng(1), log=Log("test"))
        worker_id = await a_worker(database)
        await many_ready_runs(database, 2_500, handler="app:typo")
        await many_ready_runs(database, 2_500, handler="app:typo", priority=1)
        await a_ready_run(database)

        await maintenance._mark_unroutable()
        assert await database.fetchval("select count(*) from duly.ready where is_unroutable") == 5_000
        await maintenance._restore_routable()
        assert await database.fetchval("select count(*) from duly.ready where is_unroutable") == 5_000
        assert len(await claimed(database, worker_id)) == 1

        await a_worker(database, handlers=["app:typo"])
        await maintenance._restore_routable()
        assert await database.fetchval("select count(*) from duly.ready where not is_unroutable") == 5_000

    async def test_unroutable_scan_continues_from_its_last_position(self, database):
        maintenance = Maintenance(
            database, rng=Rng(1), log=Log("test"), unroutable=UnroutableLimits(runs=3, looks=6, subqueues=2)
        )
        await a_worker(database)
        for priority in range(4):
            await many_ready_runs(database, 1, priority=priority)
        await many_ready_runs(database, 3, priority=4, handler="app:typo")

        found = []
        for _ in range(3):
            await maintenance._mark_unroutable()
            found.append(await database.fetchval("select count(*) from duly.ready where is_unroutable"))

        assert found == [0, 0, 3]


def behind(maintenance, began):
    """Name the loops that have ended no round since the start, once a second is over."""
    now = maintenance._database.clock.monotonic()
    ages = maintenance.rounds.ages(now)
    return [name for name, age in ages.items() if now - began < 1 or age > now - began - 0.5]


class TestLoop:
    async def test_failed_maintenance_task_does_not_stop_the_others(self, database_url, monkeypatch):
        async with Database(database_url, clock=SystemClock()) as database:
            maintenance = Maintenance(database, rng=Rng(1), log=Log("test"))
            reaped = asyncio.Event()

            async def broken() -> None:
                raise Unavailable("gone")

            async def worse() -> None:
                raise ZeroDivisionError

            async def reap() -> None:
                reaped.set()

            monkeypatch.setattr(maintenance, "_vacuum", broken)
            monkeypatch.setattr(maintenance, "_sweep", worse)
            monkeypatch.setattr(maintenance, "keep_history", broken)
            monkeypatch.setattr(maintenance, "_reap", reap)
            running = asyncio.create_task(maintenance.run())

            await asyncio.wait_for(reaped.wait(), 20)
            assert not running.done()
            maintenance.stop()
            await asyncio.wait_for(running, 20)

    @pytest.mark.parametrize("name", WORK)
    async def test_maintenance_task_idles_without_work_and_starts_when_work_appears(
        self, database_url, monkeypatch, name
    ):
        async with Database(database_url, clock=SystemClock()) as database:
            maintenance = Maintenance(database, rng=Rng(1), log=Log("test"))
            looks, begun = [], asyncio.Event()
            look = maintenance_tasks.look

            async def watched(*args: Any) -> maintenance_tasks.Work:
                looks.append(await look(*args))
                return looks[-1]

            async def maintenance_task() -> None:
                begun.set()

            monkeypatch.setattr(maintenance_tasks, "look", watched)
            monkeypatch.setattr(maintenance, name.partition(" ")[0], maintenance_task)
            running = asyncio.create_task(maintenance.run())
            async with asyncio.timeout(10):
                while len(looks) < 3:
                    await asyncio.sleep(0.01)
                assert not begun.is_set()
                await database.execute(WORK[name])
                await begun.wait()
                maintenance.stop()
                await running

    async def test_reaper_runs_while_a_completion_callback_hangs(self, database_url, monkeypatch):
        async with Database(database_url, clock=SystemClock()) as database:
            maintenance = Maintenance(database, rng=Rng(1), log=Log("test"))
            asked = asyncio.Event()

            async def deliver_for_ever(*_: object) -> None:
                asked.set()
                await asyncio.Event().wait()

            await database.execute(WORK["_deliver_callbacks"])
            monkeypatch.setattr(service, "deliver", deliver_for_ever)
            running = asyncio.create_task(maintenance.run())
            async with asyncio.timeout(5):
                await asked.wait()
                while maintenance.reaped_at is None:
                    await asyncio.sleep(0.01)
                maintenance.stop()
                await running

    @pytest.mark.parametrize("fault", ["hangs", "fails"])
    async def test_stuck_maintenance_task_is_reported_while_the_others_continue(self, database_url, monkeypatch, fault):
        async with Database(database_url, clock=SystemClock()) as database:
            maintenance = Maintenance(database, rng=Rng(1), log=Log("test"))
            began = database.clock.monotonic()
            asked = asyncio.Event()

            async def broken(*_: object) -> None:
                asked.set()
                if fault == "fails":
                    raise Unavailable("gone")
                await asyncio.Event().wait()

            await database.execute(WORK["_carry_out"])
            monkeypatch.setattr(service, "carry_out", broken)
            monkeypatch.setattr(service, "_RECORD_ROUNDS_SECONDS", 0.0)
            running = asyncio.create_task(maintenance.run())
            async with asyncio.timeout(20):
                await asked.wait()
                while set(behind(maintenance, began)) != {"carry_out"}:
                    await asyncio.sleep(0.01)
                while not (noted := await maintenance_tasks.ages(database, NAMES)):
                    await asyncio.sleep(0.01)
                assert noted.keys() == set(NAMES) - {"backfills", "zones"}  # which are the scheduler's
                maintenance.stop()
                await running

    async def test_cancels_left_over_are_carried_out(self, database):
        worker_id, run = await a_leased_run(database)
        await settled(database, worker_id, run, Failed("broken"))
        await database.execute(
            "insert into duly.signals values ($1, $2, $3, 'cancel', duly.clock_now())", worker_id, run.run_id, run.fence
        )

        await Maintenance(database, rng=Rng(1), log=Log("test"))._carry_out()

        assert await boxes_of(database, run.run_id) == []
        assert await claimed(database, worker_id) == []
