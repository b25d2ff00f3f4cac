"""The way from a process to the database: every statement passes here, and here it may be lost, delayed or repeated."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any

import asyncpg

from duly.clock import SystemClock
from duly.store.connection.database import Database

if TYPE_CHECKING:
    from tests.simulation.world import Process, World

_LATENCY_SECONDS = (0.0002, 0.004)
_SLOW_SECONDS = (0.3, 9.0)
_LATE_SECONDS = (0.2, 12.0)
_BLACKHOLE_SECONDS = (1.0, 8.0)
_READING_SECONDS = 10.0
_REFUSALS: dict[str, Callable[[], Exception]] = {
    "refused": lambda: ConnectionResetError("refused"),
    "serialization": lambda: asyncpg.SerializationError("could not serialize access"),
    "deadlock": lambda: asyncpg.DeadlockDetectedError("deadlock detected"),
}


class Ask:
    """One statement on its way."""

    def __init__(self, process: Process, query: str, args: Sequence[Any], answer: asyncio.Future[Any]) -> None:
        self.process = process
        self.query = query
        self.args = args
        self.answer = answer


class Network:
    """Carries statements and answers, with the faults of the plan."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._random = world.random
        self.down_until = 0.0
        self.plot: dict[str, str] = {}  # the fault that awaits the next statement of a name

    def send(self, ask: Ask) -> None:
        """Take a statement from a process and decide its fate."""
        world, name = self._world, self._world.names.get(ask.query, "script")
        world.ledger.on_sent(ask.process, name)
        if ask.process.cut_until > world.now:
            self._fail(ask, ConnectionResetError("cut off"), within=_BLACKHOLE_SECONDS)
            return
        fault = self.plot.pop(name, None) or self._draw()
        world.strike(fault, ask.process, name)
        self._send(ask, fault)

    def _send(self, ask: Ask, fault: str) -> None:
        slow = self._random.uniform(*_SLOW_SECONDS) if fault in ("slow_request", "slow_reply") else 0.0
        request, reply = self._latency(), self._latency()
        match fault:
            case "refused" | "serialization" | "deadlock":
                self._fail(ask, _REFUSALS[fault]())
            case "late_commit":
                self._world.at(self._random.uniform(*_LATE_SECONDS), lambda: self._run(ask))
                self._fail(ask, ConnectionResetError("lost on the way"))
            case "lost_reply":
                self._world.at(request, lambda: self._deliver(ask, None))
            case "crash_before":
                ask.process.die()
            case "crash_after":
                self._world.at(request, lambda: self._deliver_and_crash(ask))
            case "slow_request":
                self._world.at(slow, lambda: self._deliver(ask, reply))
            case _:
                self._world.at(request, lambda: self._deliver(ask, reply + slow))

    def _draw(self) -> str:
        if self._world.is_calm:
            return ""
        for fault, chance in self._world.faults_on_statement:
            if self._random.random() < chance:
                return fault
        return ""

    def _latency(self) -> float:
        return self._random.uniform(*_LATENCY_SECONDS)

    def _fail(self, ask: Ask, error: Exception, within: tuple[float, float] = _LATENCY_SECONDS) -> None:
        self._world.at(self._random.uniform(*within), lambda: self._answer(ask, error))

    def _deliver(self, ask: Ask, reply: float | None) -> None:
        """Let a statement reach the database; without `reply` its answer is lost."""
        if ask.process.is_dead and self._random.random() < 0.5:
            return  # It was still in a buffer of the process when that died.
        if self.down_until > self._world.now:
            self._fail(ask, ConnectionRefusedError("the database is down"))
            return
        answer = self._run(ask)
        if reply is None:
            self._fail(ask, ConnectionResetError("the answer was lost"))
        else:
            self._world.at(reply, lambda: self._answer(ask, answer))

    def _deliver_and_crash(self, ask: Ask) -> None:
        if self.down_until <= self._world.now:
            self._run(ask)
        self._world.crash(ask.process)

    def _run(self, ask: Ask) -> Any:
        if self.down_until > self._world.now:
            return None
        return self._world.run_statement(ask)

    def _answer(self, ask: Ask, answer: Any) -> None:
        """Let an answer reach its process, unless the process is gone or cut off."""
        if ask.process.is_dead or ask.answer.done():
            return
        if ask.process.cut_until > self._world.now and not isinstance(answer, Exception):
            self._fail(ask, ConnectionResetError("cut off"), within=_BLACKHOLE_SECONDS)
        elif isinstance(answer, Exception):
            ask.answer.set_exception(answer)
        else:
            ask.answer.set_result(answer)


class FaultyConnection:
    """What a process takes for an asyncpg connection."""

    def __init__(self, process: Process) -> None:
        self._process = process

    async def fetch(self, query: str, *args: Any) -> Any:
        """Send a statement and wait for its rows."""
        if self._process.is_dead:
            raise GeneratorExit
        world, answer = self._process.world, asyncio.get_running_loop().create_future()
        world.network.send(Ask(self._process, query, args, answer))
        try:
            return await answer
        except Exception as error:  # Heard only now: a process that stood still goes on with what it had asked before.
            world.ledger.on_failed(self._process, world.names.get(query, "script"), error)
            raise

    async def execute(self, query: str) -> Any:
        """Send a statement whose rows nobody wants."""
        return await self.fetch(query)


class FaultyPool:
    """What a process takes for a pool."""

    def __init__(self, process: Process) -> None:
        self._process = process

    @asynccontextmanager
    async def acquire(self) -> AsyncIterator[FaultyConnection]:
        """Give a connection; there are always enough."""
        yield FaultyConnection(self._process)


class FaultyDatabase(Database):
    """The real `Database`, with its retries and its errors, over a pool that loses things."""

    def __init__(self, process: Process) -> None:
        super().__init__("postgresql://simulated", clock=ObservedClock(process.world))
        self._faulty = FaultyPool(process)

    async def open(self) -> Database:
        return self

    async def close(self) -> None:
        pass

    @property
    def pool(self) -> Any:
        return self._faulty


class ObservedClock(SystemClock):
    """The real clock, of which we know what it was told: `early` is judged by the database's clock as it was known then."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world
        self._told: list[tuple[float, float]] = []  # when, and the offset of the database's clock in that reading

    def observe(self, database_at: datetime) -> None:
        super().observe(database_at)
        self._told.append((self._world.now, self._world.offsets[database_at]))

    def offset_since(self, moment: float) -> float:
        """Give the highest offset that could be relied on at any time from a moment on: by a reading ten seconds old at most."""
        return max(self._relied_on_since(moment))

    def offset_at_least(self, moment: float) -> float:
        """Give the lowest of these."""
        return min(self._relied_on_since(moment))

    def _relied_on_since(self, moment: float) -> list[float]:
        newest_before = [offset for at, offset in self._told if at <= moment - _READING_SECONDS][-1:]
        return newest_before + [offset for at, offset in self._told if at > moment - _READING_SECONDS]
