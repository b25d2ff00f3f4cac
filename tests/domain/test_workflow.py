"""Workflows: what is refused, in what order nodes come, which edges hold, and how it all ends."""

from itertools import pairwise
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duly.domain.errors import InvalidOption, InvalidWorkflow
from duly.domain.workflows.references import Reference
from duly.domain.workflows.target import target_for, workflow_of
from duly.domain.workflows.workflow import (
    NODE_ENDS,
    NODES_MAX,
    UNDONE,
    WORKFLOW_STATES,
    Edge,
    Node,
    NodeState,
    On,
    Workflow,
    WorkflowState,
    ancestors,
    check_nodes,
    check_workflow,
    covered_by,
    read_edges,
    read_map,
    sinks,
)
from duly.wire import workflows as wire
from tests.builders import a_submission
from tests.graphs import a_graph, a_node, end_of, is_released, pauses


def refusal(workflow):
    with pytest.raises(InvalidWorkflow) as caught:
        check_workflow(workflow)
    return str(caught.value), caught.value.where


@pytest.mark.parametrize(
    ("shape", "message", "where"),
    [
        ("a:a", "node 'a' depends on itself: a → a", ("nodes", "a", "depends_on", 0)),
        ("a:b b:a", "nodes depend on each other in a cycle: a → b → a", ("nodes", "a", "depends_on")),
        ("x a:c,x b:a c:b d:c", "nodes depend on each other in a cycle: a → b → c → a", ("nodes", "a", "depends_on")),
        (
            "a b:a,z",
            "node 'b' depends on 'z', which is not a node of this workflow: z → b",
            ("nodes", "b", "depends_on", 1),
        ),
        ("a b:a,a!", "node 'b' names parent 'a' twice; leave one out", ("nodes", "b", "depends_on", 1)),
        ("a a", "node 'a' is there twice; give each a name of its own", ("nodes", "a")),
        ("", "a workflow needs at least one node", ()),
    ],
)
def test_invalid_graph_is_refused_with_the_path(shape, message, where):
    assert refusal(a_graph(shape)) == (message, where)


@pytest.mark.parametrize("name", ["", "-a", ".a", "a b", "a[0]", "ü", "a/b", "a" * 101])
def test_names_that_are_none(name):
    assert "is not a name" in refusal(Workflow("w", (a_node(name),)))[0]


@pytest.mark.parametrize("name", ["a", "0", "_", "a.b-c_D", "a" * 100])
def test_names_that_are_some(name):
    assert check_workflow(Workflow("w", (a_node(name),))) == (name,)


def test_a_workflow_needs_a_name():
    with pytest.raises(InvalidOption):
        check_workflow(Workflow("", (a_node("a"),)))


def test_a_thousand_nodes_are_the_most():
    nodes = tuple(a_node(f"n{number}", *([f"n{number - 1}"] if number else [])) for number in range(NODES_MAX + 1))

    assert len(check_workflow(Workflow("w", nodes[:-1]))) == NODES_MAX
    assert refusal(Workflow("w", nodes))[0].startswith("1001 nodes are too many; the limit is 1000")
    with pytest.raises(InvalidWorkflow, match="1001 nodes"):
        check_nodes(nodes[:1], count=1000)


def test_a_node_has_no_moment_of_its_own():
    assert "leave the time out" in refusal(Workflow("w", (Node("a", a_submission(delay=5)),)))[0]


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        ({"rows": {"$result": "z"}}, "result of 'z', which is not a node of this workflow; there are a, c"),
        ({"rows": {"$result": "c"}}, "result of 'c'"),
        ({"rows": {"$result": "b"}}, "result of 'b'"),
        ({"rows": [{"$result": 7}]}, "is not a reference"),
        ({"rows": {"$result": "a", "more": 1}}, "is not a reference"),
        ({"rows": {"$result": "a", "path": "x"}}, "is not a list of names and numbers"),
        ({"rows": {"$item": True}}, 'uses "$item" without a map'),
    ],
)
def test_references_that_lead_nowhere_are_refused(payload, message):
    nodes = (a_node("a"), a_node("b", "a", payload=payload), a_node("c", "b"))

    assert message in refusal(Workflow("w", nodes))[0]


def test_workflow_node_may_reference_any_ancestor():
    payload = {"deep": [{"$result": "a", "path": ["rows", 0]}], "near": {"$result": "b"}, "text": "$result"}
    nodes = (a_node("a"), a_node("b", "a"), a_node("c", "b", payload=payload))

    assert check_workflow(Workflow("w", nodes)) == ("a", "b", "c")


def test_a_map_is_over_the_result_of_a_node_before():
    assert "does not depend on" in refusal(Workflow("w", (a_node("a"), a_node("b", over=Reference("a")))))[0]
    item = a_node("b", "a", over=Reference("a"), payload={"item": {"$item": True, "path": ["id"]}})
    assert check_workflow(Workflow("w", (a_node("a"), item))) == ("a", "b")


@pytest.mark.parametrize(
    ("given", "edges"),
    [
        ([], ()),
        (["a"], (Edge("a"),)),
        (["a", {"node": "b", "on": "failure"}], (Edge("a"), Edge("b", On.FAILURE))),
        ([{"node": "b"}], (Edge("b"),)),
    ],
)
def test_parents_are_read(given, edges):
    assert read_edges("n", given) == edges


@pytest.mark.parametrize(
    "given", ["a", 7, [7], [{"on": "success"}], [{"node": "a", "on": "never"}], [{"node": "a", "x": 1}]]
)
def test_invalid_list_of_parents_is_refused(given):
    with pytest.raises(InvalidWorkflow, match="'n'"):
        read_edges("n", given)


def test_a_map_is_read():
    assert read_map("n", None) is None
    assert read_map("n", {"$result": "a", "path": ["x", 0]}) == Reference("a", ("x", 0))
    for wrong in ("a", {"$item": True}, {"a": 1}, {"$result": 1}):
        with pytest.raises(InvalidWorkflow, match="'n'"):
            read_map("n", wrong)


@pytest.mark.parametrize("end", sorted(NODE_ENDS))
def test_edges_hold_by_how_the_parent_ended(end):
    assert pauses(On.SUCCESS, end) == (end is NodeState.SUCCEEDED)
    assert pauses(On.FAILURE, end) == (end in {NodeState.FAILED, NodeState.EXPIRED, NodeState.CANCELLED})
    assert pauses(On.ALWAYS, end)


def test_replay_covers_a_node_and_its_descendants():
    edges = [("a", "b"), ("b", "d"), ("a", "c"), ("c", "d"), ("x", "c")]

    assert covered_by(edges, "b") == {"b", "d"}
    assert covered_by(edges, "a") == {"a", "b", "c", "d"}
    assert covered_by(edges, "d") == {"d"}


def test_workflow_survives_a_round_trip_through_its_target():
    nodes = (
        a_node("a", concurrency=("one", 1)),
        a_node("b", "a!", over=Reference("a", ("x", 0)), payload={"$item": True}),
    )
    workflow = Workflow("w", nodes, ("nightly",))

    assert workflow_of(target_for(workflow)) == workflow
    large = Workflow("w", tuple(a_node(f"n{number}", payload={"x": "x" * 10_000}) for number in range(30)))
    with pytest.raises(InvalidWorkflow, match="262144"):
        target_for(large)


@st.composite
def graphs(draw):
    """Nodes whose parents stand among those before them, in some order."""
    count = draw(st.integers(1, 12))
    nodes = []
    for number in range(count):
        parents = draw(st.lists(st.integers(0, number - 1), unique=True, max_size=4)) if number else []
        depends_on = tuple(Edge(f"n{parent}", draw(st.sampled_from(list(On)))) for parent in parents)
        nodes.append(Node(f"n{number}", a_submission(), depends_on))
    return draw(st.permutations(nodes))


@given(graphs())
def test_parents_come_first_in_the_order(nodes):
    order = check_nodes(nodes)

    assert sorted(order) == sorted(node.name for node in nodes)
    for node in nodes:
        assert all(order.index(edge.parent) < order.index(node.name) for edge in node.depends_on)


@given(graphs(), st.data())
def test_an_edge_back_makes_a_circle_that_is_named(nodes, data):
    before = ancestors(nodes)
    pairs = [(name, parent) for name, parents in before.items() for parent in sorted(parents)]
    if not pairs:
        return
    name, parent = data.draw(st.sampled_from(pairs))
    turned = [
        Node(node.name, node.submission, (*node.depends_on, Edge(name))) if node.name == parent else node
        for node in nodes
    ]

    with pytest.raises(InvalidWorkflow, match=r"in a cycle|twice") as caught:
        check_nodes(turned)
    if "circle" in str(caught.value):
        circle = str(caught.value).partition(": ")[2].split(" → ")
        edges = {(edge.parent, node.name) for node in turned for edge in node.depends_on}
        assert circle[0] == circle[-1]
        assert all(pair in edges for pair in pairwise(circle))


@given(graphs())
def test_replay_covers_exactly_the_nodes_with_the_node_among_their_ancestors(nodes):
    edges = [(edge.parent, node.name) for node in nodes for edge in node.depends_on]
    before = ancestors(nodes)

    for node in nodes:
        behind = {name for name, parents in before.items() if node.name in parents}
        assert covered_by(edges, node.name) == behind | {node.name}
    assert set(sinks(nodes)) == {node.name for node in nodes if not any(parent == node.name for parent, _ in edges)}


@given(graphs(), st.data())
def test_every_node_ends_and_so_does_the_workflow(nodes, data):
    """Walk a graph with any ends: each node is run or skipped once, and the end follows from what nobody saw to."""
    by_name = {node.name: node for node in nodes}
    ends: dict[str, NodeState] = {}
    for name in check_nodes(nodes):
        runs = is_released(by_name[name], ends)
        ends[name] = data.draw(st.sampled_from(sorted(UNDONE | {NodeState.SUCCEEDED}))) if runs else NodeState.SKIPPED

    seen_to = {edge.parent for node in nodes for edge in node.depends_on if edge.on in {On.FAILURE, On.ALWAYS}}
    failed = any(end in UNDONE and name not in seen_to for name, end in ends.items())
    expected = WorkflowState.FAILED if failed else WorkflowState.SUCCEEDED
    assert end_of(nodes, ends, is_cancelling=False) is expected
    assert end_of(nodes, ends, is_cancelling=True) is WorkflowState.CANCELLED


def test_http_names_the_same_states():
    assert get_args(wire.WorkflowState) == WORKFLOW_STATES
