"""Limits of payloads, and the storable form of any text."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from duly.domain.errors import InvalidPayload
from duly.domain.runs.payload import DEPTH_MAX, PAYLOAD_BYTES_MAX, encode, read_anyhow, storable, storable_value


def nested(depth: int) -> Any:
    """Give a list in a list, and so on."""
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def test_a_value_becomes_compact_json():
    value = {"a": [1, 2.5, None, True, "ü"], "at": datetime(2026, 11, 2, tzinfo=UTC)}

    assert encode(value, "payload") == '{"a":[1,2.5,null,true,"ü"],"at":"2026-11-02T00:00:00Z"}'


def test_the_limit_of_bytes_holds_to_the_byte():
    assert len(encode("x" * (PAYLOAD_BYTES_MAX - 2), "payload")) == PAYLOAD_BYTES_MAX

    with pytest.raises(
        InvalidPayload, match=f"payload has {PAYLOAD_BYTES_MAX + 1} bytes; the limit is {PAYLOAD_BYTES_MAX}"
    ):
        encode("x" * (PAYLOAD_BYTES_MAX - 1), "payload")


def test_bytes_are_counted_not_characters():
    with pytest.raises(InvalidPayload, match="bytes"):
        encode("ü" * (PAYLOAD_BYTES_MAX // 2), "payload")


def test_the_limit_of_depth_holds_to_the_level():
    encode(nested(DEPTH_MAX), "payload")

    with pytest.raises(InvalidPayload, match=f"payload is nested deeper than {DEPTH_MAX} levels"):
        encode(nested(DEPTH_MAX + 1), "payload")


@pytest.mark.parametrize("innermost", [{}, [], ()])
def test_a_level_with_nothing_in_it_is_a_level(innermost):
    value = innermost
    for _ in range(DEPTH_MAX - 1):
        value = {"a": value}
    encode(value, "payload")

    with pytest.raises(InvalidPayload, match=f"payload is nested deeper than {DEPTH_MAX} levels"):
        encode([value], "payload")


def test_ten_thousand_levels_are_refused_like_sixty_five():
    with pytest.raises(InvalidPayload, match="nested deeper"):
        encode(nested(10_000), "payload")


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_number_that_json_cannot_express_is_refused_at_any_depth(number):
    with pytest.raises(InvalidPayload, match=r"contains (nan|inf|-inf), which JSON cannot express"):
        encode({"deep": [{"n": number}]}, "payload")


@pytest.mark.parametrize("value", ["\0", {"a": ["b\0c"]}, {"k\0": 1}])
def test_a_nul_is_refused_in_values_and_in_keys(value):
    with pytest.raises(InvalidPayload, match="NUL character"):
        encode(value, "payload")


@pytest.mark.parametrize("value", ["\ud800", {"a": ["\udfff"]}, {"\ud800": 1}])
def test_a_lone_surrogate_is_refused_in_values_and_in_keys(value):
    with pytest.raises(InvalidPayload, match=r"lone surrogate|not JSON"):
        encode(value, "payload")


@pytest.mark.parametrize(
    "value",
    [
        object(),
        {1: object()},
        lambda: None,
        {(1, 2): 3},
    ],
)
def test_payload_that_is_not_json_is_refused(value):
    with pytest.raises(InvalidPayload, match="payload is not JSON"):
        encode(value, "payload")


ANY_TEXT = st.text(st.characters(exclude_categories=()))


@given(ANY_TEXT)
def test_any_text_becomes_storable(text):
    stored = storable(text)

    assert "\0" not in stored
    assert stored.encode().decode() == stored


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=100))
def test_good_text_is_stored_as_it_is(text):
    assert storable(text) == text


def test_text_is_cut_to_its_length():
    assert storable("x" * 50, 10) == "x" * 10


@given(
    st.recursive(ANY_TEXT | st.integers() | st.none(), lambda inner: st.lists(inner) | st.dictionaries(ANY_TEXT, inner))
)
def test_any_value_becomes_storable(value):
    text = msgspec.json.encode(storable_value(value)).decode()

    assert "\\u0000" not in text.replace("\\\\", "")


@pytest.mark.parametrize("text", ["[" * 256 + "]" * 256, '{"a": [1, 2.5]}', f'"{"[" * 3000}"', "9" * 4300])
def test_stored_json_is_shown_unchanged(text):
    assert msgspec.json.decode(msgspec.json.encode(read_anyhow(text))) == msgspec.json.decode(text)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[" * 257 + "]" * 257, "it is nested deeper than 256 levels"),
        ("[" * 100_000 + "]" * 100_000, "it is nested deeper than 256 levels"),
        ("9" * 4301, "Integer value out of range"),
        ("[", "Input data was truncated"),
    ],
)
def test_json_that_cannot_be_decoded_is_shown_as_text(text, why):
    assert read_anyhow(text) == {"unreadable": why, "text": text}
