"""`workflows`: how fast nodes follow each other, and how many a second when there are many.

First chains of three nodes, one at a time, on a system with nothing else to do: from the end of a node to the start of the next,
as recorded. Then workflows of a → width → z, submitted in one transaction, so that idle workers see all of them together; the
clock runs from its commit to the last settle. The baseline drains as many bare rows as there are nodes. Latency and skew are
those of the chains' edges.
"""

from __future__ import annotations

import asyncio
import random
from time import monotonic
from typing import Annotated

import msgspec

from duly.bench import audit
from duly.bench.app import NOOP, one_shot
from duly.bench.baseline import Baseline
from duly.bench.bench import REPORT_SECONDS, Bench
from duly.bench.report import Result, percentiles, rate
from duly.domain.runs.run import QUEUE_DEFAULT, TENANT_DEFAULT
from duly.domain.workflows.workflow import Edge, Node, Workflow
from duly.moves.workflows.workflows import submit_workflow
from duly.store.connection import hints
from duly.store.connection.database import Database

_CHAIN = 3
_SLOWEST_PER_SECOND = 300
_EDGES = """
select date_part('epoch', child.started_at - parent.finished_at) from duly.workflow_edges as edge
  join duly.workflow_nodes as before on before.workflow_id = edge.workflow_id and before.name = edge.parent
  join duly.workflow_nodes as after on after.workflow_id = edge.workflow_id and after.name = edge.child
  join duly.attempts as parent on parent.run_id = before.run_id
  join duly.attempts as child on child.run_id = after.run_id
"""
_UNENDED = "select count(*) from duly.workflows where state <> 'succeeded'"


class Options(msgspec.Struct, frozen=True):
    """The size of the scenario."""

    workflows: Annotated[int, "How many, each a → width → z."] = 1_000
    width: Annotated[int, "Nodes between the first and the last."] = 100
    chains: Annotated[int, "Chains of three nodes, one at a time."] = 200
    pause_ms: Annotated[int, "Between two chains, about."] = 30


async def measure(bench: Bench, options: Options) -> Result:
    """Follow chains of nodes at idle, and run many wide workflows."""
    nodes = options.workflows * (options.width + 2)
    baseline = Baseline(bench.scratch.url, nodes)
    with bench.steps.step("baseline"):
        await baseline.run()
    edges = await _chains(bench, options)
    async with bench.database() as database:
        async with bench.roles(report_seconds=REPORT_SECONDS) as roles:
            submit_seconds, began = await _submit(bench, database, options)
            await hints.send(database, [QUEUE_DEFAULT])
            costs = bench.costs(roles)
            await bench.settled(roles, nodes, 20 + nodes / _SLOWEST_PER_SECOND, f"{nodes:,} nodes run")
            seconds, spent = roles.reported_at - began, costs.spent()
        verdict = await audit.of_one_shots(database, nodes)
        unended: int = await database.fetchval(_UNENDED)
    return Result(
        runs_per_second=rate(nodes, seconds),
        baseline_per_second=baseline.bare.drain_per_second,
        verdict=msgspec.structs.replace(verdict, lost=verdict.lost + unended),
        latency_ms=percentiles(edges),
        skew_ms=percentiles(edges),
        more={
            "seconds": round(seconds, 3),
            "nodes": nodes,
            "submitted_per_second": rate(nodes, submit_seconds),
            "cpu_us_per_run": spent.per_run(nodes),
            "edge_ms": percentiles(edges),
        },
    )


async def _chains(bench: Bench, options: Options) -> list[float]:
    """Run chains one at a time. Returns the seconds from the end of each node to the start of the next."""
    chain = Workflow("chain", tuple(_node(number, [number - 1] if number else []) for number in range(_CHAIN)))
    async with bench.database() as database, bench.roles(report_seconds=REPORT_SECONDS) as roles:
        with bench.steps.step(f"{options.chains:,} chains", options.chains) as advance:
            for number in range(options.chains):
                await submit_workflow(database, TENANT_DEFAULT, f"chain-{number}", chain)
                await hints.send(database, [QUEUE_DEFAULT])
                await asyncio.sleep(options.pause_ms / 1000 * random.uniform(0.5, 1.5))
                advance(number)
        await roles.until(lambda: roles.settled >= _CHAIN * options.chains, 30, "settling the last chain")
        return [row[0] for row in await database.fetch(_EDGES)]


async def _submit(bench: Bench, database: Database, options: Options) -> tuple[float, float]:
    """Submit all workflows in one transaction. Gives the seconds that it took, and the monotonic moment of its commit."""
    width = options.width
    middle = tuple(_node(number, [0]) for number in range(1, width + 1))
    wide = Workflow("wide", (_node(0, []), *middle, _node(width + 1, list(range(1, width + 1)))))
    began = monotonic()
    with bench.steps.step(f"{options.workflows:,} workflows submitted", options.workflows) as advance:
        async with database.transaction() as connection:
            for number in range(options.workflows):
                await submit_workflow(connection, TENANT_DEFAULT, f"wide-{number}", wide)
                advance(number)
    ended = monotonic()
    return ended - began, ended


def _node(number: int, depends_on: list[int]) -> Node:
    return Node(f"n{number}", one_shot(NOOP), tuple(Edge(f"n{parent}") for parent in depends_on))
