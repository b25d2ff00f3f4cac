"""The desk of an environment: checkpoints and progress go to the real store, log lines to the test."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from duly.domain.run import Run
from duly.sdk.app import App
from duly.store import runs
from duly.testing.fires import Line


class EnvironmentDesk:
    """Serves one attempt."""

    def __init__(self, app: App, worker_id: UUID) -> None:
        self._app = app
        self._worker_id = worker_id
        self.lines: list[Line] = []

    def log(self, run: Run, level: str, message: str, fields: dict[str, Any]) -> None:
        """Keep a line for the test."""
        self.lines.append(Line(level, message, fields))

    async def checkpoint(self, run: Run, body: str) -> bool:
        """Save a checkpoint. False: the lease is lost."""
        database = await self._app.connections.database()
        return await runs.save_checkpoint(database, run.run_id, run.fence, self._worker_id, body)

    async def progress(self, run: Run, fraction: float | None, message: str | None) -> None:
        """Show how far the run has come."""
        database = await self._app.connections.database()
        await runs.save_progress(database, run.run_id, run.fence, self._worker_id, fraction, message)

    def checkpoint_sync(self, run: Run, body: str) -> bool:
        """Save a checkpoint from a plain function."""
        return self._app.background.run(self.checkpoint(run, body))

    def progress_sync(self, run: Run, fraction: float | None, message: str | None) -> None:
        """Show how far the run has come, from a plain function."""
        self._app.background.run(self.progress(run, fraction, message))
