"""Conflicts: a decision on an older version of a schedule, or of its calendars, is repeated."""

import pytest

from duly.domain.errors import KeyConflict, NotFound
from duly.domain.triggers.errors import TriggerError
from duly.moves.schedules import pause as skip_module
from duly.moves.schedules.backfill import backfill, cancel_backfill
from duly.moves.schedules.calendars import put_calendar
from duly.moves.schedules.edit import edit
from duly.moves.schedules.pause import pause, resume, skip_next
from duly.moves.schedules.schedule import see
from duly.moves.trigger import trigger
from duly.store.tables import schedules
from tests.builders import RNG, a_schedule, seconds
from tests.clock import START
from tests.schedules.stories import (
    a_cron,
    a_delay,
    is_sound,
    lane,
    minutes,
    occurrences,
    pending,
    run_through,
    skips,
    staged_all,
    state_of,
)

EVEN = {"type": "cron", "expr": "*/2 * * * *"}
ODD = {
    "type": "cron",
    "expr": "1-59/2 * * * *",
}  # Minute 1 is pending by this rule too, so the moment alone tells nothing.


def a_blackout(first: int, last: int) -> dict:
    """Give a calendar that covers some minutes after the start."""
    start, end = minutes(first, last)
    return {"name": "blackout", "windows": [{"start": start.isoformat(), "end": end.isoformat()}]}


async def test_skip_next_looks_again_when_an_edit_was_faster(database, clock, monkeypatch):
    job = await a_cron(database)
    await staged_all(database)  # Minute 0 is staged, minute 1 is pending.
    await run_through(database)
    await clock.advance(10)
    looks: list[object] = []

    async def in_conflict(database, job_id):
        seen = await see(database, job_id)
        if not looks:
            await edit(database, job_id, a_schedule(trigger=ODD))
        looks.append(seen)
        return seen

    monkeypatch.setattr(skip_module, "see", in_conflict)
    skipped = await skip_next(database, job.job_id)

    assert (skipped, await pending(database, job.job_id)) == tuple(minutes(1, 3))
    assert len(looks) == 2


async def test_a_calendar_does_not_arm_a_job_by_the_rule_it_had_before(database, clock, monkeypatch):
    await put_calendar(database, a_blackout(50, 51))
    job = await a_cron(database, calendars=[{"name": "blackout"}])
    other = await a_cron(database, calendars=[{"name": "blackout"}])
    await staged_all(database)
    left_out, looks = schedules.left_out, list[int]()

    async def in_conflict(database, job_ids):
        if not looks:
            await edit(database, job.job_id, a_schedule(trigger=ODD, calendars=[{"name": "blackout"}]))
        looks.append(1)
        return await left_out(database, job_ids)

    monkeypatch.setattr(schedules, "left_out", in_conflict)
    await put_calendar(database, a_blackout(60, 61))

    cohorts = await database.fetch("select cohort from duly.jobs order by job_id")
    assert cohorts[0] != cohorts[1], "two rules are two cohorts"
    for _ in range(3):
        await run_through(database)
        await clock.advance(60)
        await staged_all(database)
    assert (await occurrences(database, other.job_id, "attempts"))[:3] == minutes(0, 1, 2)
    assert await is_sound(database)


async def test_edit_that_read_an_older_calendar_is_repeated(database, clock, monkeypatch):
    await put_calendar(database, a_blackout(50, 51))
    job = await a_cron(database, calendars=[{"name": "blackout"}])
    calendars, looks = schedules.calendars, list[int]()

    async def in_conflict(database, tenant, names):
        found = await calendars(database, tenant, names)
        looks.append(1)
        if len(looks) == 2:  # The first was for the rule it has, this one is for the rule it gets.
            await clock.advance(1)
            await put_calendar(database, a_blackout(1, 5))
        return found

    monkeypatch.setattr(schedules, "calendars", in_conflict)
    await edit(database, job.job_id, a_schedule(trigger=EVEN, calendars=[{"name": "blackout"}]))

    assert await pending(database, job.job_id) == minutes(6)[0]


async def test_cancelled_catch_up_records_its_remaining_occurrences(database, clock):
    job = await a_cron(database, misfire={"policy": "fire_all", "grace": "PT1S"})
    await pause(database, job.job_id)
    await clock.advance(600 - 1)
    await resume(database, job.job_id, catch_up=True)
    await staged_all(database)
    await lane(database, clock, 3)
    [(backfill_id, created)] = await database.fetch("select backfill_id, created from duly.backfills")

    await cancel_backfill(database, backfill_id)

    [skipped] = await skips(database, job.job_id)
    assert (skipped.reason, skipped.first, skipped.count) == ("skipped_on_request", minutes(created)[0], 10 - created)


async def test_backfill_that_has_created_all_its_runs_can_be_cancelled_before_a_start(database, clock):
    job = await a_cron(database)
    await clock.advance(600)
    asked = await backfill(database, job.job_id, START, clock.at, RNG, rate=100)
    await lane(database, clock, 2)
    assert await database.fetchval("select state from duly.backfills") == "done"
    assert asked.backfill_id

    assert await cancel_backfill(database, asked.backfill_id) == 10

    with pytest.raises(NotFound):
        await cancel_backfill(database, asked.backfill_id)
    assert await is_sound(database)


async def test_backfill_keeps_to_the_calendars_of_its_request(database, clock):
    await put_calendar(database, a_blackout(50, 51))
    job = await a_cron(database, calendars=[{"name": "blackout"}])
    await clock.advance(600)
    await backfill(database, job.job_id, START, clock.at, RNG, rate=100)
    await put_calendar(database, a_blackout(2, 5))

    await lane(database, clock, 2)

    assert tuple((await database.fetch("select created, total from duly.backfills"))[0]) == (10, 10)


async def test_a_key_is_for_one_payload(database):
    job = await a_cron(database)
    first = await trigger(database, job.job_id, key="k", payload='{"n": 1}', allow_overlap=True)

    assert (await trigger(database, job.job_id, key="k", payload='{"n": 1}', allow_overlap=True)).run_id == first.run_id
    with pytest.raises(KeyConflict, match="'k' was used for another run"):
        await trigger(database, job.job_id, key="k", payload='{"n": 2}', allow_overlap=True)


@pytest.mark.parametrize(
    "more",
    [
        {"jitter": {"max": "PT5M"}},
        {"overlap": {"policy": "queue"}},
        {"misfire": {"policy": "skip"}},
    ],
)
async def test_fixed_delay_refuses_options_that_do_not_apply_to_it(database, more):
    with pytest.raises(TriggerError, match=f"^{next(iter(more))} does not apply to fixed_delay"):
        await a_delay(database, **more)


async def test_a_delay_ends_where_it_is_bound(database, clock):
    job = await a_delay(database, 60, end=(START + seconds(100)).isoformat())

    for _ in range(3):
        await staged_all(database)
        await run_through(database)
        await clock.advance(60)

    assert await state_of(database, job.job_id) == "completed"
    assert await database.fetchval("select count(*) from duly.attempts where outcome = 'succeeded'") == 2
    assert await is_sound(database)
