"""A handle on what was submitted: when it fires, how it stands, what came of it."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from uuid import UUID

import msgspec

from duly.domain.errors import DulyError, NotFound
from duly.domain.run_id import occurrence_id
from duly.domain.triggers.interval import describe_every
from duly.moves.cancel import CancelAnswer, cancel_job
from duly.store import jobs, runs
from duly.store.database import Database
from duly.store.jobs import Submitted

if TYPE_CHECKING:
    from duly.sdk.app import App
    from duly.worker.handlers import Handler

T = TypeVar("T")
NEXT_FIRES = 3
_LOOK_SECONDS_MIN, _LOOK_SECONDS_MAX = 0.005, 0.5


class RunFailed(DulyError):
    """A run that was waited for ended without a result; says why, with the traceback of its last attempt."""

    def __init__(self, run: dict[str, Any]) -> None:
        self.run_id: UUID = run["run_id"]
        self.state: str = run["state"]
        self.attempts: int = run["attempt"]
        self.reason: str | None = run["reason"] or _last_reason(run)
        self.traceback: str | None = _last_traceback(run)
        super().__init__(f"run {self.run_id} of {run['handler']} is {self.state}: {self.reason}")


class Handle(Generic[T]):
    """What a submit gives back. `next_fires` are the moments it is for: of a schedule, the next three."""

    __slots__ = ("_app", "_every", "_handler", "job_id", "key", "replayed", "scheduled_at")

    def __init__(self, app: App, handler: Handler, key: str, submitted: Submitted, every: timedelta | None) -> None:
        self._app = app
        self._handler = handler
        self._every = every
        self.key = key
        self.job_id: UUID = submitted.job_id
        self.scheduled_at: datetime = submitted.scheduled_at
        self.replayed: bool = submitted.replayed

    @property
    def run_id(self) -> UUID:
        """The run: of a schedule, its first one."""
        return self.job_id if self._every is None else occurrence_id(self.job_id, self.scheduled_at, "schedule")

    @property
    def next_fires(self) -> list[datetime]:
        """The moments it fires at, up to three."""
        every = self._every
        return [self.scheduled_at + every * i for i in range(NEXT_FIRES)] if every else [self.scheduled_at]

    @property
    def description(self) -> str:
        """When it fires, in English."""
        first = f"{self.scheduled_at:%Y-%m-%d %H:%M:%S %Z}"
        return f"{describe_every(self._every)}, from {first}" if self._every else f"Once, at {first}"

    async def status(self) -> str:
        """Say how it stands: a run's state, or a schedule's. Raises NotFound."""
        database = await self._app.connections.database()
        found = await (runs.find(database, self.job_id) if self._every is None else jobs.find(database, self.job_id))
        if found is None:
            raise NotFound(f"no job {self.job_id}: it was not committed, or its history is no longer kept")
        return str(found["state"])

    async def result(self, timeout: float | None = None) -> T:
        """Wait for the run to end and give its result. Raises RunFailed, or TimeoutError after `timeout` seconds."""
        database = await self._app.connections.database()
        run = await self._final(database, timeout)
        if run["state"] != "succeeded":
            raise RunFailed(run)
        [text] = [attempt["result"] for attempt in run["attempts"] if attempt["became"] == "succeeded"][-1:] or [None]
        result: T = self._handler.decode_result(text)
        return result

    async def cancel(self) -> CancelAnswer:
        """Cancel the job: a schedule with the runs that have not started, or a one-shot. Raises NotFound."""
        return await cancel_job(await self._app.connections.database(), self.job_id)

    def status_sync(self) -> str:
        """Say how it stands, from a plain function."""
        return self._app.background.run(self.status())

    def result_sync(self, timeout: float | None = None) -> T:
        """Wait for the run to end and give its result, from a plain function."""
        return self._app.background.run(self.result(timeout))

    def cancel_sync(self) -> CancelAnswer:
        """Cancel the job, from a plain function."""
        return self._app.background.run(self.cancel())

    def __repr__(self) -> str:
        return f"<Handle of {self._handler.name} {self.job_id}: {self.description}>"

    async def _final(self, database: Database, timeout: float | None) -> dict[str, Any]:
        """Look until the run is final, ever less often. A run that is not there may be committed yet."""
        began, pause = database.clock.monotonic(), _LOOK_SECONDS_MIN
        while True:
            run = await runs.find(database, self.run_id)
            if run is not None and run["state"] in runs.FINAL:
                return run
            waited = database.clock.monotonic() - began
            if timeout is not None and waited >= timeout:
                state = run["state"] if run else "not there: not committed, not staged yet, or no longer kept"
                raise TimeoutError(f"run {self.run_id} of {self._handler.name} is {state} after {waited:.3g} s")
            await database.clock.sleep(pause if timeout is None else min(pause, timeout - waited))
            pause = min(pause * 1.5, _LOOK_SECONDS_MAX)


def _last_traceback(run: dict[str, Any]) -> str | None:
    for attempt in reversed(run["attempts"]):
        if attempt["detail"]:
            traceback: str | None = msgspec.json.decode(attempt["detail"]).get("traceback")
            return traceback
    return None


def _last_reason(run: dict[str, Any]) -> str | None:
    return next((attempt["reason"] for attempt in reversed(run["attempts"]) if attempt["reason"]), None)
