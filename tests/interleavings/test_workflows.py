"""Concurrent moves in a workflow, in every order: each node ends once, none is forgotten, and the workflow ends."""

from datetime import timedelta
from typing import Any, ClassVar

import pytest

from duly.domain.runs.options import options_of
from duly.domain.runs.outcome import Awaited, Cancelled, Failed, Succeeded
from duly.domain.runs.retry import Retry
from duly.domain.targets.target import WORKFLOW, WorkflowTarget, handler_of
from duly.domain.workflows.target import target_for, workflow_of
from duly.moves.claim import claim
from duly.moves.defer import Deferred, defer
from duly.moves.settle import Settled, settle
from duly.moves.submit import submit
from duly.moves.workflows.runs import settle_ended
from duly.moves.workflows.workflows import run_workflow_tasks
from duly.store.boxes import runs
from duly.store.tables import workflows
from duly.store.tables.workflows import WorkflowChange
from duly.worker.targets.workflow import start
from tests.builders import QUEUE, RNG, a_key, a_submission, a_worker, counts, ended, seconds, staged
from tests.graphs import FAILS, a_graph, a_node, a_workflow, carried_through, end, state_of, states_of, taken

STORIES: list[type] = []
FINAL = {"succeeded", "failed", "cancelled"}


def story(told: type) -> type:
    """Take a story up: `set_up` gives its two moves, `check` hears what they answered."""
    STORIES.append(told)
    return told


async def errands_done(database, clock):
    """Let maintenance come by until it has nothing to do."""
    for _ in range(10):
        await run_workflow_tasks(database)
        if not await database.fetchval("select count(*) from duly.workflow_tasks where kind <> 'settle'"):
            return
        await clock.advance(1)


class Story:
    """A workflow whose first nodes are in a worker's hands."""

    shape = "a b z:a,b"
    more: ClassVar[dict[str, Any]] = {}

    async def set_up(self, database):
        self.workflow_id = await a_workflow(database, self.shape, **self.more)
        self.worker_id = await a_worker(database)
        self.held = await taken(database, self.worker_id)
        return await self.moves(database)

    async def moves(self, database):
        raise NotImplementedError

    def settling(self, *names, outcome=None):
        """Give the settle of nodes as a move."""
        items = [self.held[name] for name in names]

        async def move(side):
            at = side.clock.at
            return await settle(side, self.worker_id, [_ended(run, at, outcome or Succeeded()) for run in items], RNG)

        return move

    async def check(self, database, left, right):
        assert not isinstance(left, BaseException), left
        assert not isinstance(right, BaseException), right
        await errands_done(database, database.clock)
        worker_id = await a_worker(database)  # The clock may have passed the lease of the first.
        for run in self.held.values():
            await settle(database, self.worker_id, [ended(database, run, Cancelled())], RNG)
        await carried_through(database, worker_id)
        await errands_done(database, database.clock)
        self.state, self.states = (
            await state_of(database, self.workflow_id),
            await states_of(database, self.workflow_id),
        )
        assert self.state in FINAL, (self.state, self.states)
        assert not {"waiting", "ready"} & set(self.states.values())
        assert {box for box in await counts(database) if box != "dead"} == set()
        await self.says(database)

    async def says(self, database):
        """What else holds in the end."""


def _ended(run, at, outcome):
    return Settled(run, at, at, outcome)


@story
class TwoParentsSettled(Story):
    async def moves(self, database):
        return self.settling("a"), self.settling("b")

    async def says(self, database):
        assert self.states == {"a": "succeeded", "b": "succeeded", "z": "succeeded"}


@story
class TwoBatchesOfTwoWorkflowsInOppositeOrder(Story):
    async def moves(self, database):
        self.other_id = await a_workflow(database, self.shape)
        other = await taken(database, self.worker_id)
        batches = [[self.held["a"], other["b"]], [other["a"], self.held["b"]]]
        return tuple(self._settling(batch) for batch in batches)

    def _settling(self, batch):
        async def move(side):
            at = side.clock.at
            return await settle(side, self.worker_id, [_ended(run, at, Succeeded()) for run in batch], RNG)

        return move

    async def says(self, database):
        assert self.state == await state_of(database, self.other_id) == "succeeded"


@story
class OneParentFailsAsTheOtherSucceeds(Story):
    shape = "a b z:a,b y:a?,b?"

    async def moves(self, database):
        return self.settling("a"), self.settling("b", outcome=FAILS)

    async def says(self, database):
        assert self.states == {"a": "succeeded", "b": "failed", "z": "skipped", "y": "succeeded"}


@story
class TheSameOutcomeIsSettledTwice(Story):
    shape = "a z:a"

    async def moves(self, database):
        return self.settling("a"), self.settling("a", outcome=FAILS)

    async def says(self, database):
        assert self.states["a"] in {"succeeded", "failed"}


@story
class SettledAndCancelled(Story):
    shape = "a z:a y:z"

    async def moves(self, database):
        return self.settling("a"), lambda side: workflows.cancel(side, 1, self.workflow_id, "enough")

    async def says(self, database):
        assert self.state == "cancelled"


@story
class SettledAndItsChildCancelledAsARun(Story):
    shape = "a z:a y:z?"

    async def moves(self, database):
        [child] = [
            row["run_id"] for row in await database.fetch("select run_id from duly.workflow_nodes where name = 'z'")
        ]
        return self.settling("a"), lambda side: runs.cancel(side, [child], "no")

    async def says(self, database):
        assert self.states["y"] == "succeeded"


@story
class SettledAndPausedAndResumed(Story):
    shape = "a b z:a y:b"

    async def moves(self, database):
        async def pause_and_resume(side):
            await workflows.pause(side, 1, self.workflow_id)
            await workflows.resume(side, 1, self.workflow_id)

        return self.settling("a", "b"), pause_and_resume

    async def says(self, database):
        assert set(self.states.values()) == {"succeeded"}


@story
class WithdrawnAndResumed(Story):
    async def moves(self, database):
        await workflows.pause(database, 1, self.workflow_id)
        await database.clock.advance(1)
        return run_workflow_tasks, lambda side: workflows.resume(side, 1, self.workflow_id)

    async def check(self, database, left, right):
        assert right == WorkflowChange("running", is_new=True)
        await super().check(database, left, right)  # Which ends: what was resumed is not paused again.


@story
class PausedByTwo(Story):
    """One of them has done it, and is noted; the other finds it done."""

    shape = "a b"

    async def moves(self, database):
        def pause(side):
            return workflows.pause(side, 1, self.workflow_id)

        return pause, pause

    async def check(self, database, left, right):
        assert sorted([left.is_new, right.is_new]) == [False, True]
        assert {left.state, right.state} == {"paused"}
        await self._resumed_by_two(database)

    async def _resumed_by_two(self, database):
        first, second = [await workflows.resume(database, 1, self.workflow_id) for _ in range(2)]
        assert (first, second) == (WorkflowChange("running", is_new=True), WorkflowChange("running", is_new=False))


@story
class TriedAgainAndPaused(Story):
    shape = "a"
    more: ClassVar[dict[str, Any]] = {"retry": Retry(max_attempts=3)}

    async def moves(self, database):
        again = self.settling("a", outcome=Failed("flapping", retry_after=seconds(0)))
        return again, lambda side: workflows.pause(side, 1, self.workflow_id)

    async def check(self, database, left, right):
        assert not isinstance(left, BaseException), left
        assert right == WorkflowChange("paused", is_new=True)
        await errands_done(database, database.clock)
        assert await taken(database, await a_worker(database)) == {}
        await workflows.resume(database, 1, self.workflow_id)
        assert await carried_through(database, await a_worker(database)) == [["a"]]


@story
class ReplayedAndSettled(Story):
    shape = "a b z:a,b"

    async def moves(self, database):
        await end(database, self.worker_id, [self.held["a"]], FAILS)
        return (
            self.settling("b"),
            lambda side: workflows.replay(side, 1, self.workflow_id, "a", ["a", "z"], 3),
        )

    async def says(self, database):
        assert self.states == {"a": "succeeded", "b": "succeeded", "z": "succeeded"}


@story
class ReplayedAsADeadRunAndSettled(Story):
    async def moves(self, database):
        await end(database, self.worker_id, [self.held["a"]], FAILS)
        return self.settling("b"), lambda side: runs.replay(side, [self.held["a"].run_id], [timedelta()])

    async def says(self, database):
        assert self.states == {"a": "succeeded", "b": "succeeded", "z": "succeeded"}


@story
class ReplayedTwice(Story):
    shape = "a z:a"

    async def moves(self, database):
        await end(database, self.worker_id, [self.held["a"]], FAILS)

        def replay(side):
            return workflows.replay(side, 1, self.workflow_id, "a", ["a", "z"], 2)

        return replay, replay

    async def says(self, database):
        assert self.states == {"a": "succeeded", "z": "succeeded"}


@story
class TwoDeadRunsAreReplayed(Story):
    shape = "a b:a! c:b"

    async def moves(self, database):
        await end(database, self.worker_id, [self.held["a"]], FAILS)
        self.held |= await taken(database, self.worker_id)
        await end(database, self.worker_id, [self.held["b"]], FAILS)

        def replaying(name):
            return lambda side: runs.replay(side, [self.held[name].run_id], [timedelta()])

        return replaying("a"), replaying("b")

    async def says(self, database):
        assert self.states["a"] == "succeeded"
        assert self.states["b"] in {"succeeded", "skipped"}


@story
class ReplayedAsANodeAndAsADeadRun(Story):
    shape = "a z:a"

    async def moves(self, database):
        await end(database, self.worker_id, [self.held["a"]], FAILS)
        return (
            lambda side: workflows.replay(side, 1, self.workflow_id, "a", ["a", "z"], 2),
            lambda side: runs.replay(side, [self.held["a"].run_id], [timedelta()]),
        )

    async def says(self, database):
        assert self.states == {"a": "succeeded", "z": "succeeded"}


@story
class CancelledTwice(Story):
    async def moves(self, database):
        def cancel(side):
            return workflows.cancel(side, 1, self.workflow_id, "enough")

        return cancel, cancel

    async def says(self, database):
        assert self.state == "cancelled"


@story
class NodesAreAddedAsItSettles(Story):
    shape = "a z:a"

    async def moves(self, database):
        run = self.held["a"]
        own = workflows.OwnNode(self.workflow_id, "a")
        nodes = [a_node("m", "a")]
        return (
            self.settling("a"),
            lambda side: workflows.add_nodes(side, 1, own, run.run_id, run.fence, nodes, ["m"]),
        )

    async def says(self, database):
        assert set(self.states.values()) == {"succeeded"}


@story
class GatedSettledAndCancelled(Story):
    shape = "a b z:a,b"
    more: ClassVar[dict[str, Any]] = {"concurrency": ("one", 2)}

    async def set_up(self, database):
        self.workflow_id = await a_workflow(database, self.shape, **self.more)
        self.worker_id = await a_worker(database)
        await staged(database)
        self.held = await taken(database, self.worker_id)
        assert len(self.held) == 2
        return self.settling("a", "b"), lambda side: workflows.cancel(side, 1, self.workflow_id, "enough")

    async def says(self, database):
        assert self.state in {"cancelled", "succeeded"}


class OfARun(Story):
    """A workflow that is a run's target and has failed; the run is dead."""

    async def set_up(self, database):
        target = target_for(a_graph("a z:a"))
        job = a_submission(handler=handler_of(target))
        made = type(job)(job.handler, job.payload, job.queue, job.priority, options=options_of(target=target))
        self.run_id = (await submit(database, made, key=a_key())).job_id
        self.worker_id = await a_worker(database)
        await self.started(database)
        self.workflow_id = await database.fetchval("select workflow_id from duly.workflows")
        self.held = await taken(database, self.worker_id)
        await end(database, self.worker_id, [self.held["a"]], FAILS)
        assert await settle_ended(database, RNG) == 1
        return await self.moves(database)

    async def started(self, database):
        """Let the run begin, where it can, and wait for its workflow."""
        worker_id = await a_worker(database)
        for run in await claim(database, worker_id, [QUEUE], [WORKFLOW], 10):
            outcome = await start(database, run)
            assert isinstance(outcome, Awaited)
            await defer(database, worker_id, [Deferred(run, await database.read_clock(), outcome)])

    def replay_it(self, side):
        return workflows.replay(side, 1, self.workflow_id, "a", ["a", "z"], 2)

    def replay_its_run(self, side):
        return runs.replay(side, [self.run_id], [timedelta()])

    def replay_its_node(self, side):
        return runs.replay(side, [self.held["a"].run_id], [timedelta()])

    def discard_its_run(self, side):
        return runs.discard(side, [self.run_id])

    async def check(self, database, left, right):
        assert not isinstance(left, BaseException), left
        assert not isinstance(right, BaseException), right
        await errands_done(database, database.clock)
        await self.started(database)
        self.ran = await carried_through(database, await a_worker(database))
        for _ in range(3):
            await errands_done(database, database.clock)
            await settle_ended(database, RNG)
            await database.clock.advance(1)
        self.state, self.states = (
            await state_of(database, self.workflow_id),
            await states_of(database, self.workflow_id),
        )
        assert self.state == "succeeded", self.states
        assert self.ran == [["a"], ["z"]], "once"
        assert await database.fetchval("select count(*) from duly.workflows") == 1
        assert await counts(database) == {}
        [ended] = await database.fetch(
            "select became::text, attempt from duly.attempts where run_id = $1 and became <> 'dead'", self.run_id
        )
        self.run = tuple(ended)
        await self.says(database)

    async def says(self, database):
        assert self.run == ("succeeded", 2)


@story
class ReplayedAsAWorkflowAndAsItsRun(OfARun):
    async def moves(self, database):
        return self.replay_it, self.replay_its_run


@story
class ReplayedAsANodeAndAsTheRunOfItsWorkflow(OfARun):
    async def moves(self, database):
        return self.replay_its_node, self.replay_its_run


@story
class ReplayedAsItsRunIsDiscarded(OfARun):
    async def moves(self, database):
        return self.replay_it, self.discard_its_run

    async def says(self, database):
        assert self.run in {("succeeded", 2), ("cancelled", 1)}


@story
class ANodeIsReplayedAsTheRunOfItsWorkflowIsDiscarded(OfARun):
    async def moves(self, database):
        return self.replay_its_node, self.discard_its_run

    async def says(self, database):
        assert self.run in {("succeeded", 2), ("cancelled", 1)}


@story
class TakenUpAsItIsReplayed(OfARun):
    async def moves(self, database):
        await runs.replay(database, [self.run_id], [timedelta()])
        taking = await a_worker(database)
        [run] = await claim(database, taking, [QUEUE], [WORKFLOW], 10)
        assert isinstance(run.policy.target, WorkflowTarget)
        flow = workflow_of(run.policy.target)
        self.taking, self.taken = taking, run
        return lambda side: workflows.submit(side, 1, "k", b"", flow, timedelta(seconds=5), run), self.replay_it

    async def started(self, database):
        if hasattr(self, "taken"):
            await defer(database, self.taking, [Deferred(self.taken, await database.read_clock(), Awaited(60.0))])
        else:
            await super().started(database)


@pytest.mark.parametrize("told", STORIES)
async def test_in_every_order(told, every_order):
    assert await every_order(told) >= 2
