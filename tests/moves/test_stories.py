"""Stories of how a design like this breaks, where no other file tells them: each is mended here, or cannot happen."""

import asyncio
from importlib.resources import files

import asyncpg
import pytest

from duly.moves.submit import submit
from tests.builders import (
    BOXES,
    a_key,
    a_ready_run,
    a_submission,
    a_worker,
    boxes_of,
    claimed,
    counts,
    seconds,
    settled,
    staged,
)
from tests.store.schema import texts

SHARED_COLUMNS = 16


async def test_story_12_a_tenant_that_used_idle_capacity_is_not_punished_for_it(database, clock):
    """A claim has no memory of what a tenant has had: of two places, each of two tenants gets one."""
    worker_id = await a_worker(database, lease=seconds(10_000))
    for _ in range(50):
        await a_ready_run(database)
        [run] = await claimed(database, worker_id)
        await settled(database, worker_id, run)
    busy = await submit(database, a_submission(), key=a_key(), tenant=1)
    await clock.advance(0.001)
    for _ in range(50):
        await submit(database, a_submission(), key=a_key(), tenant=2)

    taken = await claimed(database, worker_id, limit=2)

    assert sorted(run.tenant for run in taken) == [1, 2]
    assert busy.job_id in {run.run_id for run in taken}


async def test_story_12_a_low_priority_waits_for_its_handicap_only_while_others_are_there(database):
    lowest = await a_ready_run(database, priority=9)
    worker_id = await a_worker(database)

    [run] = await claimed(database, worker_id)

    assert run.run_id == lowest


async def test_story_16_planner_settings_belong_to_the_functions_and_reach_nobody_else(database):
    """A start-up parameter is refused by a pooler, and a plain SET leaks to its next client."""
    hot = ("stage_v2", "due_cohorts_v1", "claim_v1", "finish_v1", "settle_v2", "hand_back_v1")
    rows = await database.fetch("select proname, proconfig from pg_proc where proname = any ($1)", hot)

    assert {row["proname"] for row in rows} == set(hot)
    assert all("enable_seqscan=off" in row["proconfig"] for row in rows)
    assert await database.fetchval("show enable_seqscan") == "on"


async def test_story_17_the_moving_boxes_share_their_leading_columns(database):
    """The database copies a row from box to box, so what an older process does not know is not dropped by it."""
    rows = await database.fetch(
        "select relname, array_agg(attname || ' ' || format_type(atttypid, atttypmod) order by attnum) as columns"
        "  from pg_attribute join pg_class on pg_class.oid = attrelid"
        " where relnamespace = 'duly'::regnamespace and relname = any ($1) and attnum between 1 and $2 group by relname",
        BOXES,
        SHARED_COLUMNS,
    )

    assert len(rows) == len(BOXES)
    assert len({tuple(row["columns"]) for row in rows}) == 1


@pytest.mark.parametrize("box", BOXES)
def test_story_17_only_the_databases_own_functions_write_a_moving_box(box):
    """They are changed together with its columns, while an older process goes on calling them."""
    statements = [file.read_text() for file in files("duly.store").joinpath("sql").iterdir()]

    assert [text for text in statements if f"insert into duly.{box} " in text] == []


async def test_story_18_the_engine_is_bound_by_no_row_security(database):
    """Row security is for the role of the API; the owner, which the engine is, passes it by, and COPY with it."""
    bound = await database.fetch(
        "select relname from pg_class where relnamespace = 'duly'::regnamespace"
        " and (relforcerowsecurity or (relrowsecurity and relowner <> (select oid from pg_roles where rolname = current_user)))"
    )

    assert bound == []


async def test_story_20_rows_that_nobody_could_start_are_not_taken_by_a_full_worker(database):
    for _ in range(20):
        await a_ready_run(database)
    worker_id = await a_worker(database)

    assert len(await claimed(database, worker_id, limit=2)) == 2
    assert await counts(database) == {"ready": 18, "leased": 2}


async def test_story_27_work_due_now_goes_straight_to_ready_without_a_stage(database):
    run_id = await a_ready_run(database)

    [run] = await claimed(database, await a_worker(database))

    assert run.run_id == run_id
    assert (await staged(database)).count == 0


async def test_story_27_no_move_notifies_inside_its_transaction(database):
    """A notification takes one lock for the whole server at commit: the hint comes from a connection of its own, later."""
    heard: list[str] = []
    listener = await asyncpg.connect(database.url)
    await listener.add_listener("duly_ready", lambda *told: heard.append(told[-1]))
    worker_id = await a_worker(database)
    await a_ready_run(database)
    [run] = await claimed(database, worker_id)
    await settled(database, worker_id, run)
    await asyncio.sleep(0.05)

    assert heard == []
    assert not any("notify" in text.lower() for text in texts().values())
    await listener.close()


@pytest.mark.parametrize("days", [1, 400, 30_000])
async def test_story_28_a_one_shot_due_next_year_lives_in_its_own_row_alone(database, days):
    run_id = await a_ready_run(database, delay=days * 86_400)

    assert await boxes_of(database, run_id) == ["timers"]
    assert await database.fetchval("select count(*) from duly.jobs") == 0
