"""CPU costs of a run: of PostgreSQL, and of Duly's own processes."""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic

import msgspec

from duly.bench import processes


class Spent(msgspec.Struct, frozen=True):
    """CPU over a span, in seconds."""

    duly: float
    postgres: float | None
    seconds: float

    def per_run(self, runs: int) -> dict[str, float | None]:
        """Return microseconds of CPU for each run."""
        return {
            "duly": round(self.duly / max(1, runs) * 1e6, 1),
            "postgres": None if self.postgres is None else round(self.postgres / max(1, runs) * 1e6, 1),
        }

    def percent(self) -> dict[str, float | None]:
        """Return the share of one core."""
        of_postgres = None if self.postgres is None else self.postgres / self.seconds * 100
        return {
            "duly": round(self.duly / self.seconds * 100, 2),
            "postgres": None if of_postgres is None else round(of_postgres, 2),
            "together": None if of_postgres is None else round(self.duly / self.seconds * 100 + of_postgres, 2),
        }


class Meter:
    """Counts from the moment it is made."""

    def __init__(self, pids: Sequence[int], server_pid: int | None) -> None:
        self._pids = pids
        self._server_pid = server_pid
        self._began = self._read()

    def spent(self) -> Spent:
        """Return the costs so far."""
        now = self._read()
        postgres = None if self._server_pid is None else now[1] - self._began[1]
        return Spent(now[0] - self._began[0], postgres, now[2] - self._began[2])

    def _read(self) -> tuple[float, float, float]:
        server = [] if self._server_pid is None else processes.family([self._server_pid])
        return processes.cpu_seconds(processes.family(self._pids)), processes.cpu_seconds(server), monotonic()
