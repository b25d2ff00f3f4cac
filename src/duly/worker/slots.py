"""Who starts next: runs that are due wait in a line ordered by rank, one line for each way of running them."""

from __future__ import annotations

from enum import StrEnum
from heapq import heappop, heappush
from itertools import count

from duly.domain.run import Run

_HANDICAP_SECONDS = 30


class Kind(StrEnum):
    """How a run is executed, and so which slots it needs."""

    LOOP = "loop"  # `async def`, on the handlers' loop
    THREAD = "thread"  # a plain function, in a thread
    CHILD = "child"  # a plain function that can be killed, in a child process
    ALONE = "alone"  # a suspect: announced, then alone in a child process


class Slots:
    """The lines and the free slots behind them."""

    def __init__(self, capacity: dict[Kind, int]) -> None:
        self._capacity = capacity
        self._running = dict.fromkeys(capacity, 0)
        self._lines: dict[Kind, list[tuple[float, int, Run]]] = {kind: [] for kind in capacity}
        self._order = count()

    @property
    def waiting(self) -> int:
        """How many are due and wait for a slot."""
        return sum(map(len, self._lines.values()))

    @property
    def running(self) -> int:
        """How many are being executed."""
        return sum(self._running.values())

    @property
    def free(self) -> int:
        """How many could start at this moment."""
        return sum(self._capacity.values()) - self.running

    def oldest_due(self) -> float:
        """Give the due moment of the longest waiting among those next in line."""
        return min((line[0][2].due_at.timestamp() for line in self._lines.values() if line), default=float("inf"))

    def queue(self, kind: Kind, run: Run) -> None:
        """Put a due run in line: by due moment and the handicap of its priority."""
        rank = run.due_at.timestamp() + run.priority * _HANDICAP_SECONDS
        heappush(self._lines[kind], (rank, next(self._order), run))

    def take(self) -> list[tuple[Kind, Run]]:
        """Take everyone who can start now and occupy their slots."""
        starting: list[tuple[Kind, Run]] = []
        for kind, line in self._lines.items():
            free = self._capacity[kind] - self._running[kind]
            taken = min(free, len(line))
            starting += [(kind, heappop(line)[2]) for _ in range(taken)]
            self._running[kind] += taken
        return starting

    def release(self, kind: Kind, number: int = 1) -> None:
        """Free slots whose runs have ended."""
        self._running[kind] -= number
        assert self._running[kind] >= 0, kind

    def give_up(self, keep: int) -> list[Run]:
        """Take out all but the first `keep` of each line: what others could start sooner."""
        given: list[Run] = []
        for line in self._lines.values():
            line.sort()
            given += [entry[2] for entry in line[keep:]]
            del line[keep:]
        return given

    def drain(self) -> list[Run]:
        """Take out everyone who waits."""
        return self.give_up(0)
