"""The arithmetic of rate limits."""

import pytest

from duly.domain.limits.rate_limit import RateLimit, RequestBudget

TEN = RateLimit("key:abc", 10.0)


@pytest.mark.parametrize(("rate", "burst"), [(0.01, 1), (0.1, 1), (1, 10), (10, 100), (0.25, 3)])
def test_ten_seconds_worth_may_come_at_once_and_one_always(rate, burst):
    assert RateLimit("key:abc", rate).burst == burst


@pytest.mark.parametrize(("rate", "count", "drawn"), [(1, 1, 1), (10, 1, 1), (100, 1, 10), (100, 50, 50)])
def test_some_are_drawn_ahead_where_the_rate_is_high(rate, count, drawn):
    assert RateLimit("key:abc", rate).worth_drawing(count) == drawn


def test_request_budget_is_spent_until_it_is_empty():
    budget = RequestBudget()
    budget.fill(2, 90.0, 100.0)

    assert [budget.spend(1, 100.5) for _ in range(3)] == [True, True, False]


def test_request_budget_expires_after_a_second():
    budget = RequestBudget()
    budget.fill(2, 90.0, 100.0)

    assert budget.spend(1, 101.0)
    assert not budget.spend(1, 101.01)


def test_nothing_is_known_before_the_first_look():
    assert RequestBudget().wait(TEN, 1, 100.0) == 0.0
    assert not RequestBudget().spend(1, 100.0)


def test_an_empty_bucket_is_waited_for():
    budget = RequestBudget()
    budget.fill(0, 0.0, 100.0)

    assert budget.wait(TEN, 1, 100.0) == pytest.approx(0.1)
    assert budget.wait(TEN, 5, 100.2) == pytest.approx(0.3)
    assert budget.wait(TEN, 5, 100.5) == 0.0


def test_more_than_the_bucket_holds_waits_for_a_full_one():
    budget = RequestBudget()
    budget.fill(0, 0.0, 100.0)

    assert budget.wait(TEN, 50_000, 100.0) == pytest.approx(10.0)


def test_a_debt_is_paid_first():
    budget = RequestBudget()
    budget.fill(500, -400.0, 100.0)

    assert budget.wait(TEN, 1, 100.0) == pytest.approx(40.1)


def test_rate_limit_verdict_gives_its_headers():
    budget = RequestBudget()
    budget.fill(1, 9.5, 100.0)

    assert budget.verdict(TEN, 0.0).headers == {
        "RateLimit-Policy": '"key";q=100;w=10',
        "RateLimit": '"key";r=10;t=9',
    }


def test_refused_rate_limit_verdict_gives_retry_after():
    budget = RequestBudget()
    budget.fill(0, 0.0, 100.0)
    verdict = budget.verdict(TEN, budget.wait(TEN, 15, 100.0))

    assert not verdict.is_allowed
    assert verdict.headers["Retry-After"] == "2"
