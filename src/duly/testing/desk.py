"""The desk of an environment: checkpoints and progress go to the real store, log lines to the test."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from duly.domain.runs.progress import Progress
from duly.domain.runs.run import Run
from duly.sdk.app import App
from duly.store.boxes import runs
from duly.testing.fires import Line


class EnvironmentDesk:
    """Serves one attempt."""

    def __init__(self, app: App, worker_id: UUID) -> None:
        self._app = app
        self._worker_id = worker_id
        self.lines: list[Line] = []
        self._progress: Progress | None = None

    def log(self, run: Run, level: str, message: str, fields: dict[str, Any]) -> None:
        """Keep a line for the test."""
        self.lines.append(Line(level, message, fields))

    async def checkpoint(self, run: Run, body: str) -> bool:
        """Save a checkpoint. False: the lease is lost."""
        database = await self._app.connections.database()
        return await runs.save_checkpoint(database, run.run_id, run.fence, self._worker_id, body)

    def progress(self, run: Run, progress: Progress) -> None:
        """Note how far the run has come; it is written when the attempt ends."""
        self._progress = progress

    async def flush(self, run: Run) -> None:
        """Write how far the run has come."""
        if self._progress is not None:
            database = await self._app.connections.database()
            await runs.save_progress(database, run.run_id, run.fence, self._worker_id, self._progress)

    def checkpoint_sync(self, run: Run, body: str) -> bool:
        """Save a checkpoint from a plain function."""
        return self._app.background.run(self.checkpoint(run, body))
