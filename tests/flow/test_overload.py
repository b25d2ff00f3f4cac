"""A queue that has more than it can do: recurring work of low priority is put off, and decided about when it has recovered."""

from datetime import timedelta

from duly.moves.admin.overload import record_overloads
from tests.builders import a_ready_run, staged
from tests.clock import START
from tests.schedules.stories import MINUTE, a_cron, is_sound, occurrences, pending


async def test_recurring_work_of_low_priority_waits_until_the_queue_has_recovered(database, clock):
    low, high = await a_cron(database, priority=7), await a_cron(database, priority=6)
    elsewhere = await a_cron(database, priority=9, queue="other")
    blocking = await a_ready_run(database, queue="default")
    await clock.advance(90)
    await record_overloads(database)

    await staged(database)

    assert await occurrences(database, low.job_id) == []
    assert await pending(database, low.job_id) == START
    assert await occurrences(database, high.job_id) != []
    assert await occurrences(database, elsewhere.job_id) != []

    await database.execute("delete from duly.ready")
    assert blocking is not None
    await clock.advance(timedelta(minutes=5))
    await record_overloads(database)
    await staged(database)

    [ran] = await occurrences(database, low.job_id)
    assert ran == START + 6 * MINUTE, "one run for all that was put off, by its misfire policy"
    assert await is_sound(database)
