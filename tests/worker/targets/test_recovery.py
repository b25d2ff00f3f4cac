"""The allowed rate of a destination after an outage is used, however late workers look; and no second exceeds it."""

import asyncio
import heapq
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial
from itertools import count
from uuid import UUID

import pytest

from duly.clock import Rng
from duly.domain.runs.outcome import WaitForDestination
from duly.domain.runs.run import Run
from duly.domain.targets.circuit import TICK_SECONDS, Verdict
from duly.moves.admin.destinations import limit, mind, report
from duly.moves.defer import Deferred, defer
from duly.store.connection.database import Database
from duly.store.tables import destinations
from duly.worker.targets.permits import PATIENCE_SECONDS
from duly.worker.targets.share import Share
from tests.builders import a_ready_run, a_worker, claimed
from tests.clock import ManualClock

ORIGIN = "https://hooks.example"
RNG = Rng(23)
LONG = timedelta(hours=1)
POLL_SECONDS = 0.5  # how late a worker claims what was let go
ANSWER_SECONDS = 0.005
RATE, SECONDS = 100.0, 4


class Worker:
    """One worker's share, and the runs that wait in its hands."""

    def __init__(self, world: "World", worker_id: UUID, late: float) -> None:
        self.world = world
        self.worker_id = worker_id
        self.share = Share(1, ORIGIN, RNG.uuid())
        self.waiting: list[tuple[float, Run, asyncio.Future[bool]]] = []
        self.number = count(1)
        self.late = late
        self.planned = 0
        self.turn_at = 0.0

    def report_in(self, seconds: float) -> None:
        """Report then, and not when it was planned before."""
        self.planned += 1
        mine = self.planned

        async def due() -> None:
            if mine == self.planned:
                is_urgent = await self.report()
                self.report_in(self.late + (0.0 if is_urgent else TICK_SECONDS))

        self.world.plan(seconds, due)

    async def claim(self) -> None:
        """Take what was let go: each is sent, or waits, or goes back."""
        now, back, is_hurried = self.world.now, [], False
        for run in await claimed(self.world.database, self.worker_id, limit=200):
            if not self.share.waiters and self.share.take(now):
                self.sent()
            elif self.share.is_full() or self.share.is_blocked(now):
                back.append(run)
            else:
                waiter = asyncio.get_running_loop().create_future()
                self.share.waiters.append(waiter)
                self.waiting.append((now, run, waiter))
                if self.share.is_unheard and not is_hurried:
                    is_hurried = True
                    self.report_in(self.late)
        await self.await_destination(back)

    async def report(self) -> bool:
        """Tell what was seen, and hear what may be done."""
        told, is_urgent = self.share.report(self.world.now), False
        for allowed in await report(self.world.database, self.worker_id, next(self.number), [told], RNG):
            is_urgent = self.share.hear(allowed, self.world.now, self.world.now)
        await self.look()
        return is_urgent

    async def look(self) -> None:
        """See who was let out, who was turned away, and whose patience is over."""
        now, left, back = self.world.now, [], []
        for since, run, waiter in self.waiting:
            if waiter.done():
                if waiter.result():
                    self.sent()
                else:
                    back.append(run)
            elif now - since >= PATIENCE_SECONDS:
                self.share.waiters.remove(waiter)
                back.append(run)
            else:
                left.append((since, run, waiter))
        self.waiting = left
        await self.await_destination(back)
        self.await_turn()

    def await_turn(self) -> None:
        """Look again when the next turn comes."""
        seconds = self.share.seconds_to_reservation(self.world.now)
        if seconds is not None:
            self.turn_at = self.world.now + max(0.001, seconds)
            self.world.plan(self.turn_at - self.world.now, partial(self.turn, self.turn_at))

    async def turn(self, planned_at: float) -> None:
        if planned_at == self.turn_at:
            self.share.serve(self.world.now)
            await self.look()

    def sent(self) -> None:
        self.world.sent.append(self.world.now)
        self.world.plan(ANSWER_SECONDS, self.end)

    async def end(self) -> None:
        self.share.give_back(Verdict.HEALTHY, 0.0, self.world.now)
        self.share.serve(self.world.now)
        await self.look()

    async def await_destination(self, runs: list[Run]) -> None:
        self.world.parked_again += len(runs)
        if runs:
            await defer(
                self.world.database, self.worker_id, [Deferred(run, None, WaitForDestination(ORIGIN)) for run in runs]
            )


class World:
    """A scheduler and some workers, on one clock that goes from one thing to the next."""

    def __init__(self, database: Database, clock: ManualClock) -> None:
        self.database = database
        self.clock = clock
        self.sent: list[float] = []
        self.parked_again = 0
        self._plans: list[tuple[float, int, Callable[[], Awaitable[object]]]] = []
        self._order = count()

    @property
    def now(self) -> float:
        return self.clock.monotonic()

    def plan(self, seconds: float, what: Callable[[], Awaitable[object]]) -> None:
        heapq.heappush(self._plans, (self.now + seconds, next(self._order), what))

    def repeat(self, first: float, period: float, what: Callable[[], Awaitable[object]]) -> None:
        async def again() -> None:
            await what()
            self.plan(period, again)

        self.plan(first, again)

    async def go_on(self, seconds: float) -> None:
        until = self.now + seconds
        while self._plans and self._plans[0][0] <= until:
            at, _, what = heapq.heappop(self._plans)
            if at > self.now:
                await self.clock.advance(at - self.now)
            await what()

    def most_in(self, seconds: float) -> int:
        return max((sum(1 for at in self.sent if begin <= at < begin + seconds) for begin in self.sent), default=0)


async def parked(database: Database, number: int) -> None:
    worker_id = await a_worker(database, lease=LONG)
    for _ in range(number):
        await a_ready_run(database)
    runs = await claimed(database, worker_id, limit=number)
    await defer(database, worker_id, [Deferred(run, None, WaitForDestination(ORIGIN)) for run in runs])


async def recovering(database: Database, clock: ManualClock, workers: int, late: float) -> World:
    """Let what is parked go on at a rate, with so many workers; everybody's loops, the scheduler's too, are so late."""
    destination_id = await destinations.make(database, RNG.uuid(), 1, ORIGIN)
    await limit(database, 1, destination_id, rate=RATE)
    await parked(database, int(RATE * (SECONDS + 2)))
    world = World(database, clock)
    process_pool = [Worker(world, await a_worker(database, lease=LONG), late) for _ in range(workers)]

    async def let_go() -> None:
        await mind(database, RNG)
        for one in process_pool:  # It sends a hint.
            world.plan(late, one.claim)

    world.repeat(0.0, TICK_SECONDS + late, let_go)
    for number, one in enumerate(process_pool):
        one.report_in(0.01 + number * TICK_SECONDS / workers)
        world.repeat(0.02 + number * POLL_SECONDS / workers, POLL_SECONDS, one.claim)
    return world


@pytest.mark.parametrize("late", [0.01, 0.15, 0.25])
@pytest.mark.parametrize("workers", [1, 3])
async def test_recovering_destination_uses_its_allowed_rate_with_slow_worker_reports(database, clock, workers, late):
    world = await recovering(database, clock, workers, late)
    await world.go_on(1)
    before = len(world.sent)

    await world.go_on(SECONDS)

    assert len(world.sent) - before >= 0.85 * RATE * SECONDS
    assert world.most_in(1.0) <= 1.25 * RATE + 1
    assert world.parked_again <= 0.1 * RATE * SECONDS
