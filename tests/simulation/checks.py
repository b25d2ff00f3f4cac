"""Hold Duly's tables against the ledger: in the middle of a seed what must hold in every snapshot, at its end everything."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

from duly.domain.runs.run_id import occurrence_id
from duly.domain.workflows.workflow import NODE_ENDS, Edge, Node, NodeState, On, is_item
from duly.moves.stage import GRACE
from duly.store.boxes import history
from tests.graphs import end_of, is_released

if TYPE_CHECKING:
    from tests.simulation.world import World

_PLACES = """
select 'timers' as box, run_id, due_at, null::bigint as fence, null::uuid as worker_id from duly.timers where run_id is not null
union all select case when waits_for = 'rate' then 'in turn' else 'blocked' end, run_id, due_at, null, null from duly.blocked
union all select 'ready', run_id, due_at, null, null from duly.ready
union all select 'leased', run_id, due_at, fence, worker_id from duly.leased
union all select 'dead', run_id, due_at, null, null from duly.dead
"""
_ATTEMPTS = """
select run_id, job_id, scheduled_at, attempt, fence, outcome::text, became::text, finished_at, reason, detail::text
  from duly.attempts order by run_id, attempt
"""
_JOBS = """
select jobs.job_id, jobs.state, timers.scheduled_at as next_at
  from duly.jobs left join duly.timers on timers.job_id = jobs.job_id and timers.run_id is null
"""

# Findings of what has been so for minutes: where the clock was set, it may have been so for a moment.
_BY_AGE = {"run waiting for a destination that would take it", "unroutable run although a worker has its handler"}
_JITTERS_MIN = 5
_JITTER_SPREAD_MIN = 0.01


_BESIDE = """
select job_id, count(*) as runs from (
    select job_id, options from duly.ready union all select job_id, options from duly.leased
    union all select job_id, options from duly.blocked
    union all select job_id, options from duly.timers where run_id is not null) as active
 where not coalesce(options ? 'replays', false)
   and job_id in (select job_id from duly.jobs where schedule #>> '{overlap,policy}' = 'skip') group by 1 having count(*) > 1
"""


def check_boxes(world: World) -> None:
    """What must hold in every snapshot."""
    ledger = world.ledger
    ledger.learn()
    for row in world.query(_BESIDE):
        ledger.violate("a schedule that skips overlaps itself", row["job_id"], row["runs"])
    for broken in world.query(history.SQL["verify"]):
        if broken["broken"] in _BY_AGE and world.clock_offset != 0:
            continue
        ledger.violate(f"verify: {broken['broken']}", broken["id"], broken["detail"])
    boxes = world.query(_PLACES)
    leased = {row["run_id"]: (row["fence"], row["worker_id"]) for row in boxes if row["box"] == "leased"}
    seen = {run_id: (lease.fence, lease.worker_id) for run_id, lease in ledger.leases.items()}
    if leased != seen:
        ledger.violate("the leases are not those that were granted", *(leased.items() ^ seen.items()))
    dead = {row["run_id"] for row in boxes if row["box"] == "dead"}
    if dead != ledger.dead.keys():
        ledger.violate("the dead are not those that were buried", *(dead ^ ledger.dead.keys()))
    live = {row["run_id"] for row in boxes}
    for run_id in live & ledger.final.keys():
        ledger.violate("a run is both ended and live", run_id, ledger.final[run_id])
    for run_id in ledger.created.keys() - live - ledger.final.keys():
        ledger.violate("a run was lost", run_id)


def what_waits(world: World) -> list[tuple[str, UUID, datetime]]:
    """List the runs that have not ended, with their due moments."""
    rows = world.query(_PLACES)
    return [(row["box"], row["run_id"], row["due_at"]) for row in rows if row["box"] != "dead"]


def check_end(world: World) -> None:
    """Everything that must hold when the system has come to rest."""
    check_boxes(world)
    attempts = world.query(_ATTEMPTS)
    _check_acknowledged(world)
    _check_attempts(world, attempts)
    _check_occurrences(world, attempts)
    _check_workflows(world, attempts)
    _check_jitter(world)
    for part in world.parts:
        part.check_end()


def _check_jitter(world: World) -> None:
    """Retries must not come in waves: of several, not all wait the same part of their longest delay."""
    jitters = world.ledger.jitters
    if len(jitters) >= _JITTERS_MIN and max(jitters) - min(jitters) < _JITTER_SPREAD_MIN:
        world.ledger.violate("every retry waits the same part of its delay", *jitters)


def _check_workflows(world: World, attempts: list[Any]) -> None:
    """Each workflow has the end that follows from its nodes', each node ended as its edges and its run say."""
    states = {row["workflow_id"]: row["state"] for row in world.query("select workflow_id, state from duly.workflows")}
    nodes: dict[UUID, dict[str, Any]] = defaultdict(dict)
    for row in world.query("select workflow_id, name, state, run_id from duly.workflow_nodes"):
        nodes[row["workflow_id"]][row["name"]] = row
    edges: dict[UUID, dict[str, list[Edge]]] = defaultdict(lambda: defaultdict(list))
    for row in world.query("select workflow_id, parent, child, on_end from duly.workflow_edges"):
        edges[row["workflow_id"]][row["child"]].append(Edge(row["parent"], On(row["on_end"])))
    ran = {row["run_id"] for row in attempts if row["fence"] is not None}
    for workflow_id in world.ledger.workflows:
        _check_workflow(world, workflow_id, states[workflow_id], nodes[workflow_id], edges[workflow_id], ran)


def _check_workflow(
    world: World,
    workflow_id: UUID,
    state: str,
    rows: dict[str, Any],
    edges: dict[str, list[Edge]],
    ran: Collection[UUID],
) -> None:
    ledger, asked = world.ledger, world.ledger.workflows[workflow_id]
    ends = {name: NodeState(row["state"]) for name, row in rows.items()}
    if not ends or not set(ends.values()) <= NODE_ENDS:
        ledger.violate("a workflow has no end", workflow_id, ends)
        return
    # As it is now: nodes may have been added. An item is seen to by its map.
    nodes = [
        Node(name, asked.nodes[0].submission, tuple(edge for edge in edges[name] if not is_item(edge.parent)))
        for name in rows
        if not is_item(name)
    ]
    for node in asked.nodes:
        if node.name not in rows or not set(node.depends_on) <= set(edges[node.name]):
            ledger.violate("a workflow has lost what was asked for", workflow_id, node.name)
    lawful = {str(end_of(nodes, ends, is_cancelling=False))} | (
        {"cancelled"} if workflow_id in ledger.cancelled_workflows else set()
    )
    if state not in lawful:
        ledger.violate("a workflow has an end that does not follow", workflow_id, state, ends)
    for node in nodes:
        _check_node(world, workflow_id, node, rows[node.name], ends, ran)


def _check_node(
    world: World, workflow_id: UUID, node: Node, row: Any, ends: dict[str, NodeState], ran: Collection[UUID]
) -> None:
    ledger, run_id, end = world.ledger, row["run_id"], ends[node.name]
    is_excused = end is NodeState.CANCELLED or (workflow_id, node.name) in ledger.excused_nodes
    if not is_excused and is_released(node, ends) == (end is NodeState.SKIPPED):
        ledger.violate("a node ran though its edges did not hold, or was skipped though they did", run_id, end)
    # What was done before a replay set it back may be skipped the next time.
    if end is NodeState.SKIPPED and run_id in ran and not ledger.attempts_before[run_id]:
        ledger.violate("a node is called skipped that ran", run_id)
    if end is NodeState.SUCCEEDED and run_id in ran and ledger.final.get(run_id) != "succeeded":
        ledger.violate("a node is called succeeded that is not", run_id, ledger.final.get(run_id))


def _check_acknowledged(world: World) -> None:
    ledger = world.ledger
    for run_id in ledger.acknowledged - ledger.final.keys() - ledger.dead.keys() - ledger.schedules.keys():
        ledger.violate("an acknowledged run has no end", run_id)
    for execution in ledger.running():
        ledger.violate("a handler never ended", execution.run_id)


def _check_attempts(world: World, attempts: list[Any]) -> None:
    """One accepted record for each attempt, one final record for each run, and no record of what nobody saw."""
    ledger = world.ledger
    records = [row for row in attempts if row["outcome"] not in ("fenced", "skipped")]
    numbered = Counter((row["run_id"], row["attempt"]) for row in records if row["fence"] is not None)
    for (run_id, attempt), number in numbered.items():
        if number > 1:
            ledger.violate("an attempt has two outcomes", run_id, attempt)
    recorded = {(row["run_id"], row["fence"]): row["outcome"] for row in records if row["fence"] is not None}
    if recorded != ledger.accepted:
        ledger.violate("history is not what was accepted", *(recorded.items() ^ ledger.accepted.items()))
    finals = Counter(row["run_id"] for row in attempts if _is_final(row, ledger.created.keys()))
    if finals != ledger.ends:
        ledger.violate("final records are not one for each end", *((finals - ledger.ends) + (ledger.ends - finals)))


def _is_final(row: Any, submitted: Collection[UUID]) -> bool:
    """Say whether a record is of a run's end; of what is skipped, only a one-shot was a run, and a map that is done was none."""
    if row["outcome"] == "fenced" or (row["became"] == "succeeded" and row["fence"] is None):
        return False
    return row["became"] in ("succeeded", "cancelled", "expired") or (
        row["became"] == "skipped" and row["run_id"] in submitted
    )


def _check_occurrences(world: World, attempts: list[Any]) -> None:
    """Each moment of each schedule has exactly one run, or stands in exactly one record of what was skipped."""
    jobs = {row["job_id"]: row for row in world.query(_JOBS)}
    runs: dict[UUID, dict[UUID, datetime]] = defaultdict(dict)
    skips: dict[UUID, list[Any]] = defaultdict(list)
    for row in attempts:
        if row["outcome"] == "skipped" and row["detail"] is not None:
            skips[row["job_id"]].append(row)
        elif row["job_id"] in jobs:
            runs[row["job_id"]][row["run_id"]] = row["scheduled_at"]
            if row["run_id"] != occurrence_id(row["job_id"], row["scheduled_at"], "schedule"):
                world.ledger.violate("a run is not named after its occurrence", row["run_id"], row["scheduled_at"])
    for row in world.query("select run_id, job_id, scheduled_at from duly.dead"):
        if row["job_id"] in jobs:
            runs[row["job_id"]][row["run_id"]] = row["scheduled_at"]
    for job_id, schedule in world.ledger.schedules.items():
        if job_id not in jobs:
            world.ledger.violate("an acknowledged schedule is gone", job_id)
            continue
        _check_one_schedule(world, job_id, schedule, list(runs[job_id].values()), skips[job_id])


def _check_one_schedule(
    world: World, job_id: UUID, schedule: dict[str, Any], moments: list[datetime], skips: list[Any]
) -> None:
    every: timedelta = schedule["every"]
    first: datetime = schedule["first"]
    expected_first = _first_moment(schedule["anchor"], every, schedule["at"])
    if schedule[
        "is_cron"
    ]:  # Compiled a moment before it was made: on the grid of its expression, and not after the next.
        is_right = first.second % every.seconds == 0 and first - schedule["at"] <= every
    else:
        is_right = first == expected_first
    if not is_right:
        world.ledger.violate("a schedule begins at the wrong moment", job_id, first, expected_first)
    covered = list(moments)
    for row in skips:
        detail = _detail(row["detail"])
        covered += [detail[0] + every * number for number in range(detail[2])]
        if detail[0] + every * (detail[2] - 1) != detail[1]:
            world.ledger.violate("a misfire record does not add up", job_id, row["detail"])
        if row["reason"] == "skipped_misfire" and row["finished_at"] - detail[0] <= GRACE:
            world.ledger.violate("an occurrence was skipped within its grace", job_id, detail[0])
    covered.sort()
    expected = [first + every * number for number in range(len(covered))]
    if covered != expected:
        twice = [moment for moment, number in Counter(covered).items() if number > 1]
        missing = sorted(set(expected) - set(covered))
        world.ledger.violate("occurrences are not those of the schedule", job_id, "twice", *twice, "missing", *missing)


def _first_moment(anchor: datetime | None, every: timedelta, at: datetime) -> datetime:
    """Compute a schedule's first moment, by its definition: the first of the anchor's series that is not past."""
    if anchor is None:
        whole = at.replace(microsecond=0)
        return whole if whole == at else whole + timedelta(seconds=1)
    moment = anchor
    while moment < at:
        moment += every
    return moment


def _detail(text: str) -> tuple[datetime, datetime, int]:
    import json

    detail = json.loads(text)
    return datetime.fromisoformat(detail["first"]), datetime.fromisoformat(detail["last"]), int(detail["count"])
