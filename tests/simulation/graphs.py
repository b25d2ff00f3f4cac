"""Workflows with everything: edges for every end, maps, nodes added from within; and somebody who pauses, cancels, replays."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from duly.domain.errors import NotFound, Unsettled, WorkflowChanged
from duly.domain.jobs.job import Submission
from duly.domain.runs.run import TENANT_DEFAULT
from duly.domain.workflows.references import Reference
from duly.domain.workflows.workflow import Edge, Node, On, Workflow, is_item
from duly.moves.workflows.workflows import (
    add_nodes,
    cancel_workflow,
    pause_workflow,
    replay_workflow,
    resume_workflow,
    submit_workflow,
)
from duly.store.boxes.options import decode
from duly.store.connection.database import Unavailable
from tests.simulation.ledger import Script
from tests.simulation.part import Part
from tests.simulation.processes import QUEUES, draw_acts, options_of, payload_of
from tests.simulation.world import Role

if TYPE_CHECKING:
    from random import Random

    from duly.worker.context import RunContext
    from tests.simulation.world import Process, World

ITEMS_MAX = 3
_PAUSED_SECONDS = 2.0
_STATE = "select state::text from duly.workflows where workflow_id = $1"
_NODES = "select name, state, run_id, ended_at from duly.workflow_nodes where workflow_id = $1"
_WORKFLOW_OF = "select workflow_id, name from duly.workflow_nodes where run_id = any ($1::uuid[])"
# The ends of nodes, in their order, also of those that follow within the database from others. A map that is done had no run.
_ENDS = """
select run_id, array_agg(became::text order by xid) as ends, min(metadata->'node'->>0) as workflow_id,
       bool_or(reason is not distinct from 'its map is replayed') as is_replayed
  from duly.attempts
 where became in ('succeeded', 'cancelled', 'expired') and outcome <> 'fenced'
   and (metadata ? 'node' or reason = 'its map is replayed') and not (fence is null and became = 'succeeded') group by run_id
"""
_SIGNALS = """
select worker_id, run_id, fence, workflow_id from duly.signals join duly.workflow_nodes using (run_id) where kind = 'cancel'
"""
_ITEM_RUNS = """
select duly.node_run_id($1, name || '[' || number || ']') as run_id
  from unnest($2::text[]) as name cross join generate_series(0, $3::integer) as number
"""


class Graphs(Part):
    """What our record says of nodes is learned where the database ends them by itself; checks.py judges the ends."""

    name = "graphs"
    counted = (
        "workflow_paused",
        "workflow_resumed",
        "workflow_cancelled",
        "workflow_replayed",
        "nodes_added",
        "items_run",
    )

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._paused_since: dict[UUID, float] = {}

    def populate(self) -> None:
        self.world.add(Role("graphs", self._submit, is_once=True))
        self.world.add(Role("conductor", self._conduct))

    # ------------------------------------------------------------------------------------------------ what people do

    async def _submit(self, process: Process) -> None:
        random, database = process.random, process.database()
        for number in range(random.randint(2, 3)):
            await asyncio.sleep(random.uniform(0, self.plan.storm_seconds / 4))
            workflow = self._a_workflow(random)
            for _ in range(30):
                try:
                    answer = await submit_workflow(database, TENANT_DEFAULT, f"{process.name}/{number}", workflow)
                except Unavailable:
                    await asyncio.sleep(random.uniform(0.05, 1))
                    continue
                self.ledger.workflows[answer.workflow_id] = workflow
                break

    def _a_workflow(self, random: Random) -> Workflow:
        nodes: list[Node] = []
        for number in range(random.randint(3, 7)):
            parents = random.sample(nodes, min(len(nodes), random.randint(0, 3)))
            depends_on = tuple(Edge(parent.name, random.choice((On.SUCCESS, On.SUCCESS, *On))) for parent in parents)
            lists = [node.name for node in nodes if "list" in node.name]
            if random.random() < (0.3 if lists else 0.7):
                nodes.append(
                    Node(f"list-{number}", _node(random, ["fail"] * random.randint(0, 1) + ["list"]), depends_on)
                )
            elif lists and random.random() < 0.5:
                behind = (Edge(lists[0]), *(edge for edge in depends_on if edge.parent != lists[0]))
                nodes.append(Node(f"map-{number}", self._drawn(random), behind, map=Reference(lists[0])))
            elif random.random() < 0.2:
                nodes.append(Node(f"add-{number}", _node(random, ["add"]), depends_on))
            else:
                nodes.append(Node(f"n{number}", self._drawn(random), depends_on))
        return Workflow("simulated", tuple(nodes))

    def _drawn(self, random: Random) -> Submission:
        return _submission(random, draw_acts(random, self.world))

    async def add_nodes(self, process: Process, run: RunContext) -> None:
        if run.workflow_id is None:
            return
        added = [Node(f"{run.node}.{number}", _node(process.random, ["quick"])) for number in range(2)]
        await add_nodes(process.database(), TENANT_DEFAULT, run.id, run.fence, added)
        self.world.count("nodes_added")

    async def _conduct(self, process: Process) -> None:
        random, database = process.random, process.database()
        while True:
            await asyncio.sleep(0.5 if self.world.is_calm else random.expovariate(1 / 1.5))
            try:
                for workflow_id in sorted(self.ledger.workflows) if self.world.is_calm else ():
                    await self._resume(database, workflow_id)
                if self.ledger.workflows and not self.world.is_calm:
                    await self._meddle(database, random)
            except (Unavailable, NotFound, WorkflowChanged, Unsettled):
                continue

    async def _meddle(self, database: Any, random: Random) -> None:
        workflow_id = random.choice(sorted(self.ledger.workflows))
        match random.choice(("pause", "resume", "resume", "replay", "replay", "cancel")):
            case "pause":
                await pause_workflow(database, TENANT_DEFAULT, workflow_id)
                self.world.count("workflow_paused")
            case "resume":
                await self._resume(database, workflow_id)
            case "cancel" if random.random() < 0.5:
                await cancel_workflow(database, TENANT_DEFAULT, workflow_id)
            case "replay":
                names = [node.name for node in self.ledger.workflows[workflow_id].nodes]
                await replay_workflow(database, TENANT_DEFAULT, workflow_id, random.choice(names))

    async def _resume(self, database: Any, workflow_id: UUID) -> None:
        was_paused = workflow_id in self._paused_since
        try:
            await resume_workflow(database, TENANT_DEFAULT, workflow_id)
        except WorkflowChanged:
            return
        self.world.struck["workflow_resumed"] += was_paused

    # ------------------------------------------------------------------------------------------------- what we saw

    def _on_workflows_pause_workflow(
        self, process: Process, args: Sequence[Any], rows: list[Any], at: datetime
    ) -> None:
        if rows[0][0] == "paused":
            self._paused_since.setdefault(args[1], self.world.now)

    def _on_workflows_resume_workflow(
        self, process: Process, args: Sequence[Any], rows: list[Any], at: datetime
    ) -> None:
        if rows[0][0] != "paused":  # It may have ended meanwhile, and runs again when a node is replayed.
            self._paused_since.pop(args[1], None)

    def _on_workflows_cancel_workflow(
        self, process: Process, args: Sequence[Any], rows: list[Any], at: datetime
    ) -> None:
        if rows[0][0] in ("cancelling", "cancelled"):
            self.ledger.cancelled_workflows.add(args[1])
            self._paused_since.pop(args[1], None)
            self.world.count("workflow_cancelled")
            self._learn_signals()

    def _on_workflows_run_workflow_task(
        self, process: Process, args: Sequence[Any], rows: list[Any], at: datetime
    ) -> None:
        self._learn_signals()

    def _learn_signals(self) -> None:
        """Hear which runs were asked to stop because their workflow was cancelled."""
        for row in self.world.query(_SIGNALS):
            signal = (row["worker_id"], row["run_id"], row["fence"])
            if signal not in self.ledger.signals and row["workflow_id"] in self.ledger.cancelled_workflows:
                self.ledger.signals.add(signal)
                self.ledger.signalled_at_fence[row["run_id"]] = row["fence"]

    def _on_workflows_replay_workflow(
        self, process: Process, args: Sequence[Any], rows: list[Any], at: datetime
    ) -> None:
        workflow_id, first = args[1], args[2]
        if rows[0][0] != "replayed":
            return
        self.world.count("workflow_replayed")
        if [row["state"] for row in self.world.query(_STATE, workflow_id)] == ["running"]:  # It had ended while paused.
            self._paused_since.pop(workflow_id, None)
        self.ledger.excused_nodes.add((workflow_id, first))
        covered = self._behind(workflow_id, first)
        self._set_back(workflow_id, at, covered)
        for node in self.world.query(_NODES, workflow_id):
            # A map that has no list to run over ends at once.
            if node["name"] in covered and node["ended_at"] is not None and node["ended_at"] < at:
                self.ledger.violate("a replay left out a node behind it", workflow_id, node["name"], node["state"])

    def _behind(self, workflow_id: UUID, first: str) -> set[str]:
        """Find a node and all that was asked for behind it; parents come before their children."""
        behind = {first}
        asked = self.ledger.workflows.get(workflow_id)
        for node in asked.nodes if asked else ():
            if any(edge.parent in behind for edge in node.depends_on):
                behind.add(node.name)
        return behind

    def _on_runs_replay(self, process: Process, args: Sequence[Any], rows: list[Any], at: datetime) -> None:
        for found in self.world.query(_WORKFLOW_OF, [row[0] for row in rows]):
            self._excuse(found["workflow_id"])
            self._set_back(found["workflow_id"], at)

    def _excuse(self, workflow_id: UUID) -> None:
        """Those under way when a dead parent rises go on, though they may have waited for its failure."""
        for node in self.world.query(_NODES, workflow_id):
            if node["state"] == "ready":
                self.ledger.excused_nodes.add((workflow_id, node["name"]))

    def _set_back(self, workflow_id: UUID, at: datetime, covered: Collection[str] = ()) -> None:
        """Open again what a replay has set back, the items of its maps among it.

        Behind a map that has no list to run over, what is covered may be skipped again at once.
        """
        self.learn()
        nodes = self.world.query(_NODES, workflow_id)
        again = {
            node["run_id"]
            for node in nodes
            if node["state"] in ("waiting", "ready") or (node["state"] == "skipped" and node["name"] in covered)
        }
        maps = [node["name"] for node in nodes if node["state"] == "waiting" and node["name"].startswith("map")]
        again |= {row["run_id"] for row in self.world.query(_ITEM_RUNS, workflow_id, maps, ITEMS_MAX)} - {
            node["run_id"] for node in nodes
        }
        for run_id in sorted(again):
            if run_id in self.ledger.final or run_id in self.ledger.dead:
                self.ledger.reopen(run_id, at)

    def learn(self) -> None:
        for row in self.world.query(_ENDS):
            for state in row["ends"][self.ledger.ends[row["run_id"]] :]:
                self._learn_end(row["run_id"], state, row["workflow_id"], is_replayed=row["is_replayed"])

    def _learn_end(self, run_id: UUID, state: str, workflow_id: str | None, *, is_replayed: bool) -> None:
        self.ledger.dead.pop(run_id, None)  # An item that is dead, or waits, goes when its map is replayed.
        is_cancelled = workflow_id is not None and UUID(workflow_id) in self.ledger.cancelled_workflows
        if state != "cancelled" or not (is_replayed or is_cancelled):
            self.ledger.violate("a node ended by itself", run_id, state, workflow_id)
        self.ledger.note_end(run_id, state)

    def on_statement(self, process: Process, name: str, args: Sequence[Any], rows: list[Any], at: datetime) -> None:
        super().on_statement(process, name, args, rows, at)
        if name != "ready.claim":
            return
        for row in rows:
            node = decode(row["options"]).metadata.node
            if node is None:
                continue
            self.world.struck["items_run"] += is_item(node[1])
            since = self._paused_since.get(node[0])
            if since is not None and self.is_prompt and self.world.now - since > _PAUSED_SECONDS:
                self.ledger.violate("a node of a paused workflow was claimed", row["run_id"], node[0])


def _node(random: Random, acts: list[str]) -> Submission:
    return _submission(random, Script(acts, 5, 0.5))


def _submission(random: Random, script: Script) -> Submission:
    options = options_of(script, random)
    return Submission("act", payload_of(script), random.choice(QUEUES), random.randint(0, 9), options=options)
