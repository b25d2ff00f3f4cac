"""A hand on a recurring job: by its handle, its name or its id, awaited or plain."""

import asyncio
from datetime import UTC, datetime, timedelta
from uuid import UUID

import msgspec
import pytest

from duly import App, InvalidArguments, InvalidOption, InvalidSchedule, NotFound, Retry, TriggerError
from duly.domain.runs.outcome import Succeeded
from duly.domain.triggers.schedule.options import requested_shape
from duly.store.boxes.options import decode
from duly.store.tables import jobs
from tests.builders import a_worker, claimed, counts, runs_listed, settled, staged
from tests.clock import START

NOON, NEXT_NOON = START + timedelta(hours=3), START + timedelta(hours=27)


@pytest.fixture
async def noon(greet):
    """A greeting each day at noon."""
    return await greet.options(cron="0 12 * * *", name="noon").submit("world")


def hands_on(app, handle):
    return [handle, app.job("noon"), app.job(handle.job_id), app.job(str(handle.job_id))]


async def found(database, handle):
    job = await jobs.find(database, handle.job_id)
    assert job
    return job


async def test_handle_name_and_id_are_the_same_job(app, noon):
    details = [await job.details() for job in hands_on(app, noon)]

    assert len({msgspec.json.encode(one) for one in details}) == 1
    assert (details[0].name, details[0].state, details[0].handler, details[0].version) == ("noon", "active", "greet", 1)
    assert details[0].description == "At 12:00"
    assert details[0].next_fires[:2] == [NOON, NEXT_NOON]


async def test_a_paused_job_fires_no_more_until_it_is_resumed(app, noon, database, clock):
    assert await noon.pause("the mail server moves") == "paused"
    assert await noon.pause() == "already"
    details = await app.job("noon").details()
    assert (details.state, details.pause_reason, details.next_fires) == ("paused", "the mail server moves", [])

    await clock.advance(NOON - START)
    await staged(database)
    assert await counts(database) == {"timers": 1}
    await clock.advance(timedelta(hours=1))

    assert await app.job("noon").resume() == "active"
    assert await noon.resume() == "already"
    assert (await noon.details()).next_fires[0] == NEXT_NOON
    [skipped] = await runs_listed(database, f"state:skipped AND job_id:{noon.job_id}")
    assert skipped["reason"] == "skipped_paused"


async def test_a_resume_may_catch_up(noon, database, clock):
    await noon.pause()
    await clock.advance(NOON - START + timedelta(hours=1))

    await noon.resume(catch_up=True)

    assert (await noon.details()).next_fires[0] == NOON, "late, and so a misfire"
    await staged(database)
    assert await counts(database) == {"ready": 1, "timers": 1}


async def test_the_next_occurrence_is_left_out(noon):
    assert await noon.skip_next() == NOON
    assert (await noon.details()).next_fires[0] == NEXT_NOON


async def test_a_job_is_run_now_with_its_own_arguments_or_others(app, noon, database):
    own = await noon.trigger()
    other = await app.job("noon").trigger({"name": "moon"}, allow_overlap=True)

    assert (own.state, other.state) == ("ready", "ready")
    worker = await a_worker(database)
    by_id = {run.run_id: run for run in await claimed(database, worker)}
    assert by_id[own.run_id].payload == '{"name": "world"}'
    assert by_id[other.run_id].payload == '{"name": "moon"}'
    assert await other.status() == "running"
    assert (await noon.details()).next_fires[0] == NOON, "its schedule is not moved"


async def test_triggered_run_returns_its_result(noon, database):
    run = await noon.trigger()
    worker = await a_worker(database)
    [leased] = await claimed(database, worker)
    waiting = asyncio.create_task(run.result(timeout=5))
    await settled(database, worker, leased, Succeeded('"hello world"'))

    assert await waiting == "hello world"


async def test_trigger_is_skipped_during_an_active_run_unless_overlap_is_allowed(noon):
    await noon.trigger()

    assert (await noon.trigger()).state == "skipped_overlap"
    assert (await noon.trigger(allow_overlap=True)).state == "ready"


async def test_the_same_key_is_the_same_run(noon):
    first, again = await noon.trigger(key="k"), await noon.trigger(key="k")

    assert (first.run_id, again.state) == (again.run_id, "replayed")


async def test_invalid_arguments_are_refused_before_any_write(noon, database):
    with pytest.raises(InvalidArguments, match="argument name is 7"):
        await noon.trigger({"name": 7})
    with pytest.raises(InvalidArguments, match="times is 'x'"):
        await noon.edit(arguments={"times": "x"})
    assert await counts(database) == {"timers": 1}


@pytest.mark.parametrize("arguments", [[1], "x", 5, {1: "x"}])
async def test_arguments_have_names(app, noon, database, arguments):
    other = App(app.locate())  # Knows no handler that would check them.
    for job in (noon, other.job("noon")):
        with pytest.raises(InvalidArguments, match=r"arguments .* of greet are not a mapping with names"):
            await job.trigger(arguments)
        with pytest.raises(InvalidArguments, match=r"arguments .* of greet are not a mapping with names"):
            await job.edit(arguments=arguments)
    await other.close()
    assert await counts(database) == {"timers": 1}


@pytest.mark.parametrize("key", ["", "k" * 201, "a\0b", "a\nb", "\ud800", 5])
async def test_invalid_key_is_refused_before_any_write(noon, database, key):
    with pytest.raises(
        InvalidOption, match=r"^key .{0,70} is not a key: 1 to 200 printable .*; leave it out for none$"
    ):
        await noon.trigger(key=key)
    assert await counts(database) == {"timers": 1}


@pytest.mark.parametrize("reference", [5, None, "", "a\0b", "x" * 201, b"noon"])
def test_invalid_job_reference_is_refused_immediately(reference):
    with pytest.raises(
        InvalidOption, match=r"^job .{0,70} is neither an id nor a name: write a UUID, or 1 to 200 printable"
    ):
        App("postgresql:///nowhere").job(reference)


@pytest.mark.parametrize("reason", [5, None, "", "a\0b", "x" * 501, "x" * 100_000])
async def test_a_reason_is_a_line_of_text(noon, reason):
    with pytest.raises(
        InvalidOption, match=r"^reason .{0,70} is not one: 1 to 500 printable characters on one line; write"
    ):
        await noon.pause(reason)
    assert await noon.status() == "active"
    assert await noon.pause("x" * 500) == "paused"


@pytest.mark.parametrize(
    ("start", "end", "words"),
    [
        ("x", START, "from 'x' is not a timestamp; use a datetime with a time zone"),
        (START, 5, "to 5 is not a timestamp; use a datetime with a time zone"),
        (START, START.date(), r"to datetime.date\(.*\) is not a timestamp"),
        (START.replace(tzinfo=None), START, "from .* has no time zone"),
    ],
)
async def test_a_backfill_is_between_two_moments(noon, start, end, words):
    with pytest.raises(InvalidSchedule, match=words):
        await noon.backfill(start, end)


async def test_edit_changes_only_the_named_fields(noon, database):
    assert await noon.edit(cron="30 13 * * *") == 2
    assert await noon.edit(priority=1, queue="mail", arguments={"times": 3}, retry=Retry(max_attempts=2)) == 3

    job = await found(database, noon)
    assert (job["priority"], job["queue"], job["name"]) == (1, "mail", "noon")
    assert msgspec.json.decode(job["payload"]) == {"name": "world", "times": 3}
    assert job["options"].policy.retry.max_attempts == 2
    assert (await noon.details()).next_fires[0] == datetime(2026, 11, 2, 13, 30, tzinfo=UTC)


async def test_edit_keeps_zone_mode_and_other_schedule_parts(greet, database):
    nightly = await greet.options(cron="0 2 * * *", tz="Europe/Paris", jitter="PT5M", overlap="queue").submit("x")
    after = await greet.options(every="PT1H", mode="fixed_delay", at=NOON).submit("x")

    await nightly.edit(cron="0 3 * * *", jitter=None)
    await after.edit(every="PT2H")

    shape = msgspec.json.decode((await found(database, nightly))["schedule"])
    assert shape["trigger"] == {"type": "cron", "expr": "0 3 * * *", "tz": "Europe/Paris"}
    assert (shape["overlap"], "jitter" in shape) == ({"policy": "queue"}, False)
    assert msgspec.json.decode((await found(database, after))["schedule"])["trigger"]["mode"] == "fixed_delay"
    await nightly.edit(tz="America/New_York")
    assert (await nightly.details()).description == "At 03:00, America/New_York time"


async def test_an_edit_that_changes_nothing_makes_no_version(noon, greet, database):
    every = await greet.options(every="PT1H", overlap="queue").submit("x")

    assert await noon.edit(cron="0 12 * * *") == 1
    assert await noon.edit(arguments={"name": "world"}) == 1
    assert await every.edit(every=3600) == 1
    assert await every.edit(queue="default", overlap="queue") == 1

    assert await database.fetchval("select max(generation) from duly.jobs") == 1


async def test_the_zone_of_a_period_is_kept(greet, database):
    often = await greet.options(every="PT15M", tz="Europe/Paris").submit("x")

    await often.edit(priority=1)
    await often.edit(every="PT30M")

    shape = requested_shape((await found(database, often))["schedule"], None)
    assert shape == {"trigger": {"type": "interval", "every": "PT30M", "tz": "Europe/Paris"}}


async def test_a_delay_in_a_schedule_counts_from_the_databases_clock(greet, database):
    later = await greet.options(schedule={"trigger": {"type": "at", "delay": "PT90S"}}, name="later").submit("x")

    assert (await later.details()).next_fires[0] == await database.read_clock() + timedelta(seconds=90)


async def test_unrelated_edit_does_not_shift_fires_counted_from_creation(greet, database, clock):
    words = await greet.options(when="every 7 minutes").submit("x")
    period = await greet.options(every=420).submit("x")
    await staged(database)
    await clock.advance(100)

    for job in (words, period):
        before = await job.details()
        await job.edit(priority=1)
        assert (await job.details()).next_fires == before.next_fires


async def test_two_edits_at_once_both_count(noon, database):
    await asyncio.gather(noon.edit(priority=1), noon.edit(queue="mail"))

    job = await found(database, noon)
    assert (job["priority"], job["queue"], job["generation"]) == (1, "mail", 3)


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({}, InvalidOption, "nothing is to be changed"),
        ({"corn": "x"}, InvalidOption, "edit takes no corn="),
        ({"cron": "x"}, TriggerError, "1 field; 5 or 6 expected"),
        ({"cron": "0 9 * * *", "every": 60}, InvalidOption, "every= and cron= are both triggers"),
        ({"at": NOON}, InvalidOption, "at= goes with every="),
        ({"mode": "fixed_delay"}, InvalidOption, "this schedule is of type cron"),
        ({"calendars": ["nowhere"]}, TriggerError, "'nowhere' is not a calendar; create it: duly calendars put"),
        ({"priority": 11}, InvalidOption, "priority 11"),
        ({"queue": ""}, InvalidOption, "queue ''"),
        ({"timeout": -1}, InvalidOption, "timeout -1"),
    ],
)
async def test_an_edit_that_makes_no_sense_changes_nothing(noon, changes, error, words):
    with pytest.raises(error) as refused:
        await noon.edit(**changes)
    assert words in str(refused.value)
    assert (await noon.details()).version == 1


async def test_backfill_creates_runs_or_only_counts_them(noon, database):
    week_ago = START - timedelta(days=7)

    counted = await noon.backfill(week_ago, START, dry_run=True)
    made = await noon.backfill(week_ago, START, rate=10)

    assert (counted.backfill_id, counted.count, made.count) == (None, 7, 7)
    assert made.first[0] == NOON - timedelta(days=7)
    assert made.backfill_id is not None
    with pytest.raises(InvalidOption, match="is not after from"):
        await noon.backfill(START, week_ago)


async def test_cancelled_or_unknown_job_is_not_found(app, noon, greet):
    assert await noon.cancel() == "cancelled"
    assert await noon.status() == "cancelled"
    for ask in (noon.pause, noon.resume, noon.skip_next, noon.trigger):
        with pytest.raises(NotFound):
            await ask()
    with pytest.raises(NotFound, match="no schedule is named 'noon'"):
        await app.job("noon").status()
    with pytest.raises(NotFound):
        await app.job(UUID(int=7)).details()
    with pytest.raises(NotFound, match="no schedule"):
        await (await greet.submit("once")).pause()


def test_each_has_a_twin_for_plain_functions(app, greet, database_url):
    handle = greet.options(cron="0 12 * * *", name="noon").submit_sync("world")
    job = app.job("noon")

    assert job.status_sync() == "active"
    assert job.pause_sync() == "paused"
    assert job.resume_sync() == "active"
    assert job.skip_next_sync() == NOON
    assert job.trigger_sync().cancel_sync() == "cancelled"
    assert job.edit_sync(priority=2) == 2
    assert job.backfill_sync(START - timedelta(days=2), START, dry_run=True).count == 2
    assert job.details_sync().priority == 2
    assert handle.cancel_sync() == "cancelled"


async def test_edit_changes_callbacks_and_keeps_omitted_options(noon, database):
    await noon.edit(on_end="https://hooks.example/done", expires_after="PT5M")
    await noon.edit(on_failure="mourn")

    options = decode(await database.fetchval("select options::text from duly.jobs"))

    assert options.metadata.callbacks is not None
    assert options.metadata.callbacks.end is not None
    assert options.metadata.callbacks.failure is not None
    assert (options.metadata.callbacks.end.url, options.metadata.callbacks.failure.job) == (
        "https://hooks.example/done",
        "mourn",
    )
    assert options.policy.expires_seconds == 300
    await noon.edit(on_end=None, on_failure=None, expires_after=None)
    options = decode(await database.fetchval("select options::text from duly.jobs"))
    assert (options.metadata.callbacks, options.policy.expires_seconds) == (None, None)
