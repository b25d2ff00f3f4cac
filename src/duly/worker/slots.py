"""Slots: which due run starts next. Due runs wait in a line, one for each pool of slots.

The claim has decided who is served; an order by rank alone would undo that, because each new batch of an old backlog
would pass what came before it. So the order is by arrival, which rank moves by at most a quarter of a second.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from heapq import heappop, heappush
from itertools import count
from uuid import UUID

from duly.domain.runs.run import Run

_HANDICAP_SECONDS = 30
_RANK_SECONDS = 0.25  # the most that rank moves a run
_RANK_SCALE = 1_200.0  # seconds of rank that count as one second


class Kind(StrEnum):
    """The way in which a run is executed."""

    LOOP = "loop"  # `async def`, on the handlers' loop
    THREAD = "thread"  # a plain function, in a thread
    CHILD = "child"  # a plain function that can be killed, in a child process
    ALONE = "alone"  # a suspect: announced, then alone in a child process
    WEBHOOK = "webhook"  # a request, on the handlers' loop
    PROCESS = "process"  # a command or a container, in a process of its own


class Pool(StrEnum):
    """The pool that runs compete for."""

    LOOP = "loop"  # for `async def`
    PLAIN = "plain"  # for plain functions, wherever they run
    ALONE = "alone"  # for suspects
    WEBHOOK = "webhook"  # for requests
    PROCESS = "process"  # for commands and containers


POOL_OF = {
    Kind.LOOP: Pool.LOOP,
    Kind.THREAD: Pool.PLAIN,
    Kind.CHILD: Pool.PLAIN,
    Kind.ALONE: Pool.ALONE,
    Kind.WEBHOOK: Pool.WEBHOOK,
    Kind.PROCESS: Pool.PROCESS,
}
POOLS_ON_LOOP = frozenset({Pool.LOOP, Pool.WEBHOOK, Pool.PROCESS})  # these need the handlers' loop to turn


class Slots:
    """The lines and the free slots."""

    def __init__(self, capacity: Mapping[Pool, int]) -> None:
        self.capacity = {pool: capacity.get(pool, 0) for pool in Pool}
        self._running = dict.fromkeys(Pool, 0)
        self._lines: dict[Pool, list[tuple[float, float, int, Kind, Run, float]]] = {pool: [] for pool in Pool}
        self._order = count()

    @property
    def waiting(self) -> int:
        """Return how many are due and wait for a slot."""
        return sum(map(len, self._lines.values()))

    @property
    def running(self) -> int:
        """Return how many are being executed."""
        return sum(self._running.values())

    def free_in(self, pool: Pool) -> int:
        """Return how many could start at this moment."""
        return self.capacity[pool] - self._running[pool]

    def waiting_for(self, pool: Pool) -> int:
        """Return how many are due and wait for a slot of this pool."""
        return len(self._lines[pool])

    def waits_since(self, pool: Pool) -> float:
        """Return the moment since which the next in line could have started."""
        line = self._lines[pool]
        return line[0][5] if line else float("inf")

    @property
    def in_line(self) -> set[tuple[UUID, int]]:
        """The due runs that wait for a slot."""
        return {(run.run_id, run.fence) for line in self._lines.values() for *_, run, _ in line}

    def queue(self, kind: Kind, run: Run, now: float) -> None:
        """Put a due run in line: by its arrival, its due moment and the handicap of its priority."""
        due = run.due_at.timestamp()
        rank = due + run.priority * _HANDICAP_SECONDS
        turn = now + min(_RANK_SECONDS, max(-_RANK_SECONDS, (rank - now) / _RANK_SCALE))
        heappush(self._lines[POOL_OF[kind]], (turn, rank, next(self._order), kind, run, max(due, now)))

    def take(self) -> list[tuple[Kind, Run]]:
        """Take every run that can start now and occupy their slots."""
        starting: list[tuple[Kind, Run]] = []
        for pool, line in self._lines.items():
            taken = min(self.free_in(pool), len(line))
            starting += [heappop(line)[3:5] for _ in range(taken)]
            self._running[pool] += taken
        return starting

    def release(self, kind: Kind, number: int = 1) -> None:
        """Free slots whose runs have ended."""
        self._running[POOL_OF[kind]] -= number
        assert self._running[POOL_OF[kind]] >= 0, kind

    def give_up(self, pool: Pool, keep: int) -> list[Run]:
        """Take out all but the first `keep` of a line: other workers could start them sooner."""
        line = self._lines[pool]
        line.sort()
        given = [run for *_, run, _ in line[keep:]]
        del line[keep:]
        return given

    def take_out(self, is_unwanted: Callable[[Run], bool]) -> list[Run]:
        """Take out unwanted runs that wait."""
        taken: list[Run] = []
        for line in self._lines.values():
            if unwanted := [run for *_, run, _ in line if is_unwanted(run)]:
                taken += unwanted
                line[:] = sorted(place for place in line if not is_unwanted(place[4]))
        return taken

    def drain(self) -> list[Run]:
        """Take out all waiting runs."""
        return [run for pool in Pool for run in self.give_up(pool, 0)]
