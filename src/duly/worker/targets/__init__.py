"""Targets other than functions: what a worker can run besides its app, each under a name that begins with `@`.

They run no user code in our process, so their runs are never suspects that have to run alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Protocol
from uuid import UUID

import msgspec

from duly.domain.diagnosis.figures import Histogram
from duly.domain.runs.outcome import Deferral, Outcome
from duly.domain.runs.run import Run
from duly.store.connection.database import Database
from duly.worker.context import RunContext
from duly.worker.slots import Kind

Attempt = Callable[[RunContext, Run], Awaitable[Outcome | Deferral]]
Closing = Callable[[], Awaitable[None]]


class TargetHandler(msgspec.Struct, frozen=True):
    """The handler of one target. `attempt` is awaited on the handlers' loop, where a cancel or a timeout cancels it."""

    name: str
    kind: Kind
    attempt: Attempt
    applies_timeout: bool = False  # it applies the run's timeout itself
    durations: Mapping[str, Histogram] = {}  # of its calls, by class, where it counts them


class Part(Protocol):
    """A service that targets share and a worker keeps alive; it is called on the engine's loop."""

    async def begin(self, database: Database, worker_id: UUID) -> None:
        """Begin a life of the worker, under this id."""
        ...

    async def end(self) -> None:
        """End that life."""
        ...


class UsesDatabase:
    """A part with the engine's database, which is used on the engine's loop and only during a life of the worker."""

    _database: Database | None = None
    _loop: asyncio.AbstractEventLoop | None = None

    async def begin(self, database: Database, worker_id: UUID) -> None:
        """Begin a life of the worker."""
        self._database, self._loop = database, asyncio.get_running_loop()

    async def end(self) -> None:
        """End that life."""
        self._database = self._loop = None


class Targets:
    """The targets of a worker, by name, and the services that live as long as it does."""

    def __init__(
        self,
        handlers: Iterable[TargetHandler] = (),
        parts: Iterable[Part] = (),
        closing: Iterable[Closing] = (),
    ) -> None:
        self._handlers = {handler.name: handler for handler in handlers}
        self._parts = tuple(parts)
        self._closing = tuple(closing)

    def __iter__(self) -> Iterator[TargetHandler]:
        return iter(self._handlers.values())

    def __len__(self) -> int:
        return len(self._handlers)

    def get(self, name: str) -> TargetHandler | None:
        """Return the target of a handler's name, if any."""
        return self._handlers.get(name)

    async def begin(self, database: Database, worker_id: UUID) -> None:
        """Begin the services with a life of the worker."""
        for part in self._parts:
            await part.begin(database, worker_id)

    async def end(self) -> None:
        """End the services with it."""
        for part in self._parts:
            await part.end()

    async def close(self) -> None:
        """Close what handlers have opened, on their loop, when the worker has ended."""
        for close in self._closing:
            await close()

    def names(self) -> list[str]:
        """List the names, as a worker offers them."""
        return list(self._handlers)
