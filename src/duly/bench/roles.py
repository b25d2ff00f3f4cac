"""The processes of a scenario: one scheduler and some workers, started, followed and stopped in good order."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from time import monotonic

import msgspec

from duly.bench.role_process import RoleConfig, RoleReport
from duly.domain.errors import DulyError

START_SECONDS = 60.0
STOP_SECONDS = 30.0
_LOOK_SECONDS = 0.01
# A process that may not keep its bytecode compiles everything at each start, unlike any other process.
_NOT_INHERITED = ("PYTHONDONTWRITEBYTECODE", "DULY_")


def environment() -> dict[str, str]:
    """Return the environment for a process that is measured: only default settings."""
    return {name: value for name, value in os.environ.items() if not name.startswith(_NOT_INHERITED)}


def free_port() -> int:
    """Find a free port."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class RoleFailed(DulyError):
    """A process of the scenario ended or stalled: there is no result."""


class Role:
    """One process."""

    def __init__(self, config: RoleConfig, log: Path | None = None) -> None:
        self.config = config
        self._log = log  # a file for what it logs; None: our own standard error
        self.reported = RoleReport(False, 0, 0.0)
        self._process: Process | None = None
        self._reading: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start it."""
        command = (sys.executable, "-m", "duly.bench.role_process")
        with nullcontext() if self._log is None else self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *command, stdin=PIPE, stdout=PIPE, stderr=log, env=environment()
            )
        assert self._process.stdin
        self._process.stdin.write(msgspec.json.encode(self.config) + b"\n")
        self._reading = asyncio.create_task(self._read_reports(), name=self.config.name)

    @property
    def pid(self) -> int:
        """The number of the process."""
        assert self._process is not None
        return self._process.pid

    def check(self) -> None:
        """Raise RoleFailed when it has ended by itself."""
        assert self._process is not None
        if self._process.returncode is not None:
            raise RoleFailed(f"the {self.config.name} ended with status {self._process.returncode}; its log is above")

    async def stop(self) -> None:
        """Ask it to end and wait; one that takes too long is killed."""
        process = self._process
        if process is None or process.returncode is not None:
            return
        assert process.stdin
        process.stdin.close()
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
            raise RoleFailed(f"the {self.config.name} did not end within {STOP_SECONDS:.0f} s") from None

    async def kill(self) -> None:
        """End it as a failing machine would."""
        assert self._process is not None
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()

    async def _read_reports(self) -> None:
        assert self._process is not None
        assert self._process.stdout
        async for line in self._process.stdout:
            self.reported = msgspec.json.decode(line, type=RoleReport)


class Roles:
    """All processes of a scenario."""

    def __init__(self, scheduler: Role | None, workers: Sequence[Role]) -> None:
        self.scheduler = scheduler
        self.workers = workers

    @property
    def everyone(self) -> list[Role]:
        """The scheduler, if there is one, and the workers."""
        return [*([self.scheduler] if self.scheduler else []), *self.workers]

    @property
    def pids(self) -> list[int]:
        """The number of each process."""
        return [role.pid for role in self.everyone]

    @property
    def settled(self) -> int:
        """Return how many runs the workers have settled."""
        return sum(worker.reported.done for worker in self.workers)

    @property
    def reported_at(self) -> float:
        """Return when the last of the workers reported, on the monotonic clock."""
        return max(worker.reported.at for worker in self.workers)

    async def until(self, condition: Callable[[], bool], seconds: float, what: str) -> None:
        """Wait for something. Raises RoleFailed when a process ends before, or when it takes too long."""
        deadline = monotonic() + seconds
        while not condition():
            for role in self.everyone:
                role.check()
            if monotonic() > deadline:
                raise RoleFailed(f"{what}: not within {seconds:.0f} s")
            await asyncio.sleep(_LOOK_SECONDS)

    async def stop(self) -> None:
        """End everyone: the scheduler first, so that nothing new becomes ready."""
        for role in self.everyone:
            await role.stop()


def configs(
    url: str, *, workers: int, slots: int, stamps: Path | None = None, report_seconds: float = 0.5
) -> list[RoleConfig]:
    """Describe one scheduler and some workers."""
    return [
        RoleConfig("scheduler", url, "scheduler", report_seconds=report_seconds),
        *(
            RoleConfig(
                "worker", url, f"worker {number}", slots, str(stamps / f"{number}") if stamps else "", report_seconds
            )
            for number in range(1, workers + 1)
        ),
    ]


@asynccontextmanager
async def running(requested: Iterable[RoleConfig]) -> AsyncIterator[Roles]:
    """Run processes, ready when this yields and ended when it is left."""
    created = [Role(config) for config in requested]
    schedulers = [role for role in created if role.config.role == "scheduler"]
    roles = Roles(schedulers[0] if schedulers else None, [role for role in created if role.config.role == "worker"])
    try:
        for role in created:
            await role.start()
        await roles.until(lambda: all(role.reported.ready for role in created), START_SECONDS, "starting the processes")
        yield roles
    finally:
        await roles.stop()
