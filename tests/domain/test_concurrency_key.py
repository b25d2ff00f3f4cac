"""Keys that hold runs back: what is asked for is checked, carried, and told as it was asked."""

import pytest

from duly.domain.errors import InvalidOption
from duly.domain.jobs.spec import Concurrency, RateLimit
from duly.domain.jobs.spec_of import run_rules_of
from duly.domain.limits.concurrency import (
    FIFO,
    RATE_MIN,
    Rate,
    check_concurrency,
    check_rate,
    kind_of,
)
from duly.domain.runs.options import options_of


def told(**policy):
    return run_rules_of(options_of(**policy))


@pytest.mark.parametrize(
    ("limit", "per", "words"),
    [
        (10, "PT1S", {"limit": 10, "per": "PT1S"}),
        (10, "PT1M", {"limit": 10, "per": "PT1M"}),
        (600, "PT1M", {"limit": 10, "per": "PT1S"}),
        (7, "PT1H", {"limit": 7, "per": "PT1H"}),
        (1, "P1D", {"limit": 1, "per": "P1D"}),
        (2.5, 1, {"limit": 150, "per": "PT1M"}),
        (1_000_000, "PT1S", {"limit": 1_000_000, "per": "PT1S"}),
        (409_247.377, "PT1S", {"limit": 409_247.377, "per": "PT1S"}),  # More than can be asked for in a minute.
    ],
)
def test_rate_limit_is_shown_in_whole_numbers(limit, per, words):
    carried = check_rate(Rate("mail", limit, per=per, burst=4))

    assert told(rate=carried)["rate_limit"] == RateLimit(key="mail", **words, burst=4)
    again = check_rate(Rate("mail", words["limit"], words["per"], 4))
    assert again[1] == pytest.approx(carried[1])


def test_fifo_key_is_a_concurrency_key_with_a_single_slot():
    carried = check_concurrency("orders", 1, FIFO)

    assert carried == {"concurrency": ("orders", 1), "fifo": True}
    assert told(**carried)["concurrency"] == Concurrency(key="orders", limit=1, order="fifo")
    assert told(**check_concurrency("orders", 3))["concurrency"] == Concurrency(key="orders", limit=3)


@pytest.mark.parametrize("key", ["", "two\nlines"])
def test_a_key_that_is_no_name_is_refused(key):
    with pytest.raises(InvalidOption):
        check_concurrency(key, 1)
    with pytest.raises(InvalidOption):
        check_rate(Rate(key, 1))


@pytest.mark.parametrize(
    ("rate", "words"),
    [
        (Rate("k", 0), "outside 1 per 366 days"),
        (Rate("k", 1e-14), "outside 1 per 366 days"),
        (Rate("k", 1, per="P367D"), "outside 1 per 366 days"),
        (Rate("k", 2_000_000), "outside 1 per 366 days"),
        (Rate("k", 1, per="PT0S"), "must be more than 0"),
        (Rate("k", 1, burst=0), "burst 0 is outside"),
        (Rate("k", True), "outside 1 per 366 days"),
    ],
)
def test_a_rate_that_cannot_be_kept_is_refused(rate, words):
    with pytest.raises(InvalidOption, match=words):
        check_rate(rate)


def test_the_slowest_rate_is_one_in_366_days():
    assert check_rate(Rate("k", 1, per="P366D")) == ("k", RATE_MIN, 1)


@pytest.mark.parametrize(("limit", "order"), [(2, "fifo"), (1, "lifo")])
def test_an_order_that_cannot_be_is_refused(limit, order):
    with pytest.raises(InvalidOption):
        check_concurrency("k", limit, order)


def test_concurrency_key_has_a_kind():
    assert kind_of("overlap/1", is_fifo=False, has_slots=True) == "overlap"
    assert kind_of("catch-up/1", is_fifo=False, has_slots=True) == "backfill"
    assert kind_of("k", is_fifo=True, has_slots=True) == "fifo"
    assert kind_of("k", is_fifo=False, has_slots=True) == "concurrency"
    assert kind_of("k", is_fifo=False, has_slots=False) == "rate"
