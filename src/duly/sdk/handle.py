"""Handles on submitted work: its fires, its state and its result."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar, overload
from uuid import UUID

from duly.domain.errors import NotFound
from duly.domain.runs.run_id import occurrence_id
from duly.domain.triggers.schedule.schedules import Schedule
from duly.domain.triggers.schedule.summary import due_moments, is_once, is_period, sentence
from duly.moves.cancel import CancelAnswer, cancel_subtasks
from duly.moves.submit import Accepted
from duly.sdk.background import sync_twin
from duly.sdk.job import NEXT_FIRES, Job
from duly.sdk.run_handle import Progress, RunHandle
from duly.store.boxes import runs
from duly.store.connection.database import Database
from duly.store.tables.jobs import Submitted

if TYPE_CHECKING:
    from duly.sdk.app import App
    from duly.sdk.choices import Work

T = TypeVar("T")


class Handle(Job[T]):
    """The handle that a submit returns; for a schedule it is also a handle on the job. `scheduled_at` is its first moment."""

    __slots__ = ("_registered", "_schedule", "job_id", "key", "replayed", "scheduled_at")

    def __init__(self, app: App, handler: Work, key: str, submitted: Submitted) -> None:
        super().__init__(app, submitted.job_id)
        self._registered = handler
        self._schedule: Schedule | None = submitted.schedule if isinstance(submitted, Accepted) else None
        self.key = key
        self.job_id: UUID = submitted.job_id
        self.scheduled_at: datetime = submitted.scheduled_at
        self.replayed: bool = submitted.replayed

    @property
    def run_id(self) -> UUID:
        """The run: for a schedule, its first one."""
        return self.job_id if self._schedule is None else occurrence_id(self.job_id, self.scheduled_at, "schedule")

    @property
    def run(self) -> RunHandle[T]:
        """A handle on the run: for a schedule, its first one."""
        return RunHandle(self._app, self._registered, self.run_id, "submitted")

    @property
    def next_fires(self) -> list[datetime]:
        """The moments it starts at as of its submit, up to three: with jitter, and without blocked ones."""
        if self._schedule is None:
            return [self.scheduled_at]
        return due_moments(self._schedule, self.scheduled_at, NEXT_FIRES, str(self.job_id))

    @property
    def description(self) -> str:
        """Return when it fires, in English."""
        first = f"{self.scheduled_at:%Y-%m-%d %H:%M:%S %Z}"
        if self._schedule is None or is_once(self._schedule):
            return f"Once, at {first}"
        return f"{sentence(self._schedule)}, from {first}" if is_period(self._schedule) else sentence(self._schedule)

    async def status(self) -> str:
        """Return the state of the run, or of the schedule. Raises NotFound."""
        if self._schedule is not None:
            return await super().status()
        found = await runs.find(await self._database(), self.job_id)
        if found is None:
            raise NotFound(f"no job {self.job_id}: it was not committed, or its history is no longer kept")
        return str(found["state"])

    async def result(self, timeout: float | None = None) -> T:
        """Wait for the run to end and return its result; for a schedule, its first run.

        Raises RunFailed, ResultNotKept, or TimeoutError after `timeout` seconds.
        """
        return await self.run.result(timeout)

    async def cancel(self, *, children: bool = False) -> CancelAnswer:
        """End it, with its runs that have not started; for a one-shot, the run. Raises NotFound.

        With `children`, the run's subtasks that have not started are cancelled as well, and theirs.
        """
        answer = await super().cancel()
        if children:
            await cancel_subtasks(await self._database(), self.run_id)
        return answer

    def cancel_sync(self, *, children: bool = False) -> CancelAnswer:
        """End it, from a plain function."""
        return self._app.background.run(self.cancel(children=children))

    async def progress(self) -> Progress | None:
        """Return the last reported progress of the run; for a schedule, its first run."""
        return await self.run.progress()

    # For plain functions.
    result_sync = sync_twin(result)
    progress_sync = sync_twin(progress)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Handle) and other.job_id == self.job_id

    def __hash__(self) -> int:
        return hash(self.job_id)

    def __repr__(self) -> str:
        return f"<Handle of {self._registered.name} {self.job_id}: {self.description}>"

    async def _job_id(self, database: Database) -> UUID:
        return self.job_id


class Handles(Sequence[Handle[T]]):
    """The handles that a submit of many returns. Each is built when it is asked for: few callers look at all."""

    __slots__ = ("_app", "_key", "_registered", "_submitted")

    def __init__(self, app: App, handler: Work, key: str, submitted: Sequence[Submitted]) -> None:
        self._app, self._registered, self._key, self._submitted = app, handler, key, submitted

    def __len__(self) -> int:
        return len(self._submitted)

    @overload
    def __getitem__(self, place: int) -> Handle[T]: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Handle[T]]: ...
    def __getitem__(self, place: int | slice) -> Handle[T] | Sequence[Handle[T]]:
        if isinstance(place, slice):
            return Handles(self._app, self._registered, self._key, self._submitted[place])
        return Handle(self._app, self._registered, self._key, self._submitted[place])

    def __repr__(self) -> str:
        return f"<{len(self)} handles of {self._registered.name}>"
