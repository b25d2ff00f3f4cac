"""The simulation of one seed: true time, the processes in it, what strikes them, and the end when all must be quiet."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from datetime import datetime, timedelta
from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import Any

import asyncpg

from duly.clock import Rng
from duly.log import Log
from duly.store.boxes import leased
from duly.worker.context import RunContext
from tests.simulation import checks
from tests.simulation.conservation import Conservation
from tests.simulation.ledger import Ledger
from tests.simulation.loop import VirtualLoop
from tests.simulation.network import Ask, FaultyDatabase, Network, ObservedClock
from tests.simulation.part import Part
from tests.simulation.plan import BY_ITSELF, ON_STATEMENT, Plan
from tests.simulation.server import START, Server
from tests.simulation.trace import Trace

Main = Callable[["Process"], Coroutine[Any, Any, Any]]

CHECK_EVERY_STATEMENTS = 40
STATEMENTS_MAX = 150_000  # a world that waits for a deadline behind a clock that was set back takes 70,000
CALM_SECONDS_MAX = 400.0
_DRIFT = 400e-6
_IDLE_SECONDS = 20.0


class Process:
    """One incarnation of a simulated process."""

    def __init__(self, world: World, role: Role, number: int) -> None:
        self.world = world
        self.role = role
        self.name = f"{role.name}.{number}"
        self.seed = world.random.getrandbits(64)
        self.rng = Rng(self.seed)
        self.random = Random(self.seed)
        self.origin = world.random.uniform(0, 10_000)
        self.rate = 1 + (world.random.uniform(-_DRIFT, _DRIFT) if world.plan.has("drift") else 0)
        self.loops: list[VirtualLoop] = []
        self.is_dead = False
        self.paused_until = 0.0
        self.stalled_until = 0.0
        self.cut_until = 0.0
        self.stop: Callable[[], None] | None = None
        self.renewal_failed = False
        self.sends_again = False
        self.worker_id: object = None
        self.clock: ObservedClock = ObservedClock(world)
        self.task = self.spawn(role.main(self))

    def spawn(self, main: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Begin a loop of this process."""
        loop = VirtualLoop(lambda: self.world.now, origin=self.origin, rate=self.rate)
        loop.process = self
        self.loops.append(loop)
        return loop.start(main)

    def database(self) -> FaultyDatabase:
        """Connect to the database."""
        return FaultyDatabase(self)

    def log(self, part: str) -> Log:
        """Give a log that writes into the trace."""
        return TraceLog(self, part)

    def next_at(self) -> float:
        """Give the true moment at which this process has something to do."""
        # Asked of every process at every step, so it is written for speed.
        soonest: float = self.loops[0].next_at
        if soonest < self.stalled_until:
            soonest = self.stalled_until
        for loop in self.loops:
            if loop.next_at < soonest and loop is not self.loops[0]:
                soonest = loop.next_at
        return soonest if soonest > self.paused_until else self.paused_until

    def turn(self) -> None:
        """Do what is due."""
        for number, loop in enumerate(self.loops):
            if (number > 0 or self.stalled_until <= self.world.now) and not self.is_dead:
                loop.turn()
        self.loops = [self.loops[0], *(loop for loop in self.loops[1:] if not loop.dead)]

    def die(self) -> None:
        """Take no further step: called from within."""
        for loop in self.loops:
            loop.dying = True

    def kill(self) -> None:
        """End at this point."""
        self.is_dead = True
        for loop in self.loops:
            loop.kill()


class Role:
    """Something that is started again when it dies."""

    def __init__(self, name: str, main: Main, *, is_once: bool = False) -> None:
        self.name = name
        self.main = main
        self.is_once = is_once
        self.process: Process | None = None
        self.numbers = count(1)


class World:
    """Everything there is under one seed."""

    def __init__(self, seed: int, plan: Plan, server: Server, names: dict[str, str], random: Random) -> None:
        self.seed = seed
        self.plan = plan
        self.random = random
        self.names = names
        self.now = 0.0
        self.clock_offset = 0.0
        self.seconds_set_back = 0.0
        self.offsets: dict[datetime, float] = {}
        self.is_calm = False
        self.struck: Counter[str] = Counter()
        self.statements = 0
        self.trace = Trace()
        self.ledger = Ledger(self)
        self.conservation = Conservation(self)
        self.parts: list[Part] = []
        self.network = Network(self)
        self.roles: list[Role] = []
        self.faults_on_statement = [(name, plan.faults[name]) for name in ON_STATEMENT if plan.has(name)]
        self._server = server
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()

    # ------------------------------------------------------------------------------------------------------- time

    def database_now(self) -> datetime:
        """Give the database's clock."""
        return START + timedelta(seconds=self.now + self.clock_offset)

    def at(self, delay: float, event: Callable[[], None]) -> None:
        """Let something happen after a while."""
        heappush(self._events, (self.now + delay, next(self._order), event))

    def run_until(self, end: float) -> None:
        """Let time pass."""
        while self.ledger.violation is None:
            process_at, process = self._soonest()
            event_at = self._events[0][0] if self._events else float("inf")
            if min(process_at, event_at) > end:
                self.now = end
                return
            self.now = max(self.now, min(process_at, event_at))
            if event_at <= process_at or process is None:
                heappop(self._events)[2]()
            else:
                process.turn()
                self._look_after(process)

    def _soonest(self) -> tuple[float, Process | None]:
        """Find the process that has something to do first."""
        soonest: tuple[float, Process | None] = (float("inf"), None)
        for role in self.roles:
            if role.process is not None and (at := role.process.next_at()) < soonest[0]:
                soonest = (at, role.process)
        return soonest

    def _processes(self) -> list[Process]:
        return [role.process for role in self.roles if role.process is not None]

    def _look_after(self, process: Process) -> None:
        for loop in process.loops:
            for error in loop.errors:
                self.ledger.violate("an error that nobody handled", process.name, error)
        if any(loop.dying for loop in process.loops):
            self.crash(process)
        elif process.task.done() and not process.is_dead:
            self._ended(process)

    def _ended(self, process: Process) -> None:
        error = None if process.task.cancelled() else process.task.exception()
        if error is not None:
            self.ledger.violate("a process ended with an error", process.name, repr(error))
        self._bury(process)

    # -------------------------------------------------------------------------------------------------- processes

    def add(self, role: Role) -> None:
        """Let a role begin."""
        self.roles.append(role)
        self.start(role)

    def start(self, role: Role) -> None:
        """Start a process for a role that has none."""
        if role.process is None:
            role.process = Process(self, role, next(role.numbers))

    def crash(self, process: Process) -> None:
        """Kill a process, here and now."""
        if not process.is_dead:
            self.trace.add(self.now, process.name, "crash")
            self._bury(process)

    def _bury(self, process: Process) -> None:
        process.kill()
        self.ledger.on_death(process)
        role = process.role
        if role.process is process:
            role.process = None
            if not role.is_once:
                self.at(0.3 if self.is_calm else self.random.uniform(0.1, 6), lambda: self.start(role))

    # -------------------------------------------------------------------------------------------------- the database

    def run_statement(self, ask: Ask) -> Any:
        """Run a statement on the real database, at this moment of its clock; an error is an answer too."""
        name = self.names.get(ask.query, "script")
        at = self.database_now()
        self.offsets[at] = self.clock_offset
        self.statements += 1
        try:
            answer: Any = self._server.fetch(at, ask.query, ask.args, looks=True)
        except asyncpg.PostgresError as error:
            answer = error
            if not (error.sqlstate or "").startswith("DU"):
                self.ledger.violate("a statement failed", name, repr(error))
        self.conservation.heed(self._server.changed_places())
        self.conservation.after = name
        self.trace.add(self.now, ask.process.name, name, ask.args, answer)
        if not isinstance(answer, Exception):
            self.ledger.on_statement(ask.process, name, ask.args, answer, at)
        if self.statements % CHECK_EVERY_STATEMENTS == 0:
            checks.check_boxes(self)
        if self.statements > STATEMENTS_MAX:
            self.ledger.violate("the simulation does not end", name)
        return answer

    def query(self, text: str, *args: Any) -> list[Any]:
        """Look at the database from outside, taking no time."""
        rows = self._server.fetch(self.database_now(), text, args)
        if (slots := self._server.changed_places()) is not None:
            self.conservation.heed(slots)
        return rows

    # -------------------------------------------------------------------------------------------------------- faults

    def strike(self, fault: str, process: Process | None = None, detail: str = "") -> None:
        """Note that a fault struck."""
        if fault:
            self.struck[fault] += 1
            self.trace.add(self.now, process.name if process else "world", f"fault {fault} {detail}")

    def count(self, what: str) -> None:
        """Note that something came about that a batch of seeds must show."""
        self.struck[what] += 1

    async def add_nodes(self, process: Process, run: RunContext) -> None:
        """Let a part add nodes behind the one that runs."""
        for part in self.parts:
            await part.add_nodes(process, run)

    def unleash(self) -> None:
        """Let the faults that come by themselves begin."""
        self.struck["drift"] += self.plan.has("drift")
        for name in BY_ITSELF:
            if self.plan.has(name):
                self._arm(name)

    def _arm(self, name: str) -> None:
        self.at(self.random.expovariate(1 / self.plan.faults[name]), lambda: self._fire(name))

    def _fire(self, name: str) -> None:
        if self.is_calm:
            return
        candidates = [process for process in self._processes() if _may_strike(name, process.role.name)]
        if candidates or name in ("outage", "clock_forward", "clock_back", "vacuum"):
            self._inflict(name, self.random.choice(candidates) if candidates else None)
        self._arm(name)

    def _inflict(self, name: str, process: Process | None) -> None:
        self.strike(name, process)
        lease = self.plan.lease_seconds
        match name:
            case "vacuum":
                self._server.execute(leased.SQL["vacuum"])
            case "outage":
                self.network.down_until = self.now + self.random.uniform(0.3, 1.5 * lease)
            case "clock_forward":
                self.clock_offset += self.random.choice((2.0, 30.0, 3600.0))
            case "clock_back":
                step = self.random.choice((2.0, 30.0, 600.0))
                for part in self.parts:
                    part.on_clock_back(step)
                self.clock_offset -= step
                self.seconds_set_back += step
            case _ if process is not None:
                self._inflict_on(process, name, lease)

    def _inflict_on(self, process: Process, name: str, lease: float) -> None:
        match name:
            case "crash":
                self.crash(process)
            case "pause":
                process.paused_until = self.now + lease * self.random.uniform(0.5, 3)
            case "stall":
                process.stalled_until = self.now + lease * self.random.uniform(0.3, 2)
            case "partition":
                process.cut_until = self.now + lease * self.random.uniform(0.3, 3)
            case "restart" if process.stop is not None:
                process.stop()
            case "twin_scheduler":
                self.add(Role(f"twin-{process.name}", process.role.main.twin(process), is_once=True))  # type: ignore[attr-defined]

    def calm(self) -> None:
        """Freeze every fault and heal what is broken."""
        self.is_calm = True
        self.trace.add(self.now, "world", "calm")
        self.network.down_until = 0.0
        for role in self.roles:
            if role.name.startswith("twin") and role.process is not None:
                self.crash(role.process)
            elif role.process is not None:
                role.process.paused_until = role.process.stalled_until = role.process.cut_until = 0.0
            elif not role.is_once:
                self.start(role)

    # ------------------------------------------------------------------------------------------------------- the end

    def settle_down(self) -> None:
        """Wait until every run has ended; pass over stretches in which nothing can happen."""
        # A callback's deadline, set before the clock stepped back, comes that much later, and others wait for its slot.
        deadline = self.now + CALM_SECONDS_MAX + self.seconds_set_back
        while self.ledger.violation is None:
            self.run_until(self.now + 1.0)
            waiting = checks.what_waits(self)
            if not waiting and all(role.process is None for role in self.roles if role.is_once):
                return
            if self.now > deadline:
                self.ledger.violate("not quiet in time", *waiting[:5])
            elif not self.ledger.running() and (dues := [due for box, _, due in waiting if box != "blocked"]):
                self._pass_over(min(dues))

    def _pass_over(self, due: datetime) -> None:
        idle = (due - self.database_now()).total_seconds()
        if idle > _IDLE_SECONDS:
            self.clock_offset += idle - 10
            self.trace.add(self.now, "world", f"passed over {idle - 10:.0f} s")


def _may_strike(fault: str, role: str) -> bool:
    match fault:
        case "stall":
            return role.startswith("worker")
        case "pause":
            return role.startswith(("worker", "scheduler", "maintenance"))
        case "restart":
            return role.startswith(("worker", "scheduler"))
        case "twin_scheduler":
            return role.startswith("scheduler")
    return True


class TraceLog(Log):
    """Writes a process's events into the trace."""

    def __init__(self, process: Process, part: str) -> None:
        super().__init__(part)
        self._process = process

    def _write(self, event: str, fields: dict[str, Any]) -> None:
        self._process.world.trace.add(self._process.world.now, self._process.name, f"log {event}", (fields,))

    def debug(self, event: str, **fields: Any) -> None:
        self._write(event, fields)

    info = warning = debug

    def error(self, event: str, **fields: Any) -> None:
        """An error is a defect, though the loop survived it: what we inject has a name that the loops know."""
        self._write(event, fields)
        if "error" in fields and not self._process.is_dead:
            self._process.world.ledger.violate("an error nobody expected", self._process.name, event, fields["error"])
