"""The description of the API: kept as the code gives it, and never breaking a caller."""

import copy
import json
import subprocess

import pytest

from tests.api.breaking import breaks
from tests.api.openapi import FILE, promised, text

OBJECT = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 10}, "size": {"enum": ["s", "m"]}},
    "required": ["name"],
}


def a_description():
    """A small API: one operation with a query, a body and an answer."""
    return {
        "paths": {
            "/things": {
                "post": {
                    "parameters": [{"name": "n", "in": "query", "required": False, "schema": {"type": "integer"}}],
                    "requestBody": {
                        "required": False,
                        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Asked"}}},
                    },
                    "responses": {
                        "200": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Told"}}}},
                        "404": {},
                    },
                }
            }
        },
        "components": {"schemas": {"Asked": copy.deepcopy(OBJECT), "Told": copy.deepcopy(OBJECT)}},
    }


def changed(place, change):
    """Give that API with something changed at a place."""
    made = a_description()
    found = made
    for step in place:
        found = found[step]
    change(found)
    return made


POST = ("paths", "/things", "post")
ASKED, TOLD = ("components", "schemas", "Asked"), ("components", "schemas", "Told")


def test_openapi_file_matches_the_code():
    assert FILE.read_text() == text(), "write it anew: python -m tests.api.openapi"


def test_nothing_that_callers_rely_on_is_broken():
    assert breaks(promised(), json.loads(text())) == []


def test_promised_description_is_that_of_the_last_tag(tmp_path):
    file = tmp_path / "docs" / "openapi.json"
    file.parent.mkdir()

    def git(*arguments):
        identity = ["-c", "user.name=test", "-c", "user.email=test@localhost", "-c", "commit.gpgsign=false"]
        subprocess.run(["git", *identity, *arguments], cwd=tmp_path, check=True, capture_output=True)

    def committed(number):
        file.write_text(json.dumps({"number": number}))
        git("add", "-A")
        git("commit", "-m", "a description")

    file.write_text('{"number": 0}')
    assert promised(tmp_path) == {"number": 0}, "no history: the one that is kept"
    git("init")
    committed(1)
    file.write_text('{"number": 2}')
    assert promised(tmp_path) == {"number": 1}, "no tag: the last commit"
    git("tag", "v1")
    committed(3)
    assert promised(tmp_path) == {"number": 1}, "the last tag, whatever came after it"


def test_the_same_breaks_nothing():
    assert breaks(a_description(), a_description()) == []


@pytest.mark.parametrize(
    ("place", "change", "words"),
    [
        (("paths",), lambda paths: paths.pop("/things"), "is gone"),
        (("paths", "/things"), lambda methods: methods.update(get=methods.pop("post")), "is gone"),
        ((*POST, "responses"), lambda answers: answers.update({"202": answers.pop("200")}), "no longer answers 200"),
        (POST, lambda operation: operation.update(parameters=[]), "parameter n is gone"),
        ((*POST, "parameters", 0), lambda one: one.update(required=True), "parameter n is required"),
        ((*POST, "parameters", 0, "schema"), lambda one: one.update(type="boolean"), "no longer takes integer"),
        ((*POST, "requestBody"), lambda body: body.update(required=True), "a body is required"),
        ((*POST, "requestBody", "content"), lambda kinds: kinds.clear(), "application/json is gone"),
        ((*ASKED, "properties"), lambda fields: fields.pop("size"), "field size is gone"),
        (ASKED, lambda shape: shape["required"].append("size"), "field size is required"),
        ((*ASKED, "properties", "name"), lambda field: field.update(maxLength=9), "maxLength is 9"),
        ((*ASKED, "properties", "size", "enum"), lambda values: values.remove("m"), "value 'm' is gone"),
        ((*TOLD, "properties"), lambda fields: fields.pop("size"), "field size is gone"),
        ((*TOLD, "properties", "size", "enum"), lambda values: values.remove("m"), "value 'm' is gone"),
        (TOLD, lambda shape: shape["required"].clear(), "field name may be missing"),
        ((*TOLD, "properties", "name"), lambda field: field.update(type=["string", "null"]), "may be null"),
        (
            (*TOLD, "properties"),
            lambda fields: fields.update(name={"anyOf": [{"type": "string"}, {"type": "null"}]}),
            "may be null",
        ),
    ],
)
def test_breaking_change_is_named(place, change, words):
    [found] = breaks(a_description(), changed(place, change))

    assert words in found


@pytest.mark.parametrize(
    ("place", "change"),
    [
        (("paths",), lambda paths: paths.update({"/more": {"get": {"responses": {}}}})),
        ((*ASKED, "properties"), lambda fields: fields.update(colour={"type": "string"})),
        ((*ASKED, "properties", "name"), lambda field: field.update(maxLength=20, type=["string", "null"])),
        ((*ASKED, "properties", "size", "enum"), lambda values: values.append("l")),
        (ASKED, lambda shape: shape["required"].clear()),
        ((*TOLD, "properties"), lambda fields: fields.update(colour={"type": "string"})),
        (TOLD, lambda shape: shape["required"].append("size")),
        ((*POST, "responses"), lambda answers: answers.pop("404")),
    ],
)
def test_more_freedom_and_more_to_read_break_nothing(place, change):
    assert breaks(a_description(), changed(place, change)) == []
