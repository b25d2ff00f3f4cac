"""Handles on workflows: their state and results, and actions on them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec

from duly.domain.errors import DulyError, NotFound
from duly.domain.jobs.job import check_reason
from duly.domain.workflows.described import described_nodes
from duly.domain.workflows.workflow import FINAL
from duly.moves.workflows import workflows as moves
from duly.sdk.background import sync_twin
from duly.sdk.waiting import until_final
from duly.store.connection.database import Database
from duly.store.tables import workflows

if TYPE_CHECKING:
    from duly.sdk.app import App


class WorkflowFailed(DulyError):
    """An awaited workflow has not succeeded; `failed` names the nodes that did not, each with its reason."""

    def __init__(self, found: Mapping[str, Any]) -> None:
        self.workflow_id: UUID = found["workflow_id"]
        self.state: str = found["state"]
        self.failed: dict[str, str | None] = {
            node["name"]: node["reason"] for node in found["nodes"] if node["state"] in ("failed", "expired")
        }
        nodes = "; ".join(f"{name}: {reason}" if reason else name for name, reason in self.failed.items())
        why = nodes or found["reason"]
        super().__init__(f"workflow {found['name']} {self.workflow_id} is {self.state}" + (f": {why}" if why else ""))


class WorkflowHandle:
    """One submitted workflow."""

    __slots__ = ("_app", "name", "replayed", "workflow_id")

    def __init__(self, app: App, workflow_id: UUID, name: str | None = None, *, replayed: bool = False) -> None:
        self._app = app
        self.workflow_id = workflow_id
        self.name = name
        self.replayed = replayed

    async def status(self) -> str:
        """Return its state: running, paused, cancelling, succeeded, failed or cancelled. Raises NotFound."""
        state = await workflows.state(await self._database(), self._app.tenant, self.workflow_id)
        if state is None:
            raise self._not_found()
        return state

    async def nodes(self) -> dict[str, dict[str, Any]]:
        """Return the state of each node, by its name. Raises NotFound."""
        return {node["name"]: node for node in described_nodes((await self._found())["nodes"])}

    async def wait(self, timeout: float | None = None) -> str:
        """Wait until it has ended, and return its state. Raises TimeoutError after `timeout` seconds."""
        return await self._final(timeout)

    async def result(self, node: str | None = None, timeout: float | None = None) -> Any:
        """Wait until it has ended, and return the result of a node; without one, those of the last nodes that
        succeeded, by name.

        Raises WorkflowFailed when it has not succeeded, NotFound when it has no such node or the result is not stored,
        or TimeoutError after `timeout` seconds.
        """
        state = await self._final(timeout)
        if state == "succeeded" and node is not None:
            return await self._result(node)
        found = await self._found()
        if state != "succeeded":
            raise WorkflowFailed(found)
        done = [one for one in found["nodes"] if one["state"] == "succeeded"]
        depended_on = {edge["node"] for one in done for edge in one["parents"]}
        return {one["name"]: await self._result(one["name"]) for one in done if one["name"] not in depended_on}

    async def cancel(self, reason: str = "cancelled on request") -> str:
        """Cancel it: no node starts any more, and active ones are asked to stop. Returns its state. Raises NotFound."""
        return await moves.cancel_workflow(
            await self._database(), self._app.tenant, self.workflow_id, check_reason(reason)
        )

    async def pause(self) -> str:
        """Pause it: no further node starts; active ones go on. Raises NotFound."""
        return await moves.pause_workflow(await self._database(), self._app.tenant, self.workflow_id)

    async def resume(self) -> str:
        """Resume it. Raises NotFound."""
        return await moves.resume_workflow(await self._database(), self._app.tenant, self.workflow_id)

    async def replay(self, node: str) -> list[str]:
        """Replay a node and its descendants; the others keep their results. Returns their names.

        Raises NotFound, Refused while some of them are active.
        """
        return (await moves.replay_workflow(await self._database(), self._app.tenant, self.workflow_id, node)).nodes

    # For plain functions.
    status_sync = sync_twin(status)
    nodes_sync = sync_twin(nodes)
    wait_sync = sync_twin(wait)
    result_sync = sync_twin(result)
    cancel_sync = sync_twin(cancel)
    pause_sync = sync_twin(pause)
    resume_sync = sync_twin(resume)
    replay_sync = sync_twin(replay)

    def __repr__(self) -> str:
        return f"<WorkflowHandle of {self.name or 'a workflow'} {self.workflow_id}>"

    async def _database(self) -> Database:
        return await self._app.connections.database()

    async def _found(self) -> Mapping[str, Any]:
        found = await workflows.find(await self._database(), self._app.tenant, self.workflow_id)
        if found is None:
            raise self._not_found()
        return found

    def _not_found(self) -> NotFound:
        return NotFound(f"no workflow {self.workflow_id}: it was not committed, or it is no longer kept")

    async def _result(self, node: str) -> Any:
        found = await workflows.node_result(await self._database(), self._app.tenant, self.workflow_id, node)
        if found is None:
            raise NotFound(f"workflow {self.workflow_id} has no node {node!r}; nodes() names them")
        if found["result"] is not None:
            return msgspec.json.decode(found["result"])
        if found["state"] == "succeeded" and found["reason"] is not None:
            raise NotFound(f"node {node!r} of workflow {self.workflow_id} has no result: {found['reason']}")
        return None

    async def _final(self, timeout: float | None) -> str:
        """Look until it has ended. Raises NotFound, TimeoutError."""

        async def look() -> tuple[str, str]:
            state = await self.status()
            return state, state

        clock = (await self._database()).clock
        return await until_final(clock, look, FINAL, f"workflow {self.workflow_id}", timeout)
