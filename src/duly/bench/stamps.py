"""The moments at which handlers were called, by the clock of the host: kept in memory while they run, then written to a file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from struct import Struct
from typing import NamedTuple

_LAYOUT = Struct("=16sdd")


class Stamp(NamedTuple):
    """One call: which run, when it was due, when it was called; in seconds since 1970."""

    run_id: bytes
    due: float
    started: float

    @property
    def skew(self) -> float:
        """The start delay; negative: early."""
        return self.started - self.due

    def shifted(self, seconds: float) -> Stamp:
        """Move the call to another clock."""
        return self._replace(started=self.started + seconds)


class Stamps:
    """The calls of one process."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def add(self, run_id: bytes, due: float, started: float) -> None:
        """Note one call."""
        self._bytes += _LAYOUT.pack(run_id, due, started)

    def write(self, path: Path) -> None:
        """Write the stamps to a file."""
        path.write_bytes(self._bytes)


def read(paths: Iterable[Path]) -> Iterator[Stamp]:
    """Read the stamps of several processes."""
    for path in paths:
        if path.exists():
            yield from map(Stamp._make, _LAYOUT.iter_unpack(path.read_bytes()))
