"""Workflows: a node is released by the end of its last parent, whichever way that ended."""

import pytest

from duly.domain.errors import InvalidWorkflow, KeyConflict, LeaseOver, NotFound, WorkflowChanged
from duly.domain.jobs.filter import WORKFLOWS, parse
from duly.domain.runs.callbacks import Callback, Callbacks
from duly.domain.runs.outcome import Cancelled, Failed, Lost, Snoozed, Succeeded
from duly.domain.runs.retry import Retry
from duly.domain.workflows.references import Reference
from duly.domain.workflows.workflow import Workflow
from duly.moves.cancel import cancel_run
from duly.moves.dead import discard, replay
from duly.moves.settle import hand_back, lose, settle
from duly.moves.workflows.workflows import (
    Replay,
    add_nodes,
    cancel_workflow,
    pause_workflow,
    plan_replay,
    replay_workflow,
    resume_workflow,
    run_workflow_tasks,
    submit_workflow,
)
from duly.store.boxes import history, runs
from duly.store.reads import lists
from duly.store.retention import Aging, forget_older
from duly.store.tables import workflows
from tests.builders import (
    RNG,
    a_key,
    a_worker,
    boxes_of,
    claimed,
    counts,
    ended,
    found_run,
    history_of,
    seconds,
    staged,
)
from tests.graphs import (
    FAILS,
    a_graph,
    a_node,
    a_workflow,
    carried_through,
    end,
    names,
    result_of,
    state_of,
    states_of,
    taken,
    whole,
)


async def run_of(database, workflow_id, node):
    [run_id] = [each["run_id"] for each in (await whole(database, workflow_id))["nodes"] if each["name"] == node]
    return run_id


async def is_whole(database):
    """Nothing is broken, and nothing is left over where nothing stays."""
    assert await history.verify(database) == []
    assert await database.fetchval("select count(*) from duly.ended_nodes") == 0


async def test_nodes_run_behind_their_parents_and_the_workflow_ends(database):
    workflow_id = await a_workflow(database, "a b:a c:a d:b,c")
    worker_id = await a_worker(database)

    assert await counts(database) == {"ready": 1, "blocked": 3}
    assert await carried_through(database, worker_id) == [["a"], ["b", "c"], ["d"]]
    assert await state_of(database, workflow_id) == "succeeded"
    assert set((await states_of(database, workflow_id)).values()) == {"succeeded"}
    assert await result_of(database, workflow_id, "d") == "d"
    assert await counts(database) == {}
    await is_whole(database)


@pytest.mark.parametrize(
    ("shape", "outcomes", "states", "state"),
    [
        ("a b:a", {"a": FAILS}, {"a": "failed", "b": "skipped"}, "failed"),
        ("a b:a!", {"a": FAILS}, {"a": "failed", "b": "succeeded"}, "succeeded"),
        ("a b:a!", {}, {"a": "succeeded", "b": "skipped"}, "succeeded"),
        ("a b:a?", {"a": FAILS}, {"a": "failed", "b": "succeeded"}, "succeeded"),
        ("a b:a c:b", {"a": FAILS}, {"a": "failed", "b": "skipped", "c": "skipped"}, "failed"),
        ("a b:a c:b!", {"a": FAILS}, {"a": "failed", "b": "skipped", "c": "skipped"}, "failed"),
        ("a b:a c:b?", {"a": FAILS}, {"a": "failed", "b": "skipped", "c": "succeeded"}, "failed"),
        ("a b c:a,b!", {"b": FAILS}, {"a": "succeeded", "b": "failed", "c": "succeeded"}, "succeeded"),
        ("a b c:a,b!", {"a": FAILS}, {"a": "failed", "b": "succeeded", "c": "skipped"}, "failed"),
        ("a b:a!", {"a": Cancelled()}, {"a": "cancelled", "b": "succeeded"}, "succeeded"),
        ("a b:a", {"a": Cancelled()}, {"a": "cancelled", "b": "skipped"}, "failed"),
    ],
)
async def test_edges_decide_nodes_and_unhandled_failures_decide_the_workflow(database, shape, outcomes, states, state):
    workflow_id = await a_workflow(database, shape)

    await carried_through(database, await a_worker(database), outcomes)

    assert await states_of(database, workflow_id) == states
    assert await state_of(database, workflow_id) == state
    await is_whole(database)


async def test_a_node_that_tries_again_holds_its_children_back(database, clock):
    workflow_id = await a_workflow(database, "a b:a", retry=Retry(max_attempts=2))
    worker_id = await a_worker(database)

    await end(
        database, worker_id, (await taken(database, worker_id)).values(), Failed("flapping", retry_after=seconds(1))
    )
    assert await states_of(database, workflow_id) == {"a": "ready", "b": "waiting"}
    await clock.advance(2)

    assert await carried_through(database, worker_id) == [["a"], ["b"]]
    assert await state_of(database, workflow_id) == "succeeded"


async def test_a_node_that_is_lost_for_good_is_an_end_too(database):
    workflow_id = await a_workflow(database, "a b:a? c:a", retry=Retry(max_attempts=1))
    worker_id = await a_worker(database)
    [run] = (await taken(database, worker_id)).values()

    await lose(database, worker_id, [(run, Lost())], RNG)

    assert await states_of(database, workflow_id) == {"a": "failed", "b": "ready", "c": "skipped"}


async def test_a_node_that_is_cancelled_while_it_waits_ends_and_so_do_those_behind_it(database):
    workflow_id = await a_workflow(database, "a b:a c:b d:c?")

    await cancel_run(database, await run_of(database, workflow_id, "b"))

    assert await states_of(database, workflow_id) == {"a": "ready", "b": "cancelled", "c": "skipped", "d": "ready"}
    await is_whole(database)


async def test_a_discard_changes_no_workflow(database):
    workflow_id = await a_workflow(database, "a b:a")
    await carried_through(database, await a_worker(database), {"a": FAILS})

    await discard(database, [await run_of(database, workflow_id, "a")])

    assert await states_of(database, workflow_id) == {"a": "failed", "b": "skipped"}
    assert await state_of(database, workflow_id) == "failed"


async def test_a_late_outcome_of_a_worker_that_lost_its_lease_changes_nothing(database):
    workflow_id = await a_workflow(database, "a b:a", retry=Retry(max_attempts=2))
    worker_id = await a_worker(database)
    [stale] = (await taken(database, worker_id)).values()
    await lose(database, worker_id, [(stale, Lost())], RNG)

    await settle(database, worker_id, [ended(database, stale, Succeeded())], RNG)

    assert await states_of(database, workflow_id) == {"a": "ready", "b": "waiting"}


async def test_workflow_resubmitted_under_the_same_key_is_the_same_workflow(database):
    key = a_key()
    first = await submit_workflow(database, 1, key, a_graph("a b:a"))
    again = await submit_workflow(database, 1, key, a_graph("a b:a"))

    assert (again.workflow_id, again.replayed, again.state) == (first.workflow_id, True, "running")
    assert await counts(database) == {"ready": 1, "blocked": 1}
    with pytest.raises(KeyConflict):
        await submit_workflow(database, 1, key, a_graph("a"))


async def test_cyclic_workflow_is_refused_whole(database):
    with pytest.raises(InvalidWorkflow, match="a → b → a"):
        await submit_workflow(database, 1, a_key(), a_graph("a:b b:a"))
    assert await counts(database) == {}


async def test_workflow_nodes_respect_their_concurrency_limit(database):
    workflow_id = await a_workflow(database, "a b:a c:a", concurrency=("one", 1))
    worker_id = await a_worker(database)
    waves = []
    while True:
        await staged(database)
        wave = await taken(database, worker_id)
        if not wave:
            break
        waves.append(len(wave))
        await end(database, worker_id, wave.values())

    assert waves == [1, 1, 1]
    assert await state_of(database, workflow_id) == "succeeded"
    await is_whole(database)


async def test_workflow_cancel_ends_waiting_nodes_and_signals_running_ones(database):
    workflow_id = await a_workflow(database, "a b c:a,b d:c?")
    worker_id = await a_worker(database)
    [run] = await claimed(database, worker_id, limit=1)

    assert await cancel_workflow(database, 1, workflow_id, "enough") == "cancelling"
    assert sorted((await states_of(database, workflow_id)).values()) == ["cancelled", "cancelled", "cancelled", "ready"]
    assert [signal.run_id for signal in (await runs.look(database, worker_id)).signals] == [run.run_id]

    await end(database, worker_id, [run], Cancelled())
    assert await state_of(database, workflow_id) == "cancelled"
    assert (await whole(database, workflow_id))["reason"] == "enough"
    await run_workflow_tasks(database)
    await is_whole(database)


async def test_cancel_of_a_workflow_that_only_waits_is_final_at_once(database):
    workflow_id = await a_workflow(database, "a b:a c:b?")

    assert await cancel_workflow(database, 1, workflow_id, "enough") == "cancelled"
    assert set((await states_of(database, workflow_id)).values()) == {"cancelled"}
    assert await cancel_workflow(database, 1, workflow_id, "again") == "cancelled"
    await run_workflow_tasks(database)
    await is_whole(database)
    assert await database.fetchval("select count(*) from duly.workflow_tasks") == 0


async def test_node_that_succeeds_despite_a_cancel_releases_no_other(database):
    workflow_id = await a_workflow(database, "a b:a")
    worker_id = await a_worker(database)
    held = await taken(database, worker_id)
    await cancel_workflow(database, 1, workflow_id)

    await end(database, worker_id, held.values())

    assert await states_of(database, workflow_id) == {"a": "succeeded", "b": "cancelled"}
    assert await state_of(database, workflow_id) == "cancelled"


async def test_workflow_pause_withdraws_ready_nodes_and_a_resume_continues(database):
    workflow_id = await a_workflow(database, "a b c:a d:b")
    worker_id = await a_worker(database)
    [run] = await claimed(database, worker_id, limit=1)

    assert await pause_workflow(database, 1, workflow_id) == "paused"
    assert await counts(database) == {"blocked": 3, "leased": 1}
    await end(database, worker_id, [run])
    assert await taken(database, worker_id) == {}
    await is_whole(database)

    assert await resume_workflow(database, 1, workflow_id) == "running"
    assert len(await carried_through(database, worker_id)) == 2
    assert await state_of(database, workflow_id) == "succeeded"
    with pytest.raises(WorkflowChanged, match="is succeeded"):
        await pause_workflow(database, 1, workflow_id)


async def test_paused_workflow_withdraws_nodes_that_return_to_it(database, clock):
    workflow_id = await a_workflow(database, "a b", retry=Retry(max_attempts=3))
    worker_id = await a_worker(database)
    held = await taken(database, worker_id)
    await pause_workflow(database, 1, workflow_id)

    await end(database, worker_id, [held["a"]], Failed("flapping", retry_after=seconds(1)))
    await hand_back(database, worker_id, [held["b"]])
    await clock.advance(2)
    await run_workflow_tasks(database)

    assert await taken(database, worker_id) == {}
    await resume_workflow(database, 1, workflow_id)
    assert await carried_through(database, worker_id) == [["a", "b"]]


async def test_paused_workflow_releases_its_concurrency_slots(database):
    workflow_id = await a_workflow(database, "a", concurrency=("one", 1))
    other = await a_workflow(database, "z", concurrency=("one", 1))
    await staged(database)

    await pause_workflow(database, 1, workflow_id)

    assert names(await taken(database, await a_worker(database))) == ["z"]
    assert await state_of(database, other) == "running"
    await is_whole(database)


async def test_paused_workflow_withdraws_a_node_that_had_its_reservation(database):
    workflow_id = await a_workflow(database, "a", rate=("often", 10, 1))
    await staged(database)

    await pause_workflow(database, 1, workflow_id)

    assert await states_of(database, workflow_id) == {"a": "waiting"}
    await is_whole(database)


async def test_a_child_that_is_taken_back_waits_for_a_parent_that_was_replayed(database):
    workflow_id = await a_workflow(database, "a b:a!")
    worker_id = await a_worker(database)
    await end(database, worker_id, (await taken(database, worker_id)).values(), FAILS)
    await replay(database, [await run_of(database, workflow_id, "a")])
    both = await taken(database, worker_id)
    await hand_back(database, worker_id, [both["b"]])

    await pause_workflow(database, 1, workflow_id)
    await is_whole(database)
    await end(database, worker_id, [both["a"]])
    await resume_workflow(database, 1, workflow_id)

    assert await states_of(database, workflow_id) == {"a": "succeeded", "b": "skipped"}
    assert await state_of(database, workflow_id) == "succeeded"
    await is_whole(database)


async def test_cancel_of_a_paused_workflow_releases_its_concurrency_slots(database):
    slow = Retry(max_attempts=5, base_seconds=3000, cap_seconds=3000, jitter=0)
    workflow_id = await a_workflow(database, "a", fifo="orders", retry=slow)
    await staged(database)
    worker_id = await a_worker(database)
    await end(database, worker_id, (await taken(database, worker_id)).values(), Failed("broken"))
    await pause_workflow(database, 1, workflow_id)

    await cancel_workflow(database, 1, workflow_id)

    assert await state_of(database, workflow_id) == "cancelled"
    await is_whole(database)
    other = await a_workflow(database, "z", fifo="orders")
    await staged(database)
    assert names(await taken(database, worker_id)) == ["z"]
    assert await state_of(database, other) == "running"


async def test_skipped_node_returns_the_slot_that_it_has(database, clock):
    slow = Retry(max_attempts=5, base_seconds=3000, cap_seconds=3000, jitter=0)
    workflow_id = await a_workflow(database, Workflow("w", (a_node("a"), a_node("b", "a!", fifo="orders", retry=slow))))
    worker_id = await a_worker(database)
    await end(database, worker_id, (await taken(database, worker_id)).values(), FAILS)
    await staged(database)
    await end(database, worker_id, (await taken(database, worker_id)).values(), Failed("broken"))
    await replay(database, [await run_of(database, workflow_id, "a")])
    [a] = (await taken(database, worker_id)).values()
    await pause_workflow(database, 1, workflow_id)
    await end(database, worker_id, [a])

    await resume_workflow(database, 1, workflow_id)
    await run_workflow_tasks(database)

    assert await states_of(database, workflow_id) == {"a": "succeeded", "b": "skipped"}
    await is_whole(database)


async def test_failing_workflow_task_is_deferred_and_delays_no_other(database, clock):
    broken, other = await a_workflow(database, "a"), await a_workflow(database, "b")
    worker_id = await a_worker(database)
    runs = await taken(database, worker_id)
    await pause_workflow(database, 1, broken)
    await pause_workflow(database, 1, other)
    await hand_back(database, worker_id, list(runs.values()))
    # What cannot be, so that whoever takes it back fails.
    await database.execute("""alter table duly.blocked add constraint broken check (options->'node'->>1 <> 'a')""")
    await clock.advance(1)

    await run_workflow_tasks(database)

    assert (await states_of(database, broken), await states_of(database, other)) == ({"a": "ready"}, {"b": "waiting"})
    await database.execute("alter table duly.blocked drop constraint broken")
    await clock.advance(2)
    await run_workflow_tasks(database)
    assert await states_of(database, broken) == {"a": "waiting"}
    await is_whole(database)


@pytest.mark.parametrize("step", [2, 30, 600])
async def test_workflow_task_does_not_wait_for_a_set_back_clock(database, clock, step):
    workflow_id = await a_workflow(database, "a")
    worker_id = await a_worker(database)
    runs = await taken(database, worker_id)
    await pause_workflow(database, 1, workflow_id)
    await hand_back(database, worker_id, list(runs.values()))
    assert await states_of(database, workflow_id) == {"a": "ready"}

    await clock.step(-step)
    await run_workflow_tasks(database)

    assert await states_of(database, workflow_id) == {"a": "waiting"}
    await is_whole(database)


async def test_a_replay_does_a_node_and_all_behind_it_again(database):
    workflow_id = await a_workflow(database, "a b:a c:b x:a")
    worker_id = await a_worker(database)
    await carried_through(database, worker_id, {"b": FAILS})
    assert await state_of(database, workflow_id) == "failed"

    assert (await replay_workflow(database, 1, workflow_id, "b")).nodes == ["b", "c"]
    assert await state_of(database, workflow_id) == "running"
    assert await carried_through(database, worker_id) == [["b"], ["c"]]

    assert await state_of(database, workflow_id) == "succeeded"
    run_id = await run_of(database, workflow_id, "b")
    assert await history_of(database, run_id) == [(1, "failed", "dead"), (2, "succeeded", "succeeded")]
    assert await counts(database) == {}
    await is_whole(database)


async def test_replay_of_a_succeeded_node_keeps_its_run_id_and_attempt_numbers(database):
    workflow_id = await a_workflow(database, "a b:a", payload={"large": "x" * 2000})
    worker_id = await a_worker(database)
    await carried_through(database, worker_id)
    await database.execute("delete from duly.payloads")

    await replay_workflow(database, 1, workflow_id, "a")
    [run] = (await taken(database, worker_id)).values()

    assert (run.attempt, run.history.replays, run.payload_stored) == (2, 1, True)
    assert await database.fetchval("select count(*) from duly.payloads where job_id = $1", run.run_id) == 1
    await end(database, worker_id, [run])
    await carried_through(database, worker_id)
    assert (await whole(database, workflow_id))["replays"] == 1
    await is_whole(database)


async def test_replayed_skipped_node_runs_regardless_of_its_edges(database):
    workflow_id = await a_workflow(database, "a b:a c:b")
    worker_id = await a_worker(database)
    await carried_through(database, worker_id, {"a": FAILS})

    await replay_workflow(database, 1, workflow_id, "b")

    assert await carried_through(database, worker_id) == [["b"], ["c"]]
    assert await state_of(database, workflow_id) == "failed"


async def test_node_under_way_or_not_yet_run_cannot_be_replayed(database):
    workflow_id = await a_workflow(database, "a b:a c:b")
    worker_id = await a_worker(database)

    for move in (plan_replay, replay_workflow):
        with pytest.raises(WorkflowChanged, match="'a' is under way"):
            await move(database, 1, workflow_id, "a")
        with pytest.raises(WorkflowChanged, match="'b' has not run yet"):
            await move(database, 1, workflow_id, "b")
        with pytest.raises(NotFound, match="no node 'z'"):
            await move(database, 1, workflow_id, "z")
    await end(database, worker_id, (await taken(database, worker_id)).values())
    for move in (plan_replay, replay_workflow):
        with pytest.raises(WorkflowChanged, match="'b' is under way"):
            await move(database, 1, workflow_id, "a")


async def test_a_dead_run_that_is_replayed_as_such_opens_its_workflow_again(database):
    workflow_id = await a_workflow(database, "a b:a c:a!")
    worker_id = await a_worker(database)
    await carried_through(database, worker_id, {"a": FAILS})
    assert await states_of(database, workflow_id) == {"a": "failed", "b": "skipped", "c": "succeeded"}

    await replay(database, [await run_of(database, workflow_id, "a")])

    assert await states_of(database, workflow_id) == {"a": "ready", "b": "waiting", "c": "waiting"}
    assert await carried_through(database, worker_id) == [["a"], ["b"]]
    assert await states_of(database, workflow_id) == {"a": "succeeded", "b": "succeeded", "c": "skipped"}
    assert await state_of(database, workflow_id) == "succeeded"
    await is_whole(database)


@pytest.mark.parametrize("replayed", [["a"], ["b"], ["a", "b"], ["b", "a"]])
async def test_dead_runs_that_are_behind_each_other_rise_once(database, clock, replayed):
    workflow_id = await a_workflow(database, "a b:a! c:b")
    worker_id = await a_worker(database)
    await carried_through(database, worker_id, {"a": FAILS, "b": FAILS})

    await replay(database, [await run_of(database, workflow_id, node) for node in replayed])
    await is_whole(database)

    await carried_through(database, worker_id, {"a": FAILS})
    await clock.advance(2)
    await run_workflow_tasks(database)
    assert await states_of(database, workflow_id) == {"a": "failed", "b": "succeeded", "c": "succeeded"}
    assert await counts(database) == {"dead": 1}
    await is_whole(database)


async def test_a_node_that_is_replayed_is_as_young_as_a_new_one(database, clock):
    young = Retry(max_attempts=2, base_seconds=1, cap_seconds=1, jitter=0, max_age_seconds=60)
    workflow_id = await a_workflow(database, "a", retry=young)
    worker_id = await a_worker(database)
    await end(database, worker_id, (await taken(database, worker_id)).values(), Failed("broken"))
    await clock.advance(2)
    await staged(database)
    worker_id = await a_worker(database)
    await end(database, worker_id, (await taken(database, worker_id)).values(), Failed("broken"))
    assert await counts(database) == {"dead": 1}

    await clock.advance(3600)
    await replay_workflow(database, 1, workflow_id, "a")
    worker_id = await a_worker(database)
    await end(database, worker_id, (await taken(database, worker_id)).values(), Failed("broken"))

    assert await counts(database) == {"ready": 1}


async def test_attempt_numbers_continue_after_their_records_are_deleted(database):
    workflow_id = await a_workflow(database, "a")
    worker_id = await a_worker(database)
    await carried_through(database, worker_id)
    await database.execute("delete from duly.attempts")

    await replay_workflow(database, 1, workflow_id, "a")

    [run] = (await taken(database, worker_id)).values()
    assert run.attempt == 2


async def test_map_item_attempt_numbers_continue_after_their_records_are_deleted(database):
    workflow = Workflow("pages", (a_node("list"), a_node("page", "list", over=Reference("list"))))
    workflow_id = await a_workflow(database, workflow)
    worker_id = await a_worker(database)
    await carried_through(database, worker_id, {"list": Succeeded("[1, 2]"), "page[1]": FAILS})
    await replay_workflow(database, 1, workflow_id, "page[1]")
    await carried_through(database, worker_id)
    await database.execute("delete from duly.attempts")

    await replay_workflow(database, 1, workflow_id, "page")
    numbers = {node: run.attempt for node, run in (await taken(database, worker_id)).items()}

    assert numbers == {"page[0]": 2, "page[1]": 3}


async def test_items_of_a_map_that_had_not_ended_count_their_attempts_on_when_it_is_replayed(database):
    """A workflow is paused while an item waits for its retry, and what its map depends on is replayed."""
    twice = Retry(max_attempts=2, base_seconds=0)
    workflow = Workflow("pages", (a_node("list"), a_node("page", "list", over=Reference("list"), retry=twice)))
    workflow_id = await a_workflow(database, workflow)
    worker_id = await a_worker(database)
    await end(database, worker_id, (await taken(database, worker_id)).values(), Succeeded("[1, 2]"))
    items = (await taken(database, worker_id)).values()
    await pause_workflow(database, 1, workflow_id)
    await end(database, worker_id, items, Failed("broken"))
    await run_workflow_tasks(database)

    await replay_workflow(database, 1, workflow_id, "list")
    await resume_workflow(database, 1, workflow_id)
    await end(database, worker_id, (await taken(database, worker_id)).values(), Succeeded("[1, 2]"))
    again = await taken(database, worker_id)

    assert {node: run.attempt for node, run in again.items()} == {"page[0]": 2, "page[1]": 2}
    await end(database, worker_id, again.values(), Failed("broken"))
    assert await counts(database) == {"ready": 2, "blocked": 1}, "a replay gives them all their attempts anew"


async def test_descendants_that_run_because_of_a_failure_go_on_when_it_is_replayed(database):
    workflow_id = await a_workflow(database, "a c:a! d:c")
    worker_id = await a_worker(database)
    await end(database, worker_id, (await taken(database, worker_id)).values(), FAILS)
    running = await taken(database, worker_id)

    await replay(database, [await run_of(database, workflow_id, "a")])
    await end(database, worker_id, (await taken(database, worker_id)).values())
    assert await states_of(database, workflow_id) == {"a": "succeeded", "c": "ready", "d": "waiting"}
    await end(database, worker_id, running.values())

    assert await carried_through(database, worker_id) == [["d"]]
    assert await state_of(database, workflow_id) == "succeeded"


async def test_a_map_makes_a_node_for_each_item_and_gathers_them_in_order(database):
    workflow = Workflow(
        "pages", (a_node("list"), a_node("page", "list", over=Reference("list", ("pages",))), a_node("sum", "page"))
    )
    workflow_id = await a_workflow(database, workflow)
    worker_id = await a_worker(database)

    waves = await carried_through(database, worker_id, {"list": Succeeded('{"pages": [7, 8, 9]}')})

    assert waves == [["list"], ["page[0]", "page[1]", "page[2]"], ["sum"]]
    assert await result_of(database, workflow_id, "page") == ["page[0]", "page[1]", "page[2]"]
    assert await state_of(database, workflow_id) == "succeeded"
    assert (await whole(database, workflow_id))["node_count"] == 6
    await is_whole(database)


@pytest.mark.parametrize(
    ("result", "state", "reason"),
    [
        ("[]", "succeeded", None),
        ('{"pages": 3}', "failed", "the result of node 'list' has no list at [], but object"),
        (None, "failed", "the result of node 'list' has no list at [], but nothing"),
        (
            f"[{','.join('0' * 998)}]",
            "failed",
            "998 items and 3 nodes are more than 1000, which a workflow has at most",
        ),
    ],
)
async def test_a_map_over_nothing_or_no_list(database, result, state, reason):
    workflow = Workflow(
        "pages", (a_node("list"), a_node("page", "list", over=Reference("list")), a_node("end", "page?"))
    )
    workflow_id = await a_workflow(database, workflow)

    waves = await carried_through(database, await a_worker(database), {"list": Succeeded(result)})

    [page] = [node for node in (await whole(database, workflow_id))["nodes"] if node["name"] == "page"]
    assert (page["state"], page["reason"]) == (state, reason)
    assert waves == [["list"], ["end"]]
    await is_whole(database)


async def test_a_map_fails_with_its_items_and_can_be_done_again(database):
    workflow = Workflow(
        "pages", (a_node("list"), a_node("page", "list", over=Reference("list")), a_node("end", "page"))
    )
    workflow_id = await a_workflow(database, workflow)
    worker_id = await a_worker(database)
    await carried_through(database, worker_id, {"list": Succeeded("[1, 2]"), "page[1]": FAILS})
    assert await state_of(database, workflow_id) == "failed"
    assert (await states_of(database, workflow_id))["page"] == "failed"

    assert await plan_replay(database, 1, workflow_id, "page[1]") == Replay(["end", "page", "page[1]"], [], 2)
    assert await replay_workflow(database, 1, workflow_id, "page[1]") == Replay(["end", "page", "page[1]"], [], 2)
    assert await carried_through(database, worker_id) == [["page[1]"], ["end"]]
    assert await state_of(database, workflow_id) == "succeeded"

    assert await plan_replay(database, 1, workflow_id, "page") == Replay(["end", "page"], ["page[0]", "page[1]"], 1)
    assert await state_of(database, workflow_id) == "succeeded", "a dry run changes nothing"
    assert (await replay_workflow(database, 1, workflow_id, "page")).recreated == ["page[0]", "page[1]"]
    assert await carried_through(database, worker_id, {"page[0]": FAILS}) == [["page[0]", "page[1]"]]
    assert (await replay_workflow(database, 1, workflow_id, "list")).nodes == ["end", "list", "page"]
    assert await carried_through(database, worker_id, {"list": Succeeded("[1]")}) == [["list"], ["page[0]"], ["end"]]
    assert await state_of(database, workflow_id) == "succeeded"
    assert await counts(database) == {}
    run_id = await run_of(database, workflow_id, "page[0]")
    numbers = [attempt for attempt, outcome, _ in await history_of(database, run_id) if outcome != "cancelled"]
    assert numbers == [1, 2, 3]
    await is_whole(database)


async def test_a_running_node_adds_nodes_that_its_children_wait_for(database):
    workflow_id = await a_workflow(database, "a z:a broken:a!")
    worker_id = await a_worker(database)
    [run] = (await taken(database, worker_id)).values()

    more = [a_node("m1"), a_node("m2", "m1")]
    assert await add_nodes(database, 1, run.run_id, run.fence, more) == ["m1", "m2"]
    assert await add_nodes(database, 1, run.run_id, run.fence, more) == ["m1", "m2"]
    await end(database, worker_id, [run])

    assert await carried_through(database, worker_id) == [["m1"], ["m2"], ["z"]]
    assert (await states_of(database, workflow_id))["broken"] == "skipped"
    assert await state_of(database, workflow_id) == "succeeded"
    await is_whole(database)


async def test_node_that_adds_nodes_and_then_fails_leaves_them_skipped(database):
    workflow_id = await a_workflow(database, "a z:a broken:a!")
    worker_id = await a_worker(database)
    [run] = (await taken(database, worker_id)).values()
    await add_nodes(database, 1, run.run_id, run.fence, [a_node("m")])

    await end(database, worker_id, [run], FAILS)

    assert await carried_through(database, worker_id) == [["broken"]]
    assert await states_of(database, workflow_id) == {
        "a": "failed",
        "z": "skipped",
        "broken": "succeeded",
        "m": "skipped",
    }


async def test_nodes_are_added_under_the_fence_alone(database):
    workflow_id = await a_workflow(database, "a z:a")
    worker_id = await a_worker(database)
    [run] = (await taken(database, worker_id)).values()

    with pytest.raises(LeaseOver):
        await add_nodes(database, 1, run.run_id, run.fence + 1, [a_node("m")])
    with pytest.raises(WorkflowChanged, match="'z' is there already"):
        await add_nodes(database, 1, run.run_id, run.fence, [a_node("z")])
    with pytest.raises(InvalidWorkflow, match="node 'm' depends on 'z', which is not a node"):
        await add_nodes(database, 1, run.run_id, run.fence, [a_node("m", "z")])
    await cancel_workflow(database, 1, workflow_id)
    with pytest.raises(WorkflowChanged, match="being cancelled"):
        await add_nodes(database, 1, run.run_id, run.fence, [a_node("m")])
    await end(database, worker_id, [run])
    with pytest.raises(NotFound):
        await add_nodes(database, 1, run.run_id, run.fence, [a_node("m")])


async def test_workflow_end_sends_its_callbacks(database):
    workflow = Workflow(
        "nightly",
        (a_node("a"),),
        callbacks=Callbacks(
            end=Callback(url="https://hooks.example/done"), failure=Callback(url="https://hooks.example/dead")
        ),
    )
    await a_workflow(database, workflow)

    await end(database, worker := await a_worker(database), (await taken(database, worker)).values(), FAILS)

    rows = await database.fetch(
        "select options->'target'->>'url', payload->>'type', payload->'data'->>'state' from duly.ready order by 1"
    )
    assert [tuple(row) for row in rows] == [
        ("https://hooks.example/dead", "duly.workflow.failed.v1", "failed"),
        ("https://hooks.example/done", "duly.workflow.failed.v1", "failed"),
    ]


async def test_a_workflow_is_kept_while_it_lives_and_for_a_while_after(database, clock):
    ended_id = await a_workflow(database, "a")
    await carried_through(database, await a_worker(database))
    await a_workflow(database, "a b:a")

    await clock.advance(3600)
    assert await forget_older(database, Aging.WORKFLOWS, seconds(7200), 100) == 0
    assert await forget_older(database, Aging.WORKFLOWS, seconds(60), 100) == 1

    assert await workflows.find(database, 1, ended_id) is None
    assert await database.fetchval("select count(*) from duly.workflow_nodes") == 2


async def test_waiting_node_shows_its_parents_and_its_run_is_blocked(database):
    workflow_id = await a_workflow(database, "a b:a")
    run_id = await run_of(database, workflow_id, "b")

    assert (await found_run(database, run_id))["state"] == "blocked"
    assert await boxes_of(database, run_id) == ["blocked"]
    [_, node] = (await whole(database, workflow_id))["nodes"]
    assert (node["parents"], node["box"]) == ([{"node": "a", "on": "success"}], "blocked")


async def test_a_snoozed_node_is_not_at_its_end(database, clock):
    workflow_id = await a_workflow(database, "a b:a")
    worker_id = await a_worker(database)

    await end(database, worker_id, (await taken(database, worker_id)).values(), Snoozed(seconds(60)))
    assert await states_of(database, workflow_id) == {"a": "ready", "b": "waiting"}
    await clock.advance(61)
    await staged(database)

    assert await carried_through(database, await a_worker(database)) == [["a"], ["b"]]


async def test_workflows_are_listed_the_newest_first_page_by_page(database, clock):
    listed = []
    for number in range(5):
        await clock.advance(1)
        listed.append(await a_workflow(database, "a", name="odd" if number % 2 else "even"))
    await cancel_workflow(database, 1, listed[0])

    async def pages(chosen, size, **more):
        found, depends_on = [], None
        while True:
            page = await lists.workflows(database, 1, parse(chosen, WORKFLOWS), size, depends_on, **more)
            found.append([listed.index(row["workflow_id"]) for row in page.rows])
            depends_on = page.after
            if depends_on is None:
                return found

    assert await pages("", 2) == [[4, 3], [2, 1], [0]]
    assert await pages("", 5) == [[4, 3, 2, 1, 0], []]
    assert await pages("name:odd", 3) == [[3, 1]]
    assert await pages("name:odd", 2, looks=2) == [[3], [1], []]
    assert await pages("state:cancelled", 2) == [[0]]
    assert (await lists.workflows(database, 2, parse("", WORKFLOWS), 10)).rows == []
