"""Runs whose target is a workflow: one starts it, and is awaited until it has ended."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import msgspec

from duly.clock import Rng
from duly.domain.runs.outcome import Cancelled, Failed, Outcome, Succeeded
from duly.domain.workflows.workflow import FINAL, WorkflowState
from duly.log import Log
from duly.moves.settle import Settled, settle_by_key
from duly.store.boxes import awaited
from duly.store.connection.database import Database
from duly.store.connection.refusals import BAD_ROW
from duly.store.connection.together import together
from duly.store.tables import workflows
from duly.store.tables.workflows import ToSettle

BATCH_MAX = 100
_NOT_AWAITED_DELAY = timedelta(seconds=0.5)


def outcome_of(workflow_id: UUID, name: str, state: WorkflowState, reason: str | None) -> Outcome:
    """Return the outcome of a run whose workflow has ended so."""
    match state:
        case WorkflowState.SUCCEEDED:
            return Succeeded(msgspec.json.encode({"workflow_id": workflow_id, "state": state}).decode())
        case WorkflowState.CANCELLED:
            return Cancelled(f"workflow {workflow_id} was cancelled: {reason or 'cancelled'}")
    assert state is WorkflowState.FAILED, state
    return Failed(
        f"workflow {name} failed; `duly workflows show {workflow_id}` shows where; `duly workflows replay` runs a node again",
        retryable=False,
    )


async def settle_ended(database: Database, rng: Rng, log: Log | None = None) -> int:
    """Settle the runs whose workflow has ended.

    A run that is not awaited yet is left for the next look, and one that the store refuses for later ones.
    """
    settled = 0
    for one in await workflows.to_settle(database, BATCH_MAX):
        state = WorkflowState(one.state)
        if state in FINAL and one.is_live:
            if not one.is_awaited:
                await workflows.postpone_workflow_task(database, one.task_id, _NOT_AWAITED_DELAY)
                continue
            try:
                settled += await _settle(database, one, state, rng)
            except BAD_ROW as error:
                (log or Log("maintenance")).error("settle_refused", run_id=one.run_id, error=repr(error))
                await workflows.postpone_failed_workflow_task(database, one.task_id)
                continue
        await workflows.drop_workflow_task(database, one.task_id)
    return settled


async def _settle(database: Database, one: ToSettle, state: WorkflowState, rng: Rng) -> int:
    assert one.run_id is not None
    assert one.fence is not None
    handle = (one.run_id, one.fence)
    under_way = await awaited.find(database, handle)
    if under_way is None:
        return 0
    ended = Settled(under_way.run, under_way.started_at, None, outcome_of(one.workflow_id, one.name, state, one.reason))

    async def settle_if_ended(opened: Database) -> int:
        there = await settle_by_key(opened, awaited.RECEIVER, [ended], rng)
        # Read last, because a workflow is locked after concurrency keys: a later replay finds its run where this has
        # put it.
        if await workflows.lock_end(opened, one.workflow_id) != (state, one.replays):
            raise _Reopened
        await awaited.close(opened, handle)
        return len(there)

    try:
        return await together(database, settle_if_ended)
    except _Reopened:
        return 0


class _Reopened(Exception):
    """The workflow was replayed meanwhile: its run waits for another end."""
