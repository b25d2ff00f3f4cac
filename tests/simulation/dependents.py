"""One-shots that follow others: let go when the last of these has ended as it was asked, skipped where one has not."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from uuid import UUID

from tests.simulation.part import Part, submit_until_answered
from tests.simulation.processes import draw_submission
from tests.simulation.world import Role

if TYPE_CHECKING:
    from tests.simulation.ledger import Execution
    from tests.simulation.world import Process, World

ENDS = {
    "success": {"succeeded"},
    "failure": {"dead", "cancelled", "expired"},
    "always": {"succeeded", "dead", "cancelled", "expired", "skipped"},
}
_SKIPPED = "select run_id from duly.attempts where became = 'skipped' and run_id = any ($1::uuid[])"


class Followers(Part):
    """`after: [job]`: by our own record of how each of them ended."""

    name = "followers"
    counted = ("dependency", "follower_skipped")

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._unproven: list[
            tuple[UUID, UUID]
        ] = []  # began behind one that may have been skipped, which no answer tells

    def populate(self) -> None:
        self.world.add(Role("followers", self._submit, is_once=True))

    async def _submit(self, process: Process) -> None:
        random, database = process.random, process.database()
        known: list[UUID] = []
        for number in range(random.randint(5, 9)):
            await asyncio.sleep(random.expovariate(10 / self.plan.storm_seconds))
            parents = random.sample(known, min(len(known), random.choice((0, 1, 1, 2))))
            depends_on = tuple(
                (str(parent), random.choice(("success", "success", "failure", "always"))) for parent in parents
            )
            delays = (None,) if depends_on else (None, 0.0, 3.0)
            asked = [draw_submission(random, self.world, delays, depends_on=depends_on)]
            known += await submit_until_answered(process, database, asked, f"{process.name}/{number}")

    def learn(self) -> None:
        waiting = [run_id for run_id in self._following() if run_id not in self.ledger.final]
        for row in self.world.query(_SKIPPED, waiting) if waiting else ():
            self.ledger.note_end(row["run_id"], "skipped")
            self.world.count("follower_skipped")
        for run_id, parent in self._unproven:
            if "skipped" not in self.ledger.ended_as[parent]:
                self.ledger.violate("a run began before what it follows had ended", run_id, parent)
        self._unproven.clear()

    def _following(self) -> list[UUID]:
        return [run_id for run_id, created in self.ledger.created.items() if created.options.metadata.depends_on]

    def on_start(self, execution: Execution, run: Any) -> None:
        for parent, on in self._depends_on(run.id):
            if not self.ledger.ended_as[parent] and on == "always" and self._depends_on(parent):
                self._unproven.append((run.id, parent))
            elif not self.ledger.ended_as[parent] & ENDS[on]:
                self.ledger.violate(
                    "a run began before what it follows had ended so", run.id, parent, on, self.ledger.ended_as[parent]
                )
            self.world.count("dependency")

    def _depends_on(self, run_id: UUID) -> list[tuple[UUID, str]]:
        created = self.ledger.created.get(run_id)
        return [(UUID(parent), on) for parent, on in created.options.metadata.depends_on] if created else []

    def check_end(self) -> None:
        self.learn()
        for run_id in self._following():
            depends_on = self._depends_on(run_id)
            is_met = [bool(self.ledger.ended_as[parent] & ENDS[on]) for parent, on in depends_on]
            is_unmet = [bool(self.ledger.ended_as[parent] - ENDS[on]) for parent, on in depends_on]
            state = self.ledger.final.get(run_id)
            if state == "skipped" and not any(is_unmet):
                self.ledger.violate("a run was skipped though all it follows ended as it was asked", run_id, depends_on)
            if state == "succeeded" and not all(is_met):
                self.ledger.violate("a run was done though what it follows did not end so", run_id, depends_on)
