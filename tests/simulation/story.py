"""A simulation that follows a plot instead of chance: for telling again, in a few lines, how a promise was once broken."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from itertools import pairwise
from random import Random
from typing import Any
from uuid import UUID

import msgspec

from duly.domain.jobs.job import Submission
from duly.domain.runs.options import options_of
from duly.domain.runs.retry import Retry
from duly.moves.cancel import cancel_run
from duly.moves.submit import submit
from duly.store.connection.database import Database
from tests.simulation import checks
from tests.simulation.ledger import CAP_SECONDS, Script
from tests.simulation.parts import parts_of
from tests.simulation.plan import Plan
from tests.simulation.processes import QUEUES, payload_of, populate, simulated_ports
from tests.simulation.server import Server, statement_names
from tests.simulation.world import Process, Role, World

LEASE_SECONDS = 3.0
QUIET = Plan(
    storm_seconds=0,
    schedulers=1,
    workers=1,
    maintainers=1,
    lease_seconds=LEASE_SECONDS,
    slots=4,
    jobs=0,
    schedules=0,
    with_children=True,
    people=False,
    faults={},
)


class Story:
    """One scheduler, one maintenance, workers, and no faults but those that are told."""

    def __init__(self, server: Server, **plan: Any) -> None:
        server.reset()
        self.world = World(0, msgspec.structs.replace(QUIET, **plan), server, statement_names(), Random(0))
        self.world.parts = parts_of(self.world)
        populate(self.world)

    @property
    def worker(self) -> Process:
        """The process of the first worker."""
        [role] = [role for role in self.world.roles if role.name == "worker-1"]
        assert role.process is not None
        return role.process

    def submit(
        self, *acts: str, delay: float = 0, most: int = 5, base: float = 0, concurrency: tuple[str, int] | None = None
    ) -> UUID:
        """Submit a one-shot and wait for its acknowledgement."""
        script = Script(list(acts), most, base, concurrency)
        options = options_of(retry=Retry(most, base, CAP_SECONDS), concurrency=concurrency)
        job = Submission("act", payload_of(script), QUEUES[0], 5, None, timedelta(seconds=delay), options)
        return self.ask(lambda database: submit(database, job, key=f"key-{self.world.statements}")).job_id  # type: ignore[no-any-return]

    def cancel(self, run_id: UUID) -> Any:
        """Cancel a run and give the answer."""
        answer = self.ask(lambda database: cancel_run(database, run_id))
        self.world.ledger.note_cancel(run_id, answer)
        return answer

    def ask(self, what: Callable[[Database], Awaitable[Any]]) -> Any:
        """Let a process do one thing, and give what came of it."""
        answers: list[Any] = []

        async def main(process: Process) -> None:
            answers.append(await what(process.database()))

        self.world.add(Role("somebody", main, is_once=True))
        while not answers:
            assert self.world.ledger.violation is None, self.world.ledger.violation
            self.passes(0.1)
        return answers[0]

    def passes(self, seconds: float) -> None:
        """Let time pass."""
        self.world.run_until(self.world.now + seconds)

    def until(self, what: Callable[[], object], seconds: float = 60) -> None:
        """Let time pass, in small steps, until something holds."""
        end = self.world.now + seconds
        while not what():
            assert self.world.now < end, "it never happened"
            self.passes(0.01)

    def executions(self, run_id: UUID) -> list[tuple[int, str | None]]:
        """Give the attempts of a run that were started, and what they came to."""
        return [(item.attempt, item.ended_as) for item in self.world.ledger.executions[run_id]]

    def pauses(self, *run_ids: UUID) -> list[float]:
        """Give how long it took from the end of each attempt of these runs to the start of the next."""
        calls = sorted(item.started_at for run_id in run_ids for item in self.world.ledger.executions[run_id])
        return [later - earlier for earlier, later in pairwise(calls)]

    def beats(self) -> int:
        """Count the beats of all workers' hearts."""
        [row] = self.world.query("select sum(heartbeat)::int from duly.workers")
        return row[0] or 0

    def ends(self) -> None:
        """Let everything come to rest, and hold all promises."""
        self.world.settle_down()
        checks.check_end(self.world)
        assert self.world.ledger.violation is None, "\n".join(self.world.trace.lines(self.world.ledger.violation.about))


@contextmanager
def telling(server: Server, **plan: Any) -> Iterator[Story]:
    """Begin a story."""
    with simulated_ports():
        story = Story(server, **plan)
        try:
            yield story
        finally:
            for role in story.world.roles:
                if role.process is not None:
                    role.process.kill()
