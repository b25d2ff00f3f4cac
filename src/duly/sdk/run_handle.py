"""Handles on one run: its state, and its result."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from uuid import UUID

import msgspec

from duly.domain.errors import DulyError, NotFound
from duly.domain.jobs.job import check_arguments, check_key, check_name, check_priority
from duly.domain.runs.run import FINAL_STATES
from duly.moves.cancel import CancelAnswer, cancel_run, cancel_subtasks
from duly.moves.rerun import Changes, rerun
from duly.sdk.background import sync_twin
from duly.sdk.waiting import until_final
from duly.store.boxes import runs
from duly.store.connection.database import Database

if TYPE_CHECKING:
    from duly.sdk.app import App
    from duly.sdk.choices import Work

T = TypeVar("T")
_NOT_THERE = "not there: not committed, not staged yet, or no longer kept"


class Progress(msgspec.Struct, frozen=True):
    """The progress that a run reports; `fraction` is `done` by `total`, from 0 to 1, where the total is known."""

    done: float | None
    total: float | None
    fraction: float | None
    note: str | None
    updated_at: datetime


class RunFailed(DulyError):
    """An awaited run ended without a result; the message has the reason and the last attempt's traceback."""

    def __init__(self, run: dict[str, Any]) -> None:
        self.run_id: UUID = run["run_id"]
        self.state: str = run["state"]
        self.attempts: int = run["attempt"]
        self.reason: str | None = run["reason"] or _last_reason(run)
        self.traceback: str | None = _last_traceback(run)
        why = f": {self.reason}" if self.reason else ""
        super().__init__(f"run {self.run_id} of {run['handler']} is {self.state}{why}")


class ResultNotKept(DulyError):
    """An awaited run has succeeded, but its result was not stored; `reason` says why."""

    def __init__(self, run: dict[str, Any], reason: str) -> None:
        self.run_id: UUID = run["run_id"]
        self.reason = reason
        super().__init__(f"run {self.run_id} of {run['handler']} succeeded, but {reason}")


class RunHandle(Generic[T]):
    """One run. `state` is its state when the handle was made; `status` reads it again."""

    __slots__ = ("_app", "_work", "run_id", "state")

    def __init__(self, app: App, work: Work, run_id: UUID, state: str) -> None:
        self._app = app
        self._work = work
        self.run_id = run_id
        self.state = state

    async def status(self) -> str:
        """Return its state. Raises NotFound."""
        found = await runs.find(await self._app.connections.database(), self.run_id)
        if found is None:
            raise NotFound(f"no run {self.run_id}: it was not committed, or its history is no longer kept")
        return str(found["state"])

    async def result(self, timeout: float | None = None) -> T:
        """Wait for the run to end and return its result. Raises RunFailed, or TimeoutError after `timeout` seconds.

        Raises ResultNotKept where the run succeeded and its result was too large, or not JSON. A database that restarts
        meanwhile is waited for: until the `timeout`, or for a minute.
        """
        run = await self._final(await self._app.connections.database(), timeout)
        if run["state"] != "succeeded":
            raise RunFailed(run)
        [last] = [attempt for attempt in run["attempts"] if attempt["became"] == "succeeded"][-1:] or [None]
        if last is not None and last["result"] is None and last["reason"] is not None:
            raise ResultNotKept(run, last["reason"])
        result: T = self._work.decode_result(None if last is None else last["result"])
        return result

    async def progress(self) -> Progress | None:
        """Return the last reported progress; None when there is none, or the run ended an hour ago."""
        found = await runs.read_progress(await self._app.connections.database(), self.run_id)
        return None if found is None else Progress(**found)

    async def cancel(self, *, children: bool = False) -> CancelAnswer:
        """Cancel the run; an active one is asked to stop. Raises NotFound.

        With `children`, its subtasks are cancelled as well, and theirs; the workers of active ones are asked.
        """
        database = await self._app.connections.database()
        answer = await cancel_run(database, self.run_id)
        if children:
            await cancel_subtasks(database, self.run_id)
        return answer

    async def rerun(
        self,
        arguments: Mapping[str, Any] | None = None,
        *,
        queue: str | None = None,
        priority: int | None = None,
        at: datetime | None = None,
        key: str | None = None,
    ) -> RunHandle[T]:
        """Create a new run from this one, when it has ended: unchanged, or with changes. One key is one run.

        Raises NotFound, Refused while it has not ended, and InvalidOption where its payload is no longer stored.
        """
        work = self._work
        payload = None if arguments is None else work.encode((), check_arguments(arguments, work.name))
        created = await rerun(
            await self._app.connections.database(),
            self.run_id,
            key=secrets.token_urlsafe(16) if key is None else check_key(key),
            tenant=self._app.tenant,
            changes=Changes(
                payload,
                None if queue is None else check_name(queue, "queue"),
                None if priority is None else check_priority(priority),
                at,
            ),
        )
        if created.needs_hint:
            (await self._app.connections.waker()).wake(created.queue)
        return RunHandle(self._app, work, created.run_id, "submitted")

    # For plain functions.
    status_sync = sync_twin(status)
    result_sync = sync_twin(result)
    progress_sync = sync_twin(progress)
    cancel_sync = sync_twin(cancel)
    rerun_sync = sync_twin(rerun)

    def __repr__(self) -> str:
        return f"<RunHandle of {self._work.name} {self.run_id}: {self.state}>"

    async def _final(self, database: Database, timeout: float | None) -> dict[str, Any]:
        """Look until the run is final. A missing one may yet be committed."""

        async def look() -> tuple[str, dict[str, Any]]:
            run = await runs.find(database, self.run_id)
            return (run["state"], run) if run else (_NOT_THERE, {})

        return await until_final(database.clock, look, FINAL_STATES, f"run {self.run_id} of {self._work.name}", timeout)


def _last_traceback(run: dict[str, Any]) -> str | None:
    for attempt in reversed(run["attempts"]):
        if attempt["detail"]:
            traceback: str | None = msgspec.json.decode(attempt["detail"]).get("traceback")
            return traceback
    return None


def _last_reason(run: dict[str, Any]) -> str | None:
    return next((attempt["reason"] for attempt in reversed(run["attempts"]) if attempt["reason"]), None)
