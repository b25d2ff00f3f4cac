"""Work that is worthless late: never started after its expiry, and ended as expired, not before."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

from duly.domain.errors import InvalidOption
from tests.simulation.ledger import CAP_SECONDS
from tests.simulation.part import Part, submit_until_answered
from tests.simulation.processes import draw_submission
from tests.simulation.server import START
from tests.simulation.world import Role

if TYPE_CHECKING:
    from tests.simulation.ledger import Execution
    from tests.simulation.world import Process

_LAG = timedelta(seconds=0.05)  # by so much a worker's clock is behind, by the latency of its readings
_SLOW_LAG = timedelta(seconds=10)


class Expiries(Part):
    """One-shots that expire soon."""

    name = "expiries"
    counted = ("expired",)

    def populate(self) -> None:
        self.world.add(Role("expiring", self._submit, is_once=True))

    async def _submit(self, process: Process) -> None:
        random, database = process.random, process.database()
        for number in range(random.randint(4, 8)):
            await asyncio.sleep(random.expovariate(10 / self.plan.storm_seconds))
            asked = []
            for _ in range(random.choice((1, 3))):
                moment = self.world.database_now() + timedelta(seconds=random.uniform(0.3, 9))
                concurrency = random.choice((None, None, ("shop", 1)))
                asked.append(
                    draw_submission(
                        random,
                        self.world,
                        (None, 0.0, 1.0, 6.0),
                        concurrency=concurrency,
                        expires_at=moment.timestamp(),
                    )
                )
            try:
                await submit_until_answered(process, database, asked, f"{process.name}/{number}")
            except InvalidOption:  # the clock was set forwards before a repeated try
                if not any(self._is_past(job.options.policy.expires_at) for job in asked):
                    raise

    def _is_past(self, expires_at: float | None) -> bool:
        return expires_at is not None and expires_at < self.world.database_now().timestamp()

    def _expiry(self, run_id: UUID) -> datetime | None:
        created = self.ledger.created.get(run_id)
        expires_at = created.options.policy.expires_at if created else None
        return None if expires_at is None else datetime.fromtimestamp(expires_at, UTC)

    def on_start(self, execution: Execution, run: Any) -> None:
        expiry, lease = self._expiry(run.id), self.ledger.leases.get(run.id)
        if expiry is None or lease is None:
            return
        # By the database's clock as its worker knows it: that may have been set forwards since.
        offset = min(self.world.clock_offset, execution.process.clock.offset_at_least(lease.claimed_at))
        lag = _SLOW_LAG if self.plan.has("slow_reply") or self.plan.has("slow_request") else _LAG
        late = START + timedelta(seconds=self.world.now + offset) - lag - expiry
        if late > timedelta():
            self.ledger.violate("a run was started after its expiry", run.id, late)

    def on_end(self, run_id: UUID, state: str, at: datetime) -> None:
        if state != "expired":
            return
        self.world.count("expired")
        expiry = self._expiry(run_id)
        if expiry is None:
            self.ledger.violate("a run expired that does not", run_id)
        # After a failure it ends where its next attempt would come too late.
        elif at + timedelta(seconds=CAP_SECONDS) < expiry and not self.plan.has("clock_back"):
            self.ledger.violate("a run expired before its time", run_id, expiry - at)
