"""The clock: a lower bound of the database's time, whatever the replies look like."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duly import clock
from duly.clock import SystemClock

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
START = 1_790_000_000.0  # what the database's clock shows when our monotonic one shows 0


class Monotonic:
    """Stands in for the `time` module; `rate` is how fast our oscillator is against the database's."""

    def __init__(self, rate: float = 1.0) -> None:
        self.true = 0.0
        self.rate = rate

    def monotonic(self) -> float:
        return self.true * self.rate


@pytest.fixture
def host(monkeypatch):
    """Our own monotonic clock, in the test's hands."""
    host = Monotonic()
    monkeypatch.setattr(clock, "time", host)
    return host


def moment(seconds: float) -> datetime:
    return EPOCH + timedelta(seconds=seconds)


def test_before_the_first_reading_nothing_is_due(host):
    assert SystemClock().now() == float("-inf")


def test_a_reply_on_its_way_makes_us_late_and_never_early(host):
    ours = SystemClock()
    host.true = 0.2  # The database said START, and it took 0.2 s to reach us.
    ours.observe(moment(START))
    assert START - 0.001 <= ours.now() <= START

    host.true = 0.3
    ours.observe(moment(START + 0.29))
    assert START + 0.289 <= ours.now() <= START + 0.29


def test_a_slower_reply_does_not_spoil_a_better_one(host):
    ours = SystemClock()
    ours.observe(moment(START))
    host.true = 1.0
    ours.observe(moment(START + 0.6))
    assert ours.now() == pytest.approx(START + 1.0, abs=0.0011)


@given(
    st.lists(st.tuples(st.floats(0, 20), st.floats(0, 0.4)), min_size=1, max_size=40),
    st.floats(0.9995, 1.0005),
)
def test_clock_is_never_ahead_although_oscillators_differ_and_replies_are_slow(readings, rate):
    host = Monotonic(rate)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clock, "time", host)
        ours = SystemClock()
        for pause, delay in readings:
            host.true += pause
            said = START + host.true
            host.true += delay
            ours.observe(moment(said))
            assert ours.now() <= START + host.true + 1e-6
            host.true += pause
            assert ours.now() <= START + host.true + 1e-6


@pytest.mark.parametrize("silence", [1.0, 60.0])
def test_a_database_clock_that_was_set_back_is_believed_at_once(host, silence):
    ours = SystemClock()
    ours.observe(moment(START))
    host.true = silence
    assert ours.now() > START
    ours.observe(moment(START - 600))
    assert ours.now() == pytest.approx(START - 600, abs=0.001)


def test_a_small_step_back_is_believed_when_the_readings_before_it_are_ten_seconds_old(host):
    """It is no contradiction, so it cannot be told from a slow reply: for minutes we would have been early by so much."""
    ours = SystemClock()
    ours.observe(moment(START))
    for seconds in range(1, 12):
        host.true = seconds
        ours.observe(moment(START - 0.3 + seconds))
    assert ours.now() == pytest.approx(START - 0.3 + 11, abs=0.001)


def test_a_database_clock_that_was_set_forward_is_believed_at_once(host):
    ours = SystemClock()
    ours.observe(moment(START))
    ours.observe(moment(START + 3600))
    assert ours.now() == pytest.approx(START + 3600, abs=0.001)


def test_clock_discards_the_readings_of_another_server(host):
    """It was no contradiction: the server after a failover is a third of a second behind."""
    ours = SystemClock()
    ours.connected(moment(START), "one")
    host.true = 1.0
    assert ours.now() > START + 0.99
    ours.connected(moment(START + 0.7), "another")
    assert ours.now() == pytest.approx(START + 0.7, abs=1e-6)
    ours.observe(moment(START + 0.6))
    assert ours.now() == pytest.approx(START + 0.7, abs=1e-6)


def test_a_further_connection_to_the_same_server_spoils_nothing(host):
    """Under load a pool grows, and the first reply over each connection is slow."""
    ours = SystemClock()
    ours.connected(moment(START), "one")
    host.true = 1.0
    ours.connected(moment(START + 0.7), "one")
    assert ours.now() == pytest.approx(START + 1.0, abs=0.0011)
