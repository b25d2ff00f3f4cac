"""A handler's parameters are its contract: what does not fit is refused where it is said."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any
from uuid import UUID

import msgspec
import pytest

from duly import InvalidArguments, InvalidOption, InvalidPayload, Run, UnknownHandler
from duly.worker.handlers import Handler, Registry


def report(run: Run, customer: int, to: str, tags: list[str] = [], late: bool = False) -> None: ...  # noqa: B006


def encoded(function, *args, **kwargs) -> str:
    return Handler(function).encode(args, kwargs)


class Colour(enum.Enum):
    RED = "red"


@dataclass
class Address:
    street: str
    number: int


class Point(msgspec.Struct):
    x: float


async def anything(
    address: Address,
    at: datetime,
    colour: Colour,
    delay: timedelta,
    number: UUID,
    point: Point | None,
    price: Decimal,
    whatever: Any,
    few: Annotated[list[int], msgspec.Meta(max_length=2)],
    pairs: dict[int, tuple[str, ...]],
) -> None: ...


ANYTHING = {
    "address": Address("Main", 7),
    "at": datetime(2026, 11, 2, tzinfo=UTC),
    "colour": Colour.RED,
    "delay": timedelta(days=1, seconds=3),
    "number": UUID(int=7),
    "point": Point(1.5),
    "price": Decimal("1.10"),
    "whatever": {"a": [None, True]},
    "few": [1, 2],
    "pairs": {1: ("a", "b")},
}


def test_arguments_become_a_json_object_by_name():
    assert encoded(report, 7, to="a@b.example") == '{"customer":7,"to":"a@b.example"}'


def test_arguments_come_back_as_their_annotations_say():
    handler = Handler(anything)

    assert handler.decode(handler.encode((), ANYTHING)) == ANYTHING


def test_defaults_belong_to_the_function_and_are_not_stored():
    assert Handler(report).decode('{"customer": 7, "to": "a"}') == {
        "customer": 7,
        "to": "a",
        "tags": [],
        "late": False,
    }


@pytest.mark.parametrize("payload", [None, "{}"])
def test_a_handler_without_parameters_takes_an_empty_payload(payload):
    def tick() -> None: ...

    assert Handler(tick).decode(payload) == {}


@pytest.mark.parametrize(
    ("args", "kwargs", "words"),
    [
        ((), {}, ["report", "customer", "it takes (customer: "]),
        ((7,), {"to": "a", "too": 1}, ["report", "too", "it takes"]),
        ((7, "a", [], False, 5), {}, ["report", "too many positional arguments"]),
        (("seven",), {"to": "a"}, ["report", "customer", "'seven'", "`int`", "`str`"]),
        ((7.5,), {"to": "a"}, ["customer", "7.5", "`int`", "`float`"]),
        ((True,), {"to": "a"}, ["customer", "True", "`int`", "`bool`"]),
        ((7,), {"to": None}, ["to", "None", "`str`"]),
        ((7,), {"to": "a", "tags": ["x", 3]}, ["tags", "tags[1]", "`str`", "`int`"]),
        ((7,), {"to": "a", "late": "yes"}, ["late", "'yes'", "`bool`"]),
    ],
)
def test_arguments_that_do_not_fit_are_refused_by_name(args, kwargs, words):
    with pytest.raises(InvalidArguments) as refused:
        encoded(report, *args, **kwargs)

    assert [word for word in words if word not in str(refused.value)] == []
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (float("nan"), "contains nan, which JSON cannot express"),
        (float("inf"), "contains inf, which JSON cannot express"),
        ("a\0b", "contains a NUL character"),
        ("\ud800", "contains a lone surrogate"),
        ({"a\0": 1}, "contains a NUL character"),
        ("x" * 262_144, "the limit is 262144. Store it elsewhere and pass a reference"),
        (object(), "is not JSON"),
    ],
)
def test_unstorable_value_is_refused_with_the_argument_name(value, words):
    def keep(thing: Any) -> None: ...

    with pytest.raises(InvalidPayload) as refused:
        encoded(keep, value)

    assert words in str(refused.value)
    assert "argument thing of keep" in str(refused.value)


@pytest.mark.parametrize("depth", [65, 100_000])
def test_nesting_deeper_than_the_limit_is_refused(depth):
    def keep(thing: Any) -> None: ...

    nested: Any = 1
    for _ in range(depth):
        nested = [nested]

    with pytest.raises(InvalidPayload, match="nested deeper than 64 levels; flatten it"):
        encoded(keep, nested)


def test_many_arguments_that_are_too_large_only_together_are_refused():
    def keep(one: str, two: str) -> None: ...

    with pytest.raises(InvalidPayload, match=r"the payload of keep has \d+ bytes"):
        encoded(keep, "x" * 200_000, "x" * 200_000)


@pytest.mark.parametrize(
    "payload", ['{"customer": "seven", "to": "a"}', "{}", "[]", "7", "null", '{"customer": 1, "to": "a", "x": 1}', "{"]
)
def test_a_payload_from_elsewhere_that_does_not_fit_is_refused_too(payload):
    with pytest.raises(InvalidArguments, match=r"report: .*it takes \(customer"):
        Handler(report).decode(payload)


@pytest.mark.parametrize(
    "value",
    ["[" * 3000 + "]" * 3000, "9" * 5000, f"[{'9' * 400}.5]", f'{{"a": {"9" * 5000}}}'],
    ids=["deep", "long", "high", "long within"],
)
def test_a_payload_that_cannot_even_be_read_is_refused_as_one_that_does_not_fit(value):
    def keep(thing: Any, late: bool = False) -> None: ...

    for payload in (f'{{"thing": {value}}}', f'{{"late": 7, "thing": {value}}}'):
        with pytest.raises(
            InvalidArguments, match=r"keep: (argument \w+: .*it takes|its payload is nested too deeply)"
        ):
            Handler(keep).decode(payload)


def test_a_long_value_is_cut_in_the_message():
    with pytest.raises(InvalidArguments) as refused:
        encoded(report, "x" * 10_000, to="a")

    assert len(str(refused.value)) < 400


def test_the_run_is_given_to_a_function_that_asks_for_it():
    def plain(x: int) -> int:
        return x

    assert Handler(report).takes_run
    assert not Handler(plain).takes_run
    assert Handler(plain).call(None, {"x": 7}) == 7  # type: ignore[arg-type]


def test_an_async_function_is_known_as_one():
    assert Handler(anything).is_async
    assert not Handler(report).is_async


def of_a_type_that_is_defined_further_down(later: Later) -> None: ...


def test_an_annotation_may_name_a_type_defined_further_down():
    handler = Handler(of_a_type_that_is_defined_further_down)

    assert handler.decode('{"later": {"x": 1}}') == {"later": Later(1)}


class Later(msgspec.Struct):
    x: int


def of_an_unknown_type(thing: Nowhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821


def test_an_annotation_that_means_nothing_is_named_at_first_use():
    with pytest.raises(InvalidOption, match=r"of_an_unknown_type: .*'Nowhere'.* outside `if TYPE_CHECKING`"):
        Handler(of_an_unknown_type).encode((1,), {})


def with_a_star(*numbers: int) -> None: ...
def with_two_stars(**numbers: int) -> None: ...
def positional(number: int, /) -> None: ...
def run_second(number: int, run: Run) -> None: ...
def ambiguous(thing: list[int] | tuple[str, ...]) -> None: ...
def generator(number: int) -> Iterator[int]:
    yield number


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (with_a_star, "give each parameter a name"),
        (with_two_stars, "give each parameter a name"),
        (positional, "give each parameter a name"),
        (run_second, "the run must be the first parameter"),
        (ambiguous, "cannot be read from JSON"),
        (generator, "yields; a handler returns its result"),
        (lambda: 1, "has no name of its own"),
    ],
)
def test_unsupported_function_is_refused_as_a_handler(function, words):
    with pytest.raises(InvalidOption, match=words):
        Handler(function)


def test_result_is_decoded_as_its_annotation():
    def where() -> Address: ...  # type: ignore[empty-body]

    assert Handler(where).decode_result('{"street": "Main", "number": 7}') == Address("Main", 7)
    assert Handler(where).decode_result('{"not_kept": "70000 bytes"}') == {"not_kept": "70000 bytes"}
    assert Handler(where).decode_result(None) is None


def test_a_handler_is_found_by_its_name_and_its_aliases():
    registry = Registry()
    handler = Handler(report, aliases=["old_report"])
    registry.add(handler)

    assert registry["report"] is registry["old_report"] is handler
    assert registry.names() == ["report", "old_report"]
    assert list(registry) == [handler]


def test_aliases_given_as_a_single_string_are_refused():
    with pytest.raises(InvalidOption, match=r"aliases 'old' is one text; give a list: aliases=\['old'\]"):
        Handler(report, aliases="old")


def test_two_handlers_of_one_name_are_refused_and_neither_is_half_registered():
    registry = Registry()
    registry.add(Handler(report))

    with pytest.raises(InvalidOption, match=r"two handlers are called 'report': .*\.report and .*\.anything; give one"):
        registry.add(Handler(anything, aliases=["report"]))
    assert registry.names() == ["report"]


def test_an_unknown_handler_is_refused_with_the_nearest_name():
    registry = Registry()
    registry.add(Handler(report))

    with pytest.raises(UnknownHandler, match=r"no handler is called 'repotr'; did you mean 'report'\?"):
        registry["repotr"]
    with pytest.raises(UnknownHandler, match="known are 'report'"):
        registry["xyz"]
