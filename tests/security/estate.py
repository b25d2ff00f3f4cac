"""The estate of one tenant: something in every box, and beside it."""

from datetime import datetime
from typing import Any
from uuid import UUID

from duly.domain.runs.options import options_of
from duly.domain.runs.outcome import Failed
from duly.domain.runs.progress import Progress
from duly.moves.schedules import calendars
from duly.moves.schedules.backfill import backfill
from duly.moves.submit import submit, submit_recurring
from duly.store.boxes import runs
from tests.builders import RNG, a_leased_run, a_schedule, a_submission, a_worker, seconds, settled
from tests.clock import START

A, B = 1, 2
PLACES = ("waiting", "ready", "blocked", "leased", "dead", "done")
BIG = '{"text": "' + "x" * 2000 + '"}'
TABLES = """
select relname from pg_class where relnamespace = 'duly'::regnamespace and relkind in ('r', 'p') and not relispartition
   and relname not in ('migrations', 'functions', 'made_for_tests', 'test_clock') order by 1
"""


class Estate:
    """What tenant A has: something in every box, and beside it."""

    schedule: UUID
    pending: datetime
    waiting: UUID
    ready: UUID
    blocked: UUID
    leased: UUID
    dead: UUID
    done: UUID
    backfill: UUID

    @property
    def run_ids(self) -> list[UUID]:
        return [getattr(self, place) for place in PLACES]


async def an_estate(database, clock) -> Estate:
    """Fill A's boxes by the engine's own moves."""
    made = Estate()
    worker_id = await a_worker(database)
    _, done = await a_leased_run(database, worker_id, payload=BIG)
    line = runs.LogLine(done.run_id, done.fence, 1, 1, START, "info", "hello", None)
    await runs.append_logs(database, worker_id, [line])
    await settled(database, worker_id, done)
    made.done = done.run_id
    _, dead = await a_leased_run(database, worker_id, payload=BIG)
    await settled(database, worker_id, dead, Failed("broken", retryable=False))
    made.dead = dead.run_id
    _, held = await a_leased_run(database, worker_id, payload=BIG, concurrency=None)
    await runs.save_checkpoint(database, held.run_id, held.fence, worker_id, '{"at": 1}')
    await runs.save_progress(database, held.run_id, held.fence, worker_id, Progress(1, 2, "half"))
    made.leased = held.run_id
    made.waiting = (await submit(database, a_submission(delay=600, payload=BIG), key="waiting")).job_id
    made.ready = (await submit(database, a_submission(payload=BIG), key="ready")).job_id
    made.blocked = (await submit(database, a_submission(), key="blocked")).job_id
    await block(database, made.blocked)
    await calendars.put_calendar(database, {"name": "holidays", "tz": "UTC", "dates": ["2026-12-25"]})
    shape: dict[str, Any] = {"calendars": [{"name": "holidays", "mode": "exclude"}]}
    marks: dict[str, Any] = {"name": "report", "payload": BIG, "options": options_of(tags=("nightly",))}
    schedule = a_schedule(anchor=START - seconds(3600), **marks, **shape)
    job = await submit_recurring(database, schedule, key="schedule")
    made.schedule = job.job_id
    made.pending = await database.fetchval(
        "select scheduled_at from duly.timers where job_id = $1 and run_id is null", job.job_id
    )
    await clock.advance(seconds(0))
    asked = await backfill(database, job.job_id, START - seconds(600), START, RNG)
    assert asked.backfill_id is not None
    made.backfill = asked.backfill_id
    return made


async def block(database, run_id):
    """Put a run before a gate that is full."""
    await database.execute("insert into duly.concurrency_keys (tenant, key, slots, active) values (1, 'door', 1, 1)")
    await database.execute(
        "with gone as (delete from duly.ready where run_id = $1 returning *) insert into duly.blocked"
        " select run_id, job_id, scheduled_at, due_at, previous_scheduled_at, generation, tenant, attempt, priority, losses,"
        " suspect, payload_stored, queue, handler, payload, options, 'concurrency', 'door', due_at from gone",
        run_id,
    )


async def everything(database) -> dict[str, list[str]]:
    """Read all that is stored."""
    names = [row[0] for row in await database.fetch(TABLES)]
    return {
        name: sorted(row[0] for row in await database.fetch(f"select t::text from duly.{name} as t")) for name in names
    }
