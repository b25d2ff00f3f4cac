"""Workflows as targets: the run starts one and is awaited, until the workflow has ended.

A retry, after its worker died, finds the workflow it has started; so does a replay of a dead run, and what failed in it
is repeated.
"""

from __future__ import annotations

import asyncio

from duly.domain.errors import Refused
from duly.domain.runs.outcome import Awaited, Deferral, Failed, Outcome
from duly.domain.runs.run import Run
from duly.domain.targets.target import WORKFLOW, WorkflowTarget
from duly.domain.workflows.target import workflow_of
from duly.moves.workflows.workflows import submit_workflow
from duly.store.connection.database import Database
from duly.worker.context import RunContext
from duly.worker.slots import Kind
from duly.worker.targets import TargetHandler, UsesDatabase

WITHIN_SECONDS = 365 * 86_400.0  # nodes have timeouts of their own; a workflow ends when they have


class Starter(UsesDatabase):
    """Starts workflows."""

    def __init__(self, kind: Kind) -> None:
        self.handler = TargetHandler(WORKFLOW, kind, self.attempt)

    async def attempt(self, context: RunContext, run: Run) -> Outcome | Deferral:
        """Start the workflow of a run, and await its end."""
        database, loop = self._database, self._loop
        if database is None or loop is None:
            return Failed("the worker is stopping")
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(start(database, run), loop))


async def start(database: Database, run: Run) -> Outcome | Deferral:
    """Start the workflow of a run, or find the one that it has started, and await its end."""
    target = run.policy.target
    if not isinstance(target, WorkflowTarget):
        return Failed("the run has no workflow that this version of Duly can read", retryable=False)
    try:
        workflow = workflow_of(target, run.metadata.request_id, run.metadata.traceparent)
        await submit_workflow(database, run.tenant, str(run.run_id), workflow, for_run=run)
    except Refused as error:
        return Failed(str(error), retryable=False)
    return Awaited(WITHIN_SECONDS)  # also for one that has ended: settling checks whether that still holds
