"""Responses: their fields are copied from rows and objects by name, and none is left out silently."""

import msgspec
import pytest

from duly.domain.tenancy.audit import Actor
from duly.wire.schema.shapes import ResponseModel


class Named(msgspec.Struct):
    """An object without `request_id`."""

    name: str


class Shown(ResponseModel, frozen=True):
    """A response with a field that an older server does not send."""

    name: str
    request_id: str | None = None


@pytest.mark.parametrize(
    "source", [{"name": "ours", "request_id": "r1", "more": 1}, Actor("key", "k", "ours", "r1")], ids=["row", "object"]
)
def test_fields_are_copied_by_name_unless_they_are_given(source):
    assert Shown.of(source) == Shown(name="ours", request_id="r1")
    assert Shown.of(source, name="theirs") == Shown(name="theirs", request_id="r1")


@pytest.mark.parametrize("source", [{"name": "ours"}, Named("ours")], ids=["row", "object"])
def test_a_field_that_is_missing_is_an_error_even_if_it_has_a_default(source):
    with pytest.raises(AssertionError, match=r"Shown\.request_id is neither given nor in the source"):
        Shown.of(source)
