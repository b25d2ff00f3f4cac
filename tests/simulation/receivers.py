"""Receivers of webhooks: some fall ill and recover, some take a run on and settle it later, by its token, or never do."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec

from duly.domain.errors import AttemptOver, NotFound, Unsettled
from duly.domain.jobs.job import Submission
from duly.domain.runs.callback_token import HEADER, CallbackTokens
from duly.domain.runs.outcome import Failed, Succeeded
from duly.domain.runs.run import TENANT_DEFAULT
from duly.domain.targets.target import WEBHOOK, Webhook
from duly.domain.targets.webhook_url import read_url
from duly.domain.tenancy.sealing import Keyring
from duly.moves.admin.destinations import limit
from duly.moves.workers.receive import receive
from duly.outbound.calling import DeadlinePassed
from duly.outbound.errors import NoAnswer
from duly.outbound.transport import Answer, Request
from duly.store.boxes.awaited import RECEIVER
from duly.store.connection.database import Unavailable
from duly.store.tables import destinations
from duly.worker.targets import Targets
from duly.worker.targets.permits import Permits
from duly.worker.targets.webhook import ReceiverCallbacks, Sender
from tests.simulation.ledger import Script
from tests.simulation.part import Part, submit_until_answered
from tests.simulation.processes import QUEUES, Arguments, options_of, payload_of, this_process
from tests.simulation.world import Role

if TYPE_CHECKING:
    from tests.simulation.ledger import Execution
    from tests.simulation.world import Process, World

ORIGINS = ("https://one.example", "https://two.example")
PLACES = 2
_TOKENS = CallbackTokens(Keyring({"simulated": b"0123456789abcdef0123456789abcdef"}))
_TIMEOUT_SECONDS = 2.0
_WITHIN_SECONDS = 4.0
_SECRET = b"0123456789abcdef0123456789abcdef"
_STATUS = {"quick": 200, "fail": 500, "dead": 400, "await_done": 202, "await_failed": 202, "await_nothing": 202}


class Promised(msgspec.Struct):
    """What a receiver is going to say of an attempt."""

    at: float
    handle: tuple[UUID, int]
    execution: Any
    succeeds: bool


class Receivers(Part):
    """Breakers, budgets of places, and awaited runs, by what the receivers themselves saw."""

    name = "receivers"
    counted = ("breaker_opened", "breaker_tried", "breaker_closed", "parked", "settled_by_token", "settled_by_deadline")

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._is_down: dict[str, bool] = dict.fromkeys(ORIGINS, False)
        self._states: dict[str, str] = defaultdict(lambda: "closed")
        self._limited: dict[str, int] = {}
        self._promised: list[Promised] = []
        self._charged: dict[UUID, set[int]] = defaultdict(set)  # fences of attempts that failed at the run's expense
        self._ended_at_fence: dict[UUID, int] = defaultdict(int)  # What is replayed has another life.
        self._deadlines: dict[tuple[UUID, int], datetime] = {}
        self._origins: dict[UUID, str] = {}

    def populate(self) -> None:
        self.world.add(Role("sending", self._submit, is_once=True))
        self.world.add(Role("receiver", self._settle))
        for origin in ORIGINS:
            self._arm(origin)

    def _arm(self, origin: str) -> None:
        self.world.at(self.world.random.uniform(1, 8), lambda: self._turn(origin))

    def _turn(self, origin: str) -> None:
        self._is_down[origin] = not self.world.is_calm and not self._is_down[origin]
        self.world.trace.add(self.world.now, origin, "down" if self._is_down[origin] else "up")
        if not self.world.is_calm:
            self._arm(origin)

    # -------------------------------------------------------------------------------------------------- what is sent

    async def _submit(self, process: Process) -> None:
        random, database = process.random, process.database()
        await self._limit(process, database)
        for number in range(random.randint(4, 7)):
            await asyncio.sleep(random.expovariate(10 / self.plan.storm_seconds))
            asked = [_webhook(process) for _ in range(random.randint(1, 4))]
            await submit_until_answered(process, database, asked, f"{process.name}/{number}")

    async def _limit(self, process: Process, database: Any) -> None:
        for origin in ORIGINS:
            for _ in range(30):
                try:
                    made = await destinations.make(database, process.rng.uuid(), TENANT_DEFAULT, origin)
                    await limit(database, TENANT_DEFAULT, made, slots=PLACES)
                except Unavailable:
                    await asyncio.sleep(process.random.uniform(0.05, 1))
                    continue
                break

    def targets(self, process: Process) -> Targets:
        permits = Permits(rng=process.rng, log=process.log("destinations"))
        sender = Sender(
            SimulatedCaller(self.take),  # type: ignore[arg-type]
            SimulatedSecrets(),
            permits,
            callbacks=ReceiverCallbacks(_TOKENS),
        )
        return Targets([sender.handler], [permits, sender])

    # ---------------------------------------------------------------------------------------------- what is received

    async def take(self, url: str, request: Request) -> Answer:
        """Answer a request as its script says, unless we are down."""
        process, origin = this_process(), read_url(url).origin
        run = SimpleNamespace(
            id=UUID(request.headers["X-Run-Id"]),
            attempt=int(request.headers["X-Attempt"]),
            fence=int(request.headers["X-Fence"]),
        )
        run.due_at = self.ledger.earliest[run.id]
        script = msgspec.json.decode(request.body, type=Arguments).script
        what = script.acts[min(run.attempt, len(script.acts)) - 1]
        execution = self.ledger.start(process, run, script)
        state = self._states[origin]
        try:
            await asyncio.sleep(process.random.choice((0.01, 0.2, 0.5)) if what != "hang" else 10_000)
        except asyncio.CancelledError:
            execution.ended_as = "interrupted"
            self._charge(run, state)
            raise
        if self._is_down[origin]:
            execution.ended_as = "failed"
            self._charge(run, state)
            return self._unwell(process)
        return self._answer(process, run, what, execution, request, state)

    def _unwell(self, process: Process) -> Answer:
        if process.random.random() < 0.5:
            raise NoAnswer("no answer came")
        return Answer(503, {}, b"", True)

    def _answer(
        self, process: Process, run: Any, what: str, execution: Execution, request: Request, state: str
    ) -> Answer:
        status = _STATUS[what]
        if what.startswith("await"):
            execution.ended_as = "awaited"
            if what != "await_nothing":
                at = self.world.now + process.random.choice((0.0, 0.5, 3.0, _WITHIN_SECONDS))
                self._promised.append(Promised(at, (run.id, run.fence), execution, what == "await_done"))
            return Answer(status, {HEADER: request.headers[HEADER]}, b"", True)
        execution.ended_as = "succeeded" if status == 200 else "failed"
        if status != 200:
            self._charge(run, state)
        return Answer(status, {}, b"", True)

    def _charge(self, run: Any, state: str) -> None:
        """Note a failure that counts against the run: not one of a request that finds out how its destination is."""
        if state != "half_open":
            self._charged[run.id].add(run.fence)

    async def _settle(self, process: Process) -> None:
        """Say what became of what we have taken on; ask again while no answer comes."""
        database = process.database()
        while True:
            await asyncio.sleep(0.1)
            for promised in [one for one in self._promised if one.at <= self.world.now]:
                promised.execution.told = "succeeded" if promised.succeeds else "failed"
                outcome = Succeeded() if promised.succeeds else Failed("it did not work")
                try:
                    await receive(database, promised.handle, outcome, process.rng)
                    self.world.count("settled_by_token")
                except (AttemptOver, NotFound):
                    pass
                except (Unavailable, Unsettled):
                    continue
                self._promised.remove(promised)

    # ------------------------------------------------------------------------------------------------- what we saw

    def on_start(self, execution: Execution, run: Any) -> None:
        if (origin := self._origin(run.id)) is None:
            return
        ledger = self.ledger
        beside = [
            item.run_id
            for item in ledger.running()  # A worker's share ends with its lease, also where it stands still with all it has sent.
            if self._origin(item.run_id) == origin and ledger.pauses(item) and not ledger.has_departed(item.worker_id)
        ]
        if len(beside) >= self._limited.get(origin, len(beside) + 1):
            ledger.violate("more requests at once than a destination takes", run.id, *beside)

    def _origin(self, run_id: UUID) -> str | None:
        created = self.ledger.created.get(run_id)
        target = created.options.policy.target if created else None
        return read_url(target.url).origin if isinstance(target, Webhook) else None

    def _on_destinations_limit_destination(
        self, process: Process, args: Sequence[Any], rows: list[Any], at: datetime
    ) -> None:
        self._limited[self._named(args[0])] = PLACES

    def _on_destinations_change_destination_state(
        self, process: Process, args: Sequence[Any], rows: list[Any], at: datetime
    ) -> None:
        if rows[0][0]:
            self._states[self._named(args[0])] = args[2]
            self.world.count({"open": "breaker_opened", "half_open": "breaker_tried"}.get(args[2], "breaker_closed"))

    def _named(self, destination_id: UUID) -> str:
        [row] = self.world.query("select origin from duly.destinations where destination_id = $1", destination_id)
        return str(row["origin"])

    def _on_leased_await_destination(
        self, process: Process, args: Sequence[Any], rows: list[Any], at: datetime
    ) -> None:
        self.world.struck["parked"] += len(rows)

    def _on_awaited_put(self, process: Process, args: Sequence[Any], rows: list[Any], at: datetime) -> None:
        for row in rows:
            self._deadlines[row[0], row[1]] = at + timedelta(seconds=_WITHIN_SECONDS)

    def _on_leased_settle(self, process: Process, args: Sequence[Any], rows: list[Any], at: datetime) -> None:
        taken = {(row[0], row[1]) for row in rows}
        for run_id, fence, outcome in zip(args[1], args[2], args[5], strict=True):
            if (run_id, fence) not in taken or args[0] != RECEIVER:
                continue
            if outcome == "timed_out":
                self.world.count("settled_by_deadline")
                if at < self._deadlines[run_id, fence] and not self.plan.has("clock_back"):
                    self.ledger.violate(
                        "a receiver's deadline came too early", run_id, self._deadlines[run_id, fence] - at
                    )

    def on_end(self, run_id: UUID, state: str, at: datetime) -> None:
        if self._origin(run_id) is None:
            return
        execution = self.ledger.executions[run_id][-1:]
        is_buried = any("dead" in item.script.acts or item.told for item in execution)
        if state == "dead" and not is_buried and self.plan.lets_workers_look:
            used = sorted(fence for fence in self._used_up_by(run_id) if fence > self._ended_at_fence[run_id])
            if len(used) < self.ledger.created[run_id].options.policy.retry.max_attempts:
                self.ledger.violate("a run gave up though its attempts were not used up", run_id, used)
        self._ended_at_fence[run_id] = self.ledger.fences.get(run_id, 0)

    def _used_up_by(self, run_id: UUID) -> set[int]:
        """Give the fences of all attempts that counted; whether one was sent before its worker died, nobody can tell."""
        awaited = {item.fence for item in self.ledger.executions[run_id] if item.ended_as == "awaited"}
        accepted = self.ledger.accepted.items()
        lost = {fence for (lost_id, fence), outcome in accepted if (lost_id, outcome) == (run_id, "lost")}
        return self._charged[run_id] | awaited | lost


class SimulatedCaller:
    """The way out, which leads to our receivers."""

    def __init__(self, take: Callable[[str, Request], Awaitable[Answer]]) -> None:
        self._take = take

    def check(self, url: str) -> None:
        """Everything is allowed."""

    async def look_up(self, url: str, *, tenant: int, seconds: float) -> None:
        """Every name leads somewhere."""

    async def call(self, url: str, request: Request, *, tenant: int, seconds: float) -> Answer:
        """Send a request and wait for its answer, within a deadline."""
        scope = asyncio.timeout(seconds)
        try:
            async with scope:
                return await self._take(url, request)
        except TimeoutError:
            raise DeadlinePassed(f"no complete response within {seconds:g} s") from None


class SimulatedSecrets:
    """One secret for all."""

    def are_known(self, tenant: int, origin: str) -> bool:
        """It always is."""
        return True

    async def are_kept(self, tenant: int, origin: str) -> bool:
        """Every destination has it."""
        return True

    async def of(self, tenant: int, origin: str) -> Sequence[bytes]:
        """Give it."""
        return [_SECRET]


def _webhook(process: Process) -> Submission:
    random = process.random
    choices = ("quick", "quick", "quick", "fail", "await_done", "await_failed", "await_nothing", "hang", "dead")
    acts = [random.choice(choices) for _ in range(random.randint(1, 3))] + ["quick"]
    script = Script(acts, random.choice((2, 3, 5)), random.choice((0.0, 0.5)))
    target = Webhook(f"{random.choice(ORIGINS)}/hook", callback_within_seconds=_WITHIN_SECONDS)
    options = options_of(script).but(target=target, timeout_seconds=_TIMEOUT_SECONDS)
    return Submission(WEBHOOK, payload_of(script), random.choice(QUEUES), 5, options=options)
