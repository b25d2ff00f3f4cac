"""Targets that are no functions: what a worker can do besides calling its app, each under a name that begins with `@`.

No code of the user's runs in our process for them, so their runs are never suspects that have to run alone.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Protocol
from uuid import UUID

import msgspec

from duly.domain.runs.outcome import Deferral, Outcome
from duly.domain.runs.run import Run
from duly.store.connection.database import Database
from duly.worker.context import RunContext
from duly.worker.slots import Kind

Attempt = Callable[[RunContext, Run], Awaitable[Outcome | Deferral]]
Closing = Callable[[], Awaitable[None]]


class TargetHandler(msgspec.Struct, frozen=True):
    """One thing a worker can do. `attempt` is awaited on the handlers' loop, where a cancel or a timeout cancels it."""

    name: str
    kind: Kind
    attempt: Attempt
    keeps_time: bool = False  # It applies the run's timeout itself, from the moment from which it counts.


class Part(Protocol):
    """What targets share and a worker keeps alive for them; it is called on the engine's loop."""

    async def begin(self, database: Database, worker_id: UUID) -> None:
        """A life of the worker begins, under this name."""
        ...

    async def end(self) -> None:
        """That life is over."""
        ...


class Targets:
    """What a worker can do, by name, and the parts that live as long as it does."""

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
        """Return what is known under a handler's name, if anything."""
        return self._handlers.get(name)

    async def begin(self, database: Database, worker_id: UUID) -> None:
        """Let the parts begin with a life of the worker."""
        for part in self._parts:
            await part.begin(database, worker_id)

    async def end(self) -> None:
        """Let the parts end with it."""
        for part in self._parts:
            await part.end()

    async def close(self) -> None:
        """Close what handlers have opened, on their loop, when the worker has ended."""
        for close in self._closing:
            await close()

    def names(self) -> list[str]:
        """List the names, as a worker offers them."""
        return list(self._handlers)
