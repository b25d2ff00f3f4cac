"""Occurrences that a calendar blocks are skipped or deferred, and recorded once, when the fire after it is staged."""

from datetime import timedelta

import pytest

from duly.moves.schedules import calendars
from duly.moves.schedules.calendars import put_calendar
from duly.moves.schedules.edit import edit
from duly.moves.schedules.pause import pause, resume, skip_next
from tests.builders import a_schedule
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
    state_of,
)

TOMORROW = START + timedelta(days=1)


async def a_blackout(database, *, start, end):
    """Keep a calendar that covers one stretch."""
    window = {"start": start.isoformat(), "end": end.isoformat()}
    await put_calendar(database, {"name": "blackout", "windows": [window]})


async def test_blocked_occurrences_are_recorded_as_one_range_with_the_next_fire(database, clock):
    await a_blackout(database, start=START + timedelta(minutes=2), end=START + timedelta(minutes=5))
    job = await a_cron(database, calendars=[{"name": "blackout"}])

    for _ in range(6):
        await staged_all(database)
        await run_through(database)
        await clock.advance(60)

    assert await skips(database, job.job_id) == [skipped("calendar", 2, 4, 3)]
    assert await occurrences(database, job.job_id, "attempts") == minutes(0, 1, 2, 5)
    assert await is_sound(database)


async def test_blackout_before_the_creation_of_a_job_is_not_recorded_for_it(database, clock):
    await a_blackout(database, start=START - timedelta(hours=2), end=START)
    job = await a_cron(database, calendars=[{"name": "blackout"}])

    await staged_all(database)

    assert await skips(database, job.job_id) == []
    assert await occurrences(database, job.job_id) == minutes(0)


async def test_deferred_occurrences_become_one_fire_at_the_first_permitted_moment(database, clock):
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


async def at_minute(clock, number):
    """Let time pass up to so many minutes after the start."""
    await clock.advance(START + timedelta(minutes=number) - clock.at)


class TestTheAccountBeginsWithTheTiming:
    """What calendars took is counted from when the job was made, or timed as it is, and never from before."""

    async def test_job_created_during_a_blackout_records_its_remaining_occurrences(self, database, clock):
        await a_blackout(database, start=START, end=START + timedelta(minutes=10))
        early = await a_cron(database, calendars=[{"name": "blackout"}])
        await at_minute(clock, 3.5)
        late = await a_cron(database, calendars=[{"name": "blackout"}])
        await at_minute(clock, 9.5)
        last = await a_cron(database, calendars=[{"name": "blackout"}])
        await at_minute(clock, 10)

        await staged_all(database)

        assert await skips(database, early.job_id) == [skipped("calendar", 0, 9, 10)]
        assert await skips(database, late.job_id) == [skipped("calendar", 4, 9, 6)]
        assert await skips(database, last.job_id) == [], "all of it was before"
        assert await occurrences(database) == minutes(10, 10, 10)

    async def test_misfired_job_created_during_a_blackout_records_remaining_occurrences(self, database, clock):
        await a_blackout(database, start=START, end=START + timedelta(minutes=10))
        await at_minute(clock, 3.5)
        job = await a_cron(database, calendars=[{"name": "blackout"}])
        await at_minute(clock, 15)

        await staged_all(database)

        assert await skips(database, job.job_id) == [skipped("calendar", 4, 9, 6), skipped("misfire", 10, 14, 5)]

    async def test_include_calendar_counts_blocked_occurrences_from_the_job_creation_on(self, database, clock):
        window = {"start": minutes(10)[0].isoformat(), "end": minutes(20)[0].isoformat()}
        await put_calendar(database, {"name": "open", "windows": [window]})
        await at_minute(clock, 7.5)
        job = await a_cron(database, calendars=[{"name": "open", "mode": "include"}])
        await at_minute(clock, 10)

        await staged_all(database)

        assert await skips(database, job.job_id) == [skipped("calendar", 8, 9, 2)]

    async def test_blocked_occurrences_before_the_start_of_a_schedule_are_not_recorded(self, database, clock):
        await a_blackout(database, start=START, end=START + timedelta(minutes=10))
        begin = minutes(6)[0].isoformat()
        job = await a_cron(database, calendars=[{"name": "blackout"}], start=begin)
        await at_minute(clock, 10)

        await staged_all(database)

        assert await skips(database, job.job_id) == [skipped("calendar", 6, 9, 4)]

    async def test_occurrence_deferred_before_the_creation_of_a_job_is_not_run_by_it(self, database, clock):
        await a_blackout(database, start=START, end=START + timedelta(minutes=10, seconds=30))
        await at_minute(clock, 5)
        job = await a_cron(database, "3 * * * *", calendars=[{"name": "blackout", "on_hit": "defer"}])
        other = await a_cron(database, "3,8 * * * *", calendars=[{"name": "blackout", "on_hit": "defer"}])

        assert await pending(database, job.job_id) == minutes(63)[0]
        assert await pending(database, other.job_id) == minutes(10.5)[0], "it stands for the one at 8"

    async def test_an_edit_closes_the_account_and_opens_another(self, database, clock):
        await a_blackout(database, start=START + timedelta(minutes=1), end=START + timedelta(minutes=10))
        job = await a_cron(database, calendars=[{"name": "blackout"}])
        await staged_all(database)
        await at_minute(clock, 4.5)

        changed = {"type": "cron", "expr": "*/2 * * * *", "tz": "UTC"}
        await edit(database, job.job_id, a_schedule(trigger=changed, calendars=[{"name": "blackout"}]))
        assert await skips(database, job.job_id) == [skipped("calendar", 1, 4, 4)]
        await at_minute(clock, 10)
        await staged_all(database)

        assert await skips(database, job.job_id) == [skipped("calendar", 1, 4, 4), skipped("calendar", 6, 8, 2)]

    @pytest.mark.parametrize("catch_up", [False, True])
    async def test_a_pause_closes_it_when_it_ends(self, database, clock, catch_up):
        await a_blackout(database, start=START + timedelta(minutes=1), end=START + timedelta(minutes=10))
        job = await a_cron(database, calendars=[{"name": "blackout"}])
        await staged_all(database)
        await at_minute(clock, 2.5)
        await pause(database, job.job_id)
        await at_minute(clock, 4.5)

        await resume(database, job.job_id, catch_up=catch_up)
        await at_minute(clock, 10)
        await staged_all(database)

        assert await skips(database, job.job_id) == [skipped("calendar", 1, 4, 4), skipped("calendar", 5, 9, 5)]

    async def test_another_calendar_takes_nothing_that_the_one_before_it_has_let_run(self, database, clock):
        await a_blackout(database, start=START + timedelta(minutes=2), end=START + timedelta(minutes=4))
        job = await a_cron(database, calendars=[{"name": "blackout"}])
        for number in (1, 2.5):
            await staged_all(database)
            await run_through(database)
            await at_minute(clock, number)

        await a_blackout(database, start=START, end=START + timedelta(minutes=6))
        assert await skips(database, job.job_id) == [skipped("calendar", 2)], "by the one that was in force"
        await at_minute(clock, 6)
        await staged_all(database)

        assert await skips(database, job.job_id) == [skipped("calendar", 2), skipped("calendar", 3, 5, 3)]
        assert await is_sound(database)


class TestLeavingOneOut:
    """An occurrence that is left out on request takes no record with it of what calendars took before."""

    async def test_skip_next_records_the_blocked_occurrences_before_the_skipped_one(self, database, clock):
        await a_blackout(database, start=START + timedelta(minutes=1), end=START + timedelta(minutes=5))
        job = await a_cron(database, calendars=[{"name": "blackout"}])
        await staged_all(database)
        await run_through(database)

        assert await skip_next(database, job.job_id) == minutes(5)[0]

        assert await skips(database, job.job_id) == [skipped("calendar", 1, 4, 4), skipped("on_request", 5)]
        await at_minute(clock, 6)
        await staged_all(database)
        assert await skips(database, job.job_id) == [skipped("calendar", 1, 4, 4), skipped("on_request", 5)]
        assert await occurrences(database, job.job_id) == minutes(6)
        assert await is_sound(database)

    async def test_skip_next_of_a_job_created_during_a_blackout_records_the_remainder(self, database, clock):
        await a_blackout(database, start=START, end=START + timedelta(minutes=10))
        await at_minute(clock, 7.5)
        job = await a_cron(database, calendars=[{"name": "blackout"}])

        await skip_next(database, job.job_id)

        assert await skips(database, job.job_id) == [skipped("calendar", 8, 9, 2), skipped("on_request", 10)]

    async def test_skip_next_of_a_staged_fire_repeats_no_calendar_skip_record(self, database, clock):
        await a_blackout(database, start=START + timedelta(minutes=1), end=START + timedelta(minutes=5))
        job = await a_cron(database, calendars=[{"name": "blackout"}])
        await staged_all(database)
        await run_through(database)
        await at_minute(clock, 4.95)
        await staged_all(database)

        assert await skip_next(database, job.job_id) == minutes(5)[0]

        assert await skips(database, job.job_id) == [skipped("calendar", 1, 4, 4), skipped("on_request", 5)]

    async def test_skip_next_of_the_last_fire_records_the_remaining_calendar_skips(self, database, clock):
        await a_blackout(database, start=START + timedelta(minutes=2), end=START + timedelta(hours=1))
        job = await a_cron(database, calendars=[{"name": "blackout"}], end=minutes(10)[0].isoformat())
        await staged_all(database)
        await run_through(database)

        assert await skip_next(database, job.job_id) == minutes(1)[0]

        assert await state_of(database, job.job_id) == "completed"
        assert await skips(database, job.job_id) == [skipped("on_request", 1), skipped("calendar", 2, 9, 8)]


async def test_occurrences_blocked_after_the_last_fire_are_recorded_with_it(database, clock):
    await a_blackout(database, start=START + timedelta(minutes=2), end=START + timedelta(hours=1))
    job = await a_cron(database, calendars=[{"name": "blackout"}], end=minutes(10)[0].isoformat())

    for _ in range(3):
        await staged_all(database)
        await run_through(database)
        await clock.advance(60)

    assert await state_of(database, job.job_id) == "completed"
    assert await skips(database, job.job_id) == [skipped("calendar", 2, 9, 8)]


class TestACalendarPutAgainAfterACrash:
    """What a change was cut short of is accounted for by the calendar that was in force for it."""

    async def cut_short(self, database, monkeypatch, **window):
        """Change the calendar, and die before any job is armed by it."""

        async def dies(*_):
            raise ConnectionError("the process is gone")

        with monkeypatch.context() as patched:
            patched.setattr("duly.moves.schedules.calendars._arm_page", dies)
            with pytest.raises(ConnectionError):
                await a_blackout(database, **window)

    async def test_the_account_is_by_the_one_it_was_timed_by(self, database, clock, monkeypatch):
        await a_blackout(database, start=START + timedelta(minutes=1), end=START + timedelta(minutes=30))
        job = await a_cron(database, calendars=[{"name": "blackout"}])
        await staged_all(database)
        await at_minute(clock, 4.5)
        later = {"start": START + timedelta(minutes=50), "end": START + timedelta(minutes=60)}

        await self.cut_short(database, monkeypatch, **later)
        await a_blackout(database, **later)

        assert await skips(database, job.job_id) == [skipped("calendar", 1, 4, 4)]
        assert await pending(database, job.job_id) == minutes(5)[0]
        await a_blackout(database, **later)
        assert await skips(database, job.job_id) == [skipped("calendar", 1, 4, 4)], "and it is told once"

    async def test_also_after_two_changes_that_were_cut_short(self, database, clock, monkeypatch):
        await a_blackout(database, start=START + timedelta(minutes=1), end=START + timedelta(minutes=30))
        job = await a_cron(database, calendars=[{"name": "blackout"}])
        await staged_all(database)
        await at_minute(clock, 4.5)

        for begin in (50, 60):
            start = START + timedelta(minutes=begin)
            await self.cut_short(database, monkeypatch, start=start, end=start + timedelta(minutes=5))
        await a_blackout(database, start=START + timedelta(minutes=70), end=START + timedelta(minutes=75))

        assert await skips(database, job.job_id) == [skipped("calendar", 1, 4, 4)]

    async def test_calendar_put_again_records_no_old_skips_for_schedules_already_armed(
        self, database, clock, monkeypatch
    ):
        await a_blackout(database, start=START + timedelta(minutes=1), end=START + timedelta(minutes=30))
        first = await a_cron(database, calendars=[{"name": "blackout"}])
        second = await a_cron(database, calendars=[{"name": "blackout"}])
        await staged_all(database)
        await at_minute(clock, 4.5)
        monkeypatch.setattr("duly.moves.schedules.calendars._PAGE", 1)
        arm_page, armed = calendars._arm_page, list[object]()

        async def dies_at_the_second(*arguments):
            if armed:
                raise ConnectionError("the process is gone")
            armed.append(arguments)
            return await arm_page(*arguments)

        later = {"start": START + timedelta(minutes=6), "end": START + timedelta(minutes=9)}
        with monkeypatch.context() as patched:
            patched.setattr("duly.moves.schedules.calendars._arm_page", dies_at_the_second)
            with pytest.raises(ConnectionError):
                await a_blackout(database, **later)
        await at_minute(clock, 4.9)
        await a_blackout(database, **later)

        for job in (first, second):
            assert await skips(database, job.job_id) == [skipped("calendar", 1, 4, 4)]
            assert await pending(database, job.job_id) == minutes(5)[0]
        kept = await database.fetchval("select earlier from duly.calendars where name = 'blackout'")
        assert kept is None, "all are timed by what it is"
