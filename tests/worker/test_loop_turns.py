"""Turns at a rate in a worker's hands: those of a clock that was set back since are not waited for."""

from tests.worker.stories import attempts_of, ended, in_box, registry_of, state_of, submitted, until, working

GIVE_TURN = """
with taken as (delete from duly.timers where run_id = $1 returning *)
insert into duly.ready (run_id, job_id, scheduled_at, due_at, generation, tenant, attempt, priority, losses, suspect,
                        payload_stored, queue, handler, payload, options)
select run_id, job_id, scheduled_at, now() + make_interval(secs => $2), generation, tenant, attempt, priority, losses, suspect,
       payload_stored, queue, handler, payload, options from taken
"""
RATE = ("partner", 1.0, 1)


async def test_a_turn_of_a_clock_that_was_set_back_is_handed_back_and_used_up_no_attempt(url, store):
    async def work() -> None: ...

    ahead = await submitted(store, "work", delay=4)
    run_id = await submitted(store, "work", rate=RATE)
    await store.execute(GIVE_TURN, run_id, 600.0)
    async with working(url, registry_of(work)) as worker:
        await until(lambda: in_box(store, "leased"))
        assert await until(lambda: in_box(store, "timers")) == 1
        assert await state_of(store, run_id) == "scheduled"
        assert await state_of(store, ahead) != "scheduled", "what is ahead of its own moment stays"
        assert await store.fetchval("select attempt from duly.timers") == 0
        assert worker.health.held == 1

    assert await attempts_of(store, run_id) == []


async def test_a_turn_that_is_near_is_waited_for(url, store):
    async def work() -> None: ...

    run_id = await submitted(store, "work", rate=RATE)
    await store.execute(GIVE_TURN, run_id, 1.0)
    async with working(url, registry_of(work)):
        assert await ended(store, run_id) == "succeeded"

    assert await store.fetchval("select fence from duly.attempts") == await store.fetchval(
        "select last_value from duly.fences"
    ), "it was claimed once"
