"""Slots: which due run starts next. Due runs wait in a queue, one for each pool of slots.

The claim has decided who is served; an order by rank alone would undo that, because each new batch of an old backlog
would pass what came before it. So the order is by arrival, which rank moves by at most a quarter of a second.
"""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Callable, Mapping
from enum import StrEnum
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
    RAY = "ray"  # a function of either kind, on a Ray cluster


class Pool(StrEnum):
    """The pool that runs compete for."""

    LOOP = "loop"  # for `async def`
    PLAIN = "plain"  # for plain functions, wherever they run
    ALONE = "alone"  # for suspects
    WEBHOOK = "webhook"  # for requests
    PROCESS = "process"  # for commands and containers
    RAY = "ray"  # for functions on a Ray cluster


POOL_OF = {
    Kind.LOOP: Pool.LOOP,
    Kind.THREAD: Pool.PLAIN,
    Kind.CHILD: Pool.PLAIN,
    Kind.ALONE: Pool.ALONE,
    Kind.WEBHOOK: Pool.WEBHOOK,
    Kind.PROCESS: Pool.PROCESS,
    Kind.RAY: Pool.RAY,
}
POOLS_ON_LOOP = frozenset({Pool.LOOP, Pool.WEBHOOK, Pool.PROCESS})  # these need the handlers' loop to turn


class Slots:
    """The queues and the free slots."""

    def __init__(self, capacity: Mapping[Pool, int]) -> None:
        self.capacity = {pool: capacity.get(pool, 0) for pool in Pool}
        self._running = dict.fromkeys(Pool, 0)
        # each in order: nearly all arrive at the end, and leave together from the front
        self._queues: dict[Pool, list[tuple[float, float, int, Kind, Run, float]]] = {pool: [] for pool in Pool}
        self._order = count()

    @property
    def waiting(self) -> int:
        """Return how many are due and wait for a slot."""
        return sum(map(len, self._queues.values()))

    @property
    def running(self) -> int:
        """Return how many are being executed."""
        return sum(self._running.values())

    def free_in(self, pool: Pool) -> int:
        """Return how many could start at this moment."""
        return self.capacity[pool] - self._running[pool]

    def waiting_for(self, pool: Pool) -> int:
        """Return how many are due and wait for a slot of this pool."""
        return len(self._queues[pool])

    def waits_since(self, pool: Pool) -> float:
        """Return the moment since which the next in the queue could have started."""
        queue = self._queues[pool]
        return queue[0][5] if queue else float("inf")

    @property
    def queued(self) -> set[tuple[UUID, int]]:
        """The due runs that wait for a slot."""
        return {(run.run_id, run.fence) for queue in self._queues.values() for *_, run, _ in queue}

    def queue(self, kind: Kind, run: Run, now: float) -> None:
        """Queue a due run: by its arrival, its due moment and the handicap of its priority."""
        due = run.due_at.timestamp()
        rank = due + run.priority * _HANDICAP_SECONDS
        moved = (rank - now) / _RANK_SCALE
        if not -_RANK_SECONDS < moved < _RANK_SECONDS:
            moved = math.copysign(_RANK_SECONDS, moved)
        since = due if due > now else now
        queue, entry = self._queues[POOL_OF[kind]], (now + moved, rank, next(self._order), kind, run, since)
        if queue and entry < queue[-1]:
            insort(queue, entry)
        else:
            queue.append(entry)

    def take(self) -> list[tuple[Kind, Run]]:
        """Take every run that can start now and occupy their slots."""
        starting: list[tuple[Kind, Run]] = []
        for pool, queue in self._queues.items():
            if not queue:
                continue
            taken = min(self.free_in(pool), len(queue))
            starting += [(kind, run) for _, _, _, kind, run, _ in queue[:taken]]
            del queue[:taken]
            self._running[pool] += taken
        return starting

    def release(self, kind: Kind, number: int = 1) -> None:
        """Free slots whose runs have ended."""
        self._running[POOL_OF[kind]] -= number
        assert self._running[POOL_OF[kind]] >= 0, kind

    def give_up(self, pool: Pool, keep: int) -> list[Run]:
        """Take out all but the first `keep` of a queue: other workers could start them sooner."""
        queue = self._queues[pool]
        given = [run for *_, run, _ in queue[keep:]]
        del queue[keep:]
        return given

    def take_out(self, is_unwanted: Callable[[Run], bool]) -> list[Run]:
        """Take out unwanted runs that wait."""
        taken: list[Run] = []
        for queue in self._queues.values():
            if unwanted := [run for *_, run, _ in queue if is_unwanted(run)]:
                taken += unwanted
                queue[:] = [entry for entry in queue if not is_unwanted(entry[4])]
        return taken

    def drain(self) -> list[Run]:
        """Take out all waiting runs."""
        return [run for pool in Pool for run in self.give_up(pool, 0)]
