"""The description by itself: valid, complete, and plain enough for a generator of clients."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import msgspec
import openapi_spec_validator
import pytest
import schemathesis

from duly.api.routes import OPERATIONS
from duly.wire.problems import KINDS
from duly.wire.schema.reading import read_body
from duly.wire.schema.shapes import RequestModel
from tests.api.contract.described import BY_NAME, DOCUMENT, NAMES, codes, described, resolved, responses

COMPONENTS = DOCUMENT["components"]


def within(value: Any) -> Iterator[dict[str, Any]]:
    """Give every object in a document."""
    if isinstance(value, dict):
        yield value
        for inner in value.values():
            yield from within(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from within(inner)


def test_description_is_valid_openapi_3_1():
    schemathesis.openapi.from_dict(DOCUMENT).validate()
    openapi_spec_validator.validate(msgspec.json.decode(msgspec.json.encode(DOCUMENT)))

    assert DOCUMENT["openapi"].startswith("3.1")


def test_every_reference_leads_somewhere_and_nothing_is_left_over():
    references = {one["$ref"] for one in within(DOCUMENT) if isinstance(one.get("$ref"), str)}
    there = {
        f"#/components/{kind}/{name}"
        for kind in ("schemas", "parameters", "headers", "examples", "responses")
        for name in COMPONENTS[kind]
    }

    assert references - there == set()
    assert there - references == set()


def test_every_schema_is_one():
    for name, schema in COMPONENTS["schemas"].items():
        jsonschema_rs.Draft202012Validator({**schema, "components": COMPONENTS}), name


def test_ids_of_operations_are_unique_and_every_operation_is_described():
    ids = [operation["operationId"] for methods in DOCUMENT["paths"].values() for operation in methods.values()]

    assert sorted(ids) == NAMES
    assert len(ids) == len(OPERATIONS)


@pytest.mark.parametrize("name", NAMES)
def test_operation_documents_its_parameters_scope_and_tags(name):
    operation, found = BY_NAME[name], described(BY_NAME[name])
    in_path = {one["name"] for one in found["parameters"] if one["in"] == "path"}

    assert 0 < len(found["summary"]) <= 130
    assert found["description"]
    assert found["x-scope"] == operation.scope
    assert found["tags"]
    assert all("schema" in one for one in found["parameters"])
    assert in_path == {part[1:-1] for part in operation.path.split("/") if part.startswith("{")}
    assert all(one["required"] for one in found["parameters"] if one["in"] == "path")
    assert ({"503"} if operation.is_open else {"401", "403", "503"}) <= responses(operation).keys()
    assert found.get("security", DOCUMENT["security"]) == ([] if operation.is_open else [{"key": []}])
    assert any(status < "300" for status in responses(operation))
    assert set(codes(operation)) <= KINDS.keys()


@pytest.mark.parametrize("name", NAMES)
def test_every_answer_tells_its_type_and_its_headers(name):
    for status, response in responses(BY_NAME[name]).items():
        assert "X-Request-ID" in response["headers"]
        assert ("content" in response) == (status != "204")
        if status >= "400":
            assert list(response["content"]) == ["application/problem+json"]
    assert "Retry-After" in responses(BY_NAME[name])["503"]["headers"]


def test_unknown_fields_are_refused_wherever_callers_write():
    asked = [kind.__name__ for kind in subclasses(RequestModel) if kind.__name__ in COMPONENTS["schemas"]]

    assert len(asked) > 15
    assert [name for name in asked if COMPONENTS["schemas"][name].get("additionalProperties") is not False] == []


def subclasses(kind: type) -> Iterator[type]:
    """Give all that is made from a class."""
    found: list[type] = kind.__subclasses__()
    for inner in found:
        yield inner
        yield from subclasses(inner)


def test_unions_tell_their_cases_apart():
    for schema in within(COMPONENTS["schemas"]):
        if "oneOf" in schema and {"type": "null"} not in schema["oneOf"]:
            mapping = schema["discriminator"]["mapping"]
            assert sorted(mapping.values()) == sorted(one["$ref"] for one in schema["oneOf"])


def test_ids_and_moments_have_their_format():
    for name, schema in COMPONENTS["schemas"].items():
        for field, part in schema.get("properties", {}).items():
            if part.get("readOnly"):  # Of a body: taken whatever it is, and ignored.
                continue
            if field in ("job_id", "run_id", "worker_id", "backfill_id"):
                assert "uuid" in {resolved(one).get("format") for one in within(part)}, (name, field)
            if field.endswith("_at") and field != "expires_at" and name not in WRITTEN_OUT:
                assert "date-time" in {resolved(one).get("format") for one in within(part)}, (name, field)


WRITTEN_OUT = {"Fire"}  # in the offset of the schedule's zone, as people read them


def test_nothing_is_nullable_in_the_old_way():
    assert [one for one in within(DOCUMENT) if "nullable" in one] == []


def contents(name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Give the bodies of an operation's request and responses, each with what it is of."""
    for kind, content in described(BY_NAME[name]).get("requestBody", {"content": {}})["content"].items():
        yield f"request {kind}", content
    for status, response in responses(BY_NAME[name]).items():
        for kind, content in response.get("content", {}).items():
            yield f"{status} {kind}", content


def examples(content: dict[str, Any]) -> list[Any]:
    """Give the examples of a body."""
    several = [resolved(one)["value"] for one in content.get("examples", {}).values()]
    return [content["example"]] if "example" in content else several


@pytest.mark.parametrize("name", NAMES)
def test_every_body_has_an_example_that_fits(name):
    for of, content in contents(name):
        validator = jsonschema_rs.Draft202012Validator(
            {**content["schema"], "components": COMPONENTS}, validate_formats=True
        )
        assert examples(content), of
        assert [error.message for one in examples(content) for error in validator.iter_errors(one)] == [], of


@pytest.mark.parametrize("name", [name for name in NAMES if BY_NAME[name].body not in (None, bytes)])
def test_the_example_of_a_request_is_read(name):
    operation = BY_NAME[name]
    [example] = examples(described(operation)["requestBody"]["content"][operation.media_type])

    assert read_body(msgspec.json.encode(example), operation.body) is not None
