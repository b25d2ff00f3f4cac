"""How soon a failed run is tried again: exponential, capped, with full jitter."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duly.domain.errors import InvalidOption
from duly.domain.retry import Retry, retry_policy

POLICY = Retry(max_attempts=10, base_seconds=2, cap_seconds=100)
ALMOST_ONE = 1 - 2**-53


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
