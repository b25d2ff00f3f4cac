"""Stories of how a design like this breaks: each has a number, and a test named for it, here where no other file is about it."""

import re
from importlib.resources import files
from pathlib import Path

import pytest

from duly.moves.submit import submit
from duly.store.boxes import leased, ready, timers
from tests.builders import (
    BOXES,
    a_key,
    a_ready_run,
    a_submission,
    a_worker,
    boxes_of,
    claimed,
    seconds,
    settled,
    staged,
)

SHARED_COLUMNS = 16
TESTS = Path(__file__).parents[1]
# What happens where nothing is done about it.
STORIES = {
    1: "an edit that meets a stage leaves a timer of the old definition behind, and the schedule is silent for ever",
    2: "an occurrence that is staged comes back by an edit or a clock set back: its duplicate fails every claim of the queue",
    3: "a leased row that is updated in place has moved, and the outcome of its holder finds nothing",
    4: "a claim whose answer was lost, or that commits behind the reaper's back, leaves leases that nobody knows",
    5: "a place that comes free while one comes to the gate is seen by neither, or by two",
    6: "a timer that appears between the look and the stage is taken without a next fire, and its schedule ends",
    7: "fences that are handed out in blocks fall when another worker claims, and an old one is taken for the newer",
    8: "one handler that crashes its worker three times buries the innocent runs beside it",
    9: "a thread that is past its timeout runs on, beside its own next attempt; one that holds the interpreter stops the heart",
    10: "what is asked again after a lost answer is recorded twice, or made twice",
    11: "two runs of a job at one moment have one name, and one of them is lost",
    12: "a tenant that used idle capacity is punished for it when another comes",
    13: "what is needed besides the bare moves costs as much again, and figures that were measured without it are none",
    14: "a look over many shards at once sorts all that is due, each time",
    15: "dead rows of what moves all the time are cleared too seldom, and one who sleeps in a transaction keeps them all",
    16: "a setting of a session is refused by a pooler, or found by the next client",
    17: "an older process that moves a row drops the columns that it does not know",
    18: "row-level security forbids COPY, and binds the engine",
    19: "one bad row fails its whole batch, again and again",
    20: "a worker whose slots are full claims what it cannot start, and hands it back, several times a second",
    21: "a database clock that is set kills the living, keeps the dead alive, or starts runs early",
    22: "a cancel is answered as done while the worker that holds the run has not heard of it",
    23: "a submit in a transaction that stays open for minutes holds up everybody else",
    24: "who waits for a rate or a broken destination waits for a time, and no end of another run wakes it",
    25: "two batches that end parents of the same children, each in its own order, block each other",
    26: "a run that is in no box, or in two, is noticed by nobody",
    27: "a run that is due now goes through every box, and each hint takes a lock of the whole server",
    28: "a one-shot that is due next year keeps the history of today from being dropped",
}
NO_TEST = {
    13: "a measurement: `duly bench recurring` runs with all of it, and docs/explanation/performance.md has its figures"
}
HOT = (
    timers.SQL["due_fires"],
    timers.SQL["stage"],
    ready.SQL["claim"],
    leased.SQL["finish"],
    leased.SQL["settle"],
    leased.SQL["hand_back"],
)


@pytest.mark.parametrize("number", STORIES)
def test_story_has_a_named_test_unless_listed_as_untested(number):
    named = f"def test_story_{number:02}_"
    tests = [path.name for path in TESTS.rglob("test_*.py") if named in path.read_text()]

    assert bool(tests) is not (number in NO_TEST), f"{STORIES[number]}: {tests or 'no test'}"


def test_each_test_of_a_story_has_its_story():
    """The numbers are the ones of the table, and there is no other."""
    found = {
        int(number)
        for path in TESTS.rglob("test_*.py")
        for number in re.findall(r"def test_story_(\d\d)_", path.read_text())
    }

    assert found | NO_TEST.keys() == STORIES.keys() == set(range(1, 29))


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


async def test_story_16_planner_settings_apply_to_the_functions_alone(database):
    """A start-up parameter is refused by a pooler, and a plain SET leaks to its next client."""
    hot = [function for statement in HOT for function in re.findall(r"from duly\.(\w+)\(", statement)]
    rows = await database.fetch("select proname, proconfig from pg_proc where proname = any ($1)", hot)

    assert len(hot) == len(HOT)
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
    statements = [file.read_text() for file in Path(str(files("duly.store").joinpath("sql"))).rglob("*.sql")]

    assert [text for text in statements if f"insert into duly.{box} " in text] == []


async def test_story_18_the_engine_is_bound_by_no_row_security(database):
    """Row security is for the role of the API; the owner, which the engine is, passes it by, and COPY with it."""
    bound = await database.fetch(
        "select relname from pg_class where relnamespace = 'duly'::regnamespace"
        " and (relforcerowsecurity or (relrowsecurity and relowner <> (select oid from pg_roles where rolname = current_user)))"
    )

    assert bound == []


async def test_story_27_work_due_now_becomes_ready_without_staging(database):
    run_id = await a_ready_run(database)

    [run] = await claimed(database, await a_worker(database))

    assert run.run_id == run_id
    assert (await staged(database)).count == 0


@pytest.mark.parametrize("days", [1, 400, 30_000])
async def test_story_28_a_one_shot_due_next_year_lives_in_its_own_row_alone(database, days):
    run_id = await a_ready_run(database, delay=days * 86_400)

    assert await boxes_of(database, run_id) == ["timers"]
    assert await database.fetchval("select count(*) from duly.jobs") == 0
