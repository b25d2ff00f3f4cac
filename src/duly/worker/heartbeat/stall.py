"""Stalls: the rule by which the heartbeat process considers the engine stalled, hands back runs and names handlers.

States: *running* (starts are allowed) → *stalled* (the engine has not ticked for a while: no start is allowed any more)
→ *given back* (the last allowed moment has passed: runs that have not started go back, at every heartbeat, because a
claim that was on its way may still be answered) → *running* again.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec

from duly.worker.heartbeat.shared_state import SharedState, Started

LOOK_SECONDS = 0.1  # while it is stalled
LOOK_RUNNING_SECONDS = 0.5
STALLED_SECONDS_LEAST = 1.0  # the engine ticks four times a second, on a busy machine less often
STALLED_SHARE = 1 / 5  # of the lease
SEEN_SECONDS = 0.5  # how long we must have seen it ourselves: we may have been frozen together with the worker
MARGIN_SECONDS = 0.05
RETURNED_MAX = 2_000  # in one heartbeat
_BUSY_SHARE = 0.5
_TICKS_PER_SECOND = 100  # of the times in /proc

Handles = list[tuple[UUID, int]]


class Report(msgspec.Struct, frozen=True):
    """The report of a stalled worker with a heartbeat. `kept` None: nothing is handed back."""

    seconds: float
    holders: Handles
    kept: Handles | None
    is_safe: bool  # the engine ticks; only the handlers' loop is blocked
    safe_until: datetime | None = None  # as the store has said: a report that comes late hands nothing back
    started: Handles | None = None  # None: not known

    @property
    def arguments(self) -> tuple[Any, ...]:
        """The arguments of the statement after the worker."""
        kept, started = _columns(self.kept), _columns(self.started)
        return (self.seconds, *_columns(self.holders), self.is_safe, *kept, self.safe_until, RETURNED_MAX, *started)


class Stall:
    """Follows one life of a worker, by its shared state."""

    def __init__(self, shared_state: SharedState, lease_seconds: float, pid: int) -> None:
        self._shared_state = shared_state
        self._seconds = max(STALLED_SECONDS_LEAST, lease_seconds * STALLED_SHARE)
        self._pid = pid
        self._allowed_until = shared_state.renewed_until  # an earlier heartbeat process may have allowed it
        self._safe_until: datetime | None = None
        self._seen_at: float | None = None  # since when we have seen that it does not tick
        self._times: dict[int, float] = {}  # CPU times of its threads, when we first saw it
        self._kept: Handles | None = None
        self._has_more = True  # the next heartbeat may find something to hand back

    @property
    def is_stalled(self) -> bool:
        """Return whether no start is allowed."""
        return self._seen_at is not None

    def excuse(self) -> None:
        """Forget the observation: the whole process was stopped, so its engine could not tick."""
        self._seen_at = None

    def look(self, now: float) -> Report | None:
        """Return the report for the heartbeat of this moment; None: nothing is stalled."""
        shared_state = self._shared_state
        if self._is_ticking(now):
            self._seen_at = None
            blocked = shared_state.blocked_since
            return (
                None if blocked is None else Report(now - blocked, _handles([shared_state.blocker]), None, is_safe=True)
            )
        if self._seen_at is None:
            self._seen_at, self._times = now, _thread_times(self._pid)
            shared_state.stall(is_stalled=True)
        started = shared_state.started
        known = _handles(started) if shared_state.is_whole else None
        kept = known if self._may_give_back(now) else None
        if kept is not None:
            self._kept = kept  # before we know that it is done: the answer may be lost
        holders = _handles(self._holders(started, now))
        return Report(now - shared_state.ticked_at, holders, kept, False, self._safe_until, known)

    def reported(self, report: Report, safe_until: datetime, returned: int | None) -> None:
        """Take the answer to a report, which says whether there may be more to hand back."""
        self._safe_until = safe_until
        if report.kept is not None:
            self._has_more = returned is None or returned >= RETURNED_MAX

    @property
    def kept(self) -> Handles | None:
        """The runs that were kept when all others were handed back, or may have been; None: nothing was."""
        return self._kept

    def resume(self, allowed_until: float, safe_until: datetime) -> None:
        """Allow starts up to this moment again: the worker knows, and what was handed back before that."""
        self._allowed_until, self._safe_until = allowed_until, safe_until
        self._kept, self._has_more = None, True
        self._shared_state.stall(is_stalled=False)

    def wants_heartbeat(self, now: float) -> bool:
        """Return whether the next heartbeat is due at once: the engine stops or goes on, or something can be handed back."""
        is_ticking = self._is_ticking(now)
        return is_ticking == self.is_stalled or (not is_ticking and self._has_more and self._may_give_back(now))

    def _is_ticking(self, now: float) -> bool:
        return now - self._shared_state.ticked_at <= self._seconds

    def _may_give_back(self, now: float) -> bool:
        has_seen = self._seen_at is not None and now - self._seen_at >= SEEN_SECONDS
        return has_seen and now > self._allowed_until + MARGIN_SECONDS and self._shared_state.is_whole

    def _holders(self, started: list[Started], now: float) -> list[Started]:
        """Return the runs whose thread computes; or all that run inside, if no thread does."""
        inside, elapsed = [one for one in started if one.is_inside], now - (self._seen_at or now)
        times = _thread_times(self._pid)
        busy = [one for one in inside if _grown(times, self._times, one.thread) > _BUSY_SHARE * elapsed > 0]
        return busy or inside


def _thread_times(pid: int) -> dict[int, float]:
    """Read the CPU time of each thread of a process, where the system reports it."""
    found = {}
    try:
        for folder in Path(f"/proc/{pid}/task").iterdir():
            fields = (folder / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()
            found[int(folder.name)] = (int(fields[11]) + int(fields[12])) / _TICKS_PER_SECOND
    except (OSError, ValueError, IndexError):
        return {}
    return found


def _grown(now: dict[int, float], before: dict[int, float], thread: int) -> float:
    return now.get(thread, 0.0) - before.get(thread, 0.0) if thread in now else 0.0


def _handles(runs: Iterable[Started | None]) -> Handles:
    return [(one.run_id, one.fence) for one in runs if one is not None]


def _columns(handles: Handles | None) -> tuple[list[UUID] | None, list[int] | None]:
    if handles is None:
        return None, None
    return [run_id for run_id, _ in handles], [fence for _, fence in handles]
