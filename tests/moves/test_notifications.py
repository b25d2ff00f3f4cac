"""Notifications: each rule notices what it asked for, once, and what waits is sent in as few deliveries as its limits allow."""

import asyncio
from datetime import timedelta

import msgspec
import pytest

from duly.clock import Rng
from duly.domain.errors import InvalidOption
from duly.domain.limits.pause import Scope
from duly.domain.notifications.channel import WebhookChannel
from duly.domain.notifications.rule import Quiet, RuleSpec
from duly.domain.runs.outcome import Cancelled, Failed, Succeeded, TimedOut
from duly.domain.runs.retry import Retry
from duly.log import Log
from duly.maintenance.reaper import Reaper
from duly.moves.admin import notifications
from duly.moves.admin.notifications import step
from duly.moves.admin.pause import pause_scope, resume_scope
from duly.moves.claim import claim
from duly.moves.dead import replay
from duly.moves.schedules import pause as schedule_pause
from duly.store import retention
from duly.store.connection.session import Inside
from duly.store.tables import notifications as store
from tests.builders import (
    HANDLER,
    LEASE,
    RNG,
    a_dead_run,
    a_leased_run,
    a_ready_run,
    a_waiting_run,
    a_worker,
    an_active_schedule,
    claimed,
    many_ready_runs,
    settled,
    staged,
)
from tests.kept import a_keyring
from tests.worker.stories import until

LOG = Log("test")
ONCE = Retry(max_attempts=1)
TWICE = Retry(max_attempts=2, base_seconds=1, jitter=0)
NEWEST = 2**63 - 1
WAITING = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"


async def a_channel(database, name="ops"):
    channel = WebhookChannel(url="https://hooks.example/in")
    await notifications.put_channel(database, a_keyring(), 1, name, channel, RNG)


async def a_rule(database, *events, name="all", **more):
    await a_channel(database)
    await notifications.put_rule(database, 1, name, RuleSpec(events=list(events), channels=["ops"], **more))


async def watched(database, seconds=1):
    """Let the monitor make a pass, so long after its last one."""
    await database.clock.advance(seconds)
    return await step(database, LOG)


async def noticed(database, rule=None, tenant=1):
    """List what was noticed, the oldest first: each event and its subject."""
    found = await store.page(database, tenant, rule, NEWEST, 1_000)
    return [(one.event, one.subject) for one, _ in reversed(found)]


async def deliveries(database):
    """List the deliveries that were made: of which rule, and how many notifications each carries."""
    rows = await database.fetch(
        "select rule, notifications from duly.notification_deliveries join duly.ready using (run_id)"
        " where handler = '@notification' order by created_at, rule"
    )
    return [tuple(row) for row in rows]


async def a_failing_run(database, worker_id=None, retry=ONCE, **more):
    worker_id, run = await a_leased_run(database, worker_id, retry=retry, **more)
    await settled(database, worker_id, run, Failed("broken"))
    return worker_id, run


async def many_dead_runs(database, number, transactions=10):
    """Record ends of so many runs that gave up."""
    for _ in range(transactions):
        await database.execute(
            "insert into duly.attempts (run_id, job_id, scheduled_at, due_at, finished_at, tenant, attempt, outcome, became,"
            " queue, handler, reason) select id, id, now, now, now, 1, 1, 'failed', 'dead', 'default', 'flood', 'broken'"
            " from (select gen_random_uuid() as id, duly.clock_now() as now from generate_series(1, $1::int)) as made",
            number // transactions,
        )


async def run_of_schedule(database, clock, worker_id, outcome, *, every=60):
    """Let the next occurrence of the only schedule come to an outcome."""
    await clock.advance(every)
    await staged(database)
    [run] = await claimed(database, worker_id)
    await settled(database, worker_id, run, outcome)


async def test_failed_and_dead_attempts_are_noticed_once_each(database):
    await a_rule(database, "failed", "dead")
    worker_id, run = await a_leased_run(database, retry=TWICE)
    await settled(database, worker_id, run, TimedOut(5))
    await watched(database)
    await staged(database)
    [again] = await claimed(database, worker_id)
    await settled(database, worker_id, again, Failed("broken"))

    await watched(database)
    await watched(database)

    assert await noticed(database) == [("failed", HANDLER), ("dead", HANDLER)]
    assert await deliveries(database) == [("all", 1), ("all", 1)]


@pytest.mark.parametrize("outcome", [Succeeded(), Cancelled()])
async def test_other_ends_are_not_noticed(database, outcome):
    await a_rule(database, "failed", "dead", "recovered")
    worker_id, run = await a_leased_run(database)
    await settled(database, worker_id, run, outcome)

    await watched(database)

    assert await noticed(database) == []


async def test_without_rules_nothing_is_read(database):
    await a_dead_run(database)

    assert await store.watch(database) is False
    assert await database.fetchval("select count(*) from duly.notification_cursor") == 0


async def test_rule_notices_nothing_from_before_it(database, clock):
    await a_dead_run(database)
    await clock.advance(10)
    await a_rule(database, "dead")
    await watched(database)
    assert await noticed(database) == []

    await a_rule(database, "dead", name="second")
    await a_dead_run(database)
    await watched(database)

    assert await noticed(database, "second") == [("dead", HANDLER)]


@pytest.mark.parametrize(
    ("filter_", "is_selected"),
    [
        ("", True),
        ("queue:default", True),
        ("queue:(mail,default)", True),
        ("queue:mail", False),
        ("tag:billing", True),
        ("tag:(billing,mail)", True),
        ("tag:billing AND tag:mail", False),
        ("name:report", False),
        ("name:rep*", False),
    ],
)
async def test_filter_selects_by_queue_tag_and_name(database, filter_, is_selected):
    await a_rule(database, "dead", filter=filter_)
    await a_dead_run(database, tags=["billing", "daily"], retry=ONCE)

    await watched(database)

    assert bool(await noticed(database)) is is_selected


@pytest.mark.parametrize(
    ("filter_", "is_selected"), [("name:nightly", True), ("name:night*", True), ("name:x*", False)]
)
async def test_filter_selects_a_job_by_name(database, clock, filter_, is_selected):
    await a_rule(database, "failed", filter=filter_)
    await an_active_schedule(database, name="nightly", anchor=clock.at + timedelta(minutes=1))
    await run_of_schedule(database, clock, await a_worker(database, lease=timedelta(days=1)), Failed("broken"))

    await watched(database)

    assert await noticed(database) == ([("failed", "nightly")] if is_selected else [])


async def test_job_recovers_with_its_next_success_and_once(database, clock):
    await a_rule(database, "dead", "recovered")
    await an_active_schedule(database, name="nightly", anchor=clock.at + timedelta(minutes=1))
    worker_id = await a_worker(database, lease=timedelta(days=1))
    for outcome in (
        Succeeded(),
        Failed("broken", retryable=False),
        Failed("broken", retryable=False),
        Succeeded(),
        Succeeded(),
    ):
        await run_of_schedule(database, clock, worker_id, outcome)
        await watched(database)
        await clock.advance(-1)

    assert await noticed(database) == [("dead", "nightly"), ("dead", "nightly"), ("recovered", "nightly")]


async def test_failure_and_success_between_two_passes_are_a_recovery(database, clock):
    await a_rule(database, "dead", "recovered", mode="on_change")
    await an_active_schedule(database, name="nightly", anchor=clock.at + timedelta(minutes=1))
    worker_id = await a_worker(database, lease=timedelta(days=1))
    await run_of_schedule(database, clock, worker_id, Failed("broken", retryable=False))
    await run_of_schedule(database, clock, worker_id, Succeeded())

    await watched(database)

    assert await noticed(database) == [("dead", "nightly"), ("recovered", "nightly")]


async def test_retried_run_that_succeeds_is_no_recovery_of_a_rule_for_dead_runs(database):
    await a_rule(database, "dead", "recovered")
    worker_id, run = await a_leased_run(database, retry=TWICE)
    await settled(database, worker_id, run, Failed("broken"))
    await watched(database, 5)
    await staged(database)
    [again] = await claimed(database, worker_id)
    await settled(database, worker_id, again)

    await watched(database)

    assert await noticed(database) == []


async def test_on_change_notices_the_first_failure_until_a_success(database, clock):
    await a_rule(database, "failed", "recovered", mode="on_change")
    await an_active_schedule(database, name="nightly", anchor=clock.at + timedelta(minutes=1))
    worker_id = await a_worker(database, lease=timedelta(days=1))
    bad, good = Failed("broken", retryable=False), Succeeded()
    for outcome in (bad, bad, bad, good, good, bad):
        await run_of_schedule(database, clock, worker_id, outcome)
        await watched(database)
        await clock.advance(-1)

    assert [event for event, _ in await noticed(database)] == ["failed", "recovered", "failed"]


async def test_on_change_notices_that_a_failing_job_gave_up(database):
    await a_rule(database, "failed", "dead", mode="on_change")
    worker_id, run = await a_leased_run(database, retry=TWICE)
    await settled(database, worker_id, run, Failed("broken"))
    await watched(database, 5)
    await staged(database)
    [again] = await claimed(database, worker_id)
    await settled(database, worker_id, again, Failed("broken"))

    await watched(database)

    assert [event for event, _ in await noticed(database)] == ["failed", "dead"]


async def test_replayed_dead_letter_recovers(database):
    await a_rule(database, "dead", "recovered")
    worker_id, run = await a_failing_run(database)
    await watched(database)
    await replay(database, [run.run_id])
    [again] = await claimed(database, worker_id)
    await settled(database, worker_id, again)

    await watched(database)

    assert [event for event, _ in await noticed(database)] == ["dead", "recovered"]


async def test_transaction_that_stays_open_is_read_when_it_commits(database):
    await a_rule(database, "dead")
    async with database.transaction() as slow:
        await slow.execute(
            "insert into duly.attempts (run_id, job_id, scheduled_at, due_at, finished_at, tenant, attempt, outcome, became,"
            " queue, handler, reason) select id, id, now, now, now, 1, 1, 'failed', 'dead', 'default', 'slow', 'slow'"
            " from gen_random_uuid() as id, duly.clock_now() as now"
        )
        await a_failing_run(database)
        await watched(database)
        assert len(await noticed(database)) == 1
        await watched(database)

    await watched(database)
    await watched(database)

    reasons = [one.reason for one, _ in await store.page(database, 1, None, NEWEST, 10)]
    assert reasons == ["slow", "broken"]


async def _watch_and_crash(database):
    async with database.transaction() as opened:
        assert await store.watch(opened)
        raise ZeroDivisionError


async def test_crash_within_a_pass_repeats_it_whole(database):
    await a_rule(database, "dead")
    await a_dead_run(database)
    await database.clock.advance(1)
    with pytest.raises(ZeroDivisionError):
        await _watch_and_crash(database)

    await watched(database)
    await watched(database)

    assert await noticed(database) == [("dead", HANDLER)]


async def test_processes_that_watch_at_once_notice_and_send_once(database):
    await a_rule(database, "dead")
    await a_dead_run(database)
    await database.clock.advance(1)

    await asyncio.gather(*(step(database, LOG) for _ in range(8)))

    assert await noticed(database) == [("dead", HANDLER)]
    assert await deliveries(database) == [("all", 1)]


async def test_two_that_would_send_the_same_send_once(database):
    await a_rule(database, "dead")
    await a_dead_run(database)
    await database.clock.advance(1)
    await store.watch(database)
    [one] = await store.waiting(database)

    assert [await store.send(database, one) for _ in range(2)] == [True, False]
    assert await deliveries(database) == [("all", 1)]


async def test_restored_database_starts_at_its_own_transactions(database):
    await a_rule(database, "dead")
    await database.execute("update duly.notification_cursor set ended = '9223372036854775000', cluster = 'another'")
    await watched(database)
    await a_dead_run(database)

    await watched(database)

    assert await noticed(database) == [("dead", HANDLER)]


async def test_restored_pause_of_a_job_is_not_noticed_again(database):
    await a_rule(database, "paused")
    await watched(database)
    await database.execute(
        "insert into duly.job_changes (xid, tenant, job_id, generation, change, name, queue, handler, changed_at)"
        " select (pg_snapshot_xmax(pg_current_snapshot())::text::bigint + 3)::text::xid8, 1, gen_random_uuid(), 1, 'paused',"
        " 'restored', 'mail', 'app:mail', duly.clock_now()"
    )
    for _ in range(5):  # each pass is a transaction, until their number reaches the restored one
        await watched(database)

    assert await noticed(database) == []


async def test_digest_sends_notifications_that_are_older_than_the_retention(database):
    await a_rule(database, "dead", mode="digest", digest="P20D")
    await a_dead_run(database)
    await watched(database)
    await watched(database, 10 * 86_400)

    await retention.forget_older(database, retention.Aging.NOTIFICATIONS, timedelta(days=7), 1_000)
    await watched(database, 10 * 86_400)
    assert await deliveries(database) == [("all", 1)]

    await retention.forget_older(database, retention.Aging.NOTIFICATIONS, timedelta(days=7), 1_000)
    assert await noticed(database) == []


async def test_backlog_of_failures_is_read_in_parts_and_completely(database):
    await a_rule(database, "dead", deliveries_max=1)
    worker_id = await a_worker(database)
    for _ in range(12):
        await a_dead_run(database, worker_id, retry=ONCE)
    for _ in range(12):
        await database.clock.advance(1)
        await database.fetchval("select duly.watch(5)")

    assert len(await noticed(database)) == 12


async def test_flood_of_failures_is_noticed_completely_in_few_deliveries_that_say_how_many_more(database):
    await a_rule(database, "dead", deliveries_max=3, per="PT10M")
    await many_dead_runs(database, 12_000)
    for _ in range(4):
        await watched(database)
    assert await database.fetchval("select count(*) from duly.notifications") == 12_000

    await many_dead_runs(database, 6_000)
    for _ in range(3):
        await watched(database)
    assert len(await deliveries(database)) == 3
    await watched(database, 600)

    counts = [count for _, count in await deliveries(database)]
    assert (len(counts), sum(counts)) == (4, 18_000)
    [(run_id,)] = await database.fetch(
        "select run_id from duly.notification_deliveries order by created_at desc limit 1"
    )
    found = await store.message_of(database, run_id, 20)
    assert found is not None
    assert f"and {counts[-1] - 20:,} more" in found[1].body
    assert len(found[1].body) < 10_000


# ---------------------------------------------------------------------------------------------------- late and absent


async def test_run_that_no_worker_starts_is_late_once(database):
    await a_rule(database, "late", late_after="PT2M")
    run_id = await a_ready_run(database)
    await watched(database, 119)
    assert await noticed(database) == []

    await watched(database, 2)
    await watched(database, 60)

    [(one, _)] = await store.page(database, 1, None, NEWEST, 10)
    assert (one.event, one.run_id, one.reason) == ("late", run_id, "no worker has started it")


async def test_started_run_is_not_late(database):
    await a_rule(database, "late", late_after="PT2M")
    await a_leased_run(database)

    await watched(database, 300)

    assert await noticed(database) == []


async def test_run_that_no_scheduler_stages_is_late(database):
    await a_rule(database, "late", late_after="PT2M")
    await a_waiting_run(database, delay=60)

    await watched(database, 170)
    assert await noticed(database) == []
    await watched(database, 11)

    assert await noticed(database) == [("late", HANDLER)]


async def test_unroutable_run_is_late(database):
    await a_rule(database, "late", late_after="PT2M")
    await a_ready_run(database, handler="nobody-has-it")
    await database.execute("update duly.ready set is_unroutable = true")

    await watched(database, 121)

    assert await noticed(database) == [("late", "nobody-has-it")]


async def test_occurrence_is_absent_when_every_scheduler_is_down(database, clock):
    await a_rule(database, "absent", absent_after="PT30S")
    await an_active_schedule(database, name="nightly", every=3600, anchor=clock.at + timedelta(hours=1))
    await watched(database, 3600)
    await watched(database, 29)
    assert await noticed(database) == []

    await watched(database, 2)
    await watched(database, 60)

    assert await noticed(database) == [("absent", "nightly")]
    assert await deliveries(database) == [("all", 1)], "no scheduler is needed to send it"


async def test_occurrence_that_was_staged_and_not_started_is_absent(database, clock):
    await a_rule(database, "absent", absent_after="PT30S")
    await an_active_schedule(database, name="nightly", every=3600, anchor=clock.at + timedelta(hours=1))
    await clock.advance(3600)
    await staged(database)

    await watched(database, 31)
    await watched(database, 31)

    assert await noticed(database) == [("absent", "nightly")]


async def _a_lost_occurrence(database, clock):
    """Let a worker take an occurrence that is due at once, and die with it. Its lease has run out a second ago."""
    worker_id = await a_worker(database, lease=timedelta(seconds=15))
    await an_active_schedule(database, name="nightly", every=3600, anchor=clock.at + timedelta(seconds=5))
    await staged(database)
    assert len(await claimed(database, worker_id)) == 1
    await watched(database, 16)


async def test_occurrence_of_a_lost_worker_that_no_scheduler_takes_back_is_absent_once(database, clock):
    await a_rule(database, "absent", absent_after="PT30S")
    await _a_lost_occurrence(database, clock)
    await watched(database, 28)
    assert await noticed(database) == []

    await watched(database, 2)
    await watched(database, 60)

    [(one, _)] = await store.page(database, 1, None, NEWEST, 10)
    assert (one.event, one.subject) == ("absent", "nightly")
    assert one.reason == "its worker is lost, and no scheduler has taken it back"
    assert await deliveries(database) == [("all", 1)]


async def test_occurrence_of_a_lost_worker_that_is_taken_back_in_time_is_not_absent(database, clock):
    await a_rule(database, "absent", absent_after="PT30S")
    reaper = Reaper(database, rng=Rng(1), log=LOG)
    await reaper.step()
    await _a_lost_occurrence(database, clock)
    await reaper.step()
    await clock.advance(LEASE)
    assert await reaper.step() == 1
    again = await a_worker(database, lease=timedelta(days=1))
    await clock.advance(5)
    await staged(database)
    assert len(await claimed(database, again)) == 1

    await watched(database, 100)

    assert await noticed(database) == []


async def test_occurrences_of_a_lost_worker_are_noticed_in_parts_and_completely(database, clock):
    await a_rule(database, "absent", absent_after="PT1M")
    worker_id = await a_worker(database, lease=timedelta(seconds=15))
    for number in range(20):
        await an_active_schedule(database, name=f"j{number}", every=3600, anchor=clock.at + timedelta(seconds=5))
    await staged(database)
    assert len(await claimed(database, worker_id)) == 20
    await clock.advance(200)
    for _ in range(5):
        await database.fetchval("select duly.watch(6)")
        await database.clock.advance(1)

    assert len(await noticed(database)) == 20


async def test_occurrence_missed_and_then_recorded_as_skipped_is_one_absence(database, clock):
    await a_rule(database, "absent", absent_after="PT30S")
    await an_active_schedule(
        database, name="nightly", every=3600, anchor=clock.at + timedelta(hours=1), misfire={"policy": "skip"}
    )
    await clock.advance(3600)
    await watched(database, 31)
    await clock.advance(3000)
    await staged(database)

    await watched(database)

    assert await noticed(database) == [("absent", "nightly")]


async def _absences_until_one_runs(database, clock, outcome, **more):
    """Let three occurrences of a schedule be skipped or unstarted, and a fourth run."""
    await a_rule(database, "absent", "recovered", absent_after="PT30S", **more)
    await an_active_schedule(
        database,
        name="minutely",
        every=60,
        anchor=clock.at + timedelta(seconds=29),
        misfire={"policy": "skip", "grace": "PT1S"},
    )
    for _ in range(3):
        await watched(database, 29)
        await watched(database, 30)
        await staged(database)  # what is so late is skipped
        await watched(database)
    worker_id = await a_worker(database, lease=timedelta(days=1))
    await run_of_schedule(database, clock, worker_id, outcome, every=29)
    await watched(database)
    await watched(database)


@pytest.mark.parametrize("outcome", [Succeeded(), Failed("broken", retryable=False)])
async def test_on_change_notices_the_first_absence_until_an_occurrence_runs(database, clock, outcome):
    await _absences_until_one_runs(database, clock, outcome, mode="on_change")

    assert await noticed(database) == [("absent", "minutely"), ("recovered", "minutely")]
    assert await database.fetchval("select count(*) from duly.notification_states") == 0


async def test_every_notices_each_absence_and_one_recovery(database, clock):
    await _absences_until_one_runs(database, clock, Succeeded())

    events = [event for event, _ in await noticed(database)]
    assert events[-1] == "recovered"
    assert events[:-1] == ["absent"] * (len(events) - 1)
    assert len(events) >= 4


async def test_skips_while_an_occurrence_runs_are_one_absence_that_its_end_does_not_end(database, clock):
    await a_rule(database, "absent", "recovered", mode="on_change")
    await an_active_schedule(
        database, name="busy", every=60, anchor=clock.at + timedelta(minutes=1), overlap={"policy": "skip"}
    )
    worker_id = await a_worker(database, lease=timedelta(days=1))
    for _ in range(2):
        await clock.advance(60)
        await staged(database)
        [run] = await claimed(database, worker_id)
        for _ in range(2):
            await clock.advance(60)
            await staged(database)
            await watched(database)
            await clock.advance(-1)
        await settled(database, worker_id, run)
        await watched(database)
        await clock.advance(-1)
    assert await noticed(database) == [("absent", "busy")]

    await run_of_schedule(database, clock, worker_id, Succeeded())
    await watched(database)

    assert await noticed(database) == [("absent", "busy"), ("recovered", "busy")]


async def test_on_change_notices_an_occurrence_of_a_lost_worker_once(database, clock):
    await a_rule(database, "absent", "recovered", absent_after="PT30S", mode="on_change")
    await _a_lost_occurrence(database, clock)

    for _ in range(3):
        await watched(database, 30)

    assert await noticed(database) == [("absent", "nightly")]


async def test_late_runs_are_judged_in_parts_and_completely(database):
    await a_rule(database, "late", late_after="PT1M")
    await many_ready_runs(database, 50, apart=0.0)
    await database.clock.advance(61)
    for _ in range(8):
        await database.fetchval("select duly.watch(7)")
        await database.clock.advance(1)

    assert len(await noticed(database)) == 50


async def test_another_tenants_runs_are_not_noticed(database):
    await a_rule(database, "late", "dead", "queue_age", late_after="PT1M", queue_age="PT1M")
    await many_ready_runs(database, 3, tenant=2)

    await watched(database, 120)

    assert await noticed(database) == []
    assert await noticed(database, tenant=2) == []


# -------------------------------------------------------------------------------- backlogs, pauses and open circuits


async def test_backlog_is_noticed_once_and_recovers(database):
    await a_rule(database, "queue_age", "recovered", queue_age="PT1M")
    worker_id = await a_worker(database)
    await a_ready_run(database)
    await watched(database, 61)
    await watched(database, 30)
    assert await noticed(database) == [("queue_age", "default")]

    await database.execute("update duly.workers set until = 'infinity'")
    await claimed(database, worker_id)
    await watched(database)
    await watched(database)

    assert await noticed(database) == [("queue_age", "default"), ("recovered", "default")]


async def test_pause_of_a_job_recovers_when_it_is_resumed(database):
    await a_rule(database, "paused", "recovered")
    job = await an_active_schedule(database, name="nightly")
    await schedule_pause.pause(database, job.job_id)
    await watched(database)
    await schedule_pause.resume(database, job.job_id)
    await watched(database)
    await watched(database)

    assert await noticed(database) == [("paused", "nightly"), ("recovered", "nightly")]
    assert await database.fetchval("select count(*) from duly.notification_states") == 0


async def test_pauses_of_a_job_between_two_passes_recover_each(database, clock):
    await a_rule(database, "paused", "recovered")
    job = await an_active_schedule(database, name="nightly")
    for _ in range(2):
        await schedule_pause.pause(database, job.job_id)
        await clock.advance(1)
        await schedule_pause.resume(database, job.job_id)
        await clock.advance(1)

    await watched(database)

    assert [event for event, _ in await noticed(database)] == ["paused", "recovered"] * 2


async def test_end_of_a_pause_from_before_the_rule_is_no_recovery(database, clock):
    job = await an_active_schedule(database, name="nightly")
    await schedule_pause.pause(database, job.job_id)
    await clock.advance(1)
    await a_rule(database, "paused", "recovered")
    await watched(database)
    await schedule_pause.resume(database, job.job_id)

    await watched(database)

    assert await noticed(database) == []


async def test_pauses_of_everything_queues_and_jobs_are_noticed(database):
    await a_rule(database, "paused", "recovered", filter="queue:default")
    job = await an_active_schedule(database, name="nightly")
    await pause_scope(database, Scope(), reason="upgrade", paused_by="me")
    await pause_scope(database, Scope(queue="default"), reason="slow disk", paused_by="me")
    await pause_scope(database, Scope(queue="other"), reason="not ours", paused_by="me")
    await schedule_pause.pause(database, job.job_id, "by hand")
    await watched(database)
    await resume_scope(database, Scope(queue="default"))
    await watched(database)

    found = await noticed(database)
    assert sorted(found[:3]) == [("paused", "everything"), ("paused", "nightly"), ("paused", "queue default")]
    assert found[3:] == [("recovered", "queue default")]


async def test_pause_of_everything_holds_no_notification(database):
    await a_rule(database, "paused")
    await a_ready_run(database)
    await pause_scope(database, Scope(), reason="upgrade", paused_by="me")
    await pause_scope(database, Scope(tenant=1), reason="upgrade", paused_by="me")
    await watched(database)
    worker_id = await a_worker(database, queues=["default", "@notifications"], handlers=[HANDLER, "@notification"])

    runs = await claim(database, worker_id, ["default", "@notifications"], [HANDLER, "@notification"], 10)

    assert [run.handler for run in runs] == ["@notification"]


async def test_open_circuit_is_noticed_until_it_closes(database):
    await a_rule(database, "circuit_open", "recovered")
    await database.execute(
        "insert into duly.destinations (destination_id, tenant, origin, created_at, state, state_changed_at, half_at, counted_at,"
        " released_at, answers_at) select gen_random_uuid(), 1, 'https://down.example', now, 'open', now, now, now, now, now"
        " from duly.clock_now() as now"
    )
    await watched(database)
    await database.execute("update duly.destinations set state = 'half_open'")
    await watched(database)
    assert await noticed(database) == [("circuit_open", "https://down.example")]

    await database.execute("update duly.destinations set state = 'closed'")
    await watched(database)

    assert (await noticed(database))[1:] == [("recovered", "https://down.example")]


# -------------------------------------------------------------------------------------------------------- deliveries


async def test_rate_limited_rule_sends_the_rest_together(database):
    await a_rule(database, "dead", deliveries_max=2, per="PT10M")
    worker_id = await a_worker(database)
    for _ in range(5):
        await a_dead_run(database, worker_id, retry=ONCE)
        await watched(database)
    assert await deliveries(database) == [("all", 1), ("all", 1)]

    await watched(database, 600)

    assert await deliveries(database) == [("all", 1), ("all", 1), ("all", 3)]


async def test_digest_is_sent_after_its_span(database):
    await a_rule(database, "dead", mode="digest", digest="PT1H")
    worker_id = await a_worker(database)
    for _ in range(3):
        await a_dead_run(database, worker_id, retry=ONCE)
        await watched(database)
    await watched(database, 3500)
    assert await deliveries(database) == []

    await watched(database, 100)

    assert await deliveries(database) == [("all", 3)]


async def test_quiet_hours_hold_deliveries_until_their_end(database, clock):
    local = clock.at.strftime("%H:%M")  # 09:00 in UTC
    await a_rule(database, "dead", quiet=Quiet(start=local, end="10:00"))
    await a_dead_run(database)
    await watched(database, 3000)
    assert await noticed(database) == [("dead", HANDLER)]
    assert await deliveries(database) == []

    await watched(database, 600)

    assert await deliveries(database) == [("all", 1)]


@pytest.mark.parametrize(
    "newer",
    [
        {"events": ["melted"]},
        {"filter": "moon:full"},
        {"quiet": {"start": "22:00", "end": "07:00", "tz": "Mars/Base"}},
        {"more": 1},
    ],
)
async def test_rule_that_a_newer_version_stored_is_logged_and_the_others_are_sent(database, caplog, newer):
    await a_rule(database, "dead", name="newer")
    await a_rule(database, "dead", name="other")
    await database.execute(
        "update duly.notification_rules set definition = definition || $1::jsonb where name = 'newer'",
        msgspec.json.encode(newer).decode(),
    )
    await a_dead_run(database)

    await watched(database)

    assert await deliveries(database) == [("other", 1)]
    [record] = [one for one in caplog.records if one.getMessage() == "notification_rule_unreadable"]
    assert record.__dict__["fields"]["rule"] == "newer"


async def test_message_names_what_it_left_out(database):
    await a_rule(database, "late", late_after="PT1M")
    await many_ready_runs(database, 300)
    await watched(database, 120)
    [(run_id,)] = await database.fetch("select run_id from duly.notification_deliveries")

    found = await store.message_of(database, run_id, 20)

    assert found is not None
    tenant, message = found
    assert (tenant, message.count, len(message.shown)) == (1, 300, 20)
    assert "and 280 more" in message.body
    assert message.event["data"]["left_out"] == 280
    assert len(message.body) < 10_000


async def test_deliveries_of_notifications_are_never_noticed(database):
    await a_rule(database, "failed", "dead", "late", late_after="PT1M")
    await a_dead_run(database)
    await watched(database)
    worker_id = await a_worker(database, queues=["@notifications"], handlers=["@notification"])
    [run] = await claim(database, worker_id, ["@notifications"], ["@notification"], 10)
    await settled(database, worker_id, run, Failed("refused", retryable=False))
    await watched(database)
    await watched(database, 120)

    assert await noticed(database) == [("dead", HANDLER)]


async def test_each_channel_of_a_rule_gets_its_own_delivery(database):
    await a_channel(database, "second")
    await a_channel(database)
    await notifications.put_rule(database, 1, "both", RuleSpec(events=["dead"], channels=["ops", "second"]))
    await a_dead_run(database)

    await watched(database)

    [(_, delivered)] = await store.page(database, 1, None, NEWEST, 10)
    assert [(one.channel, one.state) for one in delivered] == [("ops", "ready"), ("second", "ready")]


async def test_channel_in_use_stays(database):
    await a_rule(database, "dead")

    with pytest.raises(InvalidOption, match="used by all"):
        await notifications.drop_channel(database, 1, "ops")

    await notifications.drop_rule(database, 1, "all")
    await notifications.drop_channel(database, 1, "ops")


async def test_rule_made_anew_sends_nothing_of_its_predecessor(database):
    await a_rule(database, "dead", mode="digest")
    await a_dead_run(database)
    await watched(database)
    await notifications.drop_rule(database, 1, "all")
    await a_rule(database, "dead")

    await watched(database)

    assert await deliveries(database) == []
    assert len(await noticed(database)) == 1, "what it noticed stays on record"


async def test_rule_names_channels_that_exist(database):
    with pytest.raises(InvalidOption, match="no channel is named 'ops'"):
        await notifications.put_rule(database, 1, "all", RuleSpec(events=["dead"], channels=["ops"]))


async def a_hundred(database, what):
    """Store all but one of the channels or rules that a tenant may have."""
    if what == "channel":
        await database.execute(
            "insert into duly.channels (tenant, name, kind, shown, sealed, key_id, updated_at)"
            " select 1, 'c' || number, 'webhook', '{}', '', 'k', duly.clock_now() from generate_series(1, 99) as number"
        )
        return lambda inside, name: a_channel(inside, name)
    await a_channel(database)
    await database.execute(
        "insert into duly.notification_rules (tenant, name, definition, selects, events, mode, channels, created_at, updated_at,"
        " late_to, absent_to) select 1, 'r' || number, '{}', '{}', '{dead}', 'every', '{ops}', now, now, now, now"
        " from generate_series(1, 99) as number, duly.clock_now() as now"
    )
    spec = RuleSpec(events=["dead"], channels=["ops"])
    return lambda inside, name: notifications.put_rule(inside, 1, name, spec)


@pytest.mark.parametrize("what", ["channel", "rule"])
async def test_two_that_store_the_last_allowed_at_once_do_not_pass_the_limit(database, what):
    put = await a_hundred(database, what)
    async with database.transaction() as opened:
        await put(Inside(database, opened), "first")
        second = asyncio.create_task(put(database, "second"))
        await until(lambda: database.fetchval(WAITING))
    with pytest.raises(InvalidOption, match=f"this tenant has 100 {what}s, which is the limit"):
        await second

    await put(database, "first")
    table = "channels" if what == "channel" else "notification_rules"
    assert await database.fetchval(f"select count(*) from duly.{table}") == 100


async def test_channel_is_sealed(database):
    channel = WebhookChannel(url="https://hooks.example/in?token=very-secret", headers={"Authorization": "hush-hush"})
    await notifications.put_channel(database, a_keyring(), 1, "ops", channel, RNG)

    rows = await database.fetch("select channels::text from duly.channels")
    [shown] = await store.channels(database, 1)

    assert "very-secret" not in rows[0][0]
    assert "hush" not in rows[0][0]
    assert shown.shown == {"url": "https://hooks.example/in?token=***", "headers": {"Authorization": "***"}}
    assert await notifications.opened_channel(database, a_keyring(), 1, "ops") == channel


async def test_notifications_are_kept_for_their_time(database, clock):
    await a_rule(database, "dead", "recovered")
    await a_dead_run(database)
    await watched(database)
    await clock.advance(timedelta(days=91))

    await database.fetchval(store.SQL["forget"], timedelta(days=90), 100)

    assert await noticed(database) == []
    assert await database.fetchval("select count(*) from duly.notification_states") == 0
