"""The desk for workflows: of a database, or of a Duly over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, Protocol
from uuid import UUID

import msgspec

from duly.cli.connect import is_remote, opened_by_hand
from duly.cli.desk import Row
from duly.cli.egress import submitted_check
from duly.cli.paging import gather
from duly.client.asynchronous.client import AsyncClient
from duly.domain.errors import DulyError, NotFound
from duly.domain.fields import non_defaults
from duly.domain.jobs.filter import WORKFLOWS, parse
from duly.domain.jobs.spec_of import workflow_spec_of
from duly.domain.runs.payload import read_anyhow
from duly.domain.runs.run import TENANT_DEFAULT
from duly.domain.targets.addresses import called_in
from duly.domain.workflows.told import told_nodes
from duly.domain.workflows.workflow import Workflow
from duly.moves.workflows import workflows as moves
from duly.moves.workflows.workflows import Replay
from duly.outbound.shapes import Check
from duly.settings import Settings
from duly.store.connection import hints
from duly.store.connection.database import Database
from duly.store.reads import lists
from duly.store.tables import workflows

_DEADLINE_SECONDS = 20.0
_PAGE = 200


class WorkflowDesk(Protocol):
    """What commands ask for. What is not there raises NotFound; what is refused, Refused."""

    async def submit(self, workflow: Workflow, key: str) -> UUID:
        """Make a workflow durable, whole."""
        ...

    async def list(self, filter_text: str, limit: int) -> Sequence[Row]:
        """List workflows."""
        ...

    async def get(self, workflow_id: UUID) -> Row:
        """Read a workflow with its nodes."""
        ...

    async def result(self, workflow_id: UUID, node: str) -> Any:
        """Read what a node came to."""
        ...

    async def cancel(self, workflow_id: UUID, reason: str) -> str:
        """Cancel a workflow, and say how it stands."""
        ...

    async def pause(self, workflow_id: UUID) -> str:
        """Let no further node start, and say how it stands."""
        ...

    async def resume(self, workflow_id: UUID) -> str:
        """Let a workflow go on, and say how it stands."""
        ...

    async def replay(self, workflow_id: UUID, node: str, *, is_dry: bool) -> Replay:
        """Run a node again and all that follow from it, or say what that would do."""
        ...


@asynccontextmanager
async def at_workflows(settings: Settings) -> AsyncIterator[WorkflowDesk]:
    """Go to the desk that the settings name."""
    if is_remote(settings):
        async with AsyncClient(settings.url, settings.api_key, deadline=_DEADLINE_SECONDS) as client:
            yield HttpWorkflows(client)
    else:
        async with opened_by_hand(settings) as database:
            yield DatabaseWorkflows(database, submitted_check(settings))


class DatabaseWorkflows:
    """Asks the database."""

    def __init__(self, database: Database, check_call: Check) -> None:
        self._database = database
        self._check_call = check_call

    async def submit(self, workflow: Workflow, key: str) -> UUID:
        """Make a workflow durable, whole."""
        for url in called_in(workflow):
            self._check_call(url)
        made = await moves.submit_workflow(self._database, TENANT_DEFAULT, key, workflow)
        await self._wake({node.submission.queue for node in workflow.nodes if not node.after})
        return made.workflow_id

    async def list(self, filter_text: str, limit: int) -> Sequence[Row]:
        """List workflows."""
        read = partial(lists.workflows, self._database, TENANT_DEFAULT, parse(filter_text, WORKFLOWS))
        return [{name: row[name] for name in _LISTED} for row in await gather(read, limit)]

    async def get(self, workflow_id: UUID) -> Row:
        """Read a workflow with its nodes."""
        found = await workflows.find(self._database, TENANT_DEFAULT, workflow_id)
        if found is None:
            raise _not_found(workflow_id)
        return {**{name: found[name] for name in _SHOWN}, "nodes": told_nodes(found["nodes"])}

    async def result(self, workflow_id: UUID, node: str) -> Any:
        """Read what a node came to."""
        found = await workflows.node_result(self._database, TENANT_DEFAULT, workflow_id, node)
        if found is None:
            raise NotFound(f"workflow {workflow_id} has no node {node!r}; `duly workflows show` shows them")
        return None if found["result"] is None else read_anyhow(found["result"])

    async def cancel(self, workflow_id: UUID, reason: str) -> str:
        """Cancel a workflow, and say how it stands."""
        return await moves.cancel_workflow(self._database, TENANT_DEFAULT, workflow_id, reason)

    async def pause(self, workflow_id: UUID) -> str:
        """Let no further node start, and say how it stands."""
        return await moves.pause_workflow(self._database, TENANT_DEFAULT, workflow_id)

    async def resume(self, workflow_id: UUID) -> str:
        """Let a workflow go on, and say how it stands."""
        return await moves.resume_workflow(self._database, TENANT_DEFAULT, workflow_id)

    async def replay(self, workflow_id: UUID, node: str, *, is_dry: bool) -> Replay:
        """Run a node again and all that follow from it, or say what that would do."""
        move = moves.plan_replay if is_dry else moves.replay_workflow
        return await move(self._database, TENANT_DEFAULT, workflow_id, node)

    async def _wake(self, queues: set[str]) -> None:
        with suppress(DulyError):  # A hint that is lost costs a moment.
            await hints.send(self._database, sorted(queues))


class HttpWorkflows:
    """Asks a Duly over HTTP."""

    def __init__(self, client: AsyncClient) -> None:
        self._asked = client.workflows

    async def submit(self, workflow: Workflow, key: str) -> UUID:
        """Make a workflow durable, whole."""
        return (await self._asked.create(non_defaults(workflow_spec_of(workflow)), key=key)).workflow_id

    async def list(self, filter_text: str, limit: int) -> Sequence[Row]:
        """List workflows."""
        rows: list[Row] = []
        async for one in self._asked.list(filter_text or None, page_size=min(limit, _PAGE)):
            rows.append(msgspec.structs.asdict(one))
            if len(rows) == limit:
                break
        return rows

    async def get(self, workflow_id: UUID) -> Row:
        """Read a workflow with its nodes."""
        found = await self._asked.get(workflow_id)
        nodes = [
            {
                **msgspec.structs.asdict(node),
                "target": msgspec.structs.asdict(node.target),
                "after": [msgspec.structs.asdict(edge) for edge in node.after],
            }
            for node in found.nodes
        ]
        return {**msgspec.structs.asdict(found), "nodes": nodes}

    async def result(self, workflow_id: UUID, node: str) -> Any:
        """Read what a node came to."""
        return (await self._asked.node(workflow_id, node)).result

    async def cancel(self, workflow_id: UUID, reason: str) -> str:
        """Cancel a workflow, and say how it stands."""
        return (await self._asked.cancel(workflow_id, reason=reason)).state

    async def pause(self, workflow_id: UUID) -> str:
        """Let no further node start, and say how it stands."""
        return (await self._asked.pause(workflow_id)).state

    async def resume(self, workflow_id: UUID) -> str:
        """Let a workflow go on, and say how it stands."""
        return (await self._asked.resume(workflow_id)).state

    async def replay(self, workflow_id: UUID, node: str, *, is_dry: bool) -> Replay:
        """Run a node again and all that follow from it, or say what that would do."""
        done = await self._asked.replay(workflow_id, node, dry_run=is_dry)
        return Replay(done.nodes, done.remade, done.kept)


def _not_found(workflow_id: UUID) -> NotFound:
    return NotFound(f"no workflow {workflow_id}; `duly workflows` lists them")


_LISTED = ("workflow_id", "name", "state", "tags", "nodes", "submitted_at", "ended_at", "reason")
_SHOWN = ("workflow_id", "name", "state", "tags", "submitted_at", "ended_at", "reason", "run_id", "replays")
