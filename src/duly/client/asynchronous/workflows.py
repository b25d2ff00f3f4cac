"""Workflows: start, read, cancel, pause and replay them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

from duly.client.asynchronous.transport import AsyncResource
from duly.client.requests import Id, getting, given, listing, path, posting
from duly.domain.jobs.spec import WorkflowSpec
from duly.wire.workflows import (
    NodeResult,
    NodesAdded,
    StartedWorkflow,
    Workflow,
    WorkflowReplayed,
    WorkflowStatus,
    WorkflowSummary,
)


class AsyncWorkflows(AsyncResource):
    """Workflows. Each POST carries an idempotency key, made once for the call unless `key` is given."""

    async def create(self, workflow: WorkflowSpec | Mapping[str, Any], *, key: str | None = None) -> StartedWorkflow:
        """Start a whole workflow: durable when this returns. The value of `duly.Workflow.spec()` can be sent as it is.

        Raises Invalid, whose `errors` list each problem.
        """
        return await self._transport.send(posting(path("workflows"), StartedWorkflow, workflow, key=key))

    def list(self, filter: str | None = None, *, page_size: int | None = None) -> AsyncIterator[WorkflowSummary]:
        """Return the workflows that match a filter, the newest first; pages are read as they are needed."""
        return self._transport.pages(listing(path("workflows"), WorkflowSummary, filter=filter, page_size=page_size))

    async def get(self, workflow_id: Id) -> Workflow:
        """Read a workflow, with all its nodes. Raises NotFound."""
        return await self._transport.send(getting(path("workflows", workflow_id), Workflow))

    async def node(self, workflow_id: Id, node: str) -> NodeResult:
        """Read a node, with its result. Raises NotFound."""
        return await self._transport.send(getting(path("workflows", workflow_id, "nodes", node), NodeResult))

    async def cancel(self, workflow_id: Id, *, reason: str | None = None) -> WorkflowStatus:
        """Cancel a workflow: no node starts any more, and active ones are asked to stop. Raises NotFound."""
        return await self._transport.send(
            posting(path("workflows", workflow_id, "cancel"), WorkflowStatus, given(reason=reason))
        )

    async def pause(self, workflow_id: Id) -> WorkflowStatus:
        """Pause a workflow: no further node starts; active ones go on. Raises NotFound, Conflict."""
        return await self._transport.send(posting(path("workflows", workflow_id, "pause"), WorkflowStatus))

    async def resume(self, workflow_id: Id) -> WorkflowStatus:
        """Resume a workflow. Raises NotFound, Conflict."""
        return await self._transport.send(posting(path("workflows", workflow_id, "resume"), WorkflowStatus))

    async def replay(
        self, workflow_id: Id, node: str, *, dry_run: bool = False, key: str | None = None
    ) -> WorkflowReplayed:
        """Replay a node and its descendants; the others keep their results. Raises NotFound, Conflict.

        A dry run returns the plan, and changes nothing.
        """
        where = path("workflows", workflow_id, "replay")
        body = {"node": node, **({"dry_run": True} if dry_run else {})}
        return await self._transport.send(posting(where, WorkflowReplayed, body, key=key))

    async def add_nodes(
        self, workflow_id: Id, node: str, fence: int, nodes: Mapping[str, Any], *, key: str | None = None
    ) -> NodesAdded:
        """Add nodes on behalf of a running one, under the fence of its run. Raises NotFound, Conflict, Invalid."""
        body = {"node": node, "fence": fence, "nodes": nodes}
        return await self._transport.send(posting(path("workflows", workflow_id, "nodes"), NodesAdded, body, key=key))
