"""Workflows put together in Python: what each node waits for, what its arguments may be, and what is refused."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from duly import App, InvalidArguments, InvalidOption, InvalidWorkflow, NotFound, Rate, Retry, Workflow, WorkflowHandle
from duly.domain.jobs.compile import AT_ONCE
from duly.domain.jobs.manifest import read_workflow
from duly.domain.jobs.manifest_text import read_text
from duly.sdk.keywords import Keywords
from duly.sdk.workflow import _NOT_OF_A_NODE
from duly.wire.workflows import NewWorkflow


@pytest.fixture
def wf(app):
    return Workflow("nightly")


def nodes(wf: Workflow) -> dict[str, Any]:
    """Give the nodes as they are asked for over HTTP."""
    found: dict[str, Any] = wf.spec()["nodes"]
    return found


class TestEdges:
    def test_a_result_among_the_arguments_is_waited_for(self, wf, greet, send):
        first = wf.add("first", greet, name="a")
        wf.add("second", send, customer=1, to=first.result)
        wf.add("third", send, 1, first.result["to"][0])

        assert nodes(wf)["second"]["depends_on"] == ["first"]
        assert nodes(wf)["second"]["payload"] == {"customer": 1, "to": {"$result": "first"}}
        assert nodes(wf)["third"]["payload"]["to"] == {"$result": "first", "path": ["to", 0]}

    def test_node_dependency_defaults_to_success(self, wf, tick):
        first, second, third = (wf.add(name, tick) for name in "abc")
        wf.add("last", tick, depends_on=[first, second.failed, third.ended])

        assert nodes(wf)["last"]["depends_on"] == ["a", {"node": "b", "on": "failure"}, {"node": "c", "on": "always"}]

    def test_edge_keeps_its_declared_condition_alongside_a_reference(self, wf, greet):
        first = wf.add("first", greet, name="a")
        wf.add("second", greet, name=first.result, depends_on=[first.ended])

        assert nodes(wf)["second"]["depends_on"] == [{"node": "first", "on": "always"}]

    def test_map_iterates_a_result_and_passes_its_item_first_by_default(self, wf, greet, send):
        first = wf.add("first", greet, name="a")
        wf.map("each", greet, over=first.result["names"])
        wf.map("mailed", send, over=first.result, customer=wf.item["id"], to="a")

        each, mailed = nodes(wf)["each"], nodes(wf)["mailed"]
        assert (each["map"], each["payload"]) == ({"$result": "first", "path": ["names"]}, {"name": {"$item": True}})
        assert mailed["payload"] == {"customer": {"$item": True, "path": ["id"]}, "to": "a"}


class TestArguments:
    def test_node_arguments_are_checked_except_references(self, wf, send):
        first = wf.add("first", send, customer=1, to="a")

        wf.add("second", send, customer=first.result["customer"], to="b")
        with pytest.raises(InvalidArguments, match="send: argument to is 7: expected `str`"):
            wf.add("third", send, customer=first.result["customer"], to=7)
        with pytest.raises(InvalidArguments, match="missing a required argument: 'to'"):
            wf.add("third", send, customer=first.result)
        with pytest.raises(InvalidArguments, match="unexpected keyword argument 'cc'"):
            wf.add("third", send, customer=1, to="a", cc=first.result)

    def test_result_reference_nests_deep_within_a_value(self, wf, app):
        @app.handler
        def gather(parts: dict[str, list[int]]) -> None: ...

        first = wf.add("first", app["tick"])
        wf.add("second", gather, parts={"a": [1, first.result]})

        assert nodes(wf)["second"]["payload"] == {"parts": {"a": [1, {"$result": "first"}]}}

    def test_a_result_is_not_known_while_the_workflow_is_put_together(self, wf, tick):
        first = wf.add("first", tick)

        with pytest.raises(InvalidArguments, match=r"first.result is not known yet; .* map\(over=…\)"):
            list(first.result)
        with pytest.raises(InvalidArguments, match=r"-1 leads to no part of first.result"):
            first.result[-1]
        with pytest.raises(InvalidArguments, match=r"over \[1\] is no result of a node"):
            wf.map("each", tick, over=[1])


class TestRefusals:
    def test_nodes_of_another_workflow_are_foreign(self, wf, greet):
        other = Workflow("other").add("first", greet, name="a")

        with pytest.raises(InvalidWorkflow, match="'first' is a node of another workflow"):
            wf.add("second", greet, name="b", depends_on=[other])
        with pytest.raises(InvalidWorkflow, match="'first' is a node of another workflow"):
            wf.add("second", greet, name=other.result)

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({"delay": 5}, "delay= is no option of a node"),
            ({"cron": "0 2 * * *"}, "cron= is no option of a node"),
            ({"key": "k"}, "key= is no option of a node"),
        ],
    )
    def test_when_a_node_runs_is_not_its_own_to_say(self, wf, tick, options, words):
        with pytest.raises(InvalidOption, match=words):
            wf.add("first", tick.options(**options))

    def test_invalid_workflow_is_refused_where_it_is_written(self, wf, app, tick):
        first = wf.add("first", tick)

        with pytest.raises(InvalidWorkflow, match="two nodes of nightly are called 'first'"):
            wf.add("first", tick)
        with pytest.raises(InvalidWorkflow, match="is neither a handler nor a target of an app"):
            wf.add("second", print)
        with pytest.raises(InvalidWorkflow, match=r"depends_on= takes a list of nodes, .*given is <Node first"):
            wf.add("second", tick, depends_on=first)
        for depends_on in ("first", None, 7):
            with pytest.raises(InvalidWorkflow, match=f"depends_on= takes a list of nodes, .*given is {depends_on!r}"):
                wf.add("second", tick, depends_on=depends_on)
        with pytest.raises(InvalidWorkflow, match="the name of a node comes first"):
            wf.add(tick, "second")
        with pytest.raises(InvalidWorkflow, match="after 'first' is no node"):
            wf.add("second", tick, depends_on=["first"])
        with pytest.raises(InvalidWorkflow, match="is of another app"):
            wf.add("second", App().webhook("https://shop.example"))
        with pytest.raises(InvalidWorkflow, match="has no nodes"):
            Workflow("empty").submit_sync()
        with pytest.raises(InvalidOption, match="does not say when"):
            wf.declare()

    @pytest.mark.parametrize("name", ["two words", "", "-a", "x" * 101, 7, None, ["a"], {}])
    def test_a_name_that_is_none_is_refused_at_once(self, wf, tick, name):
        with pytest.raises(InvalidWorkflow, match="is not a name: 1 to 100 letters"):
            wf.add(name, tick)

    def test_an_error_among_the_arguments_is_waited_for_as_a_failure(self, wf, greet, send):
        first, second = wf.add("first", greet, "ada"), wf.add("second", greet, "bob")
        wf.add("alarm", send, first.error["message"], second.error["class"], depends_on=[second.ended])

        alarm = wf.spec()["nodes"]["alarm"]

        assert alarm["depends_on"] == [{"node": "second", "on": "always"}, {"node": "first", "on": "failure"}]
        assert {"$error": "first", "path": ["message"]} in alarm["payload"].values()
        assert repr(first.error["message"]) == "first.error['message']"

    def test_error_reference_to_a_required_success_is_refused(self, wf, greet):
        first = wf.add("first", greet, "ada")
        wf.add("alarm", greet, first.error["message"], depends_on=[first])

        with pytest.raises(InvalidWorkflow, match=r"'alarm' uses the error of 'first'.*failure"):
            wf.spec()


class TestSubmit:
    async def test_workflow_is_stored_whole_and_idempotently_under_its_key(self, wf, app, greet):
        first = wf.add("first", greet.options(queue="mail", priority=2, retry=Retry(max_attempts=2)), name="a")
        wf.add("second", greet, name=first.result)
        made = [await wf.submit(key="once") for _ in range(2)]

        assert made[0].workflow_id == made[1].workflow_id
        assert [handle.replayed for handle in made] == [False, True]
        assert await made[0].status() == "running"
        found = await made[0].nodes()
        assert {name: node["state"] for name, node in found.items()} == {"first": "ready", "second": "waiting"}
        assert found["first"]["queue"] == "mail"

    async def test_workflow_handle_by_id_pauses_resumes_cancels_and_replays(self, wf, app, tick):
        first = wf.add("first", tick)
        wf.add("second", tick, depends_on=[first])
        handle = app.workflow((await wf.submit()).workflow_id)

        assert isinstance(handle, WorkflowHandle)
        assert await handle.pause() == "paused"
        assert await handle.resume() == "running"
        assert await handle.cancel("wrong day") == "cancelled"
        assert await handle.wait() == "cancelled"
        with pytest.raises(Exception, match="is cancelled"):
            await handle.result()
        assert sorted(await handle.replay("first")) == ["first", "second"]
        with pytest.raises(TimeoutError, match="is running after"):
            await handle.wait(0)

    async def test_resource_that_does_not_exist_is_not_found(self, app):
        from uuid import uuid4

        with pytest.raises(NotFound, match="no workflow"):
            await app.workflow(uuid4()).status()

    def test_plain_functions_have_twins(self, wf, app, tick):
        wf.add("first", tick)
        handle = wf.submit_sync()

        assert handle.status_sync() == "running"
        assert handle.pause_sync() == "paused"
        assert handle.resume_sync() == "running"
        assert list(handle.nodes_sync()) == ["first"]
        assert handle.cancel_sync() == "cancelled"
        assert handle.wait_sync(1) == "cancelled"
        assert handle.replay_sync("first") == ["first"]


def test_workflow_spec_is_accepted_over_http(wf, app, greet):
    first = wf.add("first", greet.options(timeout="PT5M", concurrency=("customer-7", 3), tags=["mail"]), name="a")
    hook = app.webhook("https://shop.example/in", headers={"Authorization": "Bearer x"}, retry=[404])
    wf.add("hook", hook, rows=first.result)
    wf.map("each", greet, over=first.result)

    spec = wf.spec()

    msgspec.convert(spec, NewWorkflow)
    assert spec["nodes"]["hook"]["target"] == {
        "type": "webhook",
        "url": "https://shop.example/in",
        "headers": {"Authorization": "Bearer x"},
        "retry": [404],
    }
    assert spec["nodes"]["first"]["timeout"] == "PT5M"
    assert spec["nodes"]["first"]["concurrency"] == {"key": "customer-7", "limit": 3}


# Each option that a node may have, and what it is in JSON. What is missing here is no option of a node, or a mark of a request.
OF_A_NODE = {
    "queue": "fetch",
    "priority": 7,
    "retry": Retry(max_attempts=4),
    "timeout": "PT5M",
    "concurrency": ("customer-7", 3),
    "fifo": "customer-7",
    "rate": Rate("mail", 10, per="PT1M", burst=5),
    "expires_at": datetime(2030, 1, 2, 9, 30, tzinfo=UTC),
    "expires_after": "PT1H",
    "tags": ["mail"],
    "redact": ["$.card"],
}


def test_every_option_of_a_node_can_be_tried():
    known = set(Keywords.__annotations__)
    assert known - set(_NOT_OF_A_NODE) - {"request_id", "traceparent"} == set(OF_A_NODE)


@pytest.mark.parametrize("option", OF_A_NODE)
def test_every_option_of_a_node_is_the_same_over_http_and_in_a_file(wf, greet, option):
    wf.add("first", greet.options(**{option: OF_A_NODE[option]}), name="a")
    [known] = wf._checked().nodes

    spec = msgspec.json.decode(msgspec.json.encode(wf.spec()))

    [over_http] = AT_ONCE.nodes((), msgspec.convert(spec, NewWorkflow).nodes)
    [in_a_file] = read_workflow(read_text(msgspec.json.encode(spec).decode(), "flow.yaml").value).nodes
    for found in (over_http, in_a_file):
        assert (found.submission.queue, found.submission.priority) == (
            known.submission.queue,
            known.submission.priority,
        )
        assert found.submission.options == known.submission.options, option


def test_a_declared_workflow_is_a_job_of_the_app(wf, app, tick):
    wf.add("first", tick)
    wf.declare(cron="0 2 * * *", tz="Europe/Paris", overlap="skip")

    [job] = app.declarations("test:app").jobs
    assert (job.name, job.handler, job.owner) == ("nightly", "@workflow", "code")
