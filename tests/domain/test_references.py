"""References: what stands for results in a payload is put in, whole or in part."""

import msgspec
import pytest

from duly.domain.workflows.references import Unresolved, fault_of, has_references, resolved

RESULTS = {"extract": {"rows": [{"id": 7}, {"id": 8}], "none": None}, "list": [1, 2]}


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        ({"a": {"$result": "extract", "path": ["rows", 1, "id"]}}, {"a": 8}),
        ({"a": [{"$result": "list"}, "b"]}, {"a": [[1, 2], "b"]}),
        ({"$result": "list"}, [1, 2]),
        ({"a": {"$result": "extract", "path": ["none"]}}, {"a": None}),
        ({"a": {"$result": "list", "path": [-1]}}, {"a": 2}),
        ({"a": {"$item": True}}, {"a": {"page": 3}}),
        ({"a": {"$item": True, "path": ["page"]}}, {"a": 3}),
        ({"a": {"b": {"c": 1}}, "text": "$result"}, {"a": {"b": {"c": 1}}, "text": "$result"}),
    ],
)
def test_references_are_put_in(payload, expected):
    text = msgspec.json.encode(payload).decode()

    assert msgspec.json.decode(resolved(text, RESULTS, {"page": 3})) == expected


@pytest.mark.parametrize(
    ("state", "reason", "told"),
    [
        ("failed", "ValueError: no: such row", {"class": "ValueError", "message": "no: such row"}),
        ("failed", "KeyError", {"class": "KeyError", "message": ""}),
        ("failed", "timed out after 3 s", {"class": None, "message": "timed out after 3 s"}),
        ("cancelled", "cancelled", {"class": None, "message": "cancelled"}),
        ("skipped", None, {"class": None, "message": ""}),
    ],
)
def test_an_error_has_a_class_where_it_was_an_exception(state, reason, told):
    assert fault_of(state, reason, 2) == {"state": state, **told, "attempts": 2}


def test_errors_are_put_in_and_are_null_where_there_are_none():
    payload = {
        "whole": {"$error": "load"},
        "part": {"$error": "load", "path": ["class"]},
        "none": {"$error": "list"},
        "part of none": {"$error": "list", "path": ["message"]},
    }
    fault = fault_of("failed", "ValueError: bad", 3)

    told = msgspec.json.decode(resolved(msgspec.json.encode(payload).decode(), RESULTS, None, {"load": fault}))

    assert told == {"whole": fault, "part": "ValueError", "none": None, "part of none": None}


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        ({"a": {"$result": "load"}}, "node 'load' has no result"),
        (
            {"a": {"$result": "extract", "path": ["rows", 2]}},
            r'the result of node \'extract\' has nothing at \["rows",2\]',
        ),
        ({"a": {"$result": "extract", "path": [0]}}, "has nothing at"),
        ({"a": {"$result": "list", "path": ["x"]}}, "has nothing at"),
        ({"a": {"$item": True, "path": ["x"]}}, "the item has nothing at"),
        ({"a": {"$result": "list", "or": 1}}, "is not a reference"),
        ({"a": {"$error": "list", "or": 1}}, "is not a reference"),
        ({"a": {"$error": 7}}, "is not a reference"),
    ],
)
def test_unresolved_reference_names_the_missing_value(payload, message):
    with pytest.raises(Unresolved, match=message):
        resolved(msgspec.json.encode(payload).decode(), RESULTS, {"page": 3})


def test_payload_with_possible_references_is_detected():
    assert has_references('{"a": {"$result": "x"}}')
    assert has_references('{"a": {"$item": true}}')
    assert not has_references('{"a": "$results"}')
    assert not has_references(None)
