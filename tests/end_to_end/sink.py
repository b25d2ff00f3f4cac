"""The sink: an append-only file in which targets keep their own record, whatever the engine believes."""

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec


class Arrival(msgspec.Struct, array_like=True, frozen=True):
    """One call of a handler. Moments are seconds since 1970 by the host's clock, which is the database's too."""

    run_id: str
    job_id: str
    attempt: int
    fence: int
    at: float
    pids: tuple[int, int]  # of the process and of its parent: of a child, that is the worker
    scheduled_at: float
    due_at: float


class Sink:
    """Appends whole lines, from any number of processes."""

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)

    def append(self, arrival: Arrival) -> None:
        """Add one line, in one write."""
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(descriptor, msgspec.json.encode(arrival) + b"\n")
        finally:
            os.close(descriptor)

    def read(self) -> Iterator[Arrival]:
        """Read every line there is."""
        if self._path.exists():
            for line in self._path.read_bytes().splitlines():
                yield msgspec.json.decode(line, type=Arrival)
