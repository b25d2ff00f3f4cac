"""Bodies and queries are read strictly: what is wrong is named with its place and the nearest known name."""

import pytest

from duly.wire.jobs import FunctionTarget, NewJob
from duly.wire.reading import BODY_DEPTH_MAX, Malformed, Misshapen, merge_patch, read_body, read_query
from duly.wire.shapes import Asked

TARGET = '"target": {"type": "function", "handler": "app:mail"}'


class Query(Asked, frozen=True):
    """A query of a test."""

    page_size: int = 50
    filter: str | None = None


def wrong(body: str) -> tuple[str, str]:
    with pytest.raises(Misshapen) as caught:
        read_body(body.encode(), NewJob)
    [error] = caught.value.errors
    return error.pointer, error.message


def test_a_whole_job_is_read():
    job = read_body(f'{{{TARGET}, "priority": 2, "retry": {{"max_attempts": 9}}, "timeout": 30}}'.encode(), NewJob)

    assert (job.target, job.priority, job.timeout) == (FunctionTarget(handler="app:mail"), 2, 30)
    assert job.retry is not None
    assert job.retry.max_attempts == 9


def test_a_misspelt_field_is_refused_with_the_nearest_known_one():
    assert wrong(f'{{{TARGET}, "prioritty": 3}}') == ("/prioritty", "is no field here; did you mean priority?")


def test_a_misspelt_field_inside_is_named_with_its_place():
    pointer, message = wrong(f'{{{TARGET}, "retry": {{"max_atempts": 3}}}}')

    assert (pointer, message) == ("/retry/max_atempts", "is no field here; did you mean max_attempts?")


@pytest.mark.parametrize(
    ("field", "pointer"),
    [
        ('"priority": "5"', "/priority"),
        ('"priority": 10', "/priority"),
        ('"priority": 2.5', "/priority"),
        ('"priority": true', "/priority"),
        ('"queue": ""', "/queue"),
        ('"tags": ["a", 7]', "/tags/1"),
        ('"payload": []', "/payload"),
        ('"retry": {"max_attempts": 0}', "/retry/max_attempts"),
        ('"target": {"type": "functoin", "handler": "x"}', "/target/type"),
    ],
)
def test_nothing_is_made_to_fit(field, pointer):
    body = f"{{{field}}}" if "target" in field else f"{{{TARGET}, {field}}}"

    assert wrong(body)[0] == pointer


@pytest.mark.parametrize("body", ["", "{", "nonsense", "{} {}", '{"a": NaN}', "\xff"])
def test_what_is_not_json_is_malformed(body):
    with pytest.raises(Malformed, match="not JSON"):
        read_body(body.encode("latin-1"), dict)


def test_depth_is_counted_outside_of_text():
    deep = '{"a":' * BODY_DEPTH_MAX + "1" + "}" * BODY_DEPTH_MAX
    read_body(f'{{"x": "{"{[" * 500}"}}'.encode(), dict)
    read_body(deep.encode(), dict)

    with pytest.raises(Misshapen, match="nested deeper"):
        read_body(f"[{deep}]".encode(), list)
    with pytest.raises(Misshapen, match="nested deeper"):
        read_body(b"[" * 100_000, list)


def test_a_query_is_read_from_text_and_each_parameter_once():
    assert read_query([("page_size", "7")], Query) == Query(page_size=7)

    with pytest.raises(Misshapen, match="page_size: is given twice"):
        read_query([("page_size", "7"), ("page_size", "8")], Query)
    with pytest.raises(Misshapen, match="pagesize: is no field here; did you mean page_size"):
        read_query([("pagesize", "7")], Query)
    with pytest.raises(Misshapen, match="page_size: expected `int`"):
        read_query([("page_size", "many")], Query)


@pytest.mark.parametrize(
    ("value", "patch", "result"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        (["a", "b"], ["c", "d"], ["c", "d"]),
        ({"a": "b"}, ["c"], ["c"]),
        ({"a": "foo"}, None, None),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_a_merge_patch_does_what_rfc_7396_shows(value, patch, result):
    assert merge_patch(value, patch) == result


def test_every_shape_that_is_asked_for_refuses_what_it_does_not_know():
    for shape in Asked.__subclasses__():
        assert shape.__struct_config__.forbid_unknown_fields, shape
