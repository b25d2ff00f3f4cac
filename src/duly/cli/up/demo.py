"""The demo of `duly up`: its schedule, and a line on the screen for each run of it that ended."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from duly import demo
from duly.cli.render.output import duration
from duly.clock import Rng
from duly.domain.errors import DulyError, NameTaken
from duly.domain.jobs.job import Recurring
from duly.domain.runs.run import PRIORITY_DEFAULT, QUEUE_DEFAULT
from duly.domain.triggers.schedule.timing import every_shape
from duly.moves.cancel import cancel_job
from duly.moves.submit import submit_recurring
from duly.store.connection.database import Database
from duly.store.reads import overview
from duly.store.reads.overview import NamedJob

PATH = "duly.demo:app"
# Soon enough to be seen at once, and late enough for the worker to be there.
_FIRST_IN = timedelta(seconds=3)
_LOOK_SECONDS = 0.5
_REMEMBERED_MAX = 1_000


async def schedule_demo(database: Database, rng: Rng) -> NamedJob:
    """Create the demo's schedule, unless it exists."""
    found = await overview.job_by_name(database, demo.NAME)
    if found is None:
        anchor = (await database.read_clock()).replace(microsecond=0) + _FIRST_IN
        schedule = every_shape(int(demo.EVERY.total_seconds()), anchor)
        job = Recurring(demo.hello.name, "{}", QUEUE_DEFAULT, PRIORITY_DEFAULT, schedule, demo.NAME)
        with suppress(NameTaken):
            await submit_recurring(database, job, key=str(rng.uuid()))
        found = await overview.job_by_name(database, demo.NAME)
    assert found is not None
    return found


async def end_demo(database: Database) -> None:
    """Cancel the demo's schedule if an earlier start left one, so that it does not pile up unserved."""
    found = await overview.job_by_name(database, demo.NAME)
    if found is not None and found.handler == demo.hello.name:
        await cancel_job(database, found.job_id, "demo switched off")


async def endings(database: Database, job: NamedJob) -> AsyncIterator[str]:
    """Yield a line for each run of a job that ends from now on."""
    since = await database.read_clock()
    began, seen = since, dict[tuple[UUID, int, int], None]()
    while True:
        await database.clock.sleep(_LOOK_SECONDS)
        try:
            ended = await overview.finished_of_job(database, job.job_id, since)
        except DulyError:
            continue
        for row in ended:
            mark = (row["run_id"], row["attempt"], row["fence"] or 0)
            if mark not in seen and row["finished_at"] >= began:
                seen[mark] = None
                since = max(since, row["finished_at"])
                yield ending_line(job, row)
        while len(seen) > _REMEMBERED_MAX:
            del seen[next(iter(seen))]


def ending_line(job: NamedJob, row: Mapping[str, Any]) -> str:
    """Write one ended run: when it ended, its id, its duration and its start delay."""
    number = _number(job, row["scheduled_at"])
    line = f"{row['finished_at'].astimezone():%H:%M:%S.%f}"[:-3] + f"  {job.name} {number:5} {row['outcome']:10}"
    if row["started_at"] is None:
        return f"{line}  {row['reason'] or ''}".rstrip()
    elapsed, start_delay = row["finished_at"] - row["started_at"], row["started_at"] - row["due_at"]
    reason = f"   {row['reason']}" if row["reason"] else ""
    return f"{line}  {duration(elapsed):>7}   ({duration(start_delay)} after due){reason}"


def _number(job: NamedJob, scheduled_at: datetime) -> str:
    """Count the occurrences of a period; a user's own schedule of that name may be another kind, and is not counted."""
    if job.every_seconds is None or job.anchor_at is None:
        return ""
    return f"#{(scheduled_at - job.anchor_at) // timedelta(seconds=job.every_seconds) + 1}"
