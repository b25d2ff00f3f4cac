"""A part of a seed: a theme with people of its own, and what must hold of it. A plan draws a few of them beside its faults."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar
from uuid import UUID

from duly.domain.errors import InvalidSchedule
from duly.domain.jobs.job import Submission
from duly.domain.runs.run import TENANT_DEFAULT
from duly.moves.submit import submit, submit_many
from duly.store.connection.database import Unavailable
from duly.worker.context import RunContext
from duly.worker.targets import Targets

if TYPE_CHECKING:
    from tests.simulation.ledger import Execution, Ledger
    from tests.simulation.plan import Plan
    from tests.simulation.world import Process, World

# Faults under which everybody still does at once what there is to do, so that a bound in time can be asked for.
PROMPT = {"drift", "vacuum", "twin_scheduler"}
_ASKED_MAX = 30


class Part:
    """Hooks by which a part begins, and hears what the ledger hears; what it does not care for stays as it is here."""

    name: ClassVar[str]
    counted: ClassVar[tuple[str, ...]]  # what must have come about in a batch of seeds

    def __init__(self, world: World) -> None:
        self.world = world

    @property
    def ledger(self) -> Ledger:
        """What we saw ourselves."""
        return self.world.ledger

    @property
    def plan(self) -> Plan:
        """What the seed has in store."""
        return self.world.plan

    @property
    def is_prompt(self) -> bool:
        """Whether no fault of this seed keeps anybody from doing at once what there is to do."""
        return self.plan.faults.keys() <= PROMPT

    def populate(self) -> None:
        """Let everybody begin."""

    def targets(self, process: Process) -> Targets | None:
        """Give what a worker can do besides calling our handler."""
        return None

    async def add_nodes(self, process: Process, run: RunContext) -> None:
        """Add nodes behind the one that runs."""

    def on_start(self, execution: Execution, run: Any) -> None:
        """A handler was called; it is not among those that run yet."""

    def on_statement(self, process: Process, name: str, args: Sequence[Any], rows: list[Any], at: datetime) -> None:
        """A statement was committed."""
        handle = getattr(self, f"_on_{name.replace('.', '_')}", None)
        if handle is not None:
            handle(process, args, rows, at)

    def on_clock_back(self, seconds: float) -> None:
        """The database's clock is about to be set back."""

    def on_end(self, run_id: UUID, state: str, at: datetime) -> None:
        """A run came to a final state, or was buried."""

    def learn(self) -> None:
        """Tell the ledger of ends that no answer has told."""

    def check_end(self) -> None:
        """Everything has come to rest."""


async def submit_until_answered(
    process: Process, database: Any, asked: Sequence[Submission], key: str, tenant: int = TENANT_DEFAULT
) -> list[UUID]:
    """Submit one job, or a few under one key, until an answer comes; nothing when its moment is past."""
    for _ in range(_ASKED_MAX):
        try:
            if len(asked) == 1:
                answers = [await submit(database, asked[0], key=key, tenant=tenant)]
            else:
                answers = await submit_many(database, asked, key=key, tenant=tenant)
        except Unavailable:
            await asyncio.sleep(process.random.uniform(0.05, 1))
            continue
        except InvalidSchedule:
            return []
        process.world.ledger.acknowledged.update(answer.job_id for answer in answers)
        return [answer.job_id for answer in answers]
    return []
