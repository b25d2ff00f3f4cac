"""Retry policies of all kinds, and dead letters replayed and discarded in bulk, by a filter."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec

from duly.domain.jobs.filter import DEAD, parse
from duly.domain.jobs.job import Submission
from duly.domain.runs.retry import Policy
from duly.domain.runs.run import TENANT_DEFAULT
from duly.moves.dead import discard_matching, replay_matching
from duly.store.connection.database import Unavailable
from tests.simulation.ledger import Script
from tests.simulation.part import Part, submit_until_answered
from tests.simulation.processes import QUEUES, options_of, payload_of
from tests.simulation.world import Role

if TYPE_CHECKING:
    from random import Random

    from tests.simulation.world import Process, World

_POLICIES: tuple[Policy, ...] = ("exponential", "linear", "fixed", "list")
_ROUNDING = timedelta(milliseconds=1)


class Letters(Part):
    """What fails often, by policies of every kind; nothing is tried when it is too old, and the dead rise in bulk."""

    name = "letters"
    counted = ("retried_linear", "retried_fixed", "retried_list", "replayed_in_bulk")

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._first_due: dict[UUID, datetime] = {}  # of the first attempt of this life

    def populate(self) -> None:
        self.world.add(Role("letters", self._submit, is_once=True))
        self.world.add(Role("postman", self._deliver))

    async def _submit(self, process: Process) -> None:
        random, database = process.random, process.database()
        for number in range(random.randint(3, 5)):
            await asyncio.sleep(random.expovariate(8 / self.plan.storm_seconds))
            asked = [_letter(random) for _ in range(random.randint(1, 4))]
            await submit_until_answered(process, database, asked, f"{process.name}/{number}")

    async def _deliver(self, process: Process) -> None:
        random, database = process.random, process.database()
        while True:
            await asyncio.sleep(10_000 if self.world.is_calm else random.expovariate(1 / 4))
            chosen = parse(f"queue:{random.choice(QUEUES)}", DEAD)
            try:
                if random.random() < 0.2:
                    await discard_matching(database, TENANT_DEFAULT, chosen, limit=3)
                    continue
                rate = random.choice((None, 1.0, 5.0))
                bulk = await replay_matching(database, TENANT_DEFAULT, chosen, limit=random.choice((2, 100)), rate=rate)
                self.world.struck["replayed_in_bulk"] += bulk.moved
            except Unavailable:
                continue

    def _on_leased_settle(self, process: Process, args: Sequence[Any], rows: list[Any], at: datetime) -> None:
        taken = {(row[0], row[1]) for row in rows}
        for run_id, fence, became in zip(args[1], args[2], args[6], strict=True):
            execution = self.ledger.by_fence.get((run_id, fence))
            if (run_id, fence) in taken and became == "retrying" and execution is not None:
                self.world.count(f"retried_{execution.script.policy}")

    def _on_ready_claim(self, process: Process, args: Sequence[Any], rows: list[Any], at: datetime) -> None:
        for row in rows:
            created = self.ledger.created.get(row["run_id"])
            age = created.options.policy.retry.max_age_seconds if created else None
            if age is None:
                continue
            first = self._first_due.setdefault(row["run_id"], row["due_at"])
            if row["due_at"] - first > timedelta(seconds=age) + _ROUNDING and not self.plan.has_clock_steps:
                self.ledger.violate("a run was tried again that is too old", row["run_id"], row["due_at"] - first, age)

    def on_end(self, run_id: UUID, state: str, at: datetime) -> None:
        self._first_due.pop(run_id, None)


def _letter(random: Random) -> Submission:
    script = Script(
        ["fail"] * random.randint(1, 5) + ["quick"], random.choice((1, 2, 4)), random.choice((0.0, 0.5, 1.0))
    )
    script.policy, script.delays = random.choice(_POLICIES), (0.2, 1.5)
    options = options_of(script)
    age = random.choice((None, None, 3.0))
    options = options.but(retry=msgspec.structs.replace(options.policy.retry, max_age_seconds=age))
    return Submission("act", payload_of(script), random.choice(QUEUES), 5, options=options)
