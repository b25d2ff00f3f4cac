"""Every order of two moves, each on a database that holds nothing but what the story needs."""

import pytest

from duly.moves import recall
from duly.store.boxes import history
from tests.clock import START
from tests.interleavings.stepper import Order, Side, run


@pytest.fixture
async def sides(database_url, clock):
    """Two connections."""
    left, right = (Side(name, database_url, clock=clock) for name in ("left", "right"))
    await left.connect()
    await right.connect()
    yield left, right
    await left.connection.close()
    await right.connection.close()


@pytest.fixture(autouse=True)
def no_worker_answers(monkeypatch):
    """Let a recall look once: where nobody answers, fifty looks are fifty times the same order."""
    monkeypatch.setattr(recall, "_LOOKS_MAX", 0)


@pytest.fixture
def every_order(shared, sides, database, clock):
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
        await database.execute(shared.emptying)
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
