"""One tenant's flood beside another's single runs, which do not wait for it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from duly.domain.job import Submission
from duly.domain.run import encode_options
from tests.simulation.ledger import Script
from tests.simulation.part import Part, submit_until_answered
from tests.simulation.processes import QUEUES, options_of, payload_of
from tests.simulation.world import Role

if TYPE_CHECKING:
    from tests.simulation.ledger import Execution
    from tests.simulation.world import Process, World

FLOOD, SINGLE = 2, 3  # tenants
_FLOOD_RUNS, _SINGLE_RUNS = 40, 4
_CLAIMS_MAX = 3  # that give something to the flood before one gives the other tenant its share
_START_SECONDS = 2.0


class Floods(Part):
    """The documented bound: another tenant's single run starts within two seconds, and within so many claims."""

    name = "floods"
    counted = ("flooded", "passed_the_flood")

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._passed: dict[UUID, int] = {}  # for each single run, the claims that gave the flood something and it nothing

    def populate(self) -> None:
        self.world.add(Role("flood", self._submit, is_once=True))

    async def _submit(self, process: Process) -> None:
        random, database = process.random, process.database()
        for number in range(2):
            await asyncio.sleep(random.uniform(0, self.plan.storm_seconds / 4))
            asked = [_quick() for _ in range(_FLOOD_RUNS)]
            await submit_until_answered(process, database, asked, f"{process.name}/{number}", FLOOD)
            self.world.count("flooded")
            for single in range(_SINGLE_RUNS):
                await asyncio.sleep(random.uniform(0, 0.5))
                await submit_until_answered(process, database, [_quick()], f"{process.name}/{number}/{single}", SINGLE)

    def on_statement(self, process: Process, name: str, args: Sequence[Any], rows: list[Any], at: datetime) -> None:
        if name == "ready.claim":
            self._count_claim(rows)
        for run_id, created in self.ledger.created.items():
            if created.tenant == SINGLE and run_id not in self._passed:
                self._passed[run_id] = 0

    def _count_claim(self, rows: list[Any]) -> None:
        claimed, tenants = {row["run_id"] for row in rows}, {row["tenant"] for row in rows}
        for run_id, passed in self._passed.items():
            is_waiting = run_id not in self.ledger.fences and run_id not in self.ledger.final
            if run_id in claimed and FLOOD in tenants | self._waiting_tenants():
                self.world.count("passed_the_flood")
            elif is_waiting and FLOOD in tenants and SINGLE not in tenants:  # Another of its own may have come first.
                self._passed[run_id] = passed + 1
                if passed >= _CLAIMS_MAX:
                    self.ledger.violate("a flood keeps another tenant's run waiting", run_id, passed + 1)

    def _waiting_tenants(self) -> set[int]:
        return {
            created.tenant
            for run_id, created in self.ledger.created.items()
            if run_id not in self.ledger.fences and run_id not in self.ledger.final
        }

    def on_start(self, execution: Execution, run: Any) -> None:
        created = self.ledger.created.get(run.id)
        if created is None or created.tenant != SINGLE or not self.is_prompt or run.attempt > 1:
            return
        waited = self.world.now - created.at
        if waited > _START_SECONDS:
            self.ledger.violate("another tenant's run started too late in a flood", run.id, f"after {waited:.2f} s")


def _quick() -> Submission:
    script = Script(["quick"], 5, 0.0)
    return Submission("act", payload_of(script), QUEUES[0], 5, options=encode_options(options_of(script)))
