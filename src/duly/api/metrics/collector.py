"""The metrics that a process exports: those of the whole installation, and those of its own parts.

The figures of the installation are read in the background, so a scrape costs the database nothing, and is answered, with
the last figures and their age, while the database is not.
"""

from __future__ import annotations

import asyncio
import platform
from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Protocol

from duly import __version__
from duly.api.metrics.definitions import Family, one
from duly.api.metrics.exposition import content_type, render
from duly.api.metrics.installation import families
from duly.domain.errors import DulyError
from duly.domain.limits.overload import AGE_LIMIT
from duly.log import Log
from duly.store.connection.database import Database
from duly.store.connection.replica import Replica
from duly.store.reads.installation import Reader, Seen
from duly.store.reads.pressure import Gauge

LOOK_SECONDS = 5.0
_SILENT_SECONDS = 5.0  # a look that takes longer shows that the database does not answer
WAIT_SECONDS = 1.0  # a scrape waits so long for figures that are due; longer, and it answers with the last ones


class Collector(Protocol):
    """A part of a process that has metrics."""

    def collect(self) -> Iterable[Family]:
        """Return its metrics."""
        ...


class Metrics:
    """Keeps the figures up to date and writes them out."""

    def __init__(
        self,
        database: Database,
        log: Log,
        age_limit: timedelta = AGE_LIMIT,
        replica: Replica | None = None,
        *,
        every: float = LOOK_SECONDS,
    ) -> None:
        self._clock = database.clock
        self._log = log
        self._every = every
        self._reader = Reader(Gauge(database, age_limit), database, log, timedelta(seconds=every), replica)
        self._collectors: list[Collector] = []
        self._looking: asyncio.Task[None] | None = None
        self._looked_at: float | None = None
        self._seen: Seen | None = None
        self._is_up = False

    def add(self, collector: Collector) -> None:
        """Include the metrics of a part."""
        self._collectors.append(collector)

    async def run(self) -> None:
        """Look periodically, so that a scrape finds nothing left to read."""
        while True:
            await self._look_if_due(None)
            await self._clock.sleep(self._every)

    async def scrape(self, accept: str) -> tuple[bytes, str]:
        """Return the metrics, and their content type."""
        await self._look_if_due(WAIT_SECONDS)
        kind = content_type(accept)
        return render(self._families(), kind), kind

    async def look(self) -> None:
        """Take the figures of the installation. Raises Unavailable."""
        seen = await self._reader.read()
        if seen is not None:
            self._seen = seen
            self._looked_at = self._clock.monotonic()

    async def _look_if_due(self, seconds: float | None) -> None:
        """Look unless that was just now; several callers share one look, and wait at most so many seconds for it."""
        is_due = self._looked_at is None or self._clock.monotonic() - self._looked_at >= self._every
        if is_due and (self._looking is None or self._looking.done()):
            self._looking = asyncio.create_task(self._look_safely())
        if self._looking is not None and not self._looking.done():
            await asyncio.wait({self._looking}, timeout=seconds)

    async def _look_safely(self) -> None:
        try:
            await self.look()
            self._is_up = True
        except DulyError as error:
            self._is_up = False
            self._log.warning("metrics_stale", error=str(error))
        except Exception as error:  # noqa: BLE001 - figures are never worth a crash of what they describe
            self._is_up = False
            self._log.error("metrics_failed", error=repr(error))

    def _families(self) -> Iterator[Family]:
        yield Family("duly_build_info", [((__version__, platform.python_version()), 1)])
        since = 0.0 if self._looked_at is None else self._clock.monotonic() - self._looked_at
        yield one("duly_database_up", int(self._is_up and since <= self._every + _SILENT_SECONDS))
        if self._seen is not None:
            yield one("duly_figures_age_seconds", self._seen.age_seconds + since)
            yield from families(self._seen.figures)
        for collector in self._collectors:
            yield from collector.collect()
