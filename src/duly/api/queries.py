"""What the doors read across the boxes: by name, with its payload, and as a whole."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from duly.domain.run import TENANT_DEFAULT
from duly.store.database import Database

_JOB_BY_NAME = """
select job_id, name, state, handler, every_seconds, anchor_at from duly.jobs
 where tenant = $1 and name = $2 and state in ('active', 'paused')
"""

# A payload stands in the row, or in payloads when it is large; that of a schedule's run stands with the job.
_ARGUMENTS = """
select coalesce(place.payload, payloads.body)::text as payload, place.options::text as options
  from (select job_id, generation, payload, options from duly.timers where run_id = $1
        union all select job_id, generation, payload, options from duly.ready where run_id = $1
        union all select job_id, generation, payload, options from duly.leased where run_id = $1
        union all select job_id, generation, payload, options from duly.dead where run_id = $1) as place
  left join duly.payloads on payloads.job_id = place.job_id and payloads.generation = place.generation
 limit 1
"""

# By the index on (job_id, finished_at); the overlap is for rows that were committed after later ones.
_FINISHED_OF_JOB = """
select run_id, attempt, fence, scheduled_at, due_at, started_at, finished_at, outcome::text, became::text, reason
  from duly.attempts where job_id = $1 and finished_at > $2::timestamptz - interval '5 seconds' order by finished_at limit 100
"""

# What a live worker could take and has not: what nobody knows waits for a person, and is told apart.
_BACKLOG = """
select duly.clock_now() as read_at,
       (select count(*) from duly.workers where until > duly.clock_now()) as workers,
       (select count(*) from duly.shards join duly.schedulers on scheduler_id = holder and until > duly.clock_now()) as shards,
       (select min(due_at) from (select queue, handler, due_at from duly.ready limit 100000) as waiting
         where exists (select from duly.workers where until > duly.clock_now()
                          and waiting.queue = any (workers.queues) and waiting.handler = any (workers.handlers))) as oldest_due_at
"""


class NamedJob(msgspec.Struct, frozen=True):
    """A schedule found by its name."""

    job_id: UUID
    name: str
    state: str
    handler: str
    every_seconds: int
    anchor_at: datetime


class Backlog(msgspec.Struct, frozen=True):
    """The state of the whole, in one look."""

    read_at: datetime
    workers: int
    shards: int
    oldest_due_at: datetime | None

    @property
    def oldest_age_seconds(self) -> float:
        """How long the oldest run that could be taken has been due."""
        return max(0.0, (self.read_at - self.oldest_due_at).total_seconds()) if self.oldest_due_at else 0.0


async def job_by_name(database: Database, name: str, tenant: int = TENANT_DEFAULT) -> NamedJob | None:
    """Find the schedule that has a name; one that is over has none any more."""
    row = await database.fetchrow(_JOB_BY_NAME, tenant, name)
    return NamedJob(*row) if row else None


async def arguments(database: Database, run_id: UUID) -> dict[str, Any]:
    """Read the payload and options of a run that is in a box, as JSON text; empty when it is in none."""
    row = await database.fetchrow(_ARGUMENTS, run_id)
    return dict(row) if row else {}


async def finished_of_job(database: Database, job_id: UUID, since: datetime) -> list[dict[str, Any]]:
    """Read the attempts of a job that ended since a moment, and some seconds before it."""
    return [dict(row) for row in await database.fetch(_FINISHED_OF_JOB, job_id, since)]


async def backlog(database: Database) -> Backlog:
    """Look at the whole once."""
    row = await database.fetchrow(_BACKLOG)
    assert row is not None
    return Backlog(*row)
