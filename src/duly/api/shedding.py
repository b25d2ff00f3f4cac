"""Shedding: what a process knows of overloads, asked of the database at most twice a second, and not per request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from duly.api.labels import OTHER, Labels
from duly.domain.errors import DulyError, Shed
from duly.domain.limits.overload import Overload, is_shed
from duly.domain.runs.run import HORIZON
from duly.store.connection.database import Database
from duly.store.tables import overloads

LOOK_SECONDS = 0.5


class Shedding(Collector):
    """Turns work of low priority away from tenants that are overloaded in its queue. One for each process."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._standing: Mapping[tuple[int, str], Overload] = {}
        self._looked_at: float | None = None
        self._shed: Counter[tuple[str, str]] = Counter()
        self._labels = Labels()

    async def look(self) -> None:
        """Learn what is overloaded, unless that was just now; a database that does not answer changes nothing."""
        now = self._database.clock.monotonic()
        if self._looked_at is not None and now - self._looked_at < LOOK_SECONDS:
            return
        self._looked_at = now  # Set first, so that of many who come at once one asks.
        try:
            self._standing = await overloads.standing(self._database)
        except DulyError:
            self._looked_at = None

    def check(self, tenant: int, queue: str, priority: int, at: datetime | None, now: datetime) -> None:
        """Let a one-shot in that is due at a moment, None: now. Raises Shed."""
        found = self._standing.get((tenant, queue))
        if found is None or not is_shed(priority) or (at is not None and at > now + HORIZON):
            return
        raise self._counted(found, priority)

    def check_all(self, tenant: int, first: Sequence[tuple[str, int]]) -> None:
        """Let a workflow in by the queues and priorities of its first nodes, unless all would be shed. Raises Shed."""
        found = [self._standing.get((tenant, queue)) if is_shed(priority) else None for queue, priority in first]
        if found and found[0] is not None and None not in found:
            raise self._counted(found[0], first[0][1])

    def _counted(self, found: Overload, priority: int) -> Shed:
        is_admitted = self._labels.admits(found.tenant, (found.tenant, found.queue))
        self._shed[str(found.tenant), found.queue if is_admitted else OTHER] += 1
        return found.refusal(priority)

    def collect(self) -> Iterator[Metric]:
        """Give what was turned away."""
        shed = CounterMetricFamily(
            "duly_shed_submissions",
            "Submissions refused because their tenant is overloaded in their queue.",
            labels=["tenant", "queue"],
        )
        for label, count in sorted(self._shed.items()):
            shed.add_metric(label, count)
        yield shed
