"""Runs two moves statement by statement over two connections, in every order.

Each statement of a move is two steps: it runs in a transaction, and it commits; of a transaction of several, each is a step.
(The begin before it takes no snapshot, so it has no order to speak of.) After each step whoever can go on is asked in turn; a
move that waits for a lock is left waiting while the other goes on. All orders are found as a tree is searched: run, then turn
the last free choice, until none is left.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import asyncpg

from duly.store.connection.database import Database, translated
from tests.kept import KEPT, answers

Move = Callable[[Database], Awaitable[Any]]
# A statement takes less; and where a move waits for a lock, each step of the other costs one such look.
_LOOK_SECONDS = 0.001
_STEPS_MAX = 200


class Side(Database):
    """One of the two: a database with a single connection, on which each step waits for its turn."""

    def __init__(self, name: str, url: str, **more: Any) -> None:
        super().__init__(url, **more)
        self.name = name
        self.stopped = asyncio.Event()
        self.turn = asyncio.Event()
        self.task: asyncio.Task[Any] | None = None
        self.connection: asyncpg.Connection[asyncpg.Record]

    async def connect(self, kept: asyncpg.Connection[asyncpg.Record] | None = None) -> None:
        """Take the connection on which all its moves run, a new one unless the kept one still answers."""
        if kept is not None and await answers(kept):
            self.connection = kept
        else:
            self.connection = await asyncpg.connect(self.url, server_settings={"application_name": KEPT})

    def start(self, move: Move) -> None:
        """Walk up to the first step of a move."""
        self.stopped.clear()
        self.turn.clear()
        self.task = asyncio.create_task(self._run(move))

    async def _run(self, move: Move) -> Any:
        try:
            return await move(self)
        finally:
            self.stopped.set()

    async def fetch(self, query: str, *args: Any) -> list[asyncpg.Record]:
        """Run one statement as a transaction of its own, in two steps."""
        await self._step()
        transaction = self.connection.transaction()
        await transaction.start()
        try:
            rows = await self.connection.fetch(query, *args)
        except Exception as error:
            await transaction.rollback()
            raise translated(error) from error
        await self._step()
        await transaction.commit()
        return rows

    async def execute(self, query: str, *args: Any) -> None:
        """Run one statement whose rows nobody wants."""
        await self.fetch(query, *args)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Any]:
        """Run several statements as one transaction: each is a step, and so is the commit."""
        transaction = self.connection.transaction()
        await self._step()
        await transaction.start()
        try:
            yield Stepping(self)
        except BaseException as error:
            await transaction.rollback()
            raise (translated(error) if isinstance(error, Exception) else error) from error
        await self._step()
        await transaction.commit()

    async def _step(self) -> None:
        self.stopped.set()
        await self.turn.wait()
        self.turn.clear()

    async def go(self) -> None:
        """Take the next step."""
        self.stopped.clear()
        self.turn.set()

    async def is_still(self, within: float) -> bool:
        """Wait a moment for it to come to a step or to its end."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self.stopped.wait(), within)
        return self.stopped.is_set()

    @property
    def has_ended(self) -> bool:
        """Whether the move is done."""
        return self.task is not None and self.task.done()


class Stepping:
    """The connection of an open transaction, on which each further statement is a step."""

    def __init__(self, side: Side) -> None:
        self._side = side
        self._is_first = True

    async def fetch(self, query: str, *args: Any) -> list[asyncpg.Record]:
        """Run one statement. The first one runs with the step that opened the transaction, which takes no snapshot."""
        if not self._is_first:
            await self._side._step()
        self._is_first = False
        return await self._side.connection.fetch(query, *args)


class Order:
    """One way through the tree of choices."""

    def __init__(self, choices: list[str]) -> None:
        self.planned = choices
        self.taken: list[str] = []
        self.free: list[bool] = []

    def choose(self, ready: list[Side]) -> Side:
        """Say who goes next; the first of the two where nothing is planned."""
        wanted = self.planned[len(self.taken)] if len(self.taken) < len(self.planned) else ready[0].name
        side = next((side for side in ready if side.name == wanted), ready[0])
        self.taken.append(side.name)
        self.free.append(len(ready) == 2)
        return side

    def following(self) -> list[str] | None:
        """Give the choices of the next order to try; None when this was the last."""
        for at in reversed(range(len(self.taken))):
            if self.free[at] and self.taken[at] == "left":
                return [*self.taken[:at], "right"]
        return None

    def __str__(self) -> str:
        return " ".join(self.taken)


async def run(order: Order, left: Side, right: Side, monitor: Database) -> tuple[Any, Any]:
    """Run both moves in one order. Gives what each answered, or raised."""
    sides = [left, right]
    while not all(side.has_ended for side in sides):
        assert len(order.taken) < _STEPS_MAX, "neither of the two comes to an end"
        await _wait_until_still(sides, monitor)
        if ready := [side for side in sides if side.stopped.is_set() and not side.has_ended]:
            await order.choose(ready).go()
    answers = await asyncio.gather(*(side.task for side in sides if side.task), return_exceptions=True)
    return answers[0], answers[1]


async def _wait_until_still(sides: list[Side], monitor: Database) -> None:
    """Wait until each is at a step, at its end, or waiting for a lock that the other, standing at a step, holds."""
    for side, other in zip(sides, reversed(sides), strict=True):
        while not await side.is_still(_LOOK_SECONDS):
            other_stands = other.stopped.is_set()
            waits = await monitor.fetchval(
                "select $2 = any (pg_blocking_pids($1))",
                side.connection.get_server_pid(),
                other.connection.get_server_pid(),
            )
            if waits and other_stands:
                break
