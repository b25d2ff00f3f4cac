"""Hand out: a node is given what its parents came to, and what its payload names."""

import msgspec

from duly.domain.runs.outcome import Failed, Succeeded
from duly.domain.workflows.references import Reference
from duly.domain.workflows.workflow import Workflow
from duly.moves.workflows.hand_out import hand_out
from duly.store.connection.session import Sessions
from tests.builders import a_leased_run, a_worker
from tests.graphs import FAILS, a_node, a_workflow, end, result_of, states_of, taken, whole


async def given_to(database, name, worker_id):
    run = (await taken(database, worker_id))[name]
    return (await hand_out(database, [run]))[run.run_id]


def decoded(run):
    return msgspec.json.decode(run.payload), msgspec.json.decode(run.parents or "{}")


async def test_node_receives_its_parents_results_and_the_values_it_names(database):
    payload = {"rows": {"$result": "a", "path": ["rows"]}, "kept": 1}
    await a_workflow(database, Workflow("w", (a_node("a"), a_node("b", "a"), a_node("c", "b", payload=payload))))
    worker_id = await a_worker(database)
    await end(database, worker_id, (await taken(database, worker_id)).values(), Succeeded('{"rows": [1, 2]}'))
    await end(database, worker_id, (await taken(database, worker_id)).values(), Succeeded('"done"'))

    run = await given_to(database, "c", worker_id)

    assert decoded(run) == ({"rows": [1, 2], "kept": 1}, {"b": "done"})
    assert run.refused is None


async def test_node_receives_results_of_succeeded_parents_only(database):
    await a_workflow(database, "a b c:a!,b")
    worker_id = await a_worker(database)
    held = await taken(database, worker_id)
    await end(database, worker_id, [held["a"]], FAILS)
    await end(database, worker_id, [held["b"]])

    assert decoded(await given_to(database, "c", worker_id)) == ({}, {"b": None})


async def test_node_behind_a_failure_receives_the_error(database):
    payload = {"whole": {"$error": "a"}, "word": {"$error": "a", "path": ["message"]}, "none": {"$error": "b"}}
    shape = (a_node("a"), a_node("b"), a_node("c", "a!", "b?", payload=payload))
    await a_workflow(database, Workflow("w", shape))
    worker_id = await a_worker(database)
    held = await taken(database, worker_id)
    await end(database, worker_id, [held["a"]], Failed("ValueError: no rows", retryable=False))
    await end(database, worker_id, [held["b"]])

    given, _ = decoded(await given_to(database, "c", worker_id))

    whole = {"state": "failed", "class": "ValueError", "message": "no rows", "attempts": 1}
    assert given == {"whole": whole, "word": "no rows", "none": None}


async def test_an_item_of_a_map_is_given_its_own(database):
    pages = a_node(
        "page", "list", over=Reference("list", ("pages",)), payload={"page": {"$item": True, "path": ["id"]}}
    )
    await a_workflow(database, Workflow("w", (a_node("list"), pages, a_node("sum", "page"))))
    worker_id = await a_worker(database)
    listed = {"list": Succeeded('{"pages": [{"id": 7}, {"id": 8}]}')}
    await end(database, worker_id, (await taken(database, worker_id)).values(), listed["list"])

    items = await taken(database, worker_id)
    given = await hand_out(database, list(items.values()))
    assert [decoded(given[items[name].run_id])[0] for name in sorted(items)] == [{"page": 7}, {"page": 8}]
    assert decoded(given[items["page[0]"].run_id])[1] == {"list": {"pages": [{"id": 7}, {"id": 8}]}}

    await end(database, worker_id, items.values(), Succeeded("1"))
    assert decoded(await given_to(database, "sum", worker_id)) == ({}, {"page": [1, 1]})


async def test_node_input_that_is_missing_or_too_large_is_refused(database):
    shape = (a_node("a"), a_node("b", "a", payload={"x": {"$result": "a", "path": ["x"]}}))
    await a_workflow(database, Workflow("w", shape))
    worker_id = await a_worker(database)
    await end(database, worker_id, (await taken(database, worker_id)).values(), Succeeded("{}"))
    run = await given_to(database, "b", worker_id)
    assert run.refused is not None
    assert "has nothing at" in run.refused
    await end(database, worker_id, [run], FAILS)

    parents = [a_node(f"p{number}") for number in range(20)]
    await a_workflow(database, Workflow("w", (*parents, a_node("z", *(node.name for node in parents)))))
    large = Succeeded(msgspec.json.encode("x" * 60_000).decode())
    await end(database, worker_id, (await taken(database, worker_id)).values(), large)
    run = await given_to(database, "z", worker_id)
    assert run.refused is not None
    assert "1200040 bytes; the limit is 1048576" in run.refused


NOT_KEPT = Succeeded(None, reason="its result was 200,002 bytes and is not kept")


async def test_node_fails_only_if_it_references_a_result_that_is_not_kept(database):
    shape = (
        a_node("a"),
        a_node("named", "a", payload={"event": {"$result": "a"}}),
        a_node("behind", "a"),
        a_node("each", "a", over=Reference("a", ("rows",))),
    )
    workflow_id = await a_workflow(database, Workflow("w", shape))
    worker_id = await a_worker(database)
    await end(database, worker_id, (await taken(database, worker_id)).values(), NOT_KEPT)

    held = await taken(database, worker_id)
    given = await hand_out(database, list(held.values()))

    refused = given[held["named"].run_id].refused
    assert refused is not None
    assert "node 'a' has no result" in refused
    assert refused.endswith(": its result was 200,002 bytes and is not kept")
    behind = given[held["behind"].run_id]
    assert (behind.refused, decoded(behind)) == (None, ({}, {})), "and it has no such parent"
    nodes = {node["name"]: node for node in (await whole(database, workflow_id))["nodes"]}
    assert nodes["a"]["state"] == "succeeded"
    assert nodes["each"]["state"] == "failed"
    assert nodes["each"]["reason"].startswith("node 'a' has no result")
    assert nodes["each"]["reason"].endswith(": its result was 200,002 bytes and is not kept")


async def test_handler_result_with_the_word_not_kept_is_an_ordinary_result(database):
    await a_workflow(database, Workflow("w", (a_node("a"), a_node("b", "a", payload={"x": {"$result": "a"}}))))
    worker_id = await a_worker(database)
    await end(
        database, worker_id, (await taken(database, worker_id)).values(), Succeeded('{"not_kept": "200002 bytes"}')
    )

    assert decoded(await given_to(database, "b", worker_id))[0] == {"x": {"not_kept": "200002 bytes"}}


async def test_map_with_a_too_large_item_result_passes_on_no_list(database):
    shape = (
        a_node("list"),
        a_node("page", "list", over=Reference("list", ())),
        a_node("sum", "page", payload={"x": {"$result": "page"}}),
        a_node("last", "page"),
    )
    workflow_id = await a_workflow(database, Workflow("w", shape))
    worker_id = await a_worker(database)
    await end(database, worker_id, (await taken(database, worker_id)).values(), Succeeded("[1, 2]"))
    items = await taken(database, worker_id)
    await end(database, worker_id, [items["page[0]"]], Succeeded("1"))
    await end(database, worker_id, [items["page[1]"]], NOT_KEPT)

    held = await taken(database, worker_id)
    given = await hand_out(database, list(held.values()))

    assert "of item page[1], its result was 200,002 bytes" in (given[held["sum"].run_id].refused or "")
    assert given[held["last"].run_id].refused is None
    assert (await states_of(database, workflow_id))["page"] == "succeeded"
    assert await result_of(database, workflow_id, "page") == [1, None]


async def test_the_beginning_of_an_answer_and_the_end_of_an_output_are_not_handed_on(database):
    shape = (a_node("a"), a_node("b", "a", payload={"x": {"$result": "a", "path": ["body"]}}))
    workflow_id = await a_workflow(database, Workflow("w", shape))
    worker_id = await a_worker(database)
    cut = Succeeded('{"status": 200, "body": "{…"}', reason="its answer was longer than 65,536 bytes")
    await end(database, worker_id, (await taken(database, worker_id)).values(), cut)

    run = await given_to(database, "b", worker_id)

    assert "its answer was longer than 65,536 bytes" in (run.refused or "")
    assert await result_of(database, workflow_id, "a") == {"status": 200, "body": "{…"}, "people may look at it"


async def test_a_run_that_is_no_node_is_given_nothing(database):
    _, run = await a_leased_run(database)

    assert await hand_out(database, [run]) == {}


async def test_behind_the_wall_it_is_the_same(database):
    await a_workflow(database, Workflow("w", (a_node("a"), a_node("b", "a", payload={"$result": "a"}))))
    worker_id = await a_worker(database)
    await end(database, worker_id, (await taken(database, worker_id)).values(), Succeeded("[7]"))
    run = (await taken(database, worker_id))["b"]

    async with Sessions(database) as sessions:
        async with sessions.open(1) as session:
            assert (await hand_out(session, [run]))[run.run_id].payload == "[7]"
        async with sessions.open(2) as session:
            assert (await hand_out(session, [run]))[run.run_id].refused is not None
