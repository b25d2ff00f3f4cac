"""Every order of two moves, each on a database that holds nothing but what the story needs."""

import asyncpg
import pytest

from duly.moves import recall
from duly.store.boxes import history
from tests.clock import START
from tests.conftest import EMPTY
from tests.interleavings.stepper import Order, Side, run


@pytest.fixture(scope="session")
async def connections():
    """The connections of the two, by name: tests share them, for a new one meets each move as if for the first time."""
    kept: dict[str, asyncpg.Connection] = {}
    yield kept
    for connection in kept.values():
        await connection.close()


@pytest.fixture
async def sides(database_url, connections, clock):
    """Two connections."""
    left, right = (Side(name, database_url, clock=clock) for name in ("left", "right"))
    for side in (left, right):
        await side.connect(connections.pop(side.name, None))
    yield left, right
    for side in (left, right):
        if side.connection.is_in_transaction():
            await side.connection.close()
        else:
            connections[side.name] = side.connection


@pytest.fixture(autouse=True)
def no_worker_answers(monkeypatch):
    """Let a recall look once: where nobody answers, fifty looks are fifty times the same order."""
    monkeypatch.setattr(recall, "_LOOKS_MAX", 0)


@pytest.fixture
def every_order(sides, database, clock):
    """Run a story in every order of its two moves; gives how many there were."""

    async def all_orders(story) -> int:
        choices: list[str] | None = []
        number = 0
        while choices is not None:
            order = Order(choices)
            await one_order(story(), order)
            number += 1
            choices = order.following()
        return number

    async def one_order(story, order: Order) -> None:
        await database.execute(EMPTY)
        clock.at = START
        left, right = sides
        for side, move in zip(sides, await story.set_up(database), strict=True):
            side.start(move)
        try:
            answers = await run(order, left, right, database)
            assert await history.verify(database) == []
            await story.check(database, *answers)
        except AssertionError as error:
            error.add_note(f"in the order: {order}")
            raise

    return all_orders
