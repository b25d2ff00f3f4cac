"""The rules of the breaker, each on both sides of its threshold."""

import pytest

from duly.domain.targets.circuit import (
    ANSWERS_LEAST,
    CALM_SECONDS,
    COOL_SECONDS_MAX,
    FAILURES_IN_A_ROW,
    RAMP_RATE_LEAST,
    Health,
    Queue,
    State,
    StateChange,
    closed_by_hand,
    cool_seconds,
    judge,
    let_through,
)

EVEN = 0.5  # a chance that leaves a cool-down as it is


class TestClosed:
    @pytest.mark.parametrize("failures", [0, 1, FAILURES_IN_A_ROW - 1])
    def test_a_few_failures_in_a_row_change_nothing(self, failures):
        assert judge(Health(failures_in_a_row=failures, failing=failures), EVEN) is None

    def test_enough_of_them_open_it(self):
        assert judge(Health(failures_in_a_row=FAILURES_IN_A_ROW), EVEN) == StateChange(
            state=State.OPEN, openings=1, wait_seconds=1
        )

    @pytest.mark.parametrize(
        ("healthy", "failing", "opens"),
        [
            (10, 10, True),
            (11, 10, False),
            (10, 9, False),
            (0, ANSWERS_LEAST - 1, False),
            (0, ANSWERS_LEAST, True),
            (500, 500, True),
            (501, 499, False),
        ],
    )
    def test_half_of_enough_answers_open_it(self, healthy, failing, opens):
        assert (judge(Health(healthy=healthy, failing=failing), EVEN) is not None) == opens

    def test_circuit_opens_for_as_long_as_the_destination_requests(self):
        assert judge(Health(requested_seconds=90), EVEN) == StateChange(state=State.OPEN, openings=1, wait_seconds=90)

    def test_circuit_stays_open_for_the_cool_down_if_the_request_is_shorter(self):
        turn = judge(Health(requested_seconds=0.2), EVEN)
        assert turn is not None
        assert turn.wait_seconds == 1


class TestCoolDown:
    def test_cool_down_doubles_up_to_a_maximum(self):
        assert [cool_seconds(number, EVEN) for number in range(1, 8)] == [1, 2, 4, 8, 16, 30, 30]
        assert cool_seconds(10_000, EVEN) == COOL_SECONDS_MAX

    def test_chance_moves_it_by_a_quarter(self):
        assert cool_seconds(1, 0) == 0.75
        assert cool_seconds(1, 1) == 1.25

    def test_circuit_that_reopens_soon_stays_open_longer(self):
        fallen = Health(openings=2, failures_in_a_row=5, since_state_change_seconds=CALM_SECONDS - 1)
        assert judge(fallen, EVEN) == StateChange(state=State.OPEN, openings=3, wait_seconds=4)

    def test_calm_is_forgiving(self):
        fallen = Health(openings=5, failures_in_a_row=5, since_state_change_seconds=CALM_SECONDS)
        assert judge(fallen, EVEN) == StateChange(state=State.OPEN, openings=1, wait_seconds=1)


class TestOpen:
    @pytest.mark.parametrize(("wait", "asked"), [(0.1, 0), (0, 0.1), (5, 5)])
    def test_circuit_stays_open_during_the_cool_down_or_a_requested_delay(self, wait, asked):
        assert judge(Health(state=State.OPEN, wait_seconds=wait, requested_seconds=asked), EVEN) is None

    def test_open_circuit_becomes_half_open_when_the_cool_down_ends(self):
        assert judge(Health(state=State.OPEN, openings=3), EVEN) == StateChange(state=State.HALF_OPEN, openings=3)

    def test_open_circuit_ignores_outcomes_that_arrive_late(self):
        assert judge(Health(state=State.OPEN, wait_seconds=1, failures_in_a_row=99, successes_in_a_row=9), EVEN) is None


class TestHalfOpen:
    def test_half_open_circuit_needs_more_than_a_single_success(self):
        assert judge(Health(state=State.HALF_OPEN, successes_in_a_row=1), EVEN) is None

    def test_two_close_it(self):
        turn = judge(Health(state=State.HALF_OPEN, successes_in_a_row=2, openings=3, steady_rate=40), EVEN)
        assert turn == StateChange(state=State.CLOSED, openings=3, ramp_rate=60)

    def test_failure_of_a_half_open_circuit_doubles_the_open_time(self):
        turn = judge(
            Health(state=State.HALF_OPEN, failures_in_a_row=1, openings=1, since_state_change_seconds=99), EVEN
        )
        assert turn == StateChange(state=State.OPEN, openings=2, wait_seconds=2)

    def test_a_failure_weighs_more_than_the_successes_before_it(self):
        turn = judge(Health(state=State.HALF_OPEN, failures_in_a_row=1, successes_in_a_row=2), EVEN)
        assert turn is not None
        assert turn.state is State.OPEN


class TestAfterAnOutage:
    @pytest.mark.parametrize("steady", [None, 0.0, RAMP_RATE_LEAST - 0.1])
    def test_destination_without_a_known_rate_starts_slowly_and_ramps_up(self, steady):
        turn = closed_by_hand(Health(steady_rate=steady))
        assert (turn.state, turn.ramp_rate, turn.ramp_grows) == (State.CLOSED, RAMP_RATE_LEAST, True)

    @pytest.mark.parametrize("steady", [RAMP_RATE_LEAST, 100.0, 12_345.0])
    def test_ramp_stays_below_twice_the_steady_rate(self, steady):
        turn = closed_by_hand(Health(steady_rate=steady))
        assert turn.ramp_rate is not None
        # A quarter of a second's worth may be drawn at once, on top of a second's.
        assert turn.ramp_rate * 1.25 < 2 * steady
        assert not turn.ramp_grows


class TestLettingThrough:
    @pytest.mark.parametrize("queue", [Queue(state=State.OPEN), Queue(is_waiting=True)])
    def test_open_circuit_lets_nothing_through(self, queue):
        assert let_through(queue) == 0

    @pytest.mark.parametrize(("in_flight", "waiting", "going"), [(0, 0, 1), (1, 0, 0), (0, 1, 0)])
    def test_half_open_circuit_lets_a_single_request_through(self, in_flight, waiting, going):
        assert let_through(Queue(state=State.HALF_OPEN, in_flight=in_flight, waiting=waiting)) == going

    def test_destination_lets_through_as_many_requests_as_it_has_free_slots(self):
        assert let_through(Queue(slots=10)) == 10
        assert let_through(Queue(slots=10, in_flight=7, waiting=1)) == 2
        assert let_through(Queue(slots=10, in_flight=10, waiting=30)) == 0

    def test_destination_lets_more_requests_through_when_responses_are_fast(self):
        assert let_through(Queue(slots=10, in_flight=10, answers_per_second=100)) == 75

    def test_as_many_as_have_a_turn_soon(self):
        """Half a second's worth, and a tick's worth more, because they are not with their workers at once."""
        assert let_through(Queue(rate=20, tokens=1)) == 11 + 5
        assert let_through(Queue(rate=20, tokens=-9.5)) == 5  # Nearly all of them are taken.
        assert let_through(Queue(rate=20, tokens=-9.5, waiting=3)) == 2
        assert let_through(Queue(rate=20, tokens=-20)) == 0
        assert let_through(Queue(rate=1_000, tokens=1, slots=10)) == 10

    @pytest.mark.parametrize(("tokens", "going"), [(0.0, 0), (0.94, 0), (0.95, 1), (1.0, 1)])
    def test_low_rate_lets_a_request_through_shortly_before_its_reservation(self, tokens, going):
        assert let_through(Queue(rate=0.1, tokens=tokens)) == going


def test_while_retries_are_turned_away_no_more_go_than_are_paid_for():
    assert let_through(Queue(slots=100, rejects=True)) == 1
    assert let_through(Queue(slots=100, rejects=True, answers_per_second=200, retry_share=0.2)) == 10
    assert let_through(Queue(slots=5, rejects=True, answers_per_second=2000)) == 100
