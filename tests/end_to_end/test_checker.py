"""The checker is checked: a good history has no finding, and each bad one is named for what it is."""

import re
from datetime import UTC, datetime
from math import inf
from uuid import UUID

import msgspec
import pytest

from duly.bench.chaos import checker
from duly.bench.chaos.evidence import Acknowledged, Arrival, Departure, Evidence, Record, Strike
from tests.end_to_end import figures

NOON = 1_790_000_000.0
RUN, JOB = UUID(int=1), UUID(int=2)
KILLED = 4711


def moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(NOON + seconds, UTC)


def a_call(attempt: int = 1, at: float = 0.1, **changes) -> Arrival:
    call = Arrival(str(RUN), str(RUN), attempt, attempt * 10, NOON + at, (KILLED + attempt - 1, 1), NOON, NOON)
    return msgspec.structs.replace(call, **changes)


def a_record(attempt: int = 1, outcome: str = "succeeded", at: float = 0.2, **changes) -> Record:
    became = "succeeded" if outcome == "succeeded" else "retrying"
    started_at = None if outcome == "lost" else moment(0)
    record = Record(
        str(RUN), str(RUN), attempt, outcome, became, attempt * 10, "worker", moment(0), started_at, moment(at)
    )
    return record._replace(**changes)


GOOD = Evidence([Acknowledged(RUN, NOON, False, 1)], [a_call()], [a_record()], [], [])
TAKEN_OVER = Evidence(
    [Acknowledged(RUN, NOON, False, 1)],
    [a_call(1, 0.1), a_call(2, 4.0)],
    [a_record(1, "lost", 3.5), a_record(2, "succeeded", 4.1)],
    [Departure("worker", moment(3.4))],
    [],
    [Strike("worker", KILLED, NOON + 0.2, NOON + 0.3)],
)


REQUEST = GOOD._replace(acknowledged=[Acknowledged(RUN, NOON, False, 2, "key")], created={"key": [str(RUN)]})
UNKNOWN = REQUEST._replace(acknowledged=[])
NOTHING = Evidence([], [], [], [], [])


def occurrence(second: int, run: int | None = None) -> Arrival:
    run_id = str(UUID(int=100 + second if run is None else run))
    at = NOON + second
    return a_call(run_id=run_id, job_id=str(JOB), scheduled_at=at, due_at=at, at=second + 0.1)


SCHEDULE = Evidence([Acknowledged(JOB, NOON, True, 1)], [occurrence(second) for second in range(5)], [], [], [])


@pytest.mark.parametrize(
    "evidence",
    [GOOD, TAKEN_OVER, SCHEDULE, REQUEST, UNKNOWN, NOTHING],
    ids=["good", "taken over", "schedule", "request", "unknown result", "unknown result that is none"],
)
def test_a_good_history_has_no_finding(evidence):
    assert checker.findings(evidence) == []


@pytest.mark.parametrize(
    ("evidence", "finding"),
    [
        (GOOD._replace(records=[]), "lost: .* did not end"),
        (GOOD._replace(arrivals=[]), "lost: .* never saw it"),
        (GOOD._replace(records=[a_record(became="retrying")]), "lost: .* did not end"),
        (GOOD._replace(left_in_boxes=["ready 1"]), "stuck: ready 1"),
        (GOOD._replace(arrivals=[a_call(), a_call(at=0.15)]), "double: .* attempts \\[1, 1\\]"),
        (GOOD._replace(arrivals=[a_call(), a_call(2, 0.3)]), "double: .* on record as succeeded"),
        (TAKEN_OVER._replace(records=[a_record(2, "succeeded", 4.1)]), "double: .* on record as None"),
        (TAKEN_OVER._replace(departures=[]), "double: .* had not run out"),
        (TAKEN_OVER._replace(departures=[Departure("worker", moment(3.6))]), "double: .* had not run out"),
        (TAKEN_OVER._replace(arrivals=[a_call(1), a_call(2, 3.0)]), "double: .* before the earlier one was settled"),
        (GOOD._replace(arrivals=[a_call(at=-0.000001)]), "early: .* by 0.000001 s"),
        (GOOD._replace(arrivals=[a_call(due_at=NOON + 1)]), "early: "),
        (GOOD._replace(acknowledged=[Acknowledged(RUN, NOON + 1, False, 1)]), "early: "),
        (TAKEN_OVER._replace(arrivals=[a_call(1), a_call(2, 4.0, fence=9)]), "fence: .* has fences"),
        (GOOD._replace(arrivals=[a_call(fence=11)]), "fence: .* has fences 11 and 10"),
        (REQUEST._replace(created={"key": [str(RUN), str(JOB)]}), "double: request key made 2 jobs"),
        (REQUEST._replace(created={"key": [str(JOB)]}), "lost: request key was acknowledged as job"),
        (REQUEST._replace(created={}), "lost: request key was acknowledged as job"),
        (UNKNOWN._replace(created={"key": [str(RUN), str(JOB)]}), "double: request key made 2 jobs"),
        (UNKNOWN._replace(arrivals=[]), "lost: .* was stored and its target never saw it"),
        (UNKNOWN._replace(records=[]), "lost: .* was stored and did not end"),
        (GOOD._replace(records=[a_record(), a_record()]), "account: .* has 2 outcomes"),
        (GOOD._replace(records=[a_record(), a_record(2)]), "account: .* has 2 ends"),
        (SCHEDULE._replace(arrivals=[occurrence(0), occurrence(2)]), "missed: .* no run for"),
        (SCHEDULE._replace(arrivals=[occurrence(1), occurrence(2)]), "missed: .* no run for"),
        (SCHEDULE._replace(arrivals=[*SCHEDULE.arrivals, occurrence(2, run=7)]), "double: schedule .* 2 runs for"),
        (
            SCHEDULE._replace(arrivals=[*SCHEDULE.arrivals, a_call(job_id=str(JOB), scheduled_at=NOON + 1.5, at=2.0)]),
            "extra: schedule",
        ),
    ],
)
def test_checker_names_the_fault_of_a_bad_history(evidence, finding):
    found = checker.findings(evidence)
    assert any(re.match(finding, sentence) for sentence in found), found


def test_a_first_call_after_the_allowed_time_is_late():
    assert checker.findings(GOOD, late_seconds=0.11) == []
    assert checker.findings(GOOD, late_seconds=0.09) == [f"late: run {RUN}, by 0.100 s"]
    assert checker.findings(TAKEN_OVER, late_seconds=1.0) == [], "called again is not called late"
    asked_late = GOOD._replace(acknowledged=[Acknowledged(RUN, NOON, False, 2, sent_at=NOON + 0.05)])
    assert checker.start_delays(asked_late) == {str(RUN): pytest.approx(0.05)}
    overtaken = TAKEN_OVER._replace(arrivals=[a_call(1, 50.0), a_call(2, 4.0)])
    assert checker.findings(overtaken, late_seconds=4.1) == [], "its successor was not late"
    assert checker.start_delays(UNKNOWN) == {}, "nobody knows when it was stored"


def test_an_outcome_that_was_refused_does_not_count():
    refused = a_record(1, "fenced", 3.9)
    assert checker.findings(TAKEN_OVER._replace(records=[*TAKEN_OVER.records, refused])) == []


def test_a_run_may_be_cancelled_while_it_waits_for_its_next_attempt():
    cancelled = a_record(1, "cancelled", 4.0, became="cancelled", fence=None, started_at=None)
    evidence = TAKEN_OVER._replace(arrivals=[a_call(1)], records=[a_record(1, "lost", 3.5), cancelled])
    assert checker.findings(evidence) == []


def test_the_delay_of_a_take_over_counts_from_the_kill():
    assert [*figures.restart_delays(TAKEN_OVER, 5.0).values()] == [[pytest.approx(3.8)]]
    assert figures.hand_on_delays(TAKEN_OVER, 5.0) == [pytest.approx(-0.2)], "it was due all the time"
    assert checker.duplicates(TAKEN_OVER) == 1


def test_checker_counts_losses_from_the_kill_on():
    assert [figures.lost_after(TAKEN_OVER, NOON, seconds) for seconds in (3.4, 3.5)] == [0, 1]
    assert figures.lost_after(TAKEN_OVER, NOON + 3.5, 10) == 0


@pytest.mark.parametrize(("begin", "is_left_out"), [(1.0, True), (3.9, True), (5.3, False)])
def test_restart_delay_counts_a_restart_due_before_postgresql_was_killed(begin, is_left_out):
    too = Strike("postgresql", 1, NOON + begin, NOON + begin + 1)
    late = TAKEN_OVER._replace(
        arrivals=[a_call(1, 0.1), a_call(2, 8.0)], strikes=[*TAKEN_OVER.strikes, too], records=[]
    )
    assert [*figures.restart_delays(late, 5.0).values()] == ([] if is_left_out else [[pytest.approx(7.8)]])


def test_a_schedule_is_silent_from_a_moment_to_its_next_call():
    quiet = SCHEDULE._replace(arrivals=[occurrence(0), occurrence(4)])

    def delays(evidence: Evidence, begin: float, end: float) -> list[float]:
        return [round(delay, 3) for delay in figures.fire_delays(evidence, NOON + begin, NOON + end)]

    assert delays(SCHEDULE, 0.5, 3.5) == [0.1, 0.1, 0.1]
    assert delays(quiet, 0.5, 3.5) == [3.1, 2.1, 1.1]
    assert delays(quiet, 4, 6) == [0.1, inf]
    assert delays(GOOD, 0, 9) == [], "a run by itself has no moments"
