"""The surroundings of a scenario: where it runs, how it shows its steps, and how many processes it may start."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from time import monotonic
from typing import Any

import msgspec

from duly.bench import stamps
from duly.bench.baseline import Baseline
from duly.bench.costs import Meter
from duly.bench.progress import Steps
from duly.bench.roles import Roles, configs, running
from duly.bench.scratch import CONNECTIONS_MAX, Scratch
from duly.bench.stamps import Stamp
from duly.store.connection.database import Database

# How often a role reports its progress, where the moment of the last settle counts.
REPORT_SECONDS = 0.05
# The config of a scenario that starts no worker.
NO_WORKERS = {"workers": 0, "slots": 0}


class Bench(msgspec.Struct, frozen=True):
    """One scenario's surroundings. `folder` is for files between processes."""

    scratch: Scratch
    steps: Steps
    folder: Path
    workers: int
    slots: int

    def roles(
        self, *, stamped: bool = False, report_seconds: float = 0.5, workers: int | None = None
    ) -> AbstractAsyncContextManager[Roles]:
        """Run a scheduler and the workers."""
        return running(
            configs(
                self.scratch.url,
                workers=self.workers if workers is None else workers,
                slots=self.slots,
                stamps=self.folder if stamped else None,
                report_seconds=report_seconds,
            )
        )

    def stamps(self) -> list[Stamp]:
        """Read what the handlers recorded, once their processes have ended."""
        return list(stamps.read(path for path in sorted(self.folder.iterdir()) if path.is_file()))

    async def stamps_by_database(self) -> list[Stamp]:
        """Read what the handlers recorded, as the database's clock would have shown it, should it be another than ours."""
        offset = await self.scratch.clock_offset()
        return [stamp.shifted(offset) for stamp in self.stamps()] if offset else self.stamps()

    def costs(self, roles: Roles) -> Meter:
        """Count CPU from now on."""
        return Meter(roles.pids, self.scratch.server_pid)

    @asynccontextmanager
    async def baseline(self, rows: int) -> AsyncIterator[Baseline]:
        """Take the baseline before and after a scenario, so that a drift shows in neither."""
        measured = Baseline(self.scratch.url, rows)
        with self.steps.step("baseline"):
            await measured.run()
        yield measured
        with self.steps.step("baseline again"):
            await measured.run()

    @asynccontextmanager
    async def database(
        self, size_max: int = CONNECTIONS_MAX, command_timeout: float = 600.0
    ) -> AsyncIterator[Database]:
        """Throw everything away, make the schema anew and open a pool on it."""
        await self.scratch.renew()
        async with self.scratch.database(size_max, command_timeout) as database:
            yield database

    async def settled(self, roles: Roles, number: int, seconds: float, what: str) -> None:
        """Wait until the workers have settled so many runs."""
        with self.steps.step(what, number) as advance:

            def all_settled() -> bool:
                advance(roles.settled)
                return roles.settled >= number

            await roles.until(all_settled, seconds, "settling every run")

    def config(self, options: msgspec.Struct, more: dict[str, Any]) -> dict[str, Any]:
        """Lay out everything a result depends on."""
        requested: dict[str, Any] = msgspec.to_builtins(options)
        return requested | {"workers": self.workers, "slots": self.slots} | more | self.scratch.config


async def wait_for(database: Database, seconds: float, question: str, *parameters: object) -> bool:
    """Ask until the answer is true. Returns False when it was not within the time."""
    deadline = monotonic() + seconds
    while not await database.fetchval(question, *parameters):
        if monotonic() > deadline:
            return False
        await asyncio.sleep(REPORT_SECONDS)
    return True


def chunks(number: int, size: int) -> Sequence[int]:
    """Cut a number into sizes."""
    return [min(size, number - start) for start in range(0, number, size)]
