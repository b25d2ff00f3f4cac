"""A system that is measured: how jobs are submitted to it, how its workers are started, and what is still unfinished."""

from __future__ import annotations

import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractContextManager
from time import time
from typing import Any, ClassVar

URL = "PEERS_URL"
WORKERS = 2


class System(ABC):
    """One system on one database, which is empty when `create` is called."""

    drained_max: ClassVar[int] = 1_000_000
    """Fewer jobs are drained than of others where so many would take minutes; the table says so."""

    def __init__(self) -> None:
        self.url = os.environ[URL]

    @abstractmethod
    async def create(self) -> None:
        """Make its schema."""

    @abstractmethod
    async def open(self) -> None:
        """Connect the client."""

    @abstractmethod
    async def close(self) -> None:
        """Disconnect the client."""

    @abstractmethod
    async def submit_many(self, number: int, reference: float, due: float | None = None) -> None:
        """Submit jobs by the best documented way for many. Returns when all are durable."""

    @abstractmethod
    async def submit(self, reference: float) -> None:
        """Submit one job. Returns when it is durable."""

    async def submit_now(self) -> None:
        """Submit one job whose reference is the moment of the call."""
        await self.submit(time())

    async def submit_each(self, number: int) -> None:
        """Submit jobs one by one."""
        for _ in range(number):
            await self.submit(0.0)

    def sync(self) -> AbstractContextManager[Callable[[], object]] | None:
        """Connect without an event loop, and give the function that submits one job; None where there is no such API."""
        return None

    @abstractmethod
    async def unfinished(self) -> int:
        """Count the jobs that are not finished, as the store has them."""

    def commands(self) -> Sequence[Sequence[str]]:
        """Return the processes that do the work: two workers, and what has to run beside them."""
        return [[sys.executable, "-m", "benchmarks.peers.work", type(self).__module__]] * WORKERS

    def work(self) -> Coroutine[Any, Any, None]:
        """Return what a worker process does, where it is one of ours."""
        raise NotImplementedError
