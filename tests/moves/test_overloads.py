"""Overload: recurring work of low priority is not piled on a queue that is behind; what is due otherwise goes on."""

from duly.domain.runs.options import options_of
from tests.builders import a_ready_run, a_waiting_run, an_active_schedule, boxes_of, counts, seconds, staged
from tests.clock import START

BEHIND = (
    "insert into duly.overloads (tenant, queue, oldest_due_at, recorded_at)"
    " values (1, 'default', duly.clock_now(), duly.clock_now())"
)
NIGHTLY = {"type": "cron", "expr": "* * * * *", "tz": "UTC"}


async def test_fires_of_low_priority_stay_where_they_are_until_the_queue_has_recovered(database, clock):
    await database.execute(BEHIND)
    low = await an_active_schedule(database, every=10, anchor=START, priority=7)
    cron = await an_active_schedule(database, priority=9, trigger=NIGHTLY)
    await clock.advance(61)

    assert (await staged(database)).next_due_at is None, "they do not count as lag"
    assert await counts(database) == {"timers": 2}

    await database.execute("delete from duly.overloads")
    await staged(database)
    jobs = {row[0] for row in await database.fetch("select job_id from duly.ready")}
    assert jobs == {low.job_id, cron.job_id}


async def test_they_are_late_then_and_their_misfire_policy_decides(database, clock):
    await database.execute(BEHIND)
    await an_active_schedule(database, every=10, anchor=START, priority=8)
    await clock.advance(300)
    await staged(database)
    await database.execute("delete from duly.overloads")
    await staged(database)

    [ready] = await database.fetch("select scheduled_at, options->>'missed' from duly.ready")
    assert tuple(ready) == (START + seconds(300), "31")


async def test_overload_still_stages_important_other_queue_and_one_shot_runs(database, clock):
    await database.execute(BEHIND)
    important = await an_active_schedule(database, every=10, anchor=START, priority=6)
    elsewhere = await an_active_schedule(database, every=10, anchor=START, priority=9, queue="mail")
    once = await a_waiting_run(database, delay=10, priority=9)
    await clock.advance(10)
    await staged(database)

    assert await boxes_of(database, once) == ["ready"]
    jobs = {row[0] for row in await database.fetch("select job_id from duly.ready")}
    assert jobs == {important.job_id, elsewhere.job_id, once}


async def test_schedules_kept_back_do_not_block_those_behind_them(database, clock):
    await database.execute(BEHIND)
    for _ in range(30):
        await an_active_schedule(database, every=10, anchor=START, priority=9)
    late = await an_active_schedule(database, trigger=NIGHTLY, queue="mail")
    await database.execute("update duly.timers set shard = 7")
    await clock.advance(61)
    await staged(database, batch=64)

    assert [row[0] for row in await database.fetch("select job_id from duly.ready")] == [late.job_id]


async def test_a_fire_that_stays_does_not_hold_up_its_line(database, clock):
    await database.execute(BEHIND)
    in_line = options_of(concurrency=("orders", 1), fifo=True)
    await an_active_schedule(database, every=10, anchor=START, priority=9, options=in_line)
    await clock.advance(11)
    run_id = await a_ready_run(database, fifo="orders")
    await staged(database)

    assert await boxes_of(database, run_id) == ["ready"]
