"""Verify: each kind of damage is found, and a sound database has none."""

import pytest

from duly.domain.runs.outcome import Failed
from duly.moves.cancel import cancel_job
from duly.store.boxes.history import verify
from tests.builders import (
    a_dead_run,
    a_leased_run,
    a_ready_run,
    a_retrying_run,
    a_waiting_run,
    an_active_schedule,
    settled,
    staged,
)
from tests.graphs import a_workflow


async def broken(database) -> list[str]:
    """Name what is broken."""
    return sorted({row["broken"] for row in await verify(database)})


async def test_a_database_in_full_use_is_sound(database):
    worker_id, run = await a_leased_run(database)
    await settled(database, worker_id, run, Failed("again"))
    await a_leased_run(database, worker_id)
    await a_dead_run(database, worker_id)
    await a_retrying_run(database, worker_id)
    await a_ready_run(database)
    await a_waiting_run(database)
    await an_active_schedule(database)
    cancelled = await an_active_schedule(database)
    await cancel_job(database, cancelled.job_id)
    await staged(database)

    assert await verify(database) == []


async def test_story_26_a_run_in_two_boxes_is_found_with_their_names(database):
    await a_dead_run(database)
    run_id = await a_ready_run(database)
    await database.execute("update duly.dead set run_id = $1", run_id)

    [found] = await verify(database)

    assert found["broken"] == "run in two boxes"
    assert found["id"] == str(run_id)
    assert set(found["detail"].split(", ")) == {"ready", "dead"}


async def test_a_run_that_succeeded_twice_or_may_again_is_found(database):
    worker_id, run = await a_leased_run(database)
    await settled(database, worker_id, run)
    again = "insert into duly.{} ({}) select {} from duly.attempts where run_id = $1"
    columns = (
        "run_id, job_id, scheduled_at, due_at, finished_at, fence, tenant, attempt, outcome, became, queue, handler"
    )

    await database.execute(again.format("attempts", columns, columns), run.run_id)
    assert await broken(database) == ["run that succeeded twice"]

    columns = "run_id, job_id, scheduled_at, due_at, generation, tenant, attempt, priority, losses, suspect,"
    columns += " payload_stored, queue, handler"
    values = "distinct run_id, job_id, scheduled_at, due_at, 1, tenant, 1, 5, 0, false, false, queue, handler"
    await database.execute(again.format("ready", columns, values), run.run_id)
    assert await broken(database) == ["run that succeeded and is in a box", "run that succeeded twice"]


async def test_story_26_an_active_schedule_without_its_next_fire_is_found(database):
    await an_active_schedule(database, name="nightly")
    await database.execute("delete from duly.timers")

    assert [(row["broken"], row["detail"]) for row in await verify(database)] == [
        ("schedule without its next fire", "nightly")
    ]


async def test_story_26_the_next_fire_of_a_schedule_that_is_not_active_is_found(database):
    await an_active_schedule(database)
    await database.execute("update duly.jobs set state = 'cancelled'")
    assert await broken(database) == ["next fire of a schedule that is over"]

    await database.execute("delete from duly.jobs")

    assert await broken(database) == ["next fire of a schedule that is over"]


async def test_story_26_a_lease_without_a_worker_is_found(database):
    await a_leased_run(database)
    await database.execute("delete from duly.workers")

    assert await broken(database) == ["lease without a worker"]


async def test_a_retry_timer_of_a_schedule_is_not_taken_for_its_next_fire(database):
    await an_active_schedule(database)
    await a_retrying_run(database)
    await database.execute("update duly.timers set job_id = (select job_id from duly.jobs) where run_id is not null")
    await database.execute("delete from duly.timers where run_id is null")

    assert await broken(database) == ["schedule without its next fire"]


async def test_verify_finds_a_run_that_waits_at_a_rate_without_a_row(database):
    for _ in range(2):
        await a_ready_run(database, rate=("mail", 0.1, 1))
    await staged(database)
    assert await broken(database) == []
    await database.execute("delete from duly.rate_limits")

    assert await broken(database) == ["run waiting for a rate limit that is not maintained"]


async def test_verify_finds_only_the_first_fifo_run_that_waits_at_a_free_slot(database):
    for _ in range(3):
        await a_ready_run(database, fifo="orders")
    await staged(database)
    await database.execute("delete from duly.ready; delete from duly.concurrency_keys")

    assert [row["broken"] for row in await verify(database)] == ["run waiting for a concurrency key with a free slot"]


async def test_two_of_a_line_inside_at_once_are_found(database):
    for _ in range(2):
        await a_ready_run(database, fifo="orders")
    await staged(database)
    await database.execute(
        "insert into duly.ready select run_id, job_id, scheduled_at, due_at, previous_scheduled_at, generation, tenant, attempt,"
        " priority, losses, suspect, payload_stored, queue, handler, payload, options from duly.blocked"
    )
    await database.execute("delete from duly.blocked; update duly.concurrency_keys set active = 2")

    assert await broken(database) == ["FIFO concurrency key with more than one run"]


@pytest.mark.parametrize(
    ("damage", "found"),
    [
        ("update duly.workflows set open_nodes = 1", ["workflow whose count of open nodes is wrong"]),
        ("update duly.workflow_nodes set waits = 2 where name = 'b'", ["node whose count of parents is wrong"]),
        ("delete from duly.blocked", ["node that nothing will move"]),
        ("delete from duly.ready", ["node that nothing will move"]),
        (
            "update duly.workflow_nodes set waits = 0 where name = 'b'",
            ["node that nothing will move", "node whose count of parents is wrong"],
        ),
        (
            "update duly.workflows set state = 'failed', open_nodes = 0, ended_at = now()",
            ["run that waits for a workflow that is over", "workflow whose count of open nodes is wrong"],
        ),
    ],
)
async def test_verify_finds_a_workflow_with_wrong_counts_or_stuck_nodes(database, damage, found):
    await a_workflow(database, "a b:a")
    assert await broken(database) == []

    await database.execute(damage)

    assert await broken(database) == found


FOLLOWING = "run with dependencies that nothing will release"
MISCOUNTED = "run whose count of jobs before it is wrong"


@pytest.mark.parametrize(
    ("damage", "found"),
    [
        ("update duly.dependents set waits = 2", [MISCOUNTED]),
        ("delete from duly.dependents", [FOLLOWING]),
        ("delete from duly.timers", [FOLLOWING]),
        ("with gone as (delete from duly.dependencies) update duly.dependents set waits = 0", [FOLLOWING]),
        ("delete from duly.blocked", ["dependent that waits no more"]),
    ],
)
async def test_verify_finds_a_damaged_dependency(database, damage, found):
    await a_ready_run(database, depends_on=[await a_waiting_run(database)])
    assert await verify(database) == []
    await database.execute("delete from duly.dependency_checks")
    assert await verify(database) == []

    await database.execute(damage)

    assert await broken(database) == found
