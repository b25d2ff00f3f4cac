"""Runs that most workers do not know, and a worker that does, which comes and goes: they wait for it, in nobody's way."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from duly.domain.jobs.job import Submission
from tests.simulation.part import Part, submit_until_answered
from tests.simulation.processes import QUEUES, draw_acts, options_of, payload_of, worker_main
from tests.simulation.world import Role

if TYPE_CHECKING:
    from tests.simulation.ledger import Execution
    from tests.simulation.world import Process, World

STRANGER = "stranger"
_ASIDE = "select run_id from duly.ready where is_unroutable and handler = any ($1) and queue = any ($2)"


class Strangers(Part):
    """What a claim knows does not stand aside after it, and nothing that stood aside is forgotten once it is known for good."""

    name = "strangers"
    counted = ("mark_unroutable", "stood_aside_and_ran")

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._stood_aside: set[UUID] = set()

    def populate(self) -> None:
        self.world.add(Role("strange", self._submit, is_once=True))
        self.world.add(Role("worker-visitor", self._visit))

    async def _submit(self, process: Process) -> None:
        random, database = process.random, process.database()
        for number in range(random.randint(3, 6)):
            await asyncio.sleep(random.expovariate(6 / self.plan.storm_seconds))
            queue, priority = random.choice(QUEUES), random.choice((1, 5))  # So that they stand in few lines.
            asked = [self._stranger(process, queue, priority) for _ in range(random.choice((2, 4, 8)))]
            await submit_until_answered(process, database, asked, f"{process.name}/{number}")

    def _stranger(self, process: Process, queue: str, priority: int) -> Submission:
        script = draw_acts(process.random, self.world)
        options = options_of(script, process.random)
        return Submission(STRANGER, payload_of(script), queue, priority, options=options)

    async def _visit(self, process: Process) -> None:
        """Be a worker for a while; when all is calm, for good."""
        if not self.world.is_calm:
            await asyncio.sleep(process.random.uniform(0, 5))
            self.world.at(process.random.uniform(1, 6), lambda: self._leave(process))
        await worker_main(process, STRANGER)

    def _leave(self, process: Process) -> None:
        if process.stop is not None and not process.is_dead and not self.world.is_calm:
            process.stop()

    def _on_ready_mark_unroutable(self, process: Process, args: Sequence[Any], rows: list[Any], at: datetime) -> None:
        if rows[0]["moved"]:
            self.world.count("mark_unroutable")
            self._stood_aside |= {row[0] for row in self.world.query(_ASIDE, [STRANGER], list(QUEUES))}

    def _on_ready_claim(self, process: Process, args: Sequence[Any], rows: list[Any], at: datetime) -> None:
        if STRANGER in args[3] and not self.world.query("select from duly.pauses"):
            for row in self.world.query(_ASIDE, list(args[3]), list(args[1])):
                self.ledger.violate("a claim left aside what its worker knows", row[0])

    def on_start(self, execution: Execution, run: Any) -> None:
        if run.id in self._stood_aside:
            self.world.count("stood_aside_and_ran")
