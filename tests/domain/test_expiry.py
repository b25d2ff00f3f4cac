"""When a run is worthless: whatever stands in its options, there is an answer."""

from datetime import UTC, datetime, timedelta

import pytest

from duly.domain.runs.expiry import expiry_moment, expiry_of
from duly.domain.runs.options import RunPolicy
from tests.clock import START


@pytest.mark.parametrize("at", [1_799_999_999_000.0, 1e300, float("inf")], ids=str)
def test_expiry_beyond_the_last_storable_moment_is_clamped_to_it(at):
    """Seconds that somebody took for milliseconds: the store takes them for the same moment."""
    assert expiry_moment(at) == expiry_of(START, RunPolicy(expires_at=at)) == datetime(9999, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("at", [-1.0, -1e300, float("-inf")], ids=str)
def test_a_moment_before_all_that_we_know_is_the_first(at):
    assert expiry_of(START, RunPolicy(expires_at=at)) == datetime(1970, 1, 1, tzinfo=UTC)


def test_of_a_moment_and_a_span_the_earlier_counts():
    at = START.timestamp() + 60
    assert expiry_of(START, RunPolicy(expires_at=at, expires_seconds=30)) == START + timedelta(seconds=30)
    assert expiry_of(START, RunPolicy(expires_at=at, expires_seconds=90)) == START + timedelta(seconds=60)
    assert expiry_of(START, RunPolicy()) is None
