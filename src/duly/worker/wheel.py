"""A hashed timing wheel: runs that wait for their due moment in memory, one bucket a millisecond. Insert and fire are O(1)."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from math import ceil
from typing import Generic, TypeVar

_Item = TypeVar("_Item")
_TICKS_PER_SECOND = 1000


class Wheel(Generic[_Item]):
    """Holds items until their moment. Only occupied buckets are ever visited, so sparse time costs nothing."""

    def __init__(self) -> None:
        self._buckets: dict[int, list[_Item]] = {}
        self._ticks: list[int] = []  # a heap of the occupied buckets
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def insert(self, due: float, item: _Item) -> None:
        """Hold `item` until `due`, rounded up to the next tick: never early."""
        tick = ceil(due * _TICKS_PER_SECOND)
        bucket = self._buckets.get(tick)
        if bucket is None:
            self._buckets[tick] = [item]
            heappush(self._ticks, tick)
        else:
            bucket.append(item)
        self._count += 1

    def advance(self, now: float) -> list[_Item]:
        """Take out everything whose moment has come, oldest bucket first."""
        due: list[_Item] = []
        limit = now * _TICKS_PER_SECOND
        while self._ticks and self._ticks[0] <= limit:
            due += self._buckets.pop(heappop(self._ticks))
        self._count -= len(due)
        return due

    def next_due(self) -> float | None:
        """Return the moment of the nearest bucket."""
        return self._ticks[0] / _TICKS_PER_SECOND if self._ticks else None

    def take_out(self, is_unwanted: Callable[[_Item], bool]) -> list[_Item]:
        """Take out what is unwanted, whenever its moment is."""
        taken: list[_Item] = []
        for tick, bucket in self._buckets.items():
            if unwanted := [item for item in bucket if is_unwanted(item)]:
                taken += unwanted
                self._buckets[tick] = [item for item in bucket if not is_unwanted(item)]
        self._count -= len(taken)
        return taken

    def drain(self) -> list[_Item]:
        """Take out everything."""
        everything = [item for tick in sorted(self._buckets) for item in self._buckets[tick]]
        self._buckets.clear()
        self._ticks.clear()
        self._count = 0
        return everything
