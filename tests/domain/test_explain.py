"""Explanations of a run's or a job's state: a code, and a sentence with its numbers, for every state."""

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from duly.domain.diagnosis.explain.codes import BLOCKERS, CODES
from duly.domain.diagnosis.explain.facts import (
    POSITION_MAX,
    Awaited,
    ConcurrencyKey,
    Excluded,
    JobFacts,
    Parents,
    Passed,
    Reservation,
    RunFacts,
    Serving,
    Stall,
    blocker_of,
)
from duly.domain.diagnosis.explain.jobs import explain_job
from duly.domain.diagnosis.explain.runs import explain_run
from duly.domain.diagnosis.explain.words import rate_text, spoken
from duly.domain.limits.limit import Limit
from duly.domain.limits.overload import Overload
from duly.domain.limits.pause import Pause, Scope
from duly.domain.limits.scaling import FUNCTIONS, Throughput
from duly.domain.runs.run import RUN_STATES
from tests.clock import START

ABLE = Serving("able", ["mail"], ["greet"], 10)
OTHER_QUEUE = Serving("other", ["default"], ["greet"], 10)
STALLED = Serving("able", ["mail"], ["greet"], 10, stall=Stall(START - timedelta(seconds=99), ["crunch"]))
OTHER_HANDLER = Serving("stranger", ["mail"], ["build"], 10)


def seconds(number: float) -> timedelta:
    return timedelta(seconds=number)


def a_run(state: str, **more) -> RunFacts:
    given: dict[str, Any] = {
        "now": START,
        "scheduled_at": START,
        "due_at": START,
        "attempt": 1,
        "workers": [ABLE],
    } | more
    return RunFacts(state=state, queue="mail", handler="greet", **given)


def a_job(state: str = "active", **more) -> JobFacts:
    given: dict[str, Any] = {"workers": [ABLE]} | more
    return JobFacts(called="nightly", now=START, state=state, queue="mail", handler="greet", **given)


def told(reasons) -> dict[str, str]:
    return {reason.code: reason.text for reason in reasons}


@pytest.mark.parametrize("state", RUN_STATES)
def test_every_state_has_a_reason(state):
    assert explain_run(a_run(state))


class TestRun:
    def test_scheduled_run_shows_the_time_until_it_is_due(self):
        found = told(explain_run(a_run("scheduled", due_at=START + seconds(90))))

        assert list(found) == ["not_due"]
        assert found["not_due"].endswith("in 90 s")

    def test_without_a_scheduler_nothing_falls_due(self):
        assert "duly scheduler" in told(explain_run(a_run("scheduled", schedulers=0)))["no_scheduler"]

    def test_queued_run_shows_its_queue_position(self):
        found = told(explain_run(a_run("ready", due_at=START - seconds(5), before=3)))

        assert "queue mail, with 3 before it; it has been due for 5.0 s" in found["queue_backlog"]
        assert "1 live worker with 10 slots" in found["workers_busy"]
        apart = Serving("able", ["mail"], ["greet", "@webhook"], 505, {FUNCTIONS: 5, "@webhook": 500})
        found = told(explain_run(a_run("ready", workers=[apart])))
        assert "1 live worker with 5 slots" in found["workers_busy"], "what is for webhooks is not for functions"
        many = told(explain_run(a_run("ready", before=POSITION_MAX)))
        assert f"{POSITION_MAX} or more before it" in many["queue_backlog"]

    def test_queue_without_workers_is_explained_with_the_command_to_start_a_worker(self):
        found = told(explain_run(a_run("ready", workers=[OTHER_QUEUE])))

        assert found["no_worker_for_queue"].endswith("duly worker module:app --queue mail")

    def test_unroutable_run_is_explained_with_the_known_handlers(self):
        found = told(explain_run(a_run("ready", workers=[OTHER_HANDLER, OTHER_QUEUE])))

        assert "build" in found["unroutable"]
        assert "workers_busy" not in found

    def test_run_blocked_by_a_concurrency_key_names_the_runs_in_its_slots(self):
        concurrency = ConcurrencyKey("customer-7", 1, 1, [UUID(int=5)])

        found = told(explain_run(a_run("blocked", concurrency=concurrency)))

        assert "'customer-7': 1 of 1" in found["concurrency_limit"]
        assert str(UUID(int=5)) in found["concurrency_limit"]

    def test_retrying_run_shows_its_next_attempt_and_last_error(self):
        run = a_run(
            "retrying", attempt=2, max_attempts=5, due_at=START + seconds(30), last_error="TimeoutError: no answer"
        )

        found = told(explain_run(run))

        assert found["retry_backoff"].startswith("attempt 2 of 5 ")
        assert "no answer" in found["last_error"]
        assert "workers_busy" not in found

    def test_running_run_shows_its_worker_and_start_delay(self):
        run = a_run("running", worker="able", claimed_at=START - seconds(60), due_at=START - seconds(63.2))

        found = told(explain_run(run))

        assert "worker able" in found["running"]
        assert "3.2 s" in found["start_delayed"]
        assert "queue mail" in found["start_delayed"]
        assert "worker_silent" not in found
        assert "worker_silent" in told(explain_run(a_run("running", worker="able", worker_is_live=False)))

    def test_run_in_flight_at_a_restored_backup_waits_for_the_recovery(self):
        found = told(explain_run(a_run("running", worker="able", awaits_recovery=True)))

        assert "duly recover" in found["awaits_recovery"]
        assert "running" not in found

    def test_run_on_a_stalled_worker_names_the_blocking_handler(self):
        stall = Stall(START - seconds(99), ["crunch"])

        found = told(explain_run(a_run("running", worker="able", stall=stall)))

        assert "worker able" in found["worker_stalled"]
        assert "crunch" in found["worker_stalled"]

    def test_run_is_blocked_when_every_worker_of_its_queue_is_stalled(self):
        found = explain_run(a_run("ready", workers=[STALLED, OTHER_QUEUE]))

        blocker = blocker_of(found)
        assert blocker is not None
        assert blocker.code == "workers_stalled"
        assert "worker able" in blocker.text
        assert "workers_stalled" not in told(explain_run(a_run("ready", workers=[STALLED, ABLE])))

    @pytest.mark.parametrize(
        ("passed", "named"),
        [
            (Passed("customer 7"), "'customer 7'"),
            (Passed("orders", is_fifo=True), "'orders'"),
            (Passed(rate="mailer"), "'mailer'"),
            (Passed(has_destination=True), "destination"),
        ],
    )
    @pytest.mark.parametrize("state", ["running", "succeeded"])
    def test_start_delay_names_every_possible_cause_besides_the_queue(self, state, passed, named):
        run = a_run(state, passed=passed, worker="able", started_at=START - seconds(60), due_at=START - seconds(90))

        late = told(explain_run(run))["start_delayed"]
        assert all(fact in late for fact in ("30 s", named, "queue mail", "not recorded"))

    def test_of_one_that_is_over_the_cause_is_not_known_where_its_record_tells_none(self):
        run = a_run("succeeded", started_at=START - seconds(60), due_at=START - seconds(90))

        late = told(explain_run(run))["start_delayed"]
        assert all(fact in late for fact in ("30 s", "queue mail", "not recorded"))

    def test_run_leased_ahead_is_not_explained_as_running(self):
        assert "in 3.0 s" in told(explain_run(a_run("ready", worker="able", due_at=START + seconds(3))))["leased_ahead"]

    def test_dead_run_shows_its_reason_and_the_replay_command(self):
        found = told(explain_run(a_run("dead", attempt=5, reason="broken", replays=2)))

        assert "5 attempts, after 2 replays: broken" in found["dead"]
        assert "after 1 attempt:" in told(explain_run(a_run("dead", attempt=1, reason="broken")))["dead"]
        assert "duly dead replay" in found["dead"]

    @pytest.mark.parametrize("reason", ["skipped_misfire", "skipped_overlap", "skipped_paused", "skipped_calendar"])
    def test_skipped_run_shows_its_reason(self, reason):
        [found] = explain_run(a_run("skipped", reason=reason))

        assert found.code == reason
        assert reason not in found.text


class TestJob:
    def test_active_job_shows_its_next_fire_and_its_last_run(self):
        last = {"run_id": UUID(int=1), "state": "succeeded", "scheduled_at": START}

        found = told(explain_job(a_job(next_run_at=START + seconds(600), last=[last])))

        assert found["not_due"].endswith("in 10 min")
        assert found["last_run"].endswith("is succeeded")
        assert list(found) == ["not_due", "last_run"]

    def test_paused_job_shows_the_reason_of_its_pause(self):
        found = told(explain_job(a_job("paused", pause_reason="too noisy", paused_at=START)))

        assert "too noisy; `duly jobs resume nightly`" in found["paused"]

    def test_a_streak_of_failures_is_counted_from_the_newest(self):
        states = ["running", "dead", "dead", "succeeded", "dead"]
        last = [{"run_id": UUID(int=1), "state": state, "scheduled_at": START} for state in states]

        [failing] = [reason for reason in explain_job(a_job(last=last)) if reason.code == "failing"]

        assert failing.facts == {"streak": 2}

    def test_overdue_job_shows_the_time_since_it_was_due(self):
        assert "not_due" in told(explain_job(a_job()))
        overdue = told(explain_job(a_job(next_run_at=START - seconds(4))))["not_due"]
        assert overdue.startswith("it was due at ")
        assert overdue.endswith(", 4.0 s ago")

    @pytest.mark.parametrize("state", ["completed", "cancelled"])
    def test_completed_or_cancelled_job_reports_no_missing_worker(self, state):
        assert set(told(explain_job(a_job(state, workers=[], schedulers=0)))) == {state, "no_run_yet"}


def test_spans_are_written_in_the_largest_suitable_unit():
    assert [spoken(seconds(number)) for number in (0.25, 12, 180, 7200, 172_800)] == [
        "0.2 s",
        "12 s",
        "3 min",
        "2 h",
        "2 d",
    ]


class TestDestinations:
    def waits(self, **facts) -> dict[str, str]:
        awaited = Awaited(origin="https://hooks.example", **facts)
        return told(explain_run(a_run("blocked", destination=awaited)))

    def test_open_circuit_shows_the_next_probe_and_the_command_to_close_it(self):
        text = self.waits(state="open", probe_at=START + seconds(12))["circuit_open"]

        assert "in 12 s" in text
        assert "No attempt is used up" in text
        assert "duly destinations close https://hooks.example" in text

    def test_half_open_circuit_probes_now(self):
        assert "next try now" in self.waits(state="half_open")["circuit_open"]

    def test_destination_that_requested_a_delay_is_explained_as_an_open_circuit(self):
        assert "circuit_open" in self.waits(state="closed", probe_at=START + seconds(90))

    def test_destination_with_a_rate_shows_its_rate_limit(self):
        assert "2.5 a second" in self.waits(state="closed", rate=2.5)["rate_limit"]
        assert "slow start" in self.waits(state="closed", ramp_rate=10.0)["rate_limit"]

    def test_full_destination_shows_its_requests_in_flight(self):
        assert "4 of 5 requests" in self.waits(state="closed", slots=5, in_flight=4)["concurrency_limit"]


NOBODY = ()
RUN = UUID(int=5)
A_HOLD = Pause(Scope(queue="mail"), "broken", "somebody", START)
A_LIMIT = Limit(Scope(queue="mail"), 2, 2, "somebody", START)
LATE_BY = START - seconds(30)
AN_OVERLOAD = Overload(1, "mail", seconds(90), seconds(60))
HELD_RUNS: list[tuple[str, RunFacts, str, timedelta | None]] = [
    ("not_due", a_run("scheduled", due_at=START + seconds(90)), "its due time", seconds(90)),
    ("not_due", a_run("ready", due_at=START + seconds(3)), "its due time", seconds(3)),
    ("not_due", a_run("ready", worker="able", due_at=START + seconds(3)), "its due time", seconds(3)),
    ("no_scheduler", a_run("scheduled", due_at=LATE_BY, schedulers=0), "duly scheduler", None),
    ("retry_backoff", a_run("retrying", due_at=START + seconds(30)), "the retry delay", seconds(30)),
    (
        "queue_paused",
        a_run("ready", due_at=LATE_BY, pauses=[A_HOLD], workers=NOBODY),
        "`duly resume --queue mail`",
        None,
    ),
    ("queue_paused", a_run("retrying", due_at=LATE_BY, pauses=[A_HOLD]), "duly resume", None),
    ("limit_reached", a_run("ready", limits=[A_LIMIT]), "the limit of queue mail", None),
    ("no_worker_for_queue", a_run("ready", workers=NOBODY), "duly worker module:app --queue mail", None),
    ("unroutable", a_run("ready", workers=[OTHER_HANDLER]), "duly worker module:app", None),
    ("workers_stalled", a_run("ready", workers=[STALLED]), "another worker of queue mail", None),
    (
        "queue_backlog",
        a_run("ready", due_at=LATE_BY, before=9, throughput=Throughput(2.0, 0.1)),
        "a free slot",
        seconds(5),
    ),
    ("queue_backlog", a_run("retrying", due_at=LATE_BY, before=9), "more workers", None),
    (
        "queue_backlog",
        a_run("ready", due_at=LATE_BY, before=POSITION_MAX, throughput=Throughput(2.0, 0.1)),
        "a free slot",
        None,
    ),
    ("concurrency_limit", a_run("blocked", concurrency=ConcurrencyKey("g", 2, 2, [RUN], before=3)), "'g'", None),
    (
        "concurrency_limit",
        a_run("blocked", concurrency=ConcurrencyKey("g", 2, 2, before=3), throughput=Throughput(1, 10.0)),
        "'g'",
        seconds(20),
    ),
    ("concurrency_limit", a_run("blocked", reason="waits for a slot of g"), "a free slot", None),
    (
        "fifo_order",
        a_run("blocked", concurrency=ConcurrencyKey("g", 1, 1, [RUN], before=2, is_fifo=True)),
        f"run {RUN}",
        None,
    ),
    (
        "fifo_order",
        a_run("blocked", concurrency=ConcurrencyKey("g", 1, 0, before=2, is_fifo=True, next_run=RUN)),
        f"run {RUN}",
        None,
    ),
    (
        "rate_limit",
        a_run("blocked", reservation=Reservation("k", 5, 1, 4, START + seconds(0.8))),
        "a higher rate",
        seconds(0.8),
    ),
    ("rate_limit", a_run("blocked", reservation=Reservation("k", 5, 1)), "'k'", None),
    (
        "rate_limit",
        a_run("blocked", destination=Awaited(origin="https://x", state="closed", rate=2.0)),
        "duly destinations limit",
        None,
    ),
    ("dependency", a_run("blocked", parents=Parents(["extract", "load"])), "the end of extract, load", None),
    ("paused", a_run("blocked", parents=Parents([], RUN, is_paused=True)), f"duly workflows resume {RUN}", None),
    (
        "circuit_open",
        a_run("blocked", destination=Awaited(origin="https://x", state="open", probe_at=START + seconds(12))),
        "duly destinations close https://x",
        seconds(12),
    ),
]
HELD_JOBS: list[tuple[str, JobFacts, str, timedelta | None]] = [
    ("not_due", a_job(next_run_at=START - seconds(4)), "scheduler", seconds(0)),
    ("not_due", a_job(next_run_at=START + seconds(600)), "its next", seconds(600)),
    ("not_due", a_job(), "the end of the current run", None),
    ("not_due", a_job(waits_for_event=True), "event", None),
    ("paused", a_job("paused"), "`duly jobs resume nightly`", None),
    ("no_scheduler", a_job(next_run_at=LATE_BY, schedulers=0), "duly scheduler", None),
    (
        "calendar",
        a_job(next_run_at=START + seconds(600), excluded=Excluded(START + seconds(60), ["holidays"])),
        "holidays",
        seconds(600),
    ),
    ("shed", a_job(next_run_at=LATE_BY, priority=7, overload=AN_OVERLOAD), "more workers", None),
    ("not_due", a_job(next_run_at=LATE_BY, priority=6, overload=AN_OVERLOAD), "scheduler", seconds(0)),
    ("not_due", a_job(next_run_at=START + seconds(9), priority=7, overload=AN_OVERLOAD), "its next", seconds(9)),
]


@pytest.mark.parametrize(("code", "run", "resolved_by", "starts_in"), HELD_RUNS)
def test_blocker_of_a_run_names_its_resolution_and_probable_start(code, run, resolved_by, starts_in):
    blocker = blocker_of(explain_run(run))

    assert blocker is not None
    assert blocker.code == code
    assert resolved_by in str(blocker.resolved_by)
    assert blocker.probable_start_at == (None if starts_in is None else START + starts_in)


@pytest.mark.parametrize(("code", "job", "resolved_by", "starts_in"), HELD_JOBS)
def test_blocker_of_a_job_names_its_resolution_and_probable_start(code, job, resolved_by, starts_in):
    blocker = blocker_of(explain_job(job))

    assert blocker is not None
    assert blocker.code == code
    assert resolved_by in str(blocker.resolved_by)
    assert blocker.probable_start_at == (None if starts_in is None else START + starts_in)


def test_every_code_that_holds_is_among_these_stories():
    told_of = {story[0] for story in (*HELD_RUNS, *HELD_JOBS)}

    assert told_of == BLOCKERS


@pytest.mark.parametrize("state", ["running", "dead", "succeeded", "cancelled", "skipped", "expired"])
def test_running_or_ended_run_has_no_blocker(state):
    assert blocker_of(explain_run(a_run(state, worker="able"))) is None


@pytest.mark.parametrize("state", RUN_STATES)
def test_every_reason_is_of_the_one_vocabulary(state):
    assert {reason.code for reason in explain_run(a_run(state, reason="something else"))} <= CODES


@pytest.mark.parametrize(
    ("per_second", "text"),
    [
        (1 / 3600, "1 an hour"),
        (1000, "1000 a second"),
        (2.5, "2.5 a second"),
        (1, "1 a second"),
        (0.5, "30 a minute"),
        (1 / 60, "1 a minute"),
        (7 / 86400, "7 a day"),
        (1.5 / 3600, "1.5 an hour"),
        (1 / (3 * 86400), "1 every 3 d"),
    ],
)
def test_rate_is_written_in_the_most_readable_unit(per_second, text):
    assert rate_text(per_second) == text
