"""Workflows as targets: the run starts one and leaves our hands, until the workflow has ended.

A run that comes again, because its worker died, finds the workflow it has started; one that was dead and was replayed does, and
what failed in it is done again.
"""

from __future__ import annotations

import asyncio
from uuid import UUID

from duly.domain.errors import Refused
from duly.domain.runs.outcome import Awaited, Deferral, Failed, Outcome
from duly.domain.runs.run import Run
from duly.domain.targets.target import WORKFLOW, WorkflowTarget
from duly.domain.workflows.target import workflow_of
from duly.moves.workflows.workflows import submit_workflow
from duly.store.connection.database import Database
from duly.worker.context import RunContext
from duly.worker.slots import Kind
from duly.worker.targets import TargetHandler

WITHIN_SECONDS = 365 * 86_400.0  # Nodes have timeouts of their own; a workflow ends when they have.


class Starter:
    """Starts workflows. The database is the engine's, on whose loop it is asked."""

    def __init__(self, kind: Kind) -> None:
        self.handler = TargetHandler(WORKFLOW, kind, self.attempt)
        self._database: Database | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def begin(self, database: Database, worker_id: UUID) -> None:
        """A life of the worker begins."""
        self._database, self._loop = database, asyncio.get_running_loop()

    async def end(self) -> None:
        """That life is over."""
        self._database = self._loop = None

    async def attempt(self, context: RunContext, run: Run) -> Outcome | Deferral:
        """Start the workflow of a run, and wait for it elsewhere."""
        database, loop = self._database, self._loop
        if database is None or loop is None:
            return Failed("the worker is stopping")
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(start(database, run), loop))


async def start(database: Database, run: Run) -> Outcome | Deferral:
    """Start the workflow of a run, or take up the one that it has started, and wait for its end elsewhere."""
    target = run.policy.target
    if not isinstance(target, WorkflowTarget):
        return Failed("the run has no workflow that this version of Duly can read", retryable=False)
    try:
        workflow = workflow_of(target, run.metadata.request_id, run.metadata.traceparent)
        await submit_workflow(database, run.tenant, str(run.run_id), workflow, for_run=run)
    except Refused as error:
        return Failed(str(error), retryable=False)
    return Awaited(WITHIN_SECONDS)  # Also for one that has ended: whoever settles it asks whether that still holds.
