"""A tenant is overloaded in a queue when its oldest due run there exceeds the limit, until it is below half of it."""

from datetime import timedelta

import pytest

from duly.domain.errors import InvalidOption
from duly.domain.limits.pause import Scope
from duly.moves.admin.overload import limit_age, record_overloads
from duly.moves.admin.pause import pause_scope, resume_scope
from duly.moves.submit import submit
from duly.moves.unroutable import UnroutableLimits, mark_unroutable
from duly.store.tables import overloads
from tests.builders import (
    a_key,
    a_ready_run,
    a_submission,
    a_worker,
    an_active_schedule,
    claimed,
    seconds,
    settled,
    staged,
)
from tests.schedules.stories import lane

MINUTE = timedelta(minutes=1)


async def noted(database, clock, default=MINUTE) -> set[str]:
    """Note, and read what stands."""
    await clock.advance(0.5)
    assert await record_overloads(database, default) is not None
    return {queue for _, queue in await overloads.standing(database)}


async def test_a_queue_is_overloaded_from_its_limit_on_until_half_of_it(database, clock):
    worker_id = await a_worker(database, lease=timedelta(days=1))
    await a_ready_run(database)
    await a_ready_run(database, queue="other")
    await clock.advance(59)
    assert await noted(database, clock) == set()
    await clock.advance(1)
    assert await noted(database, clock) == {"default", "other"}

    await a_ready_run(database)
    await clock.advance(31)
    [first, second] = sorted(await claimed(database, worker_id), key=lambda run: run.due_at)
    await settled(database, worker_id, first)
    await database.execute("delete from duly.leased")
    young = await a_ready_run(database)
    await database.execute("update duly.ready set due_at = $2 where run_id = $1", young, second.due_at)

    assert await noted(database, clock) == {"default", "other"}, "its oldest is older than half"
    await database.execute("update duly.ready set due_at = $2 where run_id = $1", young, clock.at - seconds(29))
    assert await noted(database, clock) == {"other"}
    await database.execute("update duly.ready set due_at = $2 where run_id = $1", young, clock.at - seconds(45))
    assert await noted(database, clock) == {"other"}, "beginning anew it needs the whole limit"


async def test_overload_message_shows_queue_age_and_limit(database, clock):
    await a_ready_run(database)
    await clock.advance(100)
    await noted(database, clock)

    found = (await overloads.standing(database))[1, "default"]

    assert (found.age, found.age_limit) == (seconds(100.5), MINUTE)
    assert found.retry_seconds == 60
    assert (
        "queue default is overloaded for this tenant: its oldest run has waited for 100 s, and its limit is 60 s"
        in str(found.refusal(9))
    )


async def test_each_queue_may_have_its_own_limit(database, clock):
    await limit_age(database, "quick", seconds(5), "a test")
    for queue in ("quick", "default"):
        await a_ready_run(database, queue=queue)
    await clock.advance(6)

    assert await noted(database, clock) == {"quick"}
    await limit_age(database, "quick", None, "a test")
    assert await noted(database, clock) == set()
    assert await overloads.limits(database) == {}


@pytest.mark.parametrize("age_limit", [seconds(0.5), timedelta(days=2)])
async def test_a_limit_out_of_range_is_refused(database, age_limit):
    with pytest.raises(InvalidOption, match="PT1S to P1D"):
        await limit_age(database, "quick", age_limit, "a test")


async def test_paused_queue_does_not_count_as_overloaded(database, clock):
    await a_ready_run(database)
    await clock.advance(90)
    scope = Scope(queue="default")
    await pause_scope(database, scope, reason="broken", paused_by="a test")
    assert await noted(database, clock) == set()

    await resume_scope(database, scope)

    assert await noted(database, clock) == {"default"}


async def test_the_backfill_lane_is_meant_to_wait(database, clock):
    await an_active_schedule(
        database,
        trigger={"type": "cron", "expr": "* * * * *"},
        misfire={"policy": "fire_all", "limit": 3},
    )
    await clock.advance(timedelta(hours=1))
    await staged(database)
    assert sum(await lane(database, clock, 5)) >= 1
    await clock.advance(90)

    assert await noted(database, clock) == set()


async def test_overload_ignores_runs_whose_handler_no_worker_of_the_queue_has(database, clock):
    await a_worker(database, lease=timedelta(days=1))
    await a_ready_run(database, handler="unknown")
    await clock.advance(90)
    assert await noted(database, clock) == set()

    await a_ready_run(database)
    await clock.advance(61)
    assert await noted(database, clock) == {"default"}, "what waits behind it can be taken"
    assert (await overloads.standing(database))[1, "default"].age == seconds(61.5)


async def test_overload_counts_unroutable_runs_when_no_worker_serves_the_queue(database, clock):
    serving = await a_worker(database, lease=timedelta(days=1))
    for handler in ("unknown", "unknown", "other"):
        await a_ready_run(database, handler=handler)
    assert (await mark_unroutable(database, UnroutableLimits(runs=1, runs_more=1)))[0] == 3
    await clock.advance(90)
    assert await noted(database, clock) == set()

    await database.execute("delete from duly.workers where worker_id = $1", serving)
    assert await noted(database, clock) == {"default"}
    assert (await overloads.standing(database))[1, "default"].age == seconds(91)
    await pause_scope(database, Scope(queue="default"), reason="broken", paused_by="a test")
    assert await noted(database, clock) == set(), "what is held waits on purpose"


async def test_run_that_is_not_due_yet_has_no_age(database, clock):
    await a_ready_run(database, delay=4)

    assert await noted(database, clock, seconds(1)) == set()


async def test_overloads_are_recorded_at_most_twice_a_second(database, clock):
    assert await record_overloads(database) == 0
    assert await record_overloads(database) is None
    await clock.advance(0.5)
    assert await record_overloads(database) == 0


async def test_overload_that_is_no_longer_recorded_expires(database, clock):
    await a_ready_run(database)
    await clock.advance(90)
    assert await noted(database, clock) == {"default"}

    await clock.advance(11)

    assert await overloads.standing(database) == {}


async def test_many_tenants_and_priorities_are_looked_through(database, clock):
    await database.execute(
        "insert into duly.ready (run_id, job_id, scheduled_at, due_at, generation, tenant, attempt, priority, losses, suspect,"
        "                        payload_stored, queue, handler)"
        " select id, id, due, due, 1, number % 7 + 1, 0, number % 9, 0, false, false, 'q' || number % 3, 'greet'"
        "   from generate_series(1, 500) as number,"
        "        lateral (select duly.clock_now() - make_interval(secs => number) as due,"
        "                        lpad(number::text, 32, '0')::uuid as id) as moment",
    )

    assert await noted(database, clock, seconds(499)) == {"q1", "q2"}  # of 499 and 500 seconds


async def test_each_tenant_is_judged_by_its_own_oldest_run(database, clock):
    await submit(database, a_submission(queue="mail"), key=a_key(), tenant=2)
    await clock.advance(45)
    await submit(database, a_submission(queue="mail"), key=a_key(), tenant=3)
    await clock.advance(30)
    await noted(database, clock)

    assert {of: one.age for of, one in (await overloads.standing(database)).items()} == {(2, "mail"): seconds(75.5)}

    await clock.advance(45)
    await noted(database, clock)
    assert set(await overloads.standing(database)) == {(2, "mail"), (3, "mail")}
    assert [one.tenant for one in await overloads.oldest(database, 1)] == [2]

    await database.execute("delete from duly.ready where tenant = 2")
    await noted(database, clock)
    assert set(await overloads.standing(database)) == {(3, "mail")}
