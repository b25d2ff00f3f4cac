"""Bodies and queries are read strictly: what is wrong is named with its place and the nearest known name."""

import msgspec
import pytest

from duly.domain.targets.spec import FunctionTarget
from duly.wire.jobs.jobs import NewJob
from duly.wire.schema.reading import BODY_DEPTH_MAX, Malformed, Misshapen, merge_patch, read_body, read_query
from duly.wire.schema.shapes import RequestModel
from duly.wire.workflows import NewWorkflow

TARGET = '"target": {"type": "function", "handler": "app:mail"}'


class Query(RequestModel, frozen=True):
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
    assert wrong(f'{{{TARGET}, "prioritty": 3}}') == ("/prioritty", "is not a field here; did you mean priority?")


def test_misspelt_nested_field_is_named_with_its_pointer():
    pointer, message = wrong(f'{{{TARGET}, "retry": {{"max_atempts": 3}}}}')

    assert (pointer, message) == ("/retry/max_atempts", "is not a field here; did you mean max_attempts?")


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ('"priority": 10', "10 is invalid: expected `int` <= 9; give a whole number from 0 to 9"),
        ('"priority": null', "null is invalid: expected `int`, got `null`; give a whole number from 0 to 9"),
        ('"retry": {"policy": "often"}', "'often' is unknown; give one of exponential, fixed, linear, list"),
        (
            '"retry": {"jitter": "some"}',
            "'some' is unknown; give one of equal, full, none or a number from 0 to 1",
        ),
        (
            '"target": {"type": "functoin"}',
            "'functoin' is unknown; give one of command, container, function, webhook, workflow",
        ),
        (
            '"timeout": [9, 9]',
            "a list with 2 items is invalid: expected `float | str | null`, got `array`; give text or a number, such as PT30S",
        ),
        ('"concurrency": {"key": 7}', "7 is invalid: expected `str`, got `int`; give text of 1 to 200 characters"),
        ('"concurrency": {}', "is missing; give text of 1 to 200 characters"),
        (
            f'"name": "{"x" * 300}"',
            "a text of 300 characters is invalid: expected `str` of length <= 200; give text of 1 to 200 characters",
        ),
    ],
)
def test_invalid_value_is_reported_with_the_expected_value(field, message):
    body = f"{{{field}}}" if "target" in field else f"{{{TARGET}, {field}}}"

    assert wrong(body)[1] == message


@pytest.mark.parametrize("name", ["Authorization", "X-Api-Key", "session_token"])
def test_possible_secret_is_not_repeated(name):
    headers = f'{{"Accept": "text/plain", "{name}": 31415926}}'

    pointer, message = wrong(f'{{"target": {{"type": "webhook", "url": "https://a.example", "headers": {headers}}}}}')

    assert pointer == f"/target/headers/{name}"
    assert "31415926" not in message
    assert message.startswith("the value, which is not repeated here, is invalid: expected `str`")


@pytest.mark.parametrize("bad", [0, 1, 613, 899])
@pytest.mark.parametrize(
    ("part", "pointer", "message"),
    [
        ({"depends_on": [{"node": "a", "on": "bogus"}]}, "/depends_on/0/on", "'bogus' is unknown; give one of always,"),
        ({"prio": 1}, "/prio", "is not a field here; did you mean priority?"),
        ({"priority": 99}, "/priority", "99 is invalid"),
        ({"target": {"type": "command"}}, "/target/argv", "is missing"),
    ],
)
def test_invalid_node_is_reported_with_its_name(bad, part, pointer, message):
    good = {"target": {"type": "function", "handler": "app:mail"}}
    nodes = {f"n/{number}": {**good, **(part if number >= bad else {})} for number in range(900)}

    with pytest.raises(Misshapen) as caught:
        read_body(msgspec.json.encode({"name": "w", "nodes": nodes}), NewWorkflow)

    [error] = caught.value.errors
    assert error.pointer == f"/nodes/n~1{bad}{pointer}"
    assert error.message.startswith(message)


def test_invalid_node_name_is_reported_as_a_name():
    good = {"target": {"type": "function", "handler": "app:mail"}}

    with pytest.raises(Misshapen, match="/nodes/: the name is empty; write at least one character"):
        read_body(msgspec.json.encode({"name": "w", "nodes": {"a": good, "": good}}), NewWorkflow)


def test_later_syntax_error_does_not_hide_an_invalid_field():
    assert wrong('{"priority": "high", "tags": [}') == (
        "/priority",
        "expected `int`, got `str`; give a whole number from 0 to 9",
    )


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
def test_body_value_is_not_coerced(field, pointer):
    body = f"{{{field}}}" if "target" in field else f"{{{TARGET}, {field}}}"

    assert wrong(body)[0] == pointer


@pytest.mark.parametrize("body", ["", "{", "nonsense", "{} {}", '{"a": NaN}', "\xff"])
def test_non_json_body_is_malformed(body):
    with pytest.raises(Malformed, match="not JSON"):
        read_body(body.encode("latin-1"), dict)


@pytest.mark.parametrize(
    "body",
    [
        r'{"a": "\ud800"}',
        r'{"a": "\udc00"}',
        r'{"a": "\ud800x"}',
        r'{"a": "\ud83d\ude00 \uD800\n"}',
        r'{"a": "\ud800\ud800\udc00"}',
    ],
)
def test_half_a_character_is_named(body):
    with pytest.raises(Malformed, match="a lone surrogate stands"):
        read_body(body.encode(), dict)


@pytest.mark.parametrize("body", [r'{"a": "\ud83d\ude00"}', r'{"a": "\\ud800"}'])
def test_surrogate_pair_or_escaped_backslash_is_accepted(body):
    assert read_body(body.encode(), dict)


@pytest.mark.parametrize(
    ("body", "key"),
    [
        ('{"a": 1, "a": 2}', "a"),
        (r'{"a": 1, "\u0061": 1}', "a"),
        ('{"x": [{"deep": {"b": null, "c": 1.5, "b": {}}}]}', "b"),
    ],
)
def test_a_key_that_is_given_twice_is_refused(body, key):
    with pytest.raises(Misshapen, match=repr(key)):
        read_body(body.encode(), dict)


def test_the_same_key_in_two_objects_is_taken():
    assert read_body(b'{"a": {"a": [{"a": 1}, {"a": 2}]}, "b": ":"}', dict)


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
    with pytest.raises(Misshapen, match="pagesize: is not a field here; did you mean page_size"):
        read_query([("pagesize", "7")], Query)
    with pytest.raises(Misshapen, match="page_size: 'many' is invalid: expected `int`, got `str`; give a whole number"):
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
def test_merge_patch_matches_the_rfc_7396_examples(value, patch, result):
    assert merge_patch(value, patch) == result


def test_request_models_refuse_unknown_fields():
    for shape in RequestModel.__subclasses__():
        assert shape.__struct_config__.forbid_unknown_fields, shape
