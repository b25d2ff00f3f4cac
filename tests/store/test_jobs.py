"""Recurring jobs as people read them."""

from duly.store.tables import jobs
from tests.builders import RNG, a_worker, an_active_schedule, claimed, seconds, staged
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
    assert job["next_run_at"] == START, "it has not started"

    await claimed(database, await a_worker(database))

    job = await jobs.find(database, submitted.job_id)
    assert job is not None
    assert job["next_run_at"] == START + seconds(90)


async def test_unknown_id_is_not_found(database):
    assert await jobs.find(database, RNG.uuid()) is None
