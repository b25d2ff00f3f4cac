"""Recurring jobs, by id or name: read and change them."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Unpack
from uuid import UUID

import msgspec

from duly.clock import Rng
from duly.domain.errors import NotFound
from duly.domain.jobs.job import check_arguments, check_job, check_key, check_moment, check_reason
from duly.domain.triggers.schedule.preview import fires_left
from duly.domain.triggers.schedule.summary import due_moments, sentence
from duly.moves.cancel import CancelAnswer, cancel_job
from duly.moves.schedules import backfill as backfills
from duly.moves.schedules import pause as pauses
from duly.moves.schedules.backfill import Requested
from duly.moves.schedules.edit import amend
from duly.moves.schedules.pause import skip_next
from duly.moves.schedules.schedule import find_job_id
from duly.moves.trigger import TriggerState, trigger
from duly.sdk.background import sync_twin
from duly.sdk.changes import changed
from duly.sdk.choices import UncheckedWork, Work
from duly.sdk.keywords import Changes
from duly.sdk.run_handle import RunHandle
from duly.store.connection.database import Database
from duly.store.tables import jobs

if TYPE_CHECKING:
    from duly.sdk.app import App

T = TypeVar("T")
NEXT_FIRES = 3


class JobDetails(msgspec.Struct, frozen=True):
    """A recurring job. `next_fires` is empty while it is paused; `version` rises with each edit."""

    job_id: UUID
    name: str | None
    state: str
    handler: str
    queue: str
    priority: int
    version: int
    description: str
    next_fires: list[datetime]
    pause_reason: str | None
    created_at: datetime


class Job(Generic[T]):
    """A recurring job. A name is looked up each time, and is that of the job which has it then."""

    __slots__ = ("_app", "_reference")

    def __init__(self, app: App, reference: UUID | str) -> None:
        self._app = app
        self._reference = check_job(reference)

    async def status(self) -> str:
        """Return its status: active, paused, completed or cancelled. Raises NotFound."""
        return str((await self._found(await self._database()))["state"])

    async def details(self) -> JobDetails:
        """Return all about it: its next fires, in moments and in words, and its status. Raises NotFound."""
        database = await self._database()
        found = await self._found(database)
        schedule = await jobs.schedule_of_job(database, found)
        pending, left = found["next_run_at"], fires_left(found, NEXT_FIRES)
        return JobDetails(
            **{name: found[name] for name in _SHOWN},
            version=found["generation"],
            description=sentence(schedule),
            next_fires=[] if pending is None else due_moments(schedule, pending, left, str(found["job_id"])),
        )

    async def pause(self, reason: str = "paused on request") -> str:
        """Pause it: paused, or already. Staged runs that have not started are taken back. Raises NotFound, InvalidOption."""
        why, database = check_reason(reason), await self._database()
        return await pauses.pause(database, await self._job_id(database), why)

    async def resume(self, *, catch_up: bool = False) -> str:
        """Resume it: active, or already. Fires it missed are skipped, or with `catch_up` are misfires. Raises NotFound."""
        database = await self._database()
        return await pauses.resume(database, await self._job_id(database), catch_up=catch_up)

    async def skip_next(self) -> datetime:
        """Skip the next occurrence, and return its moment. Raises NotFound, InvalidOption, Unsettled."""
        database = await self._database()
        return await skip_next(database, await self._job_id(database))

    async def trigger(
        self, arguments: Mapping[str, Any] | None = None, *, allow_overlap: bool = False, key: str | None = None
    ) -> RunHandle[T]:
        """Run it now, beside its schedule; with `arguments` of its own, and with `allow_overlap` whatever is running.

        The handle's `state` is ready, blocked or skipped_overlap; the same `key` is the same run: replayed. Raises
        NotFound, InvalidArguments, InvalidOption.
        """
        chosen = secrets.token_urlsafe(16) if key is None else check_key(key)
        database = await self._database()
        found = await self._found(database)
        work = self._work_of(found)
        body = None if arguments is None else work.encode((), check_arguments(arguments, work.name))
        created = await trigger(database, found["job_id"], key=chosen, payload=body, allow_overlap=allow_overlap)
        if created.state == TriggerState.READY:
            (await self._app.connections.waker()).wake(found["queue"])
        return RunHandle(self._app, work, created.run_id, str(created.state))

    async def edit(self, **changes: Unpack[Changes]) -> int:
        """Change only the given fields, from now on. Returns its new version.

        Takes what `options(…)` takes of a schedule, its name and its runs, and `arguments`, laid over its own; None
        removes a part, as `jitter=None`. Raises NotFound, Refused.
        """
        database = await self._database()
        found = await self._found(database)
        work = self._work_of(found)
        return await amend(database, found["job_id"], lambda job: changed(job, changes, work))

    async def backfill(
        self,
        from_: datetime,
        to: datetime,
        *,
        rate: float = 1.0,
        overlap: str = "queue",
        dry_run: bool = False,
        confirm: bool = False,
    ) -> Requested:
        """Create the occurrences of [from_, to) again, `rate` a second, below everything on time.

        They wait for each other, unless `overlap` is `allow`. With `dry_run` they are only counted. More than 10,000
        need `confirm`. Raises NotFound, InvalidOption, InvalidSchedule.
        """
        stretch = check_moment(from_, "from"), check_moment(to, "to")
        database = await self._database()
        job_id = await self._job_id(database)
        return await backfills.backfill(
            database, job_id, *stretch, Rng(), rate=rate, overlap=overlap, dry_run=dry_run, confirm=confirm
        )

    async def cancel(self) -> CancelAnswer:
        """End it, with its runs that have not started; for a one-shot, the run. Raises NotFound."""
        database = await self._database()
        return await cancel_job(database, await self._job_id(database))

    # For plain functions.
    status_sync = sync_twin(status)
    details_sync = sync_twin(details)
    pause_sync = sync_twin(pause)
    resume_sync = sync_twin(resume)
    skip_next_sync = sync_twin(skip_next)
    trigger_sync = sync_twin(trigger)
    edit_sync = sync_twin(edit)
    backfill_sync = sync_twin(backfill)
    cancel_sync = sync_twin(cancel)

    def __repr__(self) -> str:
        return f"<Job {self._reference}>"

    async def _database(self) -> Database:
        return await self._app.connections.database()

    async def _job_id(self, database: Database) -> UUID:
        return await find_job_id(database, self._reference, self._app.tenant)

    async def _found(self, database: Database) -> dict[str, Any]:
        job_id = await self._job_id(database)
        found = await jobs.find(database, job_id)
        if found is None:
            raise NotFound(f"no schedule {job_id}: it was not committed, or it is a one-shot")
        return found

    def _work_of(self, found: Mapping[str, Any]) -> Work:
        return self._app.registry.get(found["handler"]) or UncheckedWork(found["handler"])


_SHOWN = ("job_id", "name", "state", "handler", "queue", "priority", "pause_reason", "created_at")
