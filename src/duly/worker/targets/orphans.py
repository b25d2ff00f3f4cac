"""Orphaned containers: found by their label, and removed.

The label says which process on which machine a container belongs to. A worker removes a container when that process has
certainly ended, or when it is the worker itself and does not know it. Containers that it cannot judge, because they
belong to another machine or to processes that cannot be seen from here, it leaves alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from uuid import UUID

import msgspec

from duly.log import Log
from duly.store.connection.database import Database
from duly.worker.targets.process import output_of

OWNER_LABEL = "duly.owner"
LOOK_SECONDS = 30.0
_ANSWER_SECONDS = 20.0
_ORPHANS_MAX = 1_000


class Engine(msgspec.Struct, frozen=True):
    """A container engine's program, its dialect, and the variables it needs."""

    command: tuple[str, ...]
    options: tuple[str, ...] = ()  # the operator's, which come last and so take precedence
    environment: Mapping[str, str] = {}


class Owner(msgspec.Struct, frozen=True):
    """A process on a machine, identified uniquely."""

    machine: str
    boot: str
    namespace: str
    pid: int
    started: int

    def __str__(self) -> str:
        return "/".join(map(str, msgspec.structs.astuple(self)))

    @classmethod
    def read(cls, text: str) -> Owner | None:
        """Parse a label; None when it is not ours."""
        with contextlib.suppress(ValueError):
            machine, boot, namespace, pid, started = text.split("/")
            return cls(machine, boot, namespace, int(pid), int(started))
        return None

    @classmethod
    def here(cls) -> Owner:
        """Return this process."""
        namespace = Path("/proc/self/ns/pid").readlink().name.partition("[")[2].rstrip("]")
        pid = os.getpid()
        return cls(_machine(), _line("/proc/sys/kernel/random/boot_id"), namespace, pid, started_of(pid) or 0)

    def has_ended(self, seen_from: Owner, started: Callable[[int], int | None]) -> bool:
        """Return whether this process has certainly ended, as seen by another."""
        if self.machine != seen_from.machine:
            return False
        if self.boot != seen_from.boot:
            return True
        return self.namespace == seen_from.namespace and started(self.pid) != self.started


def started_of(pid: int) -> int | None:
    """Return when a process was started, in ticks since the boot; None when there is no such process."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    except (OSError, IndexError):
        return None


class Orphans:
    """Looks for orphans when a worker begins, and every 30 s."""

    def __init__(
        self,
        engine: Engine,
        owner: Owner,
        under_way: Callable[[], Collection[str]],
        *,
        log: Log,
    ) -> None:
        self._engine = engine
        self._owner = owner
        self._under_way = under_way
        self._log = log
        self._looking: asyncio.Task[None] | None = None

    async def begin(self, database: Database, worker_id: UUID) -> None:
        """Begin to look."""
        self._looking = asyncio.create_task(self._look(database))

    async def end(self) -> None:
        """Look no longer."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait({self._looking})

    async def step(self) -> list[str]:
        """Remove orphaned containers, and return their names."""
        # Read before the engine is asked: a container that is started meanwhile must not look orphaned.
        watched = set(self._under_way())
        orphans = [name for name, owner in await self._labelled() if self._is_orphan(name, owner, watched)]
        for name in orphans:
            status, said = await self._call_engine("rm", "--force", name)
            self._log.warning("container_removed", container=name, status=status, said=said)
        return orphans

    async def _look(self, database: Database) -> None:
        while True:
            try:
                await self.step()
            except OSError as error:
                self._log.warning("containers_not_read", error=str(error))
            await database.clock.sleep(LOOK_SECONDS)

    def _is_orphan(self, name: str, owner: Owner, watched: Collection[str]) -> bool:
        if owner == self._owner:
            return name not in watched and name not in self._under_way()
        return owner.has_ended(self._owner, started_of)

    async def _labelled(self) -> list[tuple[str, Owner]]:
        status, said = await self._call_engine("ps", "--all", "--quiet", "--filter", f"label={OWNER_LABEL}")
        if status != 0:
            raise OSError(said)
        found = [await self._described(container) for container in said.split()[:_ORPHANS_MAX]]
        return [pair for pair in found if pair is not None]

    async def _described(self, container: str) -> tuple[str, Owner] | None:
        status, said = await self._call_engine("inspect", "--format", _FORMAT, container)
        name, _, label = said.partition(" ")
        owner = Owner.read(label) if status == 0 else None
        return None if owner is None else (name.removeprefix("/"), owner)

    async def _call_engine(self, *words: str) -> tuple[int, str]:
        return await output_of((*self._engine.command, *words), self._engine.environment, _ANSWER_SECONDS)


_FORMAT = '{{.Name}} {{index .Config.Labels "' + OWNER_LABEL + '"}}'


def _machine() -> str:
    with contextlib.suppress(OSError):
        if machine := _line("/etc/machine-id"):
            return machine
    return socket.gethostname().replace("/", "_")


def _line(path: str) -> str:
    return Path(path).read_text().strip()
