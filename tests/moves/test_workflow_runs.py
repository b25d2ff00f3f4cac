"""Runs whose target is a workflow: one starts it once, and ends as it ends."""

from datetime import timedelta

import pytest

from duly.api.views.runs import shown_run
from duly.domain.runs.callbacks import Callback, Callbacks
from duly.domain.runs.options import options_of
from duly.domain.runs.outcome import Awaited, Failed
from duly.domain.targets.target import WEBHOOK, WORKFLOW, handler_of
from duly.domain.workflows.target import target_for
from duly.domain.workflows.workflow import Workflow
from duly.moves.cancel import cancel_run
from duly.moves.claim import claim
from duly.moves.dead import discard, replay
from duly.moves.defer import Deferred, defer
from duly.moves.settle import Settled, settle
from duly.moves.submit import submit
from duly.moves.workflows.runs import settle_ended
from duly.moves.workflows.workflows import cancel_workflow, replay_workflow, run_workflow_tasks
from duly.store.boxes import awaited, history
from duly.store.retention import Aging, forget_older
from duly.store.tables import workflows
from duly.worker.context import RunContext
from duly.worker.slots import Kind
from duly.worker.targets.workflow import Starter
from tests.builders import QUEUE, RNG, a_key, a_submission, a_worker, found_run
from tests.graphs import FAILS, a_graph, carried_through, state_of


@pytest.fixture
async def starter(database):
    """What starts workflows, as a worker has it."""
    made = Starter(Kind.LOOP)
    await made.begin(database, RNG.uuid())
    return made


async def a_run_of(database, shape="a b:a"):
    """Submit a run whose target is a workflow."""
    target = target_for(a_graph(shape))
    options = options_of(target=target)
    job = a_submission(handler=handler_of(target))
    submission = type(job)(job.handler, job.payload, job.queue, job.priority, options=options)
    return (await submit(database, submission, key=a_key())).job_id


async def started(database, starter, worker_id):
    """Claim the run and let it start its workflow."""
    [run] = await claim(database, worker_id, [QUEUE], [WORKFLOW], 10)
    outcome = await starter.attempt(RunContext(run, None), run)  # type: ignore[arg-type]
    at = await database.read_clock()
    if isinstance(outcome, Awaited):
        await defer(database, worker_id, [Deferred(run, at, outcome)])
    else:
        await settle(database, worker_id, [Settled(run, at, at, outcome)], RNG)
    return run, outcome


async def the_workflow(database, run_id):
    return await database.fetchval("select workflow_id from duly.workflows where run_id = $1", run_id)


@pytest.mark.parametrize(
    ("outcomes", "state", "reason"),
    [({}, "succeeded", None), ({"b": FAILS}, "dead", "workflow nightly failed; `duly workflows show")],
)
async def test_the_run_ends_as_its_workflow_ends(database, starter, outcomes, state, reason):
    run_id = await a_run_of(database)
    worker_id = await a_worker(database)
    await started(database, starter, worker_id)
    assert (await found_run(database, run_id))["state"] == "running"

    assert await carried_through(database, worker_id, outcomes) == [["a"], ["b"]]
    assert await settle_ended(database, RNG) == 1

    found = await found_run(database, run_id)
    assert found["state"] == state
    assert (found["attempts"][-1]["reason"] or "").startswith(reason or "")
    assert await database.fetchval("select count(*) from duly.workflow_tasks") == 0
    assert await database.fetchval("select count(*) from duly.awaited") == 0
    assert await history.verify(database) == []


async def test_retried_run_finds_the_workflow_it_started(database, starter, clock):
    run_id = await a_run_of(database)
    worker_id = await a_worker(database)
    [run] = await claim(database, worker_id, [QUEUE], [WORKFLOW], 10)
    assert isinstance(await starter.attempt(RunContext(run, None), run), Awaited)  # type: ignore[arg-type]
    at = await database.read_clock()
    await settle(database, worker_id, [Settled(run, at, at, Failed("lost"))], RNG)
    await carried_through(database, worker_id)
    assert await settle_ended(database, RNG) == 0
    await database.execute("update duly.timers set due_at = scheduled_at")
    await database.execute(
        "with moved as (delete from duly.timers returning *) insert into duly.ready select run_id, job_id, scheduled_at, due_at,"
        " previous_scheduled_at, generation, tenant, attempt, priority, losses, suspect, payload_stored, queue, handler,"
        " payload, options from moved"
    )

    _, outcome = await started(database, starter, worker_id)

    assert isinstance(outcome, Awaited)
    assert await database.fetchval("select count(*) from duly.workflows") == 1
    await clock.advance(1)
    assert await settle_ended(database, RNG) == 1
    assert (await found_run(database, run_id))["state"] == "succeeded"
    assert await database.fetchval("select count(*) from duly.workflow_tasks") == 0


async def test_runs_that_cannot_be_settled_yet_hold_up_no_other(database, starter, monkeypatch):
    monkeypatch.setattr("duly.moves.workflows.runs.BATCH_MAX", 1)
    worker_id = await a_worker(database)
    await a_run_of(database, "a")
    [early] = await claim(database, worker_id, [QUEUE], [WORKFLOW], 10)
    await starter.attempt(RunContext(early, None), early)  # type: ignore[arg-type]
    await carried_through(database, worker_id)
    await a_run_of(database, "a")
    await started(database, starter, worker_id)
    await carried_through(database, worker_id)

    assert [await settle_ended(database, RNG) for _ in range(2)] == [0, 1]


@pytest.fixture
async def two_that_ended(own_database):
    """Runs of two workflows that have ended."""
    database, starter = own_database, Starter(Kind.LOOP)
    await starter.begin(database, RNG.uuid())
    worker_id = await a_worker(database)
    ended = []
    for _ in range(2):
        ended.append(await a_run_of(database, "a"))
        await started(database, starter, worker_id)
        await carried_through(database, worker_id)
    return ended


async def test_unstorable_outcome_of_a_workflow_is_left_out_and_its_run_settled(own_database, two_that_ended):
    database, (first, _) = own_database, two_that_ended
    await database.execute(
        f"alter table duly.attempts add constraint refused check (run_id <> '{first}' or result is null)"
    )

    assert await settle_ended(database, RNG) == 2

    ended = await found_run(database, first)
    assert (ended["state"], ended["attempts"][-1]["reason"]) == ("succeeded", "the outcome could not be stored")


async def test_run_the_store_refuses_is_reported_and_delays_no_other(own_database, two_that_ended, clock, caplog):
    database, (first, second) = own_database, two_that_ended
    await database.execute(f"alter table duly.attempts add constraint refused check (run_id <> '{first}')")

    settled = []
    for _ in range(8):
        settled.append(await settle_ended(database, RNG))
        await clock.advance(0.5)

    assert settled == [1, 0, 0, 0, 0, 0, 0, 0]
    assert (await found_run(database, second))["state"] == "succeeded"
    told = [record.__dict__["fields"] for record in caplog.records if record.getMessage() == "settle_refused"]
    assert [one["run_id"] for one in told] == [first] * 3, "after a second, and after two more"
    await database.execute("alter table duly.attempts drop constraint refused")
    await clock.advance(4)
    assert await settle_ended(database, RNG) == 1


async def test_a_cancel_of_the_run_stops_its_workflow(database, starter):
    run_id = await a_run_of(database)
    await started(database, starter, await a_worker(database))

    await cancel_run(database, run_id)
    await run_workflow_tasks(database)

    assert await state_of(database, await the_workflow(database, run_id)) == "cancelled"
    assert await settle_ended(database, RNG) == 0
    assert await database.fetchval("select count(*) from duly.workflow_tasks where kind = 'settle'") == 0


async def test_orphaned_workflows_are_stopped_one_per_transaction(database, starter):
    """With two, the gates of the second would be locked after the first workflow, and a settle does it the other way round."""
    worker_id = await a_worker(database)
    for _ in range(2):
        run_id = await a_run_of(database)
        await started(database, starter, worker_id)
        await cancel_run(database, run_id)

    assert await workflows.run_workflow_task(database) == "done"

    states = await database.fetch("select state from duly.workflows order by workflow_id")
    assert [row["state"] for row in states] == ["cancelled", "running"]
    await run_workflow_tasks(database)
    assert await database.fetchval("select count(*) from duly.workflows where state <> 'cancelled'") == 0


async def test_a_cancel_of_the_workflow_ends_the_run(database, starter):
    run_id = await a_run_of(database)
    await started(database, starter, await a_worker(database))

    await cancel_workflow(database, 1, await the_workflow(database, run_id), "enough")
    await settle_ended(database, RNG)

    found = await found_run(database, run_id)
    assert (found["state"], found["attempts"][-1]["outcome"]) == ("cancelled", "cancelled")


async def a_dead_run(database, starter, worker_id, outcomes, shape="a b:a"):
    """Give a run whose workflow has failed, and that workflow."""
    run_id = await a_run_of(database, shape)
    await started(database, starter, worker_id)
    workflow_id = await the_workflow(database, run_id)
    await carried_through(database, worker_id, outcomes)
    await settle_ended(database, RNG)
    assert (await found_run(database, run_id))["state"] == "dead"
    return run_id, workflow_id


async def test_a_replay_of_its_workflow_reopens_the_run_which_ends_as_that_does(database, starter):
    worker_id = await a_worker(database)
    run_id, workflow_id = await a_dead_run(database, starter, worker_id, {"b": FAILS})
    assert (await shown_run(database, 1, run_id)).started_workflow_id == workflow_id

    await replay_workflow(database, 1, workflow_id, "b")

    assert (await found_run(database, run_id))["state"] == "retrying", "in the same transaction"
    assert await run_workflow_tasks(database) is False, "nobody takes the workflow for an orphan"
    run, outcome = await started(database, starter, worker_id)
    assert isinstance(outcome, Awaited)
    assert (run.attempt, run.history.replays) == (2, 1)
    assert await carried_through(database, worker_id) == [["b"]]
    assert await settle_ended(database, RNG) == 1
    assert (await found_run(database, run_id))["state"] == "succeeded"
    assert (await shown_run(database, 1, run_id)).started_workflow_id == workflow_id
    assert await database.fetchval("select count(*) from duly.workflows") == 1
    assert await history.verify(database) == []


async def test_workflow_may_fail_repeatedly_together_with_its_run(database, starter):
    worker_id = await a_worker(database)
    run_id, workflow_id = await a_dead_run(database, starter, worker_id, {"b": FAILS})

    for number in (2, 3):
        await replay_workflow(database, 1, workflow_id, "b")
        await carried_through(database, worker_id, {"b": FAILS})
        await settle_ended(database, RNG)  # Before it is back in its receiver's hands: that comes first.
        await started(database, starter, worker_id)
        await database.execute("update duly.workflow_tasks set due_at = duly.clock_now()")
        assert await settle_ended(database, RNG) == 1
        found = await found_run(database, run_id)
        assert (found["state"], found["attempt"]) == ("dead", number), "and its nodes are not replayed by that"
    assert await database.fetchval("select replays from duly.dead where run_id = $1", run_id) == 2


async def test_replay_of_a_dead_workflow_run_repeats_only_failures(database, starter):
    worker_id = await a_worker(database)
    outcomes = {"b": FAILS, "d": FAILS, "f": FAILS}
    shape = "a b:a c:b d e:d! f:a g:f?"  # e and g see to d and f.
    run_id, workflow_id = await a_dead_run(database, starter, worker_id, outcomes, shape)

    assert await replay(database, [run_id]) == [run_id]
    _, outcome = await started(database, starter, worker_id)

    assert isinstance(outcome, Awaited)
    assert await carried_through(database, worker_id) == [["b"], ["c"]]
    assert await settle_ended(database, RNG) == 1
    assert (await found_run(database, run_id))["state"] == "succeeded"
    assert await state_of(database, workflow_id) == "succeeded"
    assert await database.fetchval("select count(*) from duly.workflows") == 1, "no other workflow was started"
    assert await history.verify(database) == []


async def test_two_that_failed_are_both_done_again_and_one_behind_another_once(database, starter):
    worker_id = await a_worker(database)
    outcomes = {"a": FAILS, "b": FAILS, "c": FAILS}
    run_id, workflow_id = await a_dead_run(database, starter, worker_id, outcomes, "a b c:a? d:a,b e:c")

    await replay(database, [run_id])
    await started(database, starter, worker_id)

    assert await carried_through(database, worker_id) == [["a", "b"], ["c", "d"], ["e"]]
    assert await state_of(database, workflow_id) == "succeeded"


async def test_replay_of_a_workflow_run_skips_nodes_that_succeeded_meanwhile(database, starter):
    worker_id = await a_worker(database)
    run_id, workflow_id = await a_dead_run(database, starter, worker_id, {"b": FAILS})
    await replay(database, [run_id])
    await replay_workflow(database, 1, workflow_id, "b")
    assert await carried_through(database, worker_id) == [["b"]]

    await started(database, starter, worker_id)

    assert await carried_through(database, worker_id) == []
    await database.execute("update duly.workflow_tasks set due_at = duly.clock_now()")
    assert await settle_ended(database, RNG) == 1
    assert (await found_run(database, run_id))["state"] == "succeeded"


async def test_workflow_whose_dead_run_was_discarded_continues_alone(database, starter):
    worker_id = await a_worker(database)
    run_id, workflow_id = await a_dead_run(database, starter, worker_id, {"a": FAILS})
    await discard(database, [run_id])

    await replay_workflow(database, 1, workflow_id, "a")
    await run_workflow_tasks(database)
    await carried_through(database, worker_id)

    assert await state_of(database, workflow_id) == "succeeded"
    assert await settle_ended(database, RNG) == 0
    assert (await found_run(database, run_id))["state"] == "cancelled"


@pytest.mark.parametrize(
    ("move", "state"), [("replay($1, null, '5 seconds')", "succeeded"), ("discard($1)", "cancelled")]
)
async def test_a_workflow_is_replayed_while_somebody_moves_its_dead_run(database, starter, move, state):
    """Nobody waits for the other, and whatever becomes of the run, the workflow is not stopped for it."""
    worker_id = await a_worker(database)
    run_id, workflow_id = await a_dead_run(database, starter, worker_id, {"a": FAILS})

    async with database.transaction() as other:
        assert await other.fetch(f"select duly.{move}", [run_id])
        await replay_workflow(database, 1, workflow_id, "a")
        await run_workflow_tasks(database)
        assert await state_of(database, workflow_id) == "running", "its run is dead, and about to rise"
    await run_workflow_tasks(database)

    if state == "succeeded":
        await started(database, starter, worker_id)
    assert await carried_through(database, worker_id) == [["a"], ["b"]]
    assert await settle_ended(database, RNG) == (1 if state == "succeeded" else 0)
    assert await state_of(database, workflow_id) == "succeeded"
    assert (await found_run(database, run_id))["state"] == state
    assert await history.verify(database) == []


async def test_run_whose_workflow_is_deleted_starts_another(database, starter, clock):
    worker_id = await a_worker(database)
    run_id, first = await a_dead_run(database, starter, worker_id, {"a": FAILS})
    await database.execute("delete from duly.dead where run_id <> $1", run_id)
    await clock.advance(1)
    assert await forget_older(database, Aging.WORKFLOWS, timedelta(0), 10) == 1

    await replay(database, [run_id])
    await started(database, starter, worker_id)

    assert await the_workflow(database, run_id) not in {first, None}
    assert await carried_through(database, worker_id) == [["a"], ["b"]]


async def test_callback_of_a_dead_workflow_run_is_sent_again_for_its_new_end(database, starter):
    worker_id = await a_worker(database)
    target = target_for(a_graph("a"))
    options = options_of(target=target, callbacks=Callbacks(end=Callback(url="https://hooks.example/done")))
    job = a_submission(handler=handler_of(target))
    run_id = (
        await submit(
            database, type(job)(job.handler, job.payload, job.queue, job.priority, options=options), key=a_key()
        )
    ).job_id
    await started(database, starter, worker_id)
    await carried_through(database, worker_id, {"a": FAILS})
    await settle_ended(database, RNG)

    await replay_workflow(database, 1, await the_workflow(database, run_id), "a")
    await started(database, starter, worker_id)
    await carried_through(database, worker_id)
    assert await settle_ended(database, RNG) == 1

    told = await database.fetch(
        "select payload->>'type' as type from duly.ready where handler = $1 order by run_id", WEBHOOK
    )
    assert sorted(row["type"] for row in told) == ["duly.run.dead.v1", "duly.run.succeeded.v1"]


async def test_an_end_that_came_undone_does_not_settle_the_run(database, starter, monkeypatch):
    """Between the look and the settle the workflow is replayed: its run waits for the other end."""
    worker_id = await a_worker(database)
    run_id = await a_run_of(database)
    await started(database, starter, worker_id)
    workflow_id = await the_workflow(database, run_id)
    await carried_through(database, worker_id, {"b": FAILS})
    found = awaited.find

    async def replayed_meanwhile(database, handle):
        await replay_workflow(database, 1, workflow_id, "b")
        return await found(database, handle)

    monkeypatch.setattr(awaited, "find", replayed_meanwhile)
    assert await settle_ended(database, RNG) == 0
    monkeypatch.undo()

    assert (await found_run(database, run_id))["state"] == "running"
    await run_workflow_tasks(database)
    assert await carried_through(database, worker_id) == [["b"]]
    assert await settle_ended(database, RNG) == 1
    ended = await found_run(database, run_id)
    assert (ended["state"], ended["attempt"]) == ("succeeded", 1)


async def test_workflow_start_without_a_database_is_retried_and_a_bad_graph_is_not(database, starter):
    await a_run_of(database)
    [run] = await claim(database, await a_worker(database), [QUEUE], [WORKFLOW], 10)
    await starter.end()
    stopped = await starter.attempt(RunContext(run, None), run)  # type: ignore[arg-type]
    assert isinstance(stopped, Failed)
    assert stopped.retryable
    with pytest.raises(Exception, match="at least one node"):
        target_for(Workflow("w", ()))
