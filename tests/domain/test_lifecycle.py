"""What a run becomes: every outcome, with attempts left and without, in a first life and after a replay."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duly.domain.lifecycle import NAMED_LOSSES_MAX, Bury, Finish, WaitFor, attempts_left, decide
from duly.domain.outcome import Cancelled, Failed, Lost, Outcome, Snoozed, Succeeded, TimedOut
from duly.domain.retry import Retry
from duly.domain.run import Options
from tests.builders import a_run, seconds

JITTER = 0.5
POLICY = Options(retry=Retry(max_attempts=3, base_seconds=10, cap_seconds=1000))


def after(outcome: Outcome, *, attempt: int = 1, losses: int = 0, policy: Options = POLICY):
    return decide(a_run(attempt=attempt, losses=losses), policy, outcome, JITTER)


@pytest.mark.parametrize("attempt", [1, 2, 3, 4])
@pytest.mark.parametrize("losses", [0, 1, 2])
@pytest.mark.parametrize(
    ("outcome", "state"), [(Succeeded(), "succeeded"), (Succeeded('{"a": 1}'), "succeeded"), (Cancelled(), "cancelled")]
)
def test_what_has_ended_well_or_was_cancelled_is_final_whatever_came_before(outcome, state, attempt, losses):
    assert after(outcome, attempt=attempt, losses=losses) == Finish(state)


@pytest.mark.parametrize("attempt", [1, 3, 100])
def test_a_snooze_waits_as_long_as_asked_and_never_gives_up(attempt):
    assert after(Snoozed(seconds(90)), attempt=attempt) == WaitFor(seconds(90))


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


def test_story_08_a_run_lost_beside_others_becomes_a_suspect_but_is_not_to_blame():
    assert after(Lost(named=False)) == WaitFor(seconds(5), losses=0, suspect=True)


def test_story_08_a_first_loss_alone_counts_and_the_second_buries_it_as_poison():
    assert after(Lost(named=True), attempt=2) == WaitFor(seconds(10), losses=1, suspect=True)
    assert after(Lost(named=True), attempt=3, losses=1) == Bury("poison", losses=2, suspect=True)


def test_story_08_any_number_of_losses_beside_others_never_make_poison():
    forgiving = Options(retry=Retry(max_attempts=1000))

    for attempt in range(1, 100):
        assert isinstance(after(Lost(named=False), attempt=attempt, losses=1, policy=forgiving), WaitFor)


def test_a_loss_on_the_last_attempt_buries_the_run_as_lost_not_as_poison():
    assert after(Lost(named=False), attempt=3) == Bury("worker lost", suspect=True)


@pytest.mark.parametrize(("attempt", "left"), [(8, True), (9, True), (10, False)])
def test_after_a_replay_attempts_count_anew_though_their_numbers_go_on(attempt, left):
    replayed = Options(retry=Retry(max_attempts=3), attempts_before=7, replays=1)

    assert attempts_left(a_run(attempt=attempt), replayed) is left


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
    policy = Options(retry=Retry(max_attempts=max_attempts), attempts_before=attempts_before)

    match decide(a_run(attempt=attempt, losses=losses), policy, outcome, jitter):
        case Finish(state):
            assert state in ("succeeded", "cancelled")
        case Bury(_):
            assert not isinstance(outcome, Succeeded | Cancelled | Snoozed)
        case WaitFor(delay):
            assert delay >= timedelta()
            assert isinstance(outcome, Snoozed) or attempt - attempts_before < max_attempts
