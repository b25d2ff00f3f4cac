"""Limits of a queue, a tenant and the fleet, set, changed and taken away as it goes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from duly.domain.errors import NotFound
from duly.domain.limits.pause import Scope
from duly.domain.runs.run import TENANT_DEFAULT
from duly.moves.admin.limit import limit, unlimit
from duly.store.connection.database import Unavailable
from tests.simulation.part import Part
from tests.simulation.processes import QUEUES
from tests.simulation.world import Role

if TYPE_CHECKING:
    from tests.simulation.ledger import Execution, Lease
    from tests.simulation.world import Process, World

SCOPES = (Scope(), Scope(queue=QUEUES[0]), Scope(tenant=TENANT_DEFAULT), Scope(TENANT_DEFAULT, QUEUES[1]))
_KNOWN_SECONDS = 2.0


class Limits(Part):
    """Of a scope, a claim gives nothing more than its places are free for; nor does a handler begin beside as many."""

    name = "limits"
    counted = ("limit_set", "limit_reached")

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._standing: dict[Scope, tuple[int, float]] = {}  # places, and since when so few

    def populate(self) -> None:
        self.world.add(Role("limiter", self._change))

    async def _change(self, process: Process) -> None:
        random, database = process.random, process.database()
        while True:
            await asyncio.sleep(10_000 if self.world.is_calm else random.expovariate(1 / 2))
            scope = random.choice(SCOPES)
            try:
                if random.random() < 0.3:
                    await unlimit(database, scope)
                else:
                    await limit(database, scope, random.choice((1, 1, 2, 3)), set_by=process.name)
            except (Unavailable, NotFound):
                continue

    def _on_limits_put(self, process: Process, args: Sequence[Any], rows: list[Any], at: datetime) -> None:
        scope, slots = Scope(args[0], args[1]), args[2]
        before, since = self._standing.get(scope, (slots + 1, 0.0))
        self._standing[scope] = (slots, since if before <= slots else self.world.now)
        self.world.count("limit_set")

    def _on_limits_remove(self, process: Process, args: Sequence[Any], rows: list[Any], at: datetime) -> None:
        self._standing.pop(Scope(args[0], args[1]), None)

    def _on_ready_claim(self, process: Process, args: Sequence[Any], rows: list[Any], at: datetime) -> None:
        leases = self.ledger.leases
        for scope, (slots, _) in self._standing.items():
            if any(_is_within(scope, leases[row["run_id"]]) for row in rows):
                under_way = [run_id for run_id, lease in leases.items() if _is_within(scope, lease)]
                if len(under_way) > slots:
                    self.ledger.violate("a claim gave more than a limit leaves", str(scope), slots, *under_way)
                self.world.struck["limit_reached"] += len(under_way) == slots

    def on_start(self, execution: Execution, run: Any) -> None:
        ledger, mine = self.ledger, self.ledger.leases.get(run.id)
        if mine is None:
            return
        others = [item.run_id for item in ledger.running() if ledger.pauses(item)]
        for scope, (slots, since) in self._standing.items():
            beside = [run_id for run_id in others if _is_within(scope, ledger.leases[run_id])]
            if _is_within(scope, mine) and self._must_know(mine, since) and len(beside) >= slots:
                ledger.violate("a handler began beside as many as a limit allows", run.id, str(scope), slots, *beside)

    def _must_know(self, lease: Lease, since: float) -> bool:
        """Say whether a start has to keep to a limit: it was claimed under it, or there was time to hear of it."""
        return lease.claimed_at > since or (self.plan.lets_workers_look and self.world.now - since > _KNOWN_SECONDS)


def _is_within(scope: Scope, lease: Lease) -> bool:
    return scope.tenant in (None, lease.tenant) and scope.queue in (None, lease.queue)
