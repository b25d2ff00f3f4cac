"""Evidence: the answers to clients, the calls that targets received, and the records of the database or its public API.

The sink is an append-only file in which targets keep their own record, whatever the engine believes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

import msgspec

if TYPE_CHECKING:
    from duly.worker.context import RunContext


SINK = "CHAOS_SINK"  # the variable with the file of the sink, for a worker's handlers


class Acknowledged(msgspec.Struct, array_like=True, frozen=True):
    """One answer: the job is durable from here on."""

    job_id: UUID
    scheduled_at: float
    is_schedule: bool
    requests: int  # until an answer came
    key: str = ""  # of the request
    sent_at: float = 0.0  # when the request was sent that was answered


class Strike(msgspec.Struct, frozen=True):
    """A process that was killed, and when: by the host's clock, in seconds since 1970."""

    what: str
    pid: int
    at: float
    back_at: float  # when its successor had been started; of PostgreSQL, when it took connections again


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


def arrival_of(run: RunContext) -> Arrival:
    """Return this call, as its handler sees it."""
    return Arrival(
        str(run.id),
        str(run.job_id),
        run.attempt,
        run.fence,
        time.time(),
        (os.getpid(), os.getppid()),
        run.scheduled_at.timestamp(),
        run.due_at.timestamp(),
    )


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


class Record(NamedTuple):
    """One attempt on record."""

    run_id: str
    job_id: str
    attempt: int
    outcome: str
    became: str
    fence: int | None
    worker_id: str | None
    scheduled_at: datetime
    started_at: datetime | None
    finished_at: datetime


class Departure(NamedTuple):
    """A worker, and the end of its last lease: as recorded when it was taken away, or as last seen from outside."""

    worker_id: str
    lapsed_at: datetime


class Evidence(NamedTuple):
    """Everything there is to judge by."""

    acknowledged: Sequence[Acknowledged]
    arrivals: Sequence[Arrival]
    records: Sequence[Record]
    departures: Sequence[Departure]
    left_in_boxes: Sequence[str]
    strikes: Sequence[Strike] = ()
    created: Mapping[str, Sequence[str]] = {}  # the jobs that each request made, of those whose answer is unknown, too
