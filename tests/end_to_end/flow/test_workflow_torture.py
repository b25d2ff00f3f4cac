"""Workflows under `kill -9`: whatever dies, each reaches the end that follows from its nodes', and each node ends once."""

import asyncio
import random
import time
from functools import partial
from pathlib import Path
from uuid import UUID

import msgspec
import pytest

from duly.domain.jobs.job import Submission
from duly.domain.runs.options import options_of
from duly.domain.runs.retry import Retry
from duly.domain.workflows.workflow import Edge, Node, NodeState, On, Workflow, check_workflow
from duly.moves.workflows.workflows import cancel_workflow, submit_workflow
from duly.store.connection.database import Database
from duly.store.tables import workflows
from tests.end_to_end.aftermath import verified
from tests.end_to_end.house import LEASE_SECONDS, House, a_house, wait_until
from tests.graphs import end_of, is_released

FAN = 200
# A run may be lost with its worker, whatever it would have come to, and is tried again at once.
PATIENT = options_of(retry=Retry(max_attempts=50, base_seconds=0.05, cap_seconds=0.1))
ENDED = "select count(*) from duly.workflows where ended_at is not null"


@pytest.mark.timeout(120)
def test_workflows_end_as_they_should_whatever_is_killed(tmp_path):
    torture(tmp_path, wide=2, small=20, cancelled=4, kills=1, seed=1)


@pytest.mark.proof
@pytest.mark.timeout(900)
def test_many_workflows_end_as_they_should_whatever_is_killed(tmp_path):
    torture(tmp_path, wide=20, small=400, cancelled=40, kills=6, seed=2)


def torture(folder: Path, *, wide: int, small: int, cancelled: int, kills: int, seed: int) -> None:
    """Run workflows of all kinds while processes die, and judge what is left."""
    chance = random.Random(seed)
    graphs = [a_fan(chance) for _ in range(wide)] + [a_tangle(chance) for _ in range(small)]
    with a_house(folder) as house:
        house.start_scheduler("scheduler0")
        for number in range(2):
            house.start_worker(f"worker{number}", slots=50)
        told = dict(asyncio.run(submitted(house.url, graphs)))
        wait_until(lambda: count(house, "select count(*) from duly.attempts") > 100, 30, what="the first nodes")
        stopped = chance.sample(sorted(told), cancelled)
        asyncio.run(cancel(house.url, stopped))
        for _ in range(kills):
            house.kill(f"worker{chance.randrange(2)}")
            house.kill("scheduler0")
            house.kill_postgresql()
            until = time.time() + LEASE_SECONDS
            wait_until(partial(has_passed, until), 30)
        wait_until(lambda: count(house, ENDED) == len(told), 60 + wide * 5, what="the end of every workflow", pause=0.2)
        wait_until(lambda: not count(house, "select count(*) from duly.workflow_tasks"), 10, what="the last errand")
        broken, ends = verified(house), asyncio.run(found(house.url, told))
        doubles = house.ask(
            "select run_id, count(*) from duly.attempts where outcome <> 'fenced' and metadata ? 'node'"
            "   and became in ('succeeded', 'dead', 'cancelled', 'expired', 'skipped') group by 1 having count(*) > 1"
        )
    assert broken == []
    assert doubles == []
    for workflow_id, graph in told.items():
        judge(graph, *ends[workflow_id], is_cancelled=workflow_id in stopped)


def judge(graph: Workflow, state: str, nodes: dict[str, str], *, is_cancelled: bool) -> None:
    """Hold the ends of nodes and workflow against what follows from the graph."""
    ends = {name: NodeState(end) for name, end in nodes.items()}
    assert state == end_of(graph.nodes, ends, is_cancelling=is_cancelled and state == "cancelled")
    assert state != "cancelled" or is_cancelled
    for node in graph.nodes:
        if state != "cancelled":
            assert is_released(node, ends) == (ends[node.name] is not NodeState.SKIPPED), node.name
            expected = NodeState.FAILED if '"fails":true' in node.submission.payload else NodeState.SUCCEEDED
            assert ends[node.name] in {expected, NodeState.SKIPPED}, node.name


def a_fan(chance: random.Random) -> Workflow:
    """One node, two hundred behind it, some of which flap, and one that waits for all."""
    middle = [a_node(f"m{number}", ["a"], flaps=int(chance.random() < 0.1)) for number in range(FAN)]
    return checked("fan", [a_node("a", []), *middle, a_node("z", [node.name for node in middle])])


def a_tangle(chance: random.Random) -> Workflow:
    """A graph of a dozen nodes that wait for each other under all conditions; some fail, some flap, some take a while."""
    nodes: list[Node] = []
    for number in range(12):
        parents = chance.sample([node.name for node in nodes], min(len(nodes), chance.randrange(3)))
        depends_on = [Edge(parent, chance.choice(list(On))) for parent in parents]
        kind = chance.random()
        nodes.append(
            a_node(
                f"n{number}",
                depends_on,
                fails=kind < 0.2,
                flaps=1 if 0.2 <= kind < 0.4 else 0,
                seconds=chance.choice([0, 0, 0.2]),
            )
        )
    return checked("tangle", nodes)


def a_node(name: str, depends_on: list[str] | list[Edge], **payload: object) -> Node:
    """Give a node."""
    edges = tuple(edge if isinstance(edge, Edge) else Edge(edge) for edge in depends_on)
    return Node(name, Submission("node", msgspec.json.encode(payload).decode(), "default", 5, options=PATIENT), edges)


def checked(name: str, nodes: list[Node]) -> Workflow:
    """Give a workflow that would be taken."""
    workflow = Workflow(name, tuple(nodes))
    check_workflow(workflow)
    return workflow


async def submitted(url: str, graphs: list[Workflow]) -> list[tuple[UUID, Workflow]]:
    """Submit workflows."""
    async with Database(url) as database:
        return [
            ((await submit_workflow(database, 1, f"torture-{number}", graph)).workflow_id, graph)
            for number, graph in enumerate(graphs)
        ]


async def cancel(url: str, workflow_ids: list[UUID]) -> None:
    """Cancel workflows half-way."""
    async with Database(url) as database:
        for workflow_id in workflow_ids:
            await cancel_workflow(database, 1, workflow_id, "enough")


async def found(url: str, workflow_ids: dict[UUID, Workflow]) -> dict[UUID, tuple[str, dict[str, str]]]:
    """Read how workflows and their nodes have ended."""
    ends = {}
    async with Database(url) as database:
        for workflow_id in workflow_ids:
            whole = await workflows.find(database, 1, workflow_id)
            assert whole is not None
            ends[workflow_id] = (whole["state"], {node["name"]: node["state"] for node in whole["nodes"]})
    return ends


def has_passed(moment: float) -> bool:
    """Say whether a moment has passed."""
    return time.time() > moment


def count(house: House, query: str) -> int:
    """Ask for a number, of a database that may be away for a moment."""
    return int(house.ask(query)[0][0])
