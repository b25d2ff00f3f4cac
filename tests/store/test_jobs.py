"""Recurring jobs as people read them."""

from duly.moves.cancel import cancel_job
from duly.store import jobs
from tests.builders import RNG, an_active_schedule, seconds, staged
from tests.clock import START


async def test_a_job_is_read_with_its_definition_and_next_fire(database):
    submitted = await an_active_schedule(
        database, every=90, name="nightly", payload='{"a": 1}', queue="mail", anchor=START
    )

    job = await jobs.find(database, submitted.job_id)

    assert job is not None
    assert (job["name"], job["every_seconds"], job["payload"], job["queue"]) == ("nightly", 90, '{"a": 1}', "mail")
    assert (job["state"], job["anchor_at"], job["next_run_at"], job["created_at"]) == ("active", START, START, START)


async def test_the_next_fire_moves_on_with_each_stage(database):
    submitted = await an_active_schedule(database, every=90, anchor=START)
    await staged(database)

    job = await jobs.find(database, submitted.job_id)

    assert job is not None
    assert job["next_run_at"] == START + seconds(90)


async def test_a_stranger_is_not_found(database):
    assert await jobs.find(database, RNG.uuid()) is None


async def test_pages_follow_one_another_by_key_newest_first_without_gap_or_overlap(database, clock):
    made = []
    for _ in range(7):
        made.append((await an_active_schedule(database)).job_id)
        await clock.advance(1)
    first = await jobs.page(database, 1, None, None, 3)
    await an_active_schedule(database)  # What comes in between shifts nothing.
    second = await jobs.page(database, 1, first[-1]["job_id"], None, 3)
    third = await jobs.page(database, 1, second[-1]["job_id"], None, 3)

    assert [job["job_id"] for page in (first, second, third) for job in page] == made[::-1]


async def test_a_page_is_filtered_by_state_and_a_tenants_own(database):
    active = await an_active_schedule(database)
    gone = await an_active_schedule(database)
    await cancel_job(database, gone.job_id)

    assert [job["job_id"] for job in await jobs.page(database, 1, None, "active", 10)] == [active.job_id]
    assert [job["job_id"] for job in await jobs.page(database, 1, None, "cancelled", 10)] == [gone.job_id]
    assert await jobs.page(database, 2, None, None, 10) == []
