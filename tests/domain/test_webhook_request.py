"""Methods and headers that a job may, and may not, set on its webhook."""

from __future__ import annotations

import pytest

from duly.domain.errors import InvalidOption
from duly.domain.targets.webhook_request import RESERVED, check_headers, check_method


@pytest.mark.parametrize(
    ("given", "method"), [("post", "POST"), ("GET", "GET"), ("Patch", "PATCH"), ("PROPFIND", "PROPFIND")]
)
def test_a_method_is_taken_in_any_case(given, method):
    assert check_method(given) == method


@pytest.mark.parametrize(
    "method", ["", "CONNECT", "Trace", "X" * 33, "POST /x HTTP/1.1\r\nHost: inner\r\n\r\nGET", "PÖST"]
)
def test_a_method_that_is_not_sent_is_refused(method):
    with pytest.raises(InvalidOption, match="is not supported; use POST"):
        check_method(method)


def test_headers_of_a_job_are_taken():
    headers = {
        "Authorization": "Bearer x",
        "Content-Type": "application/cloudevents+json",
        "X-Own": "",
        "Cookie": "a=b",
    }
    assert check_headers(headers) == headers


@pytest.mark.parametrize(
    "name",
    [
        *sorted(RESERVED),
        "Host",
        "X-FENCE",
        "x_run_id",
        "webhook_id",
        "Webhook-Id",
        "webhook-anything",
        "Proxy-Authorization",
    ],
)
def test_header_that_duly_sets_is_refused_in_a_job(name):
    with pytest.raises(InvalidOption, match="is set by Duly"):
        check_headers({name: "x"})


@pytest.mark.parametrize("name", ["", "a b", "a:", "a\r\nHost", "ä", "a\0", "x" * 201])
def test_a_name_that_is_none_is_refused(name):
    with pytest.raises(InvalidOption, match="is not a header name"):
        check_headers({name: "x"})


@pytest.mark.parametrize("value", ["a\r\nHost: inner", "a\nb", "a\rb", "a\0b", "a\x7fb", "€"])
def test_a_value_that_breaks_the_line_is_refused_and_not_shown(value):
    with pytest.raises(InvalidOption, match="line break, a control character") as error:
        check_headers({"X-Own": value})
    assert "inner" not in str(error.value)


def test_a_header_is_given_once():
    with pytest.raises(InvalidOption, match="given twice"):
        check_headers({"X-Own": "a", "x-own": "b"})
