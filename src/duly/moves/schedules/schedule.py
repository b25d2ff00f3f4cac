"""A schedule as it was read, for the moves that change it: its rule, its pending moment, and what may be staged already."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID

import msgspec

from duly.domain.errors import JobEnded, NotFound
from duly.domain.jobs.job import Recurring
from duly.domain.runs.options import RunOptions
from duly.domain.runs.run import TENANT_DEFAULT
from duly.domain.triggers.on_event import OnEvent
from duly.domain.triggers.schedule.options import requested_shape
from duly.domain.triggers.schedule.planning import Skip, left_out_by_calendars, moments_between, stretch
from duly.domain.triggers.schedule.schedules import Schedule
from duly.store.connection.database import Database
from duly.store.reads import overview
from duly.store.tables import jobs

# A schedule fires once a second at most, and is staged no further ahead than the horizon.
_STAGED_MAX = 64


class Seen(msgspec.Struct, frozen=True):
    """An active schedule, at one moment. Its moves name the state that was read, so a change in between is noticed.

    `pending_at` is the occurrence that is armed, whether it is paused or not.
    """

    job_id: UUID
    tenant: int
    name: str | None
    state: str
    queue: str
    handler: str
    priority: int
    generation: int
    every_seconds: int | None
    anchor_at: datetime | None
    cohort: int | None
    schedule: str | None
    owner: str
    source: str | None
    pause_reason: str | None
    payload: str | None
    options: RunOptions
    pending_at: datetime
    previous_scheduled_at: datetime | None
    accountable_from: datetime
    least_period: int | None
    runs_left: int | None
    has_leased_run: bool  # a worker holds the first attempt of its last run, started or not
    read_at: datetime
    redact_above: list[str] | None
    compiled: Schedule

    @property
    def definition(self) -> Recurring:
        """The job as it was requested."""
        requested = requested_shape(self.schedule, self.every_seconds)
        payload, routing = self.payload or "{}", (self.queue, self.priority)
        return Recurring(self.handler, payload, *routing, requested, self.name, self.options, self.owner, self.source)

    def left_out(self) -> list[Skip]:
        """Return what calendars blocked of it by now that no fire will report, once it is retimed."""
        return [*left_out_by_calendars(self.compiled, self.pending_at, self.read_at, self.accountable_from)]

    def unfired(self, reason: str) -> list[Skip]:
        """Return its occurrences that have not fired by now, which nothing else reports; and what calendars blocked of it."""
        skips = self.left_out()
        last = None if self.compiled.trigger.is_estimate else self.compiled.latest_at_or_before(self.read_at)
        if last is not None and last.scheduled_at >= self.pending_at and not self.is_spent:
            why = "skipped_paused" if self.is_paused else reason
            skips.append(stretch(self.compiled, self.pending_at, last.scheduled_at, why))
        return skips

    @property
    def is_paused(self) -> bool:
        """Return whether it was paused."""
        return self.state == "paused"

    @property
    def is_spent(self) -> bool:
        """Return whether its last occurrence is staged, and is still the pending one."""
        return self.runs_left == 0

    def staged(self) -> list[datetime]:
        """Return the occurrences that may be staged and not due: from now up to the pending one, and one held by jitter.

        The last due one is among them, too, if it was skipped behind a run that may not have started: no occurrence before it
        can be taken back.
        """
        if isinstance(self.compiled.trigger, OnEvent):
            return []
        if self.compiled.trigger.is_estimate:  # while its run is staged, the fire waits at that run's moment
            return [self.pending_at]
        start = self.read_at
        due = self.compiled.latest_at_or_before(min(start, self.pending_at - timedelta(microseconds=1)))
        if due is not None and (self.compiled.jitter or self._was_skipped(due.scheduled_at)):
            start = min(start, due.scheduled_at)
        last = [self.pending_at] if self.is_spent else []
        return moments_between(self.compiled, start, self.pending_at, _STAGED_MAX) + last

    def _was_skipped(self, moment: datetime) -> bool:
        return self.previous_scheduled_at is not None and moment > self.previous_scheduled_at


async def find_job_id(database: Database, job: UUID | str, tenant: int = TENANT_DEFAULT) -> UUID:
    """Read a job's id, or look its name up. Raises NotFound."""
    try:
        return job if isinstance(job, UUID) else UUID(job)
    except ValueError:
        found = await overview.job_by_name(database, str(job), tenant)
    if found is None:
        raise NotFound(f"no schedule is named {job!r}; `duly jobs` lists them; give an ended one by its id")
    return found.job_id


async def see(database: Database, job_id: UUID) -> Seen:
    """Read an active schedule. Raises NotFound, JobEnded."""
    found = await jobs.find(database, job_id)
    if found is None:
        raise NotFound(f"no schedule {job_id}; `duly jobs` lists them")
    if found["pending_at"] is None:
        raise JobEnded(f"job {job_id} is {found['state']} and will not fire again")
    found["compiled"] = await jobs.schedule_of_job(database, found)
    return Seen(**{name: found[name] for name in Seen.__struct_fields__})
