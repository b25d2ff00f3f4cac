"""The rule that matches a failure: by the class of its error, its status or its exit code."""

from typing import Any

import pytest

from duly.domain.errors import InvalidOption
from duly.domain.runs.retry_rules import Rule, described_rule, kinds_of, read_rules, rule_for


class GatewayTimeout(TimeoutError):
    """An error of a user's own."""


@pytest.mark.parametrize(
    ("name", "fits"),
    [
        ("GatewayTimeout", True),
        ("TimeoutError", True),
        ("OSError", True),
        ("Exception", True),
        ("*Timeout", True),
        ("*Timeout*", True),
        ("builtins.TimeoutError", True),
        (f"{__name__}.GatewayTimeout", True),
        ("*.GatewayTimeout", True),
        ("other.GatewayTimeout", False),
        ("Timeout", False),
        ("gatewaytimeout", False),
        ("ValueError", False),
        ("object", False),
    ],
)
def test_an_error_is_meant_by_its_class_or_one_above_it(name, fits):
    assert Rule("dead", error=name).fits(kinds_of(GatewayTimeout), None, None) is fits


@pytest.mark.parametrize(
    ("numbers", "fitting", "others"),
    [
        (404, [404], [403, 405]),
        ("404", [404], [40]),
        ("4xx", [400, 499], [399, 500]),
        ("5XX", [500, 599], [499]),
        ("500-504", [500, 502, 504], [499, 505]),
    ],
)
def test_a_status_is_meant_by_its_number_its_hundred_or_a_range(numbers, fitting, others):
    (rule,) = read_rules([{"status": numbers, "action": "dead"}])

    assert all(rule.fits((), status, None) for status in fitting)
    assert not any(rule.fits((), status, None) for status in [*others, None])


def test_an_exit_code_is_no_status():
    (rule,) = read_rules([{"exit": "1-10", "action": "retry"}])

    assert rule.fits((), None, 7)
    assert not rule.fits((), 7, None)
    assert not rule.fits((), None, 11)


def test_the_first_rule_that_fits_is_given_and_none_where_none_does():
    rules = read_rules([{"status": 429, "action": "retry"}, {"status": "4xx", "action": "dead"}])

    assert rule_for(rules, (), 429) is rules[0]
    assert rule_for(rules, (), 404) is rules[1]
    assert rule_for(rules, (), 500) is None
    assert rule_for(rules, kinds_of(ValueError)) is None


def test_described_retry_rule_equals_the_given_rule():
    said: list[dict[str, Any]] = [
        {"error": "ValueError", "action": "dead"},
        {"status": 404, "action": "retry", "delay": "PT5M"},
        {"exit": "1-10", "action": "snooze", "delay": "PT1H"},
    ]

    assert [described_rule(rule) for rule in read_rules(said)] == said


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("dead", "retry rule 1 'dead'"),
        ({"action": "dead"}, "exactly one of error, status and exit"),
        ({"action": "dead", "error": "A", "status": 404}, "exactly one of error, status and exit"),
        ({"error": "A"}, "action None"),
        ({"error": "A", "action": "drop"}, "action 'drop'"),
        ({"error": "A", "action": "dead", "when": 1}, "retry rule 1 has an unknown field when"),
        ({"error": "a b", "action": "dead"}, "error 'a b'"),
        ({"error": 7, "action": "dead"}, "error 7"),
        ({"status": 99, "action": "dead"}, "status 99 is none; write 404, 4xx or 500-599"),
        ({"status": "6xx", "action": "dead"}, "status '6xx' is none"),
        ({"status": "504-500", "action": "dead"}, "status '504-500' is none"),
        ({"status": True, "action": "dead"}, "status True is none"),
        ({"exit": "1xx", "action": "dead"}, "exit '1xx' is none; write 75 or 1-10"),
        ({"exit": 256, "action": "dead"}, "exit 256 is none"),
        ({"error": "A", "action": "snooze"}, "snooze without delay"),
        ({"error": "A", "action": "snooze", "delay": 0}, "delay 0 must be more than 0"),
        ({"error": "A", "action": "dead", "delay": 5}, "dead with a delay"),
        ({"error": "A", "action": "retry", "delay": "soon"}, "delay 'soon' is not a duration"),
    ],
)
def test_unclear_retry_rule_is_refused_with_its_number(rule, message):
    with pytest.raises(InvalidOption, match=message):
        read_rules([rule])


def test_there_are_no_more_rules_than_somebody_can_read():
    with pytest.raises(InvalidOption, match="33 retry rules are too many"):
        read_rules([{"status": 404, "action": "dead"}] * 33)
