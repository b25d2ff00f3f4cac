"""Many recurring jobs, filled in by SQL as submits over a long time would have left them.

Their ids follow the moment of their creation, as real ones do; the moments at which they fire are a permutation of that
order, spread evenly, down to the microsecond: so the order of firing has nothing to do with the order of ids or of pages.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from time import monotonic
from uuid import UUID

import msgspec

from duly.bench.progress import Steps
from duly.domain.runs.run import PRIORITY_DEFAULT, QUEUE_DEFAULT
from duly.store.connection.database import Database

CHUNK = 20_000
_EVERYTHING_BEFORE = UUID(int=0)
# Multiplying by a large prime, modulo the number of jobs, permutes them.
_PRIME = 15_485_863
MINUTE = 60

JOBS = f"""
insert into duly.jobs (job_id, tenant, queue, handler, every_seconds, anchor_at, payload, created_at, updated_at)
select duly.run_id(created_at, $9::text || '/' || number), 1, 'default', $5, $6, anchor_at, '{{}}', created_at, created_at
  from (select number, $7::timestamptz - (interval '1 millisecond') * ($3 - number) as created_at,
               $7::timestamptz + $8::interval + $4::interval * ((number * {_PRIME} % $3)::double precision / $3) as anchor_at
          from generate_series($1::bigint, $2::bigint) as number) as made
"""  # noqa: S608 - a number of our own
# A cron job fires at one second of each minute, in one of several zones: $6 and $7 hold a cohort for each (second, zone).
CRON_JOBS = f"""
insert into duly.jobs (job_id, tenant, queue, handler, every_seconds, anchor_at, schedule, cohort, payload,
                       created_at, updated_at)
select duly.run_id(created_at, number::text), 1, 'default', $4, {MINUTE}, anchor_at, ($7::jsonb[])[nth], ($6::bigint[])[nth],
       '{{}}', created_at, created_at
  from (select made.*, 1 + date_part('second', anchor_at)::integer * (cardinality($6::bigint[]) / {MINUTE})
                         + number % (cardinality($6::bigint[]) / {MINUTE}) as nth
          from (select number, $5::timestamptz - (interval '1 millisecond') * ($3 - number) as created_at,
                       date_trunc('minute', $5::timestamptz) + make_interval(
                           secs => floor((number * {_PRIME} % $3)::double precision / $3 * {MINUTE})) as anchor_at
                  from generate_series($1::bigint, $2::bigint) as number) as made) as numbered
"""  # noqa: S608 - a number of our own
# Runs of one handler that are ready, so far behind the present and so far apart.
READY = """
insert into duly.ready (run_id, job_id, scheduled_at, due_at, generation, tenant, attempt, priority, losses, suspect,
                        payload_stored, queue, handler, payload)
select id, id, at, at, 1, 1, 0, $2, 0, false, false, $3, $4, '{}'
  from (select gen_random_uuid() as id, duly.clock_now() - $5::interval - ($1::int - number) * $6::interval as at
          from generate_series(1, $1::int) as number) as made
"""
# The first moment on a job's grid that is not before $1.
FIRST_AT = """
    anchor_at + make_interval(
        secs => greatest(0, ceil(date_part('epoch', $1::timestamptz - anchor_at) / every_seconds)) * every_seconds)
"""
# Each is behind a run that has ended, as where it has gone on for a while: so each fire looks whether that is still active.
TIMERS = f"""
with chunk as (
    select job_id, tenant, queue, handler, every_seconds, cohort, generation, payload, {FIRST_AT} as first_at
      from duly.jobs where job_id > $2 order by job_id limit $3),
armed as (
    insert into duly.timers (job_id, scheduled_at, due_at, generation, tenant, queue, handler, payload, shard,
                             every_seconds, cohort, last_run_id)
    select job_id, first_at, first_at, generation, tenant, queue, handler, payload, duly.shard_of(job_id),
           case when cohort is null then every_seconds end, cohort,
           duly.occurrence_id(job_id, first_at - make_interval(secs => every_seconds), 'schedule')
      from chunk)
select job_id from chunk order by job_id desc limit 1
"""  # noqa: S608 - an expression of our own


class Jobs(msgspec.Struct, frozen=True):
    """The jobs to fill in: `spread` is the span of the first fires of all jobs."""

    number: int
    handler: str
    every_seconds: int
    spread: timedelta


async def fill_jobs(
    database: Database, jobs: Jobs, steps: Steps, ahead: timedelta = timedelta(), *, name: str = "bench"
) -> datetime:
    """Insert the definitions, their anchors so far `ahead`. Returns the present moment, which everything follows."""
    base: datetime = await database.fetchval("select clock_timestamp()")
    with steps.step(f"{jobs.number:,} jobs", jobs.number) as advance:
        for first in range(1, jobs.number + 1, CHUNK):
            last = min(first + CHUNK - 1, jobs.number)
            await database.execute(
                JOBS, first, last, jobs.number, jobs.spread, jobs.handler, jobs.every_seconds, base, ahead, name
            )
            advance(last)
    return base


async def fill_cron_jobs(
    database: Database, number: int, handler: str, cohorts: Mapping[int, str], steps: Steps
) -> None:
    """Insert cron jobs; `cohorts` are the schedules of each second of the minute in each zone, second by second."""
    base: datetime = await database.fetchval("select clock_timestamp()")
    with steps.step(f"{number:,} jobs", number) as advance:
        for first in range(1, number + 1, CHUNK):
            last = min(first + CHUNK - 1, number)
            await database.execute(CRON_JOBS, first, last, number, handler, base, list(cohorts), list(cohorts.values()))
            advance(last)


async def fill_ready(
    database: Database, number: int, handler: str, behind: timedelta = timedelta(), spacing: timedelta = timedelta()
) -> None:
    """Insert runs of one tenant that are ready in the default queue."""
    await database.execute(READY, number, PRIORITY_DEFAULT, QUEUE_DEFAULT, handler, behind, spacing)


async def arm(database: Database, number: int, start: datetime, steps: Steps) -> None:
    """Insert each job's next fire: the first one not before `start`."""
    with steps.step(f"{number:,} timers", number) as advance:
        after: UUID | None = _EVERYTHING_BEFORE
        done = 0
        while after is not None:
            after = await database.fetchval(TIMERS, start, after, CHUNK)
            done += CHUNK
            advance(min(done, number))
    for table in ("jobs", "timers"):
        await database.execute(f"vacuum (analyze) duly.{table}")


async def arm_ahead(database: Database, number: int, least: timedelta, steps: Steps, elapsed: float) -> datetime:
    """Arm so that the first fire lies ahead when it is done, as far as `least`. Returns the moment of the first fire.

    `elapsed` is how long the definitions took; the timers have more indexes and take about three times as long.
    """
    while True:
        allowed = timedelta(seconds=elapsed * 4) + least
        began = monotonic()
        start: datetime = await database.fetchval("select clock_timestamp() + $1", allowed)
        await arm(database, number, start, steps)
        elapsed = (monotonic() - began) / 3
        if await database.fetchval("select clock_timestamp() + $1 <= $2", least / 2, start):
            return start
        await database.execute("truncate duly.timers")
