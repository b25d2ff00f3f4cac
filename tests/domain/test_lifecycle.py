"""The lifecycle of a run: every outcome, with attempts left and without, before and after a replay."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duly.domain.runs.lifecycle import NAMED_LOSSES_MAX, PROBES_MAX, Bury, Finish, WaitFor, attempts_left, decide, spent
from duly.domain.runs.options import RunHistory, RunPolicy
from duly.domain.runs.outcome import Cancelled, Expired, Failed, Lost, Outcome, Snoozed, Spent, Succeeded, TimedOut
from duly.domain.runs.retry import Retry
from duly.domain.runs.retry_rules import SNOOZES_MAX, Rule, kinds_of
from tests.builders import a_run, seconds
from tests.clock import START

JITTER = 0.5
NOW = START + timedelta(seconds=100)
POLICY = RunPolicy(retry=Retry(max_attempts=3, base_seconds=10, cap_seconds=1000))


def after(outcome: Outcome, *, policy: RunPolicy = POLICY, **run: Any):
    return decide(a_run(policy=policy, **run), outcome, JITTER, NOW)


@pytest.mark.parametrize("attempt", [1, 2, 3, 4])
@pytest.mark.parametrize("losses", [0, 1, 2])
@pytest.mark.parametrize(
    ("outcome", "state"), [(Succeeded(), "succeeded"), (Succeeded('{"a": 1}'), "succeeded"), (Cancelled(), "cancelled")]
)
def test_succeeded_or_cancelled_run_is_final_after_any_attempt(outcome, state, attempt, losses):
    assert after(outcome, attempt=attempt, losses=losses) == Finish(state)


@pytest.mark.parametrize("attempt", [1, 3, 100])
def test_snooze_waits_for_its_delay_at_any_attempt(attempt):
    assert after(Snoozed(seconds(90)), attempt=attempt) == WaitFor(seconds(90), history=RunHistory(attempts_before=1))


@pytest.mark.parametrize("delay", [0, 0.001, 0.1])
def test_snooze_lasts_at_least_a_tenth_of_a_second(delay):
    policy = RunPolicy(retry=Retry(rules=(Rule("snooze", status="5xx", delay_seconds=max(delay, 0.001)),)))

    for waits in (after(Snoozed(seconds(delay))), after(Failed("no", status=500), policy=policy)):
        assert isinstance(waits, WaitFor)
        assert waits.delay == seconds(0.1)


@pytest.mark.parametrize("outcome", [Failed("broken"), TimedOut(3.0)])
@pytest.mark.parametrize(("attempt", "delay"), [(1, 5), (2, 10)])
def test_a_failure_with_attempts_left_waits_longer_each_time(outcome, attempt, delay):
    assert after(outcome, attempt=attempt) == WaitFor(seconds(delay))


@pytest.mark.parametrize(("outcome", "reason"), [(Failed("broken"), "broken"), (TimedOut(3.0), "timed out after 3 s")])
@pytest.mark.parametrize("attempt", [3, 4])
def test_the_last_attempt_that_fails_buries_the_run_with_its_reason(outcome, reason, attempt):
    assert after(outcome, attempt=attempt) == Bury(reason)


def test_a_failure_that_no_retry_can_mend_buries_the_run_at_once():
    assert after(Failed("no such customer", retryable=False)) == Bury("no such customer")


@pytest.mark.parametrize(("asked", "delay"), [(1, 5), (4.9, 5), (60, 60)])
def test_a_destination_that_asks_for_time_gets_it_and_never_less_than_the_policy(asked, delay):
    assert after(Failed("busy", retry_after=seconds(asked))) == WaitFor(seconds(delay))


def test_a_failure_clears_the_suspicion_of_an_earlier_loss():
    assert after(Failed("broken"), attempt=2, losses=1) == WaitFor(seconds(10), losses=0, suspect=False)


def test_story_08_run_lost_among_others_becomes_a_suspect_without_a_loss():
    assert after(Lost(named=False)) == WaitFor(seconds(5), losses=0, suspect=True)


def test_story_08_a_first_loss_alone_counts_and_the_second_buries_it_as_poison():
    assert after(Lost(named=True), attempt=2) == WaitFor(seconds(10), losses=1, suspect=True)
    assert after(Lost(named=True), attempt=3, losses=1) == Bury("poison", losses=2, suspect=True)


def test_story_08_run_lost_among_others_is_never_buried_as_poison():
    forgiving = RunPolicy(retry=Retry(max_attempts=1000))

    for attempt in range(1, 100):
        assert isinstance(after(Lost(named=False), attempt=attempt, losses=1, policy=forgiving), WaitFor)


def test_a_loss_on_the_last_attempt_buries_the_run_as_lost_not_as_poison():
    assert after(Lost(named=False), attempt=3) == Bury("worker lost", suspect=True)


@pytest.mark.parametrize(("attempt", "left"), [(8, True), (9, True), (10, False)])
def test_after_a_replay_attempts_count_anew_though_their_numbers_go_on(attempt, left):
    policy, replayed = RunPolicy(Retry(max_attempts=3)), RunHistory(attempts_before=7, replays=1)

    assert attempts_left(a_run(attempt=attempt, policy=policy, history=replayed)) is left


@given(
    outcome=st.one_of(
        st.builds(Succeeded),
        st.builds(Cancelled),
        st.builds(Snoozed, st.timedeltas(timedelta(), timedelta(days=400))),
        st.builds(
            Failed, st.text(), st.booleans(), st.none(), st.none() | st.timedeltas(timedelta(), timedelta(days=9))
        ),
        st.builds(TimedOut, st.floats(0.1, 1e6)),
        st.builds(Lost, st.booleans()),
    ),
    attempt=st.integers(1, 2000),
    losses=st.integers(0, NAMED_LOSSES_MAX),
    max_attempts=st.integers(1, 1000),
    attempts_before=st.integers(0, 1000),
    jitter=st.floats(0, 1, exclude_max=True),
)
def test_every_outcome_ends_waits_or_buries(outcome, attempt, losses, max_attempts, attempts_before, jitter):
    attempt += attempts_before
    policy, history = RunPolicy(Retry(max_attempts=max_attempts)), RunHistory(attempts_before=attempts_before)

    match decide(a_run(attempt=attempt, losses=losses, policy=policy, history=history), outcome, jitter, NOW):
        case Finish(state):
            assert state in ("succeeded", "cancelled")
        case Bury(_):
            assert not isinstance(outcome, Succeeded | Cancelled | Snoozed)
        case WaitFor(delay):
            assert delay >= timedelta()
            assert isinstance(outcome, Snoozed) or attempt - attempts_before < max_attempts


def ruled(*rules: Rule) -> RunPolicy:
    return RunPolicy(Retry(max_attempts=3, base_seconds=10, cap_seconds=1000, rules=rules))


class TestRules:
    """The first rule that fits decides, before anything else is judged."""

    def test_an_error_that_is_named_is_buried_at_once(self):
        policy = ruled(Rule("dead", error="ValueError"))

        assert after(Failed("bad", kinds=kinds_of(UnicodeDecodeError)), policy=policy) == Bury("bad")
        assert after(Failed("bad", kinds=kinds_of(KeyError)), policy=policy) == WaitFor(seconds(5))

    def test_a_failure_that_would_be_final_is_tried_again(self):
        policy = ruled(Rule("retry", status="404"))

        assert after(Failed("gone", retryable=False, status=404), policy=policy) == WaitFor(seconds(5))
        assert after(Failed("gone", retryable=False, status=410), policy=policy) == Bury("gone")

    def test_retry_rule_is_bounded_by_the_maximum_of_attempts(self):
        policy = ruled(Rule("retry", exit="75"))

        assert after(Failed("busy", retryable=False, exit=75), attempt=3, policy=policy) == Bury("busy")

    def test_rule_delay_replaces_the_policy_delay_with_the_same_jitter(self):
        policy = ruled(Rule("retry", error="*", delay_seconds=60))

        assert after(Failed("busy", kinds=kinds_of(OSError)), attempt=2, policy=policy) == WaitFor(seconds(30))

    def test_a_snooze_uses_up_no_attempt_and_is_counted(self):
        policy = ruled(Rule("snooze", status="5xx", delay_seconds=60))
        history = RunHistory(attempts_before=4, snoozes=2, missed=7)

        assert after(Failed("ill", status=503), attempt=9, policy=policy, history=history) == WaitFor(
            seconds(60), history=RunHistory(attempts_before=5, snoozes=3, missed=7)
        )

    def test_a_run_that_a_rule_snoozes_for_ever_is_cut(self):
        policy, history = ruled(Rule("snooze", status="5xx", delay_seconds=60)), RunHistory(snoozes=SNOOZES_MAX)

        assert after(Failed("ill", status=503), policy=policy, history=history) == Bury(
            "ill; a retry rule has snoozed it 1,000 times"
        )

    def test_a_timeout_is_a_timeout_error(self):
        assert after(TimedOut(3.0), policy=ruled(Rule("dead", error="TimeoutError"))) == Bury("timed out after 3 s")

    def test_the_first_that_fits_decides(self):
        policy = ruled(Rule("retry", status="429"), Rule("dead", status="4xx"))

        assert after(Failed("slow", status=429), policy=policy) == WaitFor(seconds(5))
        assert after(Failed("no", status=403), policy=policy) == Bury("no")

    def test_a_loss_is_judged_by_none(self):
        assert isinstance(after(Lost(), policy=ruled(Rule("dead", error="*"))), WaitFor)


class TestAge:
    """A retry that would start too late is not made."""

    def test_a_retry_within_its_age_carries_on_since_when_it_counts(self):
        policy = RunPolicy(retry=Retry(max_attempts=9, base_seconds=10, max_age_seconds=105))

        assert after(Failed("no"), policy=policy) == WaitFor(seconds(5), history=RunHistory(since=START.timestamp()))

    @pytest.mark.parametrize(
        "outcome", [Failed("no"), TimedOut(1.0), Lost(), Snoozed(seconds(5)), Failed("no", probe=True)]
    )
    def test_retry_beyond_the_max_age_ends_the_run_as_dead(self, outcome):
        policy = RunPolicy(retry=Retry(max_attempts=9, base_seconds=10, max_age_seconds=99))

        buried = after(outcome, policy=policy)

        assert isinstance(buried, Bury)
        assert buried.reason.startswith(outcome.reason)
        assert "its max age of PT1M39S" in buried.reason

    def test_retry_age_counts_from_the_recorded_first_attempt(self):
        since = (NOW - seconds(50)).timestamp()
        policy = RunPolicy(retry=Retry(max_attempts=9, base_seconds=10, max_age_seconds=60))

        assert after(Failed("no"), policy=policy, history=RunHistory(since=since)) == WaitFor(
            seconds(5), history=RunHistory(since=since)
        )


class TestExpiry:
    """What is worthless late is not tried again late."""

    @pytest.mark.parametrize("outcome", [Failed("no"), TimedOut(1.0), Lost(), Snoozed(seconds(5))])
    def test_retry_past_the_expiry_ends_the_run_as_expired(self, outcome):
        ended = after(
            outcome, policy=RunPolicy(retry=Retry(base_seconds=10), expires_at=(NOW + seconds(5)).timestamp())
        )

        assert isinstance(ended, Finish)
        assert ended.state == "expired"
        assert ended.reason is not None
        assert ended.reason.startswith(f"{outcome.reason}; it expires at {NOW.year}-")

    def test_retry_before_the_expiry_is_scheduled(self):
        policy = RunPolicy(retry=Retry(base_seconds=10), expires_seconds=106)

        assert after(Failed("no"), policy=policy) == WaitFor(seconds(5))

    def test_the_earlier_of_both_counts(self):
        policy = RunPolicy(expires_at=(NOW + seconds(900)).timestamp(), expires_seconds=100)

        assert isinstance(after(Failed("no"), policy=policy), Finish)

    def test_run_found_past_its_expiry_ends_as_expired(self):
        at = datetime(2026, 11, 1, 9, tzinfo=UTC)

        assert after(Expired(at)) == Finish("expired")
        assert Expired(at).reason == "expired at 2026-11-01T09:00:00.000Z"


class TestSpent:
    """A loss is settled by who knows no handlers: the next worker looks before it calls one."""

    @pytest.mark.parametrize(
        ("attempt", "before", "is_spent"), [(2, 0, False), (3, 0, True), (3, 1, False), (4, 1, True)]
    )
    def test_claimed_run_is_spent_beyond_the_attempts_its_handler_allows(self, attempt, before, is_spent):
        run = a_run(
            attempt=attempt,
            suspect=True,
            policy=RunPolicy(Retry(max_attempts=2)),
            history=RunHistory(attempts_before=before),
        )

        assert (spent(run) is not None) is is_spent

    def test_spent_run_is_dead_with_the_reason_of_its_last_attempt(self):
        assert after(Spent("worker lost", 1), suspect=True, losses=1) == Bury(
            "worker lost; its handler allows 1 attempt", losses=1, suspect=True
        )
        assert spent(a_run(attempt=9)) == Spent("its last attempt has failed", 5)
        assert Spent("its last attempt has failed", 5).reason.endswith("allows 5 attempts")


class TestProbes:
    """An attempt that was spent on finding out how a destination is does not count, so many times."""

    def test_a_probe_that_fails_uses_up_no_attempt(self):
        failed = after(Failed("ill", probe=True), attempt=3)

        assert failed == WaitFor(seconds(0), history=RunHistory(attempts_before=1, probes=1))

    def test_probes_of_a_run_are_bounded(self):
        policy, history = RunPolicy(Retry(max_attempts=1)), RunHistory(probes=PROBES_MAX)

        assert after(Failed("ill", probe=True), policy=policy, history=history) == Bury("ill")

    def test_retry_rule_takes_precedence_over_a_probe(self):
        assert after(Failed("ill", status=500, probe=True), policy=ruled(Rule("dead", status="500"))) == Bury("ill")


def test_retry_after_is_capped_at_a_day():
    assert after(Failed("busy", retry_after=timedelta(days=400))) == WaitFor(timedelta(days=1))
