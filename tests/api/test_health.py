"""Readiness tells the truth: each thing that is not in order makes it false, and says so."""

from datetime import timedelta

import pytest

from duly.api.health import readiness
from duly.cli.up.api import vitals_of
from duly.domain.diagnosis.loops import NAMES
from duly.domain.jobs.job import Recurring
from duly.domain.limits.pause import Scope
from duly.moves.admin.overload import record_overloads
from duly.moves.admin.pause import pause_scope
from duly.moves.submit import submit_recurring
from duly.store.connection.database import Database
from duly.store.reads import maintenance_tasks
from duly.store.reads.overview import staging_lag_seconds
from duly.store.tables import shards
from tests.api.conftest import Parts, parts_of
from tests.builders import a_key, a_ready_run, a_waiting_run, a_worker
from tests.schedules.stories import a_cron


async def failing(parts):
    return [check.name for check in (await readiness(parts.vitals)).checks if not check.ok]


async def test_when_all_is_in_order_it_is_ready(parts):
    seen = await readiness(parts.vitals)

    assert seen.ready, seen
    assert "every 1 s" in seen.precision


async def test_scheduler_that_stalls_or_never_staged_is_not_ready(parts, clock):
    parts.pulse.stepped_at = None
    assert await failing(parts) == ["stage_age_seconds"]

    parts.pulse.stepped_at = clock.monotonic() - 4.1
    assert await failing(parts) == ["stage_age_seconds"]


async def test_a_scheduler_that_lags_is_not_ready(parts):
    parts.pulse.lag_seconds = 5.1

    assert await failing(parts) == ["staging_lag_seconds"]


async def test_stalled_reaper_is_not_ready(parts, clock):
    parts.reaper.reaped_at = clock.monotonic() - 4.1
    assert await failing(parts) == ["reaper_age_seconds"]

    parts.reaper.reaped_at = None
    assert await failing(parts) == ["reaper_age_seconds"]


async def test_readiness_names_each_stuck_loop_while_others_make_progress(parts):
    parts.vitals.rounds = lambda _: {"carry_out": 75.0, "deliver_callbacks": 0.2, "expire": 60.1, "release": 60.0}
    seen = await readiness(parts.vitals)

    [check] = [check for check in seen.checks if not check.ok]
    assert (check.name, check.value, check.limit) == ("round_age_seconds", 75.0, 60)
    assert "carry_out for 75 s, expire for 60 s, at most 60 s" in check.says


async def test_unheld_shards_fail_readiness(parts, database):
    [holder] = await shards.holders(database)
    await shards.release(database, holder["scheduler_id"])

    assert await failing(parts) == ["shards_held"]


@pytest.mark.parametrize("handler", ["greet", "unknown"])
async def test_a_backlog_however_old_leaves_it_ready(parts, database, clock, handler):
    await a_ready_run(database, handler=handler)
    await clock.advance(timedelta(days=3))
    await a_worker(database)
    parts.pulse.stepped_at = parts.reaper.reaped_at = clock.monotonic()

    assert await failing(parts) == ["shards_held"], "the shard lease has run out by now"


async def test_pauses_are_named_without_failing_readiness(parts, database):
    await pause_scope(database, Scope(queue="mail"), reason="the provider is down", paused_by="a person")
    await pause_scope(database, Scope(tenant=7), reason="it floods", paused_by="a person")

    assert await failing(parts) == []
    says = {check.name: (check.value, check.says) for check in (await readiness(parts.vitals)).checks}
    assert says["pauses"] == (2, "paused until resumed: queue mail, tenant 7")


async def test_of_many_pauses_some_are_named_and_the_others_counted(parts, database):
    for tenant in range(1, 24):
        await pause_scope(database, Scope(tenant), reason="it floods", paused_by="a person")

    [check] = [check for check in (await readiness(parts.vitals)).checks if check.name == "pauses"]
    assert (check.ok, check.value) == (True, 23)
    assert check.says.endswith("tenant 19, tenant 20 and 3 more")


async def test_a_worker_too_few_makes_it_not_ready(parts, clock):
    await clock.advance(16)
    parts.pulse.stepped_at = parts.reaper.reaped_at = clock.monotonic()

    assert await failing(parts) == ["shards_held", "workers"]


async def test_unreachable_database_fails_readiness(database_url):
    database = Database(database_url)
    await database.open()
    parts = parts_of(database)
    await database.close()

    assert await failing(parts) == ["database"]


@pytest.mark.parametrize("expected", [0, 1])
async def test_the_number_of_workers_expected_is_the_limit(parts, database, expected):
    await database.execute("delete from duly.workers")
    parts.vitals.workers_expected = expected

    assert await failing(parts) == ["workers"] * expected


@pytest.mark.parametrize(
    ("expected", "says"),
    [
        (0, "1 worker is alive; this process runs none"),
        (2, "1 worker is alive; this process should run 2"),
    ],
)
async def test_worker_check_states_the_workers_expected_of_this_process(parts, database, expected, says):
    parts.vitals.workers_expected = expected

    assert says in [check.says for check in (await readiness(parts.vitals)).checks]


class TestOfAProcessThatOnlyServes:
    """Nothing stages or reaps in it: it reads in the database what the others do."""

    @pytest.fixture
    async def alone(self, parts, database):
        await maintenance_tasks.record(database, {"reap": 0})
        return Parts(vitals_of(database), parts.pulse, parts.reaper)

    async def test_api_only_process_is_ready_while_other_processes_do_maintenance(self, alone):
        seen = await readiness(alone.vitals)

        assert seen.ready, seen
        assert {check.name for check in seen.checks} >= {"staging_lag_seconds", "reaper_age_seconds", "shards_held"}

    async def test_reaper_unseen_for_too_long_fails_readiness(self, alone, database, clock):
        await clock.advance(4.1)

        assert "reaper_age_seconds" in await failing(alone)

    async def test_a_note_is_written_at_most_once_a_second_and_again_after_a_step_back_of_the_clock(
        self, database, clock
    ):
        noted = "select done_at from duly.maintenance_tasks"
        await maintenance_tasks.record(database, {"reap": 0})
        first = await database.fetchval(noted)
        await clock.advance(0.5)
        await maintenance_tasks.record(database, {"reap": 0})
        assert await database.fetchval(noted) == first

        await clock.step(-60)
        await maintenance_tasks.record(database, {"reap": 0})
        assert await database.fetchval(noted) < first

    async def test_a_loop_that_ends_no_round_anywhere_is_named(self, alone, database, clock):
        await maintenance_tasks.record(database, {"reap": 0, "carry_out": 59.5, "deliver_callbacks": 0})
        assert await failing(alone) == []
        await clock.advance(1.5)
        await maintenance_tasks.record(database, {"reap": 0, "carry_out": 61, "deliver_callbacks": 0})

        assert await failing(alone) == ["round_age_seconds"]
        assert "carry_out for 61 s" in str((await readiness(alone.vitals)).checks)

        await maintenance_tasks.record(database, {"carry_out": 2})  # of another process, which does it for all
        await maintenance_tasks.record(database, {"carry_out": 61})
        assert await failing(alone) == []

    async def test_unreported_maintenance_task_does_not_fail_readiness(self, alone, database):
        """As while the schedulers are of the version before."""
        assert await maintenance_tasks.ages(database, NAMES) == {}
        assert await failing(alone) == []

    async def test_a_timer_that_should_have_been_staged_is_a_lag(self, alone, database, clock):
        await a_waiting_run(database, delay=6)
        assert await failing(alone) == []

        await clock.advance(11.5)

        assert "staging_lag_seconds" in await failing(alone)

    async def test_schedule_deferred_by_an_overloaded_queue_causes_no_lag(self, alone, database, clock):
        await a_cron(database, priority=7)
        await a_ready_run(database)
        await clock.advance(90)
        assert "staging_lag_seconds" in await failing(alone)

        await record_overloads(database)

        assert "staging_lag_seconds" not in await failing(alone)
        assert await staging_lag_seconds(database) == 0

    async def test_a_job_that_waits_for_events_is_no_lag(self, alone, database):
        shape = {"on_event": {"type": "a"}}
        await submit_recurring(database, Recurring("greet", "{}", "default", 5, shape), key=a_key())

        assert await failing(alone) == []
