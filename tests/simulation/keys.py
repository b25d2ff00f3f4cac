"""Keys that hold runs back: lines, in which they go one after another, places, and turns at a rate, changed as it goes."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

from duly.domain.errors import NotFound
from duly.domain.jobs.job import Submission
from duly.domain.limits.concurrency import Rate
from duly.domain.runs.run import TENANT_DEFAULT
from duly.moves.admin import concurrency_keys
from duly.store.connection.database import Unavailable
from tests.simulation.part import Part, submit_until_answered
from tests.simulation.processes import draw_submission
from tests.simulation.world import Role

if TYPE_CHECKING:
    from tests.simulation.ledger import Created, Execution
    from tests.simulation.world import Process, World

_AHEAD = timedelta(seconds=1)  # so far ahead turns are given
_ROUNDING_SECONDS = 2e-6
_FAR_SECONDS = 15.0  # longer than anybody is away who could have looked at the clock
_TURNS = """
select run_id, due_at, null::bigint as fence from duly.ready where options ? 'rate'
union all select run_id, due_at, fence from duly.leased where options ? 'rate'
"""


class Lines(Part):
    """FIFO keys: strictly in order, and the next only after the former's final state."""

    name = "lines"
    counted = ("in_line",)
    keys = ("account-1", "account-2")

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._inside: dict[str, set[UUID]] = defaultdict(set)  # between the first start and the end

    def populate(self) -> None:
        self.world.add(Role("lines", self._submit, is_once=True))

    async def _submit(self, process: Process) -> None:
        random, database = process.random, process.database()
        for number in range(random.randint(3, 7)):
            await asyncio.sleep(random.expovariate(8 / self.plan.storm_seconds))
            key = random.choice(self.keys)
            asked = [
                draw_submission(random, self.world, (None, None, None, 0.0, 1.0, 6.0), concurrency=(key, 1), fifo=True)
                for _ in range(random.choice((1, 1, 3)))
            ]
            await submit_until_answered(process, database, asked, f"{process.name}/{number}")

    def on_start(self, execution: Execution, run: Any) -> None:
        mine = self.ledger.created.get(run.id)
        if mine is None or not mine.options.policy.fifo or mine.options.policy.concurrency is None:
            return
        inside = self._inside[mine.options.policy.concurrency[0]]
        if inside - {run.id}:
            self.ledger.violate("the next of a line began before the former had ended", run.id, *(inside - {run.id}))
        for other in self._before(mine):
            self.ledger.violate("a run of a line was passed over", other.run_id, run.id)
        self.world.count("in_line")
        inside.add(run.id)

    def _before(self, mine: Created) -> list[Created]:
        """Find those that came before it, are due before it, and have not ended. A replay puts one elsewhere in the line."""
        if self.ledger.attempts_before[mine.run_id]:
            return []
        return [
            other
            for other in self.ledger.created.values()
            if other.options.policy.fifo
            and other.options.policy.concurrency == mine.options.policy.concurrency
            and other.number < mine.number
            and other.due_at <= mine.due_at
            and other.run_id not in self.ledger.final
            and other.run_id not in self.ledger.dead
            and not self.ledger.attempts_before[other.run_id]
        ]

    def on_end(self, run_id: UUID, state: str, at: datetime) -> None:
        for inside in self._inside.values():
            inside.discard(run_id)


class Slots(Part):
    """Concurrency keys whose limit is changed while runs wait and run."""

    name = "slots"
    counted = ("places_full", "places_changed")
    key, carried = "customer", 3

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._limits: list[tuple[float, int]] = [(0.0, self.carried)]  # in force from a moment on

    def populate(self) -> None:
        self.world.add(Role("slots", self._submit, is_once=True))
        self.world.add(Role("places-changer", self._change))

    async def _submit(self, process: Process) -> None:
        random, database = process.random, process.database()
        for number in range(random.randint(2, 4)):
            await asyncio.sleep(random.expovariate(6 / self.plan.storm_seconds))
            asked = [
                draw_submission(random, self.world, (None, 0.0, 2.0), concurrency=(self.key, self.carried))
                for _ in range(random.randint(2, 5))
            ]
            await submit_until_answered(process, database, asked, f"{process.name}/{number}")

    async def _change(self, process: Process) -> None:
        random, database = process.random, process.database()
        while True:
            await asyncio.sleep(10_000 if self.world.is_calm else random.expovariate(1 / 3))
            try:
                if random.random() < 0.3:
                    await concurrency_keys.unlimit(database, TENANT_DEFAULT, self.key)
                else:
                    await concurrency_keys.limit(
                        database, TENANT_DEFAULT, self.key, slots=random.randint(1, 4), rate=None
                    )
            except (Unavailable, NotFound):
                continue

    def _on_concurrency_keys_limit_concurrency_key(
        self, process: Process, args: Sequence[Any], rows: list[Any], at: datetime
    ) -> None:
        if args[1] == self.key:
            self._limits.append((self.world.now, args[2] or self.carried))
            self.world.count("places_changed")

    def on_start(self, execution: Execution, run: Any) -> None:
        if not self._is_ours(run.id):
            return
        ledger = self.ledger
        inside = [run.id] + [
            item.run_id for item in ledger.running() if self._is_ours(item.run_id) and ledger.pauses(item)
        ]
        limit = self._most_since(min(ledger.waits_since[run_id] for run_id in inside))
        if len(inside) > limit:
            ledger.violate("more runs of a key at once than it ever allowed", *inside, limit)
        if len(inside) == limit:
            self.world.count("places_full")

    def _is_ours(self, run_id: UUID) -> bool:
        created = self.ledger.created.get(run_id)
        return (
            created is not None
            and created.options.policy.concurrency is not None
            and created.options.policy.concurrency[0] == self.key
        )

    def _most_since(self, moment: float) -> int:
        """Give the highest limit from when the first of those inside began to wait: some entered under it."""
        before = [slots for at, slots in self._limits if at <= moment][-1:]
        return max(before + [slots for at, slots in self._limits if at > moment])


class Turns(Part):
    """Rates: planned turns never exceed them, however often they are changed."""

    name = "turns"
    counted = ("turn_taken", "rate_changed")
    key = "partner"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._rate = self._asked = (world.random.choice((1.0, 3.0)), world.random.choice((1, 1, 3)))
        self._turns: list[datetime] = []
        self._since: datetime | None = None
        self._before: set[tuple[UUID, datetime]] = set()  # turns that were given before the clock was set back
        self._far: dict[tuple[UUID, datetime], float] = {}  # those of them that lie far ahead since, and since when

    def populate(self) -> None:
        self.world.add(Role("turns", self._submit, is_once=True))
        self.world.add(Role("turns-changer", self._change))

    async def _submit(self, process: Process) -> None:
        random, database = process.random, process.database()
        for number in range(random.randint(2, 4)):
            await asyncio.sleep(random.expovariate(6 / self.plan.storm_seconds))
            concurrency = random.choice((None, None, ("desk", 2)))
            asked = [self._one(process, concurrency) for _ in range(random.randint(2, 5))]
            await submit_until_answered(process, database, asked, f"{process.name}/{number}")

    def _one(self, process: Process, concurrency: tuple[str, int] | None) -> Submission:
        rate = (self.key, *self._asked)
        return draw_submission(process.random, self.world, (None, None, 1.0, 4.0), concurrency=concurrency, rate=rate)

    async def _change(self, process: Process) -> None:
        random, database = process.random, process.database()
        while True:
            await asyncio.sleep(10_000 if self.world.is_calm else random.expovariate(1 / 6))
            rate = Rate(self.key, random.choice((1, 2, 5)), burst=random.choice((1, 2)))
            try:
                if random.random() < 0.3:
                    await concurrency_keys.unlimit(database, TENANT_DEFAULT, self.key)
                else:
                    await concurrency_keys.limit(database, TENANT_DEFAULT, self.key, slots=None, rate=rate)
            except (Unavailable, NotFound):
                continue

    def on_clock_back(self, seconds: float) -> None:
        self._turns, self._since = [], None  # The same moments come again, and count anew.
        far = self.world.database_now() + timedelta(seconds=_FAR_SECONDS - seconds)
        # A rate at which nobody waits has no row, and forgets what it gave.
        is_reckoned = bool(
            self.world.query("select from duly.rate_limits where key = $1 and reckoned_at > $2", self.key, far)
        )
        for row in self.world.query(_TURNS):
            created = self.ledger.created.get(row["run_id"])
            if created is None or (row["run_id"], row["fence"]) in self.ledger.by_fence:
                continue
            self._before.add((row["run_id"], row["due_at"]))
            self.ledger.earliest[row["run_id"]] = created.due_at  # It was due, and may line up again.
            if row["due_at"] > far and is_reckoned:
                self.world.count("turn_set_back")
                self._far[row["run_id"], row["due_at"]] = self.world.now

    def on_start(self, execution: Execution, run: Any) -> None:
        set_back_at = self._far.get((run.id, run.due_at), self.world.now)
        # By then its worker has looked at the clock, or its lease has ended; and rates were looked at.
        if self.world.now - set_back_at > _FAR_SECONDS and not self.plan.has("clock_forward"):
            self.ledger.violate("a turn was used though the clock was set back from it", run.id, run.due_at)

    def _on_concurrency_keys_limit_concurrency_key(
        self, process: Process, args: Sequence[Any], rows: list[Any], at: datetime
    ) -> None:
        if args[1] == self.key:
            self._rate = self._asked if args[3] is None else (args[3], args[4])
            self._turns, self._since = [], max(at + _AHEAD, self._since or at)  # What was reserved before stands.
            self.world.count("rate_changed")

    def _on_ready_claim(self, process: Process, args: Sequence[Any], rows: list[Any], at: datetime) -> None:
        for row in rows:
            created = self.ledger.created.get(row["run_id"])
            if created is not None and created.options.policy.rate is not None:
                self.world.count("turn_taken")
                self._note(row["run_id"], row["due_at"])

    def _note(self, run_id: UUID, turn: datetime) -> None:
        if (self._since is not None and turn <= self._since) or (run_id, turn) in self._before:
            return
        self._turns = sorted([*self._turns, turn])
        per_second, burst = self._rate
        for first, begin in enumerate(self._turns):
            for last in range(first, len(self._turns)):
                allowed = burst + per_second * ((self._turns[last] - begin).total_seconds() + _ROUNDING_SECONDS)
                if last - first + 1 > allowed:
                    self.ledger.violate("more turns than the rate allows", run_id, begin, self._turns[last], self._rate)
