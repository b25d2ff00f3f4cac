"""One tenant's flood beside another's single runs, which do not wait for it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from duly.domain.jobs.job import Submission
from tests.simulation.ledger import Script
from tests.simulation.part import Part, submit_until_answered
from tests.simulation.processes import QUEUES, options_of, payload_of
from tests.simulation.world import Role

if TYPE_CHECKING:
    from tests.simulation.ledger import Execution
    from tests.simulation.world import Process, World

FLOOD, SINGLE = 2, 3  # tenants
_FLOOD_RUNS, _SINGLE_RUNS = 40, 4
_IN_A_ROW_MAX = 16  # runs of the flood while another tenant's waits; a claim of one run is a fair draw between the two
_START_SECONDS = 2.0


class Floods(Part):
    """The documented bound: another tenant's single run starts within two seconds, and has its share of what is claimed."""

    name = "floods"
    counted = ("flooded", "passed_the_flood")

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._in_a_row = 0  # runs of the flood that were claimed, one after the other, while another tenant's waited

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

    def _on_ready_claim(self, process: Process, args: Sequence[Any], rows: list[Any], at: datetime) -> None:
        if not rows:
            return
        taken, waiting = Counter(row["tenant"] for row in rows), self._waiting(at)
        if taken[SINGLE] or SINGLE not in waiting:
            self._in_a_row = 0
            self.world.struck["passed_the_flood"] += taken[SINGLE] if taken[FLOOD] or FLOOD in waiting else 0
            return
        self._in_a_row += taken[FLOOD]
        if self._in_a_row > _IN_A_ROW_MAX:
            self.ledger.violate("a flood keeps another tenant's run waiting", waiting[SINGLE], self._in_a_row)

    def _waiting(self, at: datetime) -> dict[int, UUID]:
        """Give, for each tenant that has a run which is due and which nobody has claimed yet, one of them."""
        ledger = self.ledger
        return {
            run.tenant: run_id
            for run_id, run in ledger.created.items()
            if run_id not in ledger.fences and run_id not in ledger.final and ledger.earliest[run_id] <= at
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
    return Submission("act", payload_of(script), QUEUES[0], 5, options=options_of(script))
