"""A calendar that changes: every schedule that uses it is armed anew, whatever happens in between."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from duly.domain.errors import InvalidOption, NotFound, Unsettled
from duly.domain.triggers.errors import TriggerError
from duly.moves.schedules.calendars import Kept, drop_calendar, put_calendar
from duly.moves.schedules.pause import pause, resume, skip_next
from duly.moves.submit import submit_recurring
from duly.store.tables import jobs, schedules
from tests.builders import a_key, a_schedule, staged
from tests.clock import START  # Monday, 2026-11-02 09:00:00 UTC

NOON = {"type": "cron", "expr": "0 12 * * *"}


def a_calendar(*dates, **more):
    return {"name": "holidays", "dates": list(dates), **more}


def noon(day):
    return datetime(2026, 11, day, 12, tzinfo=UTC)


async def a_job(database, trigger=NOON, name=None, **schedule):
    uses = schedule.pop("calendars", [{"name": "holidays"}])
    job = a_schedule(name=name, trigger=trigger, calendars=uses, **schedule)
    return (await submit_recurring(database, job, key=a_key())).job_id


async def next_of(database, job_id):
    found = await jobs.find(database, job_id)
    assert found
    return found["pending_at"]


async def test_calendar_change_rearms_the_schedules_that_use_it(database):
    assert await put_calendar(database, a_calendar()) == Kept("holidays", 0)
    first, second = await a_job(database), await a_job(database, {"type": "cron", "expr": "0 13 * * *"})
    other = await a_job(database, calendars=None)

    assert await put_calendar(database, a_calendar("2026-11-02", "2026-11-03")) == Kept("holidays", 2)
    assert await next_of(database, first) == noon(4)
    assert await next_of(database, second) == noon(4) + timedelta(hours=1)
    assert await next_of(database, other) == noon(2)

    await put_calendar(database, a_calendar())
    assert await next_of(database, first) == noon(2), "what was blocked is permitted again"


async def test_the_scheduler_fires_by_the_new_calendar_afterwards(database, clock):
    await put_calendar(database, a_calendar())
    job_id = await a_job(database)
    await put_calendar(database, a_calendar("2026-11-03"))

    await clock.advance(noon(2) - START)
    await staged(database)

    assert await next_of(database, job_id) == noon(4)


async def test_deferred_occurrence_fires_at_once_when_nothing_blocks_it_any_more(database, clock):
    await put_calendar(database, a_calendar("2026-11-02"))
    job_id = await a_job(database, calendars=[{"name": "holidays", "on_hit": "defer"}])
    skipping = await a_job(database)
    assert await next_of(database, job_id) == datetime(2026, 11, 3, tzinfo=UTC)
    await clock.advance(noon(2) + timedelta(hours=1) - START)

    await put_calendar(database, a_calendar())

    assert await next_of(database, job_id) == noon(2) + timedelta(hours=1, seconds=1)
    assert await next_of(database, skipping) == noon(3), "what was skipped is on record, and not made again"
    await clock.advance(1)
    await staged(database)
    assert await database.fetchval("select count(*) from duly.ready") == 1
    assert await next_of(database, job_id) == noon(3)


async def test_occurrence_still_deferred_waits_for_the_first_permitted_instant(database, clock):
    await put_calendar(database, a_calendar("2026-11-02", "2026-11-03"))
    job_id = await a_job(database, calendars=[{"name": "holidays", "on_hit": "defer"}])
    await clock.advance(noon(2) + timedelta(hours=1) - START)

    await put_calendar(database, a_calendar("2026-11-02"))

    assert await next_of(database, job_id) == datetime(2026, 11, 3, tzinfo=UTC)


async def test_deferral_jitter_and_pauses_are_kept(database):
    await put_calendar(database, a_calendar())
    deferred = await a_job(database, calendars=[{"name": "holidays", "on_hit": "defer"}], jitter={"max": "PT1H"})
    paused = await a_job(database)
    await pause(database, paused)

    await put_calendar(database, a_calendar("2026-11-02"))

    assert await next_of(database, deferred) == datetime(2026, 11, 3, tzinfo=UTC)
    found = await jobs.find(database, paused)
    assert found
    assert (found["state"], found["next_run_at"], found["pending_at"]) == ("paused", None, noon(3))
    await resume(database, paused)
    assert await next_of(database, paused) == noon(3)


async def test_occurrence_skipped_on_request_stays_skipped_after_a_calendar_change(database):
    await put_calendar(database, a_calendar())
    job_id = await a_job(database)
    await skip_next(database, job_id)

    await put_calendar(database, a_calendar("2026-11-05"))

    assert await next_of(database, job_id) == noon(3)


async def test_a_put_that_was_cut_short_is_finished_by_another(database):
    await put_calendar(database, a_calendar())
    job_id = await a_job(database)
    changed = a_calendar("2026-11-02")
    await schedules.put_calendar(database, 1, "holidays", msgspec.json.encode(changed).decode())
    assert await next_of(database, job_id) == noon(2), "the crash came before it was armed"

    assert await put_calendar(database, changed) == Kept("holidays", 1)
    assert await next_of(database, job_id) == noon(3)


async def test_calendar_change_rereads_a_job_that_fires_meanwhile(database, clock, monkeypatch):
    await put_calendar(database, a_calendar())
    job_id = await a_job(database)
    retime, looks = schedules.retime, list[int]()

    async def in_conflict(database, timings, skips):
        if not looks:
            await clock.advance(noon(2) - START)
            await staged(database)
        looks.append(timings)
        return await retime(database, timings, skips)

    monkeypatch.setattr(schedules, "retime", in_conflict)
    assert await put_calendar(database, a_calendar("2026-11-03")) == Kept("holidays", 1)

    assert len(looks) == 2
    assert await next_of(database, job_id) == noon(4)


async def test_missed_occurrence_stays_a_misfire_after_a_calendar_change(database, clock):
    await put_calendar(database, a_calendar())
    job_id = await a_job(database)
    await clock.advance(timedelta(hours=10))

    await put_calendar(database, a_calendar("2026-11-02"))

    assert await next_of(database, job_id) == noon(2)


async def test_a_calendar_that_blocks_a_job_for_long_is_refused_and_the_job_is_named(database):
    await put_calendar(database, a_calendar())
    job_id = await a_job(database, name="nightly")
    everything = {"name": "holidays", "weekly": [{"days": "MON-SUN", "from": "00:00", "to": "24:00"}]}

    with pytest.raises(TriggerError, match=r"job nightly would never fire again: .* for 400 days") as refused:
        await put_calendar(database, everything)

    assert refused.value.code == "WINDOW_EMPTY"
    assert await schedules.calendars(database, 1, None) == {"holidays": a_calendar()}
    assert await next_of(database, job_id) == noon(2)


async def test_calendar_change_gives_up_on_a_job_that_keeps_changing(database, monkeypatch):
    await put_calendar(database, a_calendar())
    await a_job(database)

    async def in_conflict(*_):
        return set()

    monkeypatch.setattr("duly.moves.schedules.retry_on_conflict.ATTEMPTS_MAX", 2)
    monkeypatch.setattr(schedules, "retime", in_conflict)
    with pytest.raises(Unsettled, match="a job of calendar 'holidays': it kept changing; try again"):
        await put_calendar(database, a_calendar("2026-11-02"))


async def test_more_jobs_than_a_page_are_all_armed(database, monkeypatch):
    monkeypatch.setattr("duly.moves.schedules.calendars._PAGE", 2)
    await put_calendar(database, a_calendar())
    ids = [await a_job(database) for _ in range(5)]

    assert await put_calendar(database, a_calendar("2026-11-02")) == Kept("holidays", 5)
    assert {await next_of(database, job_id) for job_id in ids} == {noon(3)}


async def test_calendar_is_dropped_only_when_no_job_uses_it(database):
    await put_calendar(database, a_calendar())
    await a_job(database, name="nightly")

    with pytest.raises(InvalidOption, match="calendar 'holidays' is used by nightly; edit or cancel that job first"):
        await drop_calendar(database, "holidays")
    with pytest.raises(NotFound, match="no calendar is named 'x'"):
        await drop_calendar(database, "x")

    await put_calendar(database, {"name": "x"})
    await drop_calendar(database, "x")
    assert list(await schedules.calendars(database, 1, None)) == ["holidays"]


@pytest.mark.parametrize(
    "definition", [7, {}, {"name": "x", "date": []}, {"name": "x", "dates": ["2026-02-30"]}, {"name": "x", "tz": "EST"}]
)
async def test_invalid_calendar_definition_is_refused(database, definition):
    with pytest.raises(TriggerError):
        await put_calendar(database, definition)
    assert await schedules.calendars(database, 1, None) == {}


@pytest.mark.parametrize("name", ["", "a\nb", "x" * 201])
async def test_a_calendar_has_a_printable_name(database, name):
    with pytest.raises(InvalidOption, match=r"calendar .* is not a name"):
        await put_calendar(database, {"name": name})
