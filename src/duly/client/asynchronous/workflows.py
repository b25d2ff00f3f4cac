"""Workflows: start them, look at them and their nodes, and have them stopped, held or done again."""

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
    """Workflows. Each POST carries a key, made once for the call unless `key` is given, so that it is done once."""

    async def create(self, workflow: WorkflowSpec | Mapping[str, Any], *, key: str | None = None) -> StartedWorkflow:
        """Start a workflow, whole: durable when this returns. What `duly.Workflow.spec()` gives can be sent as it is.

        Raises Invalid, whose `errors` lead to each thing that is wrong.
        """
        return await self._line.ask(posting(path("workflows"), StartedWorkflow, workflow, key=key))

    def list(self, filter: str | None = None, *, page_size: int | None = None) -> AsyncIterator[WorkflowSummary]:
        """Return the workflows that fit a filter, the newest first; pages are read as they are needed."""
        return self._line.pages(listing(path("workflows"), WorkflowSummary, filter=filter, page_size=page_size))

    async def get(self, workflow_id: Id) -> Workflow:
        """Read a workflow as it stands, with all its nodes. Raises NotFound."""
        return await self._line.ask(getting(path("workflows", workflow_id), Workflow))

    async def node(self, workflow_id: Id, node: str) -> NodeResult:
        """Read a node as it stands, with its result. Raises NotFound."""
        return await self._line.ask(getting(path("workflows", workflow_id, "nodes", node), NodeResult))

    async def cancel(self, workflow_id: Id, *, reason: str | None = None) -> WorkflowStatus:
        """Let no node start any more, and ask those that run to stop. Raises NotFound."""
        return await self._line.ask(
            posting(path("workflows", workflow_id, "cancel"), WorkflowStatus, given(reason=reason))
        )

    async def pause(self, workflow_id: Id) -> WorkflowStatus:
        """Let no further node start for now; those that run go on. Raises NotFound, Conflict."""
        return await self._line.ask(posting(path("workflows", workflow_id, "pause"), WorkflowStatus))

    async def resume(self, workflow_id: Id) -> WorkflowStatus:
        """Let a workflow go on. Raises NotFound, Conflict."""
        return await self._line.ask(posting(path("workflows", workflow_id, "resume"), WorkflowStatus))

    async def replay(
        self, workflow_id: Id, node: str, *, dry_run: bool = False, key: str | None = None
    ) -> WorkflowReplayed:
        """Run a node again, and all that follow from it; the others keep their results. Raises NotFound, Conflict.

        A dry run says what that would do, and does nothing.
        """
        where = path("workflows", workflow_id, "replay")
        body = {"node": node, **({"dry_run": True} if dry_run else {})}
        return await self._line.ask(posting(where, WorkflowReplayed, body, key=key))

    async def add_nodes(
        self, workflow_id: Id, node: str, fence: int, nodes: Mapping[str, Any], *, key: str | None = None
    ) -> NodesAdded:
        """Add nodes in the name of one that runs, under the fence of its run. Raises NotFound, Conflict, Invalid."""
        body = {"node": node, "fence": fence, "nodes": nodes}
        return await self._line.ask(posting(path("workflows", workflow_id, "nodes"), NodesAdded, body, key=key))
