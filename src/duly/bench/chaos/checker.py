"""The checker: compares the answers to clients, the calls of targets and the records of attempts. It trusts none alone.

It does not ask where the records come from: `duly chaos` reads tables, the tests with many hosts the public API. Each
finding is a sentence; no finding is the good answer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import pairwise
from math import inf

from duly.bench.chaos.evidence import Arrival, Evidence, Record
from duly.domain.runs.run import FINAL_STATES

HANDS_OVER = {"lost", "failed", "timed_out", "snoozed"}


def findings(evidence: Evidence, late_seconds: float = inf) -> list[str]:
    """Name every broken promise; a run is late if it is first called more than `late_seconds` after its scheduled time."""
    return [
        *lost(evidence),
        *wrong_requests(evidence),
        *same_attempt_twice(evidence.arrivals),
        *overlapping(evidence),
        *early(evidence),
        *late(evidence, late_seconds),
        *fences_not_rising(evidence),
        *wrong_accounts(evidence.records),
        *wrong_occurrences(evidence),
    ]


def lost(evidence: Evidence) -> Iterator[str]:
    """Acknowledged, or stored by a request without an answer, and either not ended or never seen by its target."""
    seen = {arrival.run_id for arrival in evidence.arrivals}
    ended = {record.run_id for record in evidence.records if record.became in FINAL_STATES}
    answered = {one.key for one in evidence.acknowledged}
    accepted = {str(one.job_id): "acknowledged" for one in evidence.acknowledged if not one.is_schedule}
    accepted |= {run_id: "stored" for key, jobs in evidence.created.items() if key not in answered for run_id in jobs}
    for run_id, how in accepted.items():
        if run_id not in ended:
            yield f"lost: run {run_id} was {how} and did not end"
        if run_id not in seen:
            yield f"lost: run {run_id} was {how} and its target never saw it"
    yield from (f"stuck: {row}" for row in evidence.left_in_boxes)


def wrong_requests(evidence: Evidence) -> Iterator[str]:
    """A request makes the one job that its answer names; without an answer it makes one or none."""
    answers = {one.key: str(one.job_id) for one in evidence.acknowledged if one.key}
    for key, jobs in evidence.created.items():
        if len(jobs) > 1:
            yield f"double: request {key} made {len(jobs)} jobs"
    for key, job_id in answers.items():
        if job_id not in evidence.created.get(key, ()):
            yield f"lost: request {key} was acknowledged as job {job_id}, which does not exist"


def same_attempt_twice(arrivals: Iterable[Arrival]) -> Iterator[str]:
    """One attempt, two calls: never allowed."""
    for run_id, calls in by_run(arrivals).items():
        numbers = [call.attempt for call in calls]
        if len(set(numbers)) < len(numbers):
            yield f"double: run {run_id} was called with attempts {numbers}"


def overlapping(evidence: Evidence) -> Iterator[str]:
    """A later call is allowed only after the earlier attempt had ended, or its holder's lease had run out."""
    records = {(record.run_id, record.attempt): record for record in evidence.records if record.outcome != "fenced"}
    lapsed = {departure.worker_id: departure.lapsed_at for departure in evidence.departures}
    for run_id, calls in by_run(evidence.arrivals).items():
        for earlier, later in pairwise(calls):
            record = records.get((run_id, earlier.attempt))
            where = f"run {run_id}, attempts {earlier.attempt} and {later.attempt}"
            if record is None or record.outcome not in HANDS_OVER:
                yield f"double: {where}: the earlier one is on record as {record and record.outcome}"
            elif later.at < record.finished_at.timestamp():
                yield f"double: {where}: the later one began before the earlier one was settled"
            elif record.outcome == "lost" and not _had_lapsed(record, lapsed):
                yield f"double: {where}: the lease of worker {record.worker_id} had not run out"


def _had_lapsed(record: Record, lapsed: dict[str, datetime]) -> bool:
    if record.started_at is not None:
        return True  # Settled by its holder, whose child process died; no lease needs to have run out.
    moment = lapsed.get(record.worker_id or "")
    return moment is not None and moment <= record.finished_at


def early(evidence: Evidence) -> Iterator[str]:
    """Called before its due moment, or before the moment that the client was given; without any tolerance."""
    given = {str(one.job_id): one.scheduled_at for one in evidence.acknowledged if not one.is_schedule}
    for call in evidence.arrivals:
        due_at = max(call.due_at, call.scheduled_at, given.get(call.run_id, 0.0))
        if call.at < due_at:
            yield f"early: run {call.run_id}, attempt {call.attempt}, by {due_at - call.at:.6f} s"


def late(evidence: Evidence, seconds: float) -> Iterator[str]:
    """First called later than allowed; an acknowledged run can be, from when its request was sent."""
    for run_id, delay in start_delays(evidence).items():
        if delay > seconds:
            yield f"late: run {run_id}, by {delay:.3f} s"


def start_delays(evidence: Evidence) -> dict[str, float]:
    """Return how long after its moment each run was first called, of those whose requests were answered."""
    sent_at = {str(one.job_id): one.sent_at for one in evidence.acknowledged}
    # By time: the network may deliver the request of a worker that was cut off after that of its successor.
    firsts = {run_id: min(calls, key=lambda call: call.at) for run_id, calls in by_run(evidence.arrivals).items()}
    return {
        run_id: call.at - max(call.scheduled_at, sent_at[call.job_id])
        for run_id, call in firsts.items()
        if call.job_id in sent_at
    }


def fences_not_rising(evidence: Evidence) -> Iterator[str]:
    """Each attempt of a run has one fence, higher than that of the attempt before."""
    fences: dict[str, dict[int, int]] = defaultdict(dict)
    called = [(call.run_id, call.attempt, call.fence) for call in evidence.arrivals]
    recorded = [
        (record.run_id, record.attempt, record.fence) for record in evidence.records if record.fence is not None
    ]
    for run_id, attempt, fence in (*called, *recorded):
        known = fences[run_id].setdefault(attempt, fence)
        if known != fence:
            yield f"fence: run {run_id}, attempt {attempt} has fences {known} and {fence}"
    for run_id, by_attempt in fences.items():
        in_order = [by_attempt[attempt] for attempt in sorted(by_attempt)]
        if sorted(set(in_order)) != in_order:
            yield f"fence: run {run_id} has fences {in_order} by attempt"


def wrong_accounts(records: Iterable[Record]) -> Iterator[str]:
    """Each attempt has one outcome besides refused ones, and each run one end. What ends while it waits has no fence."""
    outcomes: dict[tuple[str, int], int] = defaultdict(int)
    ends: dict[str, int] = defaultdict(int)
    for record in records:
        if record.outcome != "fenced":
            outcomes[record.run_id, record.attempt] += record.fence is not None
            ends[record.run_id] += record.became in FINAL_STATES
    yield from (f"account: run {key[0]}, attempt {key[1]} has {n} outcomes" for key, n in outcomes.items() if n > 1)
    yield from (f"account: run {run_id} has {n} ends" for run_id, n in ends.items() if n > 1)


def wrong_occurrences(evidence: Evidence, every_seconds: float = 1.0) -> Iterator[str]:
    """From its first moment on, a schedule has one run for each moment: none missing, none extra."""
    schedules = {str(one.job_id): one.scheduled_at for one in evidence.acknowledged if one.is_schedule}
    runs: dict[str, dict[float, set[str]]] = {job_id: defaultdict(set) for job_id in schedules}
    for call in evidence.arrivals:
        if call.job_id in runs:
            runs[call.job_id][call.scheduled_at].add(call.run_id)
    for record in evidence.records:
        if record.job_id in runs:
            runs[record.job_id][record.scheduled_at.timestamp()].add(record.run_id)
    for job_id, first in schedules.items():
        yield from _wrong_moments(job_id, first, every_seconds, runs[job_id])


def _wrong_moments(job_id: str, first: float, every: float, runs: dict[float, set[str]]) -> Iterator[str]:
    expected = {first + number * every for number in range(round((max(runs, default=first) - first) / every) + 1)}
    for moment in sorted(expected - runs.keys()):
        yield f"missed: schedule {job_id} has no run for {moment}"
    for moment in sorted(runs.keys() - expected):
        yield f"extra: schedule {job_id} has a run for {moment}"
    for moment, names in runs.items():
        if len(names) > 1:
            yield f"double: schedule {job_id} has {len(names)} runs for {moment}"


def by_run(arrivals: Iterable[Arrival]) -> dict[str, list[Arrival]]:
    """Sort calls by run, and within a run by attempt."""
    runs: dict[str, list[Arrival]] = defaultdict(list)
    for arrival in arrivals:
        runs[arrival.run_id].append(arrival)
    return {run_id: sorted(calls, key=lambda call: (call.attempt, call.at)) for run_id, calls in runs.items()}


def duplicates(evidence: Evidence) -> int:
    """Count the calls beyond the first of each run."""
    return sum(len(calls) - 1 for calls in by_run(evidence.arrivals).values())
