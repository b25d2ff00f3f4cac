"""A receiver that refuses much, and what it is sent again: no more than the budget for retries pays for."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec

from duly.domain.jobs.job import Submission
from duly.domain.runs.run import TENANT_DEFAULT
from duly.domain.targets.destination import RETRIES_FREE_PER_SECOND
from duly.domain.targets.target import WEBHOOK, Webhook
from duly.moves.admin.destinations import limit
from duly.outbound.transport import Answer, Request
from duly.store.connection.database import Unavailable
from duly.store.tables import destinations
from duly.worker.targets import Targets
from duly.worker.targets.permits import Permits
from duly.worker.targets.share import LINGER_SECONDS, SAVED_SECONDS
from duly.worker.targets.webhook import Sender
from tests.simulation.ledger import DRIFT_MAX, Script
from tests.simulation.part import Part, submit_until_answered
from tests.simulation.processes import QUEUES, Arguments, options_of, payload_of, this_process
from tests.simulation.receivers import SimulatedCaller, SimulatedSecrets
from tests.simulation.world import Role

if TYPE_CHECKING:
    from tests.simulation.world import Process, World

ORIGIN = "https://fussy.example"
_REFUSED = 409  # Who answers so is well: no breaker opens, and only the budget holds back what is sent again.
_REFUSALS = 3
_TIMEOUT_SECONDS = 2.0


class Account(msgspec.Struct):
    """What one worker has sent, and may have saved up."""

    since: float
    latest: float
    saved: float = SAVED_SECONDS * RETRIES_FREE_PER_SECOND
    firsts: int = 0
    retries: int = 0


class Budgets(Part):
    """Of a receiver that refuses a crowd: each worker's retries are paid for, and one that is kept back uses up no attempt."""

    name = "budgets"
    counted = ("retry_sent", "retry_kept_back")

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._share = world.random.choice((0.0, 0.2, 0.5))
        self._accounts: dict[str, Account] = {}
        self._has_turned = False  # While a breaker tries its destination, nobody pays.

    def populate(self) -> None:
        self.world.add(Role("fussed", self._submit, is_once=True))

    async def _submit(self, process: Process) -> None:
        random, database = process.random, process.database()
        await self._limit(process, database)
        await asyncio.sleep(random.uniform(0, 3))
        for number in range(self.plan.workers + 1):
            asked = [_webhook(process) for _ in range(6)]
            await submit_until_answered(process, database, asked, f"{process.name}/{number}")

    async def _limit(self, process: Process, database: Any) -> None:
        while True:
            try:
                made = await destinations.make(database, process.rng.uuid(), TENANT_DEFAULT, ORIGIN)
                await limit(database, TENANT_DEFAULT, made, retry_share=self._share)
                return
            except Unavailable:
                await asyncio.sleep(process.random.uniform(0.05, 1))

    def targets(self, process: Process) -> Targets:
        permits = Permits(rng=process.rng, log=process.log("destinations"))
        sender = Sender(
            SimulatedCaller(self.take),  # type: ignore[arg-type]
            SimulatedSecrets(),
            permits,
        )
        return Targets([sender.handler], [permits, sender])

    async def take(self, url: str, request: Request) -> Answer:
        """Refuse a request as often as its script says."""
        process = this_process()
        run = SimpleNamespace(
            id=UUID(request.headers["X-Run-Id"]),
            attempt=int(request.headers["X-Attempt"]),
            fence=int(request.headers["X-Fence"]),
        )
        run.due_at = self.ledger.earliest[run.id]
        script = msgspec.json.decode(request.body, type=Arguments).script
        execution = self.ledger.start(process, run, script)
        number = run.attempt - self.ledger.attempts_before[run.id] - self.ledger.forgiven[run.id]
        self._charge(process, run.id, is_retry=number > 1)
        try:
            await asyncio.sleep(process.random.choice((0.01, 0.05, 0.2)))
        except asyncio.CancelledError:
            execution.ended_as = "interrupted"
            raise
        is_refused = script.acts[min(run.attempt, len(script.acts)) - 1] == "fail"
        execution.ended_as = "failed" if is_refused else "succeeded"
        return Answer(_REFUSED if is_refused else 200, {}, b"", True)

    def _charge(self, process: Process, run_id: UUID, *, is_retry: bool) -> None:
        """Hold what a worker sends against what it may have saved up, the free ones, and what its first attempts pay for."""
        now = self.world.now
        account = self._accounts.setdefault(process.name, Account(now, now))
        if now - account.latest > LINGER_SECONDS:  # It may have forgotten us, and begin anew with what is saved up.
            account.saved += SAVED_SECONDS * RETRIES_FREE_PER_SECOND
        account.latest = now
        account.firsts += not is_retry
        account.retries += is_retry
        paid = account.saved + (now - account.since) * (1 + DRIFT_MAX) * RETRIES_FREE_PER_SECOND
        if account.retries > paid + self._share * account.firsts + 1 and not self._has_turned:
            self.ledger.violate("more retries to a destination than are paid for", run_id, account, self._share)

    def _on_destinations_change_destination_state(
        self, process: Process, args: Sequence[Any], rows: list[Any], at: datetime
    ) -> None:
        self._has_turned = True

    def _on_destinations_report(self, process: Process, args: Sequence[Any], rows: list[Any], at: datetime) -> None:
        told = dict(zip(destinations.DestinationReport.__struct_fields__, args[2:], strict=False))
        self.world.struck["retry_sent"] += sum(told["retries"])
        self.world.struck["retry_kept_back"] += sum(told["rejected"])

    def on_end(self, run_id: UUID, state: str, at: datetime) -> None:
        created = self.ledger.created.get(run_id)
        if state == "dead" and self.is_prompt and created and isinstance(created.options.policy.target, Webhook):
            self.ledger.violate("a run gave up though its attempts were not used up", run_id)


def _webhook(process: Process) -> Submission:
    script = Script(["fail"] * _REFUSALS + ["quick"], _REFUSALS + 1, 0.0)
    target = Webhook(f"{ORIGIN}/hook", retry=(_REFUSED,))
    options = options_of(script).but(target=target, timeout_seconds=_TIMEOUT_SECONDS)
    return Submission(WEBHOOK, payload_of(script), process.random.choice(QUEUES), 5, options=options)
