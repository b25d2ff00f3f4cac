"""A restored database: nothing starts, nothing that lived through the restore writes, and a person decides what is caught up."""

from datetime import timedelta

import pytest

from duly.clock import Rng, host_now
from duly.domain.diagnosis.doctor import findings
from duly.domain.errors import Refused
from duly.domain.limits.pause import EVERYTHING
from duly.domain.runs.outcome import Succeeded
from duly.log import Log
from duly.maintenance.reaper import Reaper
from duly.moves.admin.pause import pause_scope
from duly.moves.cancel import cancel_run
from duly.moves.schedules import recover
from duly.moves.stage import stage
from duly.scheduler.service import Scheduler
from duly.store.boxes import history
from duly.store.connection.session import Sessions
from duly.store.reads import system
from duly.store.tables import pauses, recovery, workers
from tests.builders import (
    a_leased_run,
    a_ready_run,
    a_scheduler,
    a_waiting_run,
    a_worker,
    an_awaited_run,
    boxes_of,
    claimed,
    history_of,
    seconds,
    settled,
)
from tests.clock import START
from tests.schedules.stories import MINUTE, a_cron, is_sound, occurrences

LOG = Log("test")
HOUR = timedelta(hours=1)


async def restored(database, clock, after: timedelta = HOUR) -> None:
    """Let this be the database as it was a while ago, restored just now."""
    await clock.advance(after)
    await recovery.hold_restored(database, clock.at - after)


async def approve(database) -> None:
    await recover.approve(database, Rng(3), LOG, rules=None, rate=None, by="somebody")


async def a_while(database, clock, reaper, span: float) -> None:
    """Let schedulers and the reaper go on."""
    scheduler = Scheduler(database, name="new", rng=Rng(4), log=LOG)
    for _ in range(int(span)):
        await scheduler.renew()
        await scheduler.step()
        await reaper.step()
        await clock.advance(1)
    await scheduler._release_shards()


@pytest.fixture
def reaper(database):
    return Reaper(database, rng=Rng(1), log=LOG)


async def test_worker_that_lived_through_a_restore_cannot_write(database, clock):
    worker_id, run = await a_leased_run(database)
    await restored(database, clock, seconds(1))

    assert await settled(database, worker_id, run, Succeeded()) == [run], "its fence is void"
    assert await workers.heartbeat(database, worker_id) is None, "and so is its lease"
    assert await boxes_of(database, run.run_id) == ["leased"]


async def test_scheduler_that_lived_through_a_restore_stages_nothing(database, clock):
    await a_cron(database)
    scheduler_id, epochs = await a_scheduler(database)
    await restored(database, clock, seconds(0))

    await clock.advance(61)
    assert (await stage(database, scheduler_id, epochs)).count == 0


async def test_run_in_flight_waits_for_the_decision_and_is_then_a_lost_attempt_under_a_higher_fence(
    database, clock, reaper
):
    _, run = await a_leased_run(database)
    await restored(database, clock)
    await a_while(database, clock, reaper, 60)

    assert await boxes_of(database, run.run_id) == ["leased"]
    assert [one.run_id for one in await recovery.in_flight(database, 10)] == [run.run_id]
    assert await history.verify(database) == []

    await approve(database)
    await a_while(database, clock, reaper, 30)

    assert await history_of(database, run.run_id) == [(1, "lost", "retrying")]
    [again] = await claimed(database, await a_worker(database))
    assert (again.run_id, again.attempt) == (run.run_id, 2)
    assert again.fence > run.fence + 10**11, "above all that were granted after the backup"
    assert await is_sound(database)


async def test_run_due_after_the_last_safe_moment_of_its_worker_may_have_started_after_the_backup(
    database, clock, reaper
):
    worker_id = await a_worker(database)
    run_id = await a_ready_run(database)
    await claimed(database, worker_id)
    await database.execute("update duly.leased set due_at = due_at + interval '1 minute', scheduled_at = scheduled_at")
    await restored(database, clock)

    await approve(database)
    await a_while(database, clock, reaper, 2)

    assert [entry[:2] for entry in await history_of(database, run_id)] == [(1, "lost")]


async def test_cancel_that_was_requested_before_the_backup_holds(database, clock, reaper):
    _, run = await a_leased_run(database)
    await cancel_run(database, run.run_id)
    await restored(database, clock)

    await approve(database)
    await a_while(database, clock, reaper, 2)

    assert await boxes_of(database, run.run_id) == []
    assert [entry[2] for entry in await history_of(database, run.run_id)] == ["cancelled"]


async def test_run_that_its_receiver_settles_keeps_its_fence(database, clock):
    run = await an_awaited_run(database)
    await restored(database, clock, seconds(1))

    assert await database.fetchval("select fence from duly.leased where run_id = $1", run.run_id) == run.fence


async def test_nothing_starts_and_missed_occurrences_wait_until_the_recovery_is_approved(database, clock, reaper):
    job = await a_cron(database, misfire={"policy": "fire_all", "limit": 3, "rate": 5})
    one_shot, due = await a_waiting_run(database, delay=600), await a_ready_run(database)
    await restored(database, clock)
    await a_while(database, clock, reaper, 90)

    assert await claimed(database, await a_worker(database)) == []
    found = await recovery.last(database)
    assert found is not None
    assert (found.state, found.backup_at) == ("open", START)
    assert await recovery.due(database, found.opened_at, 100) == 2
    held = await database.fetch("select total from duly.backfills where job_id = $1", job.job_id)
    assert [row[0] for row in held] == [61], "not even by its misfire policy"

    await approve(database)
    await a_while(database, clock, reaper, 15)

    assert await pauses.standing(database) == []
    started = {run.run_id for run in await claimed(database, await a_worker(database))}
    assert {one_shot, due} <= started
    created = [
        moment for box in ("leased", "ready", "blocked") for moment in await occurrences(database, job.job_id, box)
    ]
    assert sorted(created)[:3] == [START + number * MINUTE for number in (58, 59, 60)]
    assert await is_sound(database)


async def test_doctor_reports_a_restored_system_until_the_recovery_is_decided(database, clock):
    await a_cron(database)
    await restored(database, clock)

    [waits] = await findings_about(database, "restored_waits")
    assert waits.severity == "error"
    assert "is held: nothing starts until a person decides" in waits.message
    assert "duly recover approve" in waits.remedy

    await approve(database)
    assert await findings_about(database, "restored_waits") == []


async def test_doctor_reports_missed_occurrences_that_wait_for_a_decision(database, clock, reaper):
    await a_cron(database, misfire={"policy": "fire_all"})
    await a_while(database, clock, reaper, 2)
    await clock.advance(3 * 3600)
    scheduler = Scheduler(database, name="late", rng=Rng(4), log=LOG, recovery_after=HOUR)
    for _ in range(5):
        await scheduler.renew()
        await scheduler.step()
        await clock.advance(1)

    [waits] = await findings_about(database, "recovery_waits")
    assert waits.severity == "warning"
    assert "180 occurrences" in waits.message or "179 occurrences" in waits.message


async def findings_about(database, code):
    async with Sessions(database, size_max=1) as sessions, sessions.look(timeout=seconds(20)) as session:
        return [one for one in findings(await system.read(session, host_now)) if one.code == code]


async def test_dismissed_recovery_lets_the_rest_go_on(database, clock, reaper):
    await a_cron(database)
    _, run = await a_leased_run(database)
    await restored(database, clock)
    await a_while(database, clock, reaper, 2)

    await recover.dismiss(database, Rng(3), LOG, by="somebody")
    await a_while(database, clock, reaper, 15)

    assert await pauses.standing(database) == []
    assert [entry[1] for entry in await history_of(database, run.run_id)] == ["lost"]
    with pytest.raises(Refused):
        await approve(database)


async def test_pause_of_everything_from_before_the_backup_outlives_the_decision(database, clock):
    await pause_scope(database, EVERYTHING, reason="the payment provider is down", paused_by="ann")
    await restored(database, clock)

    await approve(database)

    [standing] = await pauses.standing(database)
    assert standing.paused_by == "ann"


async def test_recovery_that_was_under_way_at_the_backup_is_decided_again(database, clock):
    await restored(database, clock)
    await approve(database)
    before = await recovery.last(database)

    await restored(database, clock)

    after = await recovery.last(database)
    assert before is not None
    assert after is not None
    assert (after.recovery_id, after.state, after.decided_at) == (before.recovery_id, "open", None)


async def test_archives_of_rows_that_are_still_here_are_made_anew_and_no_file_is_given_up(database, clock):
    for number, (state, is_late) in enumerate(
        [("exporting", False), ("verified", False), ("verified", True), ("dropped", False)]
    ):
        await database.execute(
            "insert into duly.archived_partitions (name, source, kind, day, is_late, state, holder, until, begun_at, horizon,"
            " location, abandoned, rows, left_out, checksum, bytes, tenants, archived_at)"
            " values ($1, 'attempts_failed', 'failed', $2::timestamptz::date, $3, $4, gen_random_uuid(), $2, $2, '999999999', $1,"
            " array['before'], 1, 0, 1, 1, '{1}', $2)",
            f"part {number}",
            START,
            is_late,
            state,
        )

    await restored(database, clock)

    kept = await database.fetch("select state, abandoned from duly.archived_partitions order by name")
    assert [tuple(row) for row in kept] == [("verified", []), ("dropped", [])], (
        "rows of late ones may have been deleted"
    )
