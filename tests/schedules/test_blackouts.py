"""What a calendar blocks is left out or put off, and is on record once, when the fire after it is staged."""

from datetime import timedelta

from duly.moves.calendars import put_calendar
from tests.clock import START
from tests.schedules.stories import (
    a_cron,
    is_sound,
    minutes,
    occurrences,
    pending,
    run_through,
    skipped,
    skips,
    staged_all,
)

TOMORROW = START + timedelta(days=1)


async def a_blackout(database, *, start, end):
    """Keep a calendar that covers one stretch."""
    window = {"start": start.isoformat(), "end": end.isoformat()}
    await put_calendar(database, {"name": "blackout", "windows": [window]})


async def test_what_is_blocked_is_recorded_as_one_stretch_with_the_fire_after_it(database, clock):
    await a_blackout(database, start=START + timedelta(minutes=2), end=START + timedelta(minutes=5))
    job = await a_cron(database, calendars=[{"name": "blackout"}])

    for _ in range(6):
        await staged_all(database)
        await run_through(database)
        await clock.advance(60)

    assert await skips(database, job.job_id) == [skipped("calendar", 2, 4, 3)]
    assert await occurrences(database, job.job_id, "attempts") == minutes(0, 1, 2, 5)
    assert await is_sound(database)


async def test_what_was_blocked_before_a_job_was_made_is_no_business_of_it(database, clock):
    await a_blackout(database, start=START - timedelta(hours=2), end=START)
    job = await a_cron(database, calendars=[{"name": "blackout"}])

    await staged_all(database)

    assert await skips(database, job.job_id) == []
    assert await occurrences(database, job.job_id) == minutes(0)


async def test_what_is_put_off_becomes_one_fire_at_the_first_instant_that_is_permitted(database, clock):
    await a_blackout(database, start=START + timedelta(minutes=2), end=START + timedelta(minutes=4, seconds=30))
    job = await a_cron(database, calendars=[{"name": "blackout", "on_hit": "defer"}])

    for _ in range(6):
        await staged_all(database)
        await run_through(database)
        await clock.advance(60)

    assert await occurrences(database, job.job_id, "attempts") == minutes(0, 1, 4.5, 5)
    assert await skips(database, job.job_id) == []


async def test_another_calendar_arms_the_next_fire_anew(database, clock):
    await a_blackout(database, start=TOMORROW, end=TOMORROW + timedelta(minutes=1))
    job = await a_cron(database, calendars=[{"name": "blackout"}])
    await staged_all(database)
    assert await pending(database, job.job_id) == START + timedelta(minutes=1)

    await a_blackout(database, start=START, end=START + timedelta(minutes=10))

    assert await pending(database, job.job_id) == START + timedelta(minutes=10)
    assert await is_sound(database)
