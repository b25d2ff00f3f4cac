"""Delays of retries: by each policy, within its bounds."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duly.domain.errors import InvalidOption
from duly.domain.runs.options import read_plain
from duly.domain.runs.retry import Retry, described_policy, retry_policy

POLICY = Retry(max_attempts=10, base_seconds=2, cap_seconds=100)
ALMOST_ONE = 1 - 2**-53
MICROSECOND = timedelta(microseconds=1)


@pytest.mark.parametrize(("attempt", "ceiling"), [(1, 2), (2, 4), (3, 8), (6, 64), (7, 100), (8, 100), (1000, 100)])
def test_the_longest_delay_doubles_with_each_attempt_up_to_the_cap(attempt, ceiling):
    assert POLICY.delay_after(attempt, ALMOST_ONE).total_seconds() == pytest.approx(ceiling)


def test_jitter_is_full_so_a_retry_may_come_at_once():
    assert POLICY.delay_after(5, 0.0) == timedelta()
    assert POLICY.delay_after(5, 0.5) == timedelta(seconds=16)


@given(
    attempt=st.integers(1, 100_000),
    jitter=st.floats(0, 1, exclude_max=True),
    base=st.floats(0, 1e6),
    cap=st.floats(0, 1e9),
)
def test_no_delay_is_negative_or_beyond_the_cap(attempt, jitter, base, cap):
    delay = Retry(5, base, cap).delay_after(attempt, jitter)

    assert timedelta() <= delay <= timedelta(seconds=cap)


def test_users_write_durations():
    assert retry_policy(7, "PT2S", "PT5M") == Retry(7, 2.0, 300.0)


@pytest.mark.parametrize("max_attempts", [0, -1, 1001])
def test_an_impossible_number_of_attempts_is_refused(max_attempts):
    with pytest.raises(InvalidOption, match=f"max_attempts {max_attempts} is outside 1 to 1000"):
        retry_policy(max_attempts)


@pytest.mark.parametrize(("base", "cap"), [(-1, 5), (10, 5)])
def test_a_base_beyond_the_cap_or_below_zero_is_refused(base, cap):
    with pytest.raises(InvalidOption, match="cap at least base"):
        retry_policy(5, base, cap)


def test_a_delay_that_is_no_duration_is_refused():
    with pytest.raises(InvalidOption, match="retry base 'soon' is not a duration"):
        retry_policy(5, "soon")


@pytest.mark.parametrize(
    ("policy", "ceilings"),
    [
        (retry_policy(9, 2, 9, policy="exponential"), [2, 4, 8, 9, 9]),
        (retry_policy(9, 2, 7, policy="linear"), [2, 4, 6, 7, 7]),
        (retry_policy(9, "PT1H", policy="fixed"), [3600] * 5),
        (retry_policy(9, policy="list", delays=["PT1S", "PT1M", 3600]), [1, 60, 3600, 3600, 3600]),
    ],
)
def test_each_policy_has_its_ceiling_after_each_attempt(policy, ceilings):
    assert [policy.longest_after(attempt).total_seconds() for attempt in range(1, 6)] == ceilings


@pytest.mark.parametrize(
    ("jitter", "shortest"), [(None, 90), ("full", 0), ("equal", 50), ("none", 100), (0.25, 75), (0, 100), (1, 0)]
)
def test_jitter_is_the_part_of_the_ceiling_that_is_left_to_chance(jitter, shortest):
    policy = retry_policy(5, 100, policy="fixed", jitter=jitter)

    assert policy.delay_after(1, 0.0).total_seconds() == pytest.approx(shortest)
    assert policy.longest_after(1).total_seconds() == 100


policies = st.builds(
    lambda policy, base, cap, jitter, delays: retry_policy(
        5, base, base + cap, policy=policy, jitter=jitter, delays=delays if policy == "list" else None
    ),
    st.sampled_from(["exponential", "linear", "fixed", "list"]),
    st.floats(0, 1e5),
    st.floats(0, 1e6),
    st.none() | st.sampled_from(["full", "equal", "none"]) | st.floats(0, 1),
    st.lists(st.floats(0, 1e6), min_size=1, max_size=5),
)


@given(policy=policies, attempt=st.integers(1, 2000), chance=st.floats(0, 1, exclude_max=True))
def test_retry_delay_stays_within_the_documented_bounds(policy, attempt, chance):
    gap = policy.delay_after(attempt, chance)

    assert policy.delay_after(attempt, 0.0) - MICROSECOND <= gap <= policy.longest_after(attempt) + MICROSECOND


@given(policy=policies)
def test_jitter_is_not_degenerate(policy):
    gaps = {policy.delay_after(3, chance / 10) for chance in range(10)}

    assert len(gaps) == 10 or policy.longest_after(3) * policy.jitter_part < timedelta(milliseconds=1)


@given(policy=policies)
def test_described_retry_policy_reads_back_to_the_same_policy(policy):
    told = described_policy(policy)
    again = retry_policy(**{name: value for name, value in told.items() if value != []})

    assert described_policy(again) == told


def test_retry_policy_in_the_older_stored_form_behaves_the_same():
    kept = read_plain({"retry": {"max_attempts": 3, "base_seconds": 2.0, "cap_seconds": 8.0}}).policy.retry

    assert [kept.delay_after(attempt, 0.5).total_seconds() for attempt in (1, 2, 3, 4)] == [1, 2, 4, 4]
    assert (kept.delay_after(9, 0.0), kept.max_age_seconds, kept.rules) == (timedelta(), None, ())


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"policy": "random"}, "retry policy 'random' is unknown; use one of exponential, linear, fixed, list"),
        ({"policy": "list"}, "retry policy list needs its delays"),
        ({"policy": "list", "delays": []}, "retry policy list needs its delays"),
        ({"policy": "list", "delays": [-1]}, "retry delay -1 is negative"),
        ({"delays": [1]}, "policy list, not exponential"),
        ({"jitter": "some"}, "retry jitter 'some' is none; write full, equal, none"),
        ({"jitter": 1.5}, "retry jitter 1.5 is none"),
        ({"jitter": True}, "retry jitter True is none"),
        ({"max_age": 0}, "retry max_age 0 must be more than 0"),
        ({"max_age": "soon"}, "retry max_age 'soon' is not a duration"),
    ],
)
def test_retry_options_are_refused_with_a_remedy_when_invalid(said, message):
    with pytest.raises(InvalidOption, match=message):
        retry_policy(**said)
