"""Submitting many at once: what one submit would store, under ids that ascend, all or none."""

import asyncio
import math
from datetime import timedelta
from enum import Enum
from typing import Any
from uuid import uuid4

import asyncpg
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duly import App, InvalidArguments, InvalidOption, InvalidPayload, KeyConflict, ParentEnded
from duly.domain.errors import Refused
from duly.domain.runs.payload import DEPTH_MAX, PAYLOAD_BYTES_MAX
from duly.domain.runs.run_id import BATCH_MAX
from duly.worker.handlers import Handler
from tests.clock import START

NUL, HALF_A_CHARACTER = "a\0b", "\ud800"


class Colour(Enum):
    RED = "red"


async def anything(first: Any, second: Any = None) -> None: ...


async def typed(customer: int, name: str = "nobody") -> None: ...


def nested(levels: int) -> Any:
    value: Any = {}
    for _ in range(levels):
        value = {"in": value} if levels % 2 else [value]
    return value


texts = st.text(max_size=20) | st.sampled_from([NUL, HALF_A_CHARACTER, "null", "[[{", '\\u0000"', "\u2028", "\n", "é"])
scalars = (
    st.none() | st.booleans() | st.integers() | st.floats() | texts | st.sampled_from([Colour.RED, b"bytes", START])
)
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3))
arguments = st.fixed_dictionaries({"first": values}, optional={"second": values})
WORST = [
    {"first": nested(DEPTH_MAX - 1)},
    {"first": nested(DEPTH_MAX)},
    {"first": nested(DEPTH_MAX - 2)},
    {"first": "x" * PAYLOAD_BYTES_MAX},
    {"first": "é" * (PAYLOAD_BYTES_MAX // 2 + 1)},
    {"first": 2**80},
    {"first": math.nan},
    {"first": object()},
    {"first": msgspec.Raw(b'{"a":\n1}')},
    {"first": msgspec.Raw(b'"\\ud800"')},
    {"second": 1},
    {"first": 1, "third": 1},
    {},
    {1: 2},
]


def one_by_one(handler: Handler, many: list[Any]) -> list[str] | type[Refused]:
    try:
        return [handler.encode_closely((), one) for one in many]
    except Refused as error:
        return type(error)


class TestOnePass:
    """Many sets of arguments are encoded in one pass, with the result of encoding each."""

    @settings(max_examples=400, deadline=None)
    @given(st.lists(arguments, min_size=1, max_size=4))
    def test_one_pass_gives_what_encoding_each_gives_or_leaves_it_to_that(self, many):
        handler = Handler(anything)

        together, each = handler.encode_together(many), one_by_one(handler, many)

        assert together is None or together == each

    @pytest.mark.parametrize("worst", WORST, ids=range(len(WORST)))
    @pytest.mark.parametrize("place", [0, 1])
    def test_one_pass_takes_nothing_that_one_submit_refuses(self, worst, place):
        handler = Handler(anything)
        many = [{"first": 1}]
        many.insert(place, worst)

        together, each = handler.encode_together(many), one_by_one(handler, many)

        assert together is None or together == each

    def test_one_pass_takes_plain_arguments_of_any_size_up_to_the_limit(self):
        many = [{"first": "x" * 100_000, "second": [number, {"a": 1}]} for number in range(5)]

        assert Handler(anything).encode_together(many) == one_by_one(Handler(anything), many)
        assert Handler(typed).encode_together([{"customer": n} for n in range(3)]) == [
            f'{{"customer":{n}}}' for n in range(3)
        ]

    def test_one_pass_leaves_wrong_types_and_other_names_to_the_closer_look(self):
        handler = Handler(typed)

        assert handler.encode_together([{"customer": 1}, {"customer": "1"}]) is None
        assert handler.encode_together([{"customer": 1}, {"customer": 1, "name": "a"}]) is None
        assert handler.encode_together([{"customer": 1, "name": "a"}, {"name": "a", "customer": 1}]) is None
        assert handler.encode_together([]) is None


@pytest.fixture
def work(database):
    app = App(database.url)
    return app, app.handler(name="work")(typed)


async def stored(database, box="ready"):
    """The payloads of a box by falling age of their ids."""
    rows = await database.fetch(f"select run_id, payload->>'customer' as customer from duly.{box} order by run_id")
    return {row["run_id"]: int(row["customer"]) for row in rows}


def numbered(count):
    return [{"customer": number} for number in range(count)]


class TestIds:
    """Ids of a batch ascend with its order."""

    @pytest.mark.parametrize(
        ("options", "box"),
        [
            ({}, "ready"),
            ({"delay": 3600}, "timers"),
            ({"at": START + timedelta(days=1)}, "timers"),
            ({"delay": 2}, "ready"),
            ({"timeout": 5, "priority": 1, "queue": "other", "tags": ["a"]}, "ready"),
            ({"concurrency": ("key", 3)}, "timers"),
            ({"fifo": "line"}, "timers"),
        ],
        ids=str,
    )
    async def test_a_batch_has_ids_in_its_order_wherever_it_is_put(self, work, database, options, box):
        app, handler = work
        async with app:
            handles = await handler.options(**options).submit_many(numbered(300))

        rows = await stored(database, box)
        assert list(rows.values()) == list(range(300))
        assert [handle.run_id for handle in handles] == list(rows)
        assert [handles[-1].run_id, len(handles[10:20]), handles[10:20][0].run_id] == [
            list(rows)[-1],
            10,
            list(rows)[10],
        ]
        with pytest.raises(IndexError):
            handles[300]

    async def test_a_batch_with_large_payloads_or_dependencies_has_ids_in_its_order_too(self, work, database):
        app, handler = work
        async with app:
            before = await handler.submit(-1)
            large = await handler.submit_many([{"customer": n, "name": "x" * 2000} for n in range(5)])
            dependent = await handler.options(depends_on=[before]).submit_many(numbered(5))

        kept = await database.fetch("select job_id from duly.payloads order by job_id")
        assert [row["job_id"] for row in kept] == [one.run_id for one in large]
        assert [one.run_id for one in dependent] == list(await stored(database, "blocked"))

    async def test_two_batches_of_one_moment_share_no_id(self, work, database):
        app, handler = work
        async with app:
            batches = await asyncio.gather(
                *(handler.options(at=START + timedelta(days=1)).submit_many(numbered(50)) for _ in range(20))
            )

        assert (
            len({handle.run_id for batch in batches for handle in batch})
            == 1000
            == len(await stored(database, "timers"))
        )


class TestKeys:
    async def test_a_repeated_batch_answers_the_same_and_stores_nothing(self, work, database, clock):
        app, handler = work
        async with app:
            first = await handler.options(key="batch", delay=60).submit_many(numbered(3))
            await clock.advance(1)
            again = await handler.options(key="batch", delay=60).submit_many(numbered(3))
            with pytest.raises(KeyConflict):
                await handler.options(key="batch", delay=60).submit_many(numbered(4))
            with pytest.raises(KeyConflict):
                await handler.options(key="batch").submit_many(numbered(3))

        assert [(one.run_id, one.scheduled_at) for one in again] == [(one.run_id, one.scheduled_at) for one in first]
        assert [one.replayed for one in first] + [one.replayed for one in again] == [False] * 3 + [True] * 3
        assert len(await stored(database, "timers")) == 3

    async def test_a_key_that_has_expired_names_other_runs(self, work, database, clock):
        app, handler = work
        async with app:
            at = START + timedelta(days=10)
            first = await handler.options(key="batch", at=at).submit_many(numbered(3))
            await clock.advance(86_401)
            second = await handler.options(key="batch", at=at).submit_many(numbered(3))

        assert not {one.run_id for one in first} & {one.run_id for one in second}
        assert not second[0].replayed

    async def test_a_batch_inside_the_callers_transaction_exists_if_it_commits(self, work, database):
        app, handler = work
        async with app:
            connection = await asyncpg.connect(database.url)
            transaction = connection.transaction()
            await transaction.start()
            undone = await handler.options(connection=connection).submit_many(numbered(3))
            await transaction.rollback()
            assert await stored(database) == {}
            done = await handler.options(connection=connection).submit_many(numbered(3))
            await connection.close()

        assert [one.run_id for one in done] == list(await stored(database))
        assert not {one.run_id for one in done} & {one.run_id for one in undone}


async def test_handles_of_one_job_are_equal(work):
    app, handler = work
    async with app:
        handles = await handler.submit_many({"customer": number} for number in range(3))

    assert handles[1] == handles[1]
    assert [handles.index(handle) for handle in handles] == [0, 1, 2]
    assert len({*handles, *handles}) == 3


class TestRefusals:
    """A batch is stored whole or not at all, and the refusal names the place."""

    @pytest.mark.parametrize(
        ("bad", "error"),
        [
            ({"customer": "x"}, InvalidArguments),
            ({"customer": 1, "name": NUL}, InvalidPayload),
            ("customer", InvalidArguments),
        ],
    )
    async def test_one_bad_set_of_arguments_refuses_the_batch(self, work, database, bad, error):
        app, handler = work
        async with app:
            with pytest.raises(error, match=r"arguments\[2\]"):
                await handler.submit_many([{"customer": 0}, {"customer": 1}, bad])

        assert await stored(database) == {}

    async def test_a_batch_of_an_ended_parent_stores_nothing(self, work, database):
        app, handler = work
        async with app:
            with pytest.raises(ParentEnded):
                await handler.options(parent=uuid4()).submit_many(numbered(3))

        assert await stored(database) == {}

    def test_a_batch_beyond_the_numbers_of_its_ids_is_refused(self, work):
        _, handler = work

        with pytest.raises(InvalidOption, match="16,777,215"):
            handler.submit_many_sync(range(BATCH_MAX + 1))

    async def test_one_set_of_arguments_is_not_a_list_of_them(self, work):
        app, handler = work
        async with app:
            with pytest.raises(InvalidArguments, match="list"):
                await handler.submit_many({"customer": 1})
