"""Figures of a storm: how long after a strike everything went on."""

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from math import ceil, inf

from duly.bench.chaos.checker import by_run
from duly.bench.chaos.evidence import Arrival, Evidence

GRACE_SECONDS = 1.0  # How long after PostgreSQL's return what happens is still put down to its absence.


def restart_delays(evidence: Evidence, within: float) -> dict[float, list[float]]:
    """For each kill of a worker: how long after it each run whose call had died with it was called again, by anyone."""
    delays = defaultdict(list)
    for killed_at, again in _made_good(evidence, within):
        delays[killed_at].append(again.at - killed_at)
    return dict(delays)


def hand_on_delays(evidence: Evidence, within: float) -> list[float]:
    """How long after the kill of its worker each such run could be called again: when it was due for that."""
    return [again.due_at - killed_at for killed_at, again in _made_good(evidence, within)]


def _made_good(evidence: Evidence, within: float) -> Iterator[tuple[float, Arrival]]:
    """Give the kill of a worker and the next call of a run, for each call that had died with it.

    Where PostgreSQL was killed too while the call was under way, or `within` so many seconds of the kill, it may have been lost
    to that, and is left out.
    """
    kills = [(strike.pid, strike.at) for strike in evidence.strikes if strike.what == "worker"]
    others = [(strike.at, strike.back_at) for strike in evidence.strikes if strike.what == "postgresql"]
    for earlier, later in (pair for calls in by_run(evidence.arrivals).values() for pair in pairwise(calls)):
        for pid, killed_at in kills:
            spoilt = any(begin <= killed_at + within and end + GRACE_SECONDS >= earlier.at for begin, end in others)
            if pid in earlier.pids and earlier.at <= killed_at <= later.at and not spoilt:
                yield killed_at, later


def lost_after(evidence: Evidence, killed_at: float, seconds: float) -> int:
    """Count the attempts that were recorded as lost within so many seconds of a kill."""
    moments = (record.finished_at.timestamp() for record in evidence.records if record.outcome == "lost")
    return sum(killed_at < moment <= killed_at + seconds for moment in moments)


def latenesses(evidence: Evidence, begin: float, end: float) -> list[float]:
    """How late the first calls of runs due in a span came."""
    firsts = (calls[0] for calls in by_run(evidence.arrivals).values())
    return [call.at - call.due_at for call in firsts if call.attempt == 1 and begin <= call.due_at < end]


def fire_delays(evidence: Evidence, begin: float, end: float, every_seconds: float = 1.0) -> list[float]:
    """For each moment of each schedule in a span: how long after it the schedule was next called, for that moment or a later one.

    A single occurrence may be left out, because the one before it is active still; a schedule that nobody stages is silent.
    """
    calls = defaultdict(list)
    for call in evidence.arrivals:
        calls[call.job_id].append((call.scheduled_at, call.at))
    return [
        min((at - moment for scheduled_at, at in calls[str(schedule.job_id)] if scheduled_at >= moment), default=inf)
        for schedule in evidence.acknowledged
        if schedule.is_schedule
        for moment in _moments(schedule.scheduled_at, every_seconds, begin, end)
    ]


def _moments(first: float, every: float, begin: float, end: float) -> Iterator[float]:
    number = max(0, ceil((begin - first) / every))
    while (moment := first + number * every) < end:
        yield moment
        number += 1
