"""Completion callbacks: one of two, in short or in fields, and every refusal says what to write."""

import pytest

from duly.domain.errors import InvalidOption
from duly.domain.runs.callbacks import Callback, Callbacks, check_callbacks, read_callback
from duly.domain.runs.options import RunPolicy, options_of


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, None),
        ("https://hooks.example/done", Callback(url="https://hooks.example/done")),
        ("HTTPS://Hooks.Example:443", Callback(job="HTTPS://Hooks.Example:443")),
        ("follow-up", Callback(job="follow-up")),
        ({"url": "http://Hooks.example"}, Callback(url="http://hooks.example/")),
        ({"url": "https://hooks.example/", "queue": "hooks"}, Callback(url="https://hooks.example/", queue="hooks")),
        ({"job": "follow-up"}, Callback(job="follow-up")),
        (Callback(job="follow-up"), Callback(job="follow-up")),
    ],
)
def test_callback_is_read_from_a_url_a_job_name_or_fields(given, expected):
    assert read_callback("on_end", given) == expected


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "either a URL or a job"),
        ({"url": "https://a.example/", "job": "b"}, "either a URL or a job"),
        ({"job": "b", "queue": "c"}, "has its own"),
        ({"job": ""}, "1 to 200"),
        ({"job": "two\nlines"}, "1 to 200"),
        ({"url": "https://a.example/", "queue": ""}, "1 to 200"),
        ({"url": "ftp://a.example/"}, "http"),
        ("http://user@a.example/", "Authorization"),
        ({"address": "https://a.example/"}, "has no receiver"),
        ({"url": 7}, "has no receiver"),
        (7, "has no receiver"),
        ("", "1 to 200"),
    ],
)
def test_invalid_callback_is_refused(given, words):
    with pytest.raises(InvalidOption, match=words):
        read_callback("on_failure", given)


def test_callbacks_are_absent_unless_a_receiver_is_named():
    assert check_callbacks(None, None) is None
    assert check_callbacks(None, "alert") == Callbacks(failure=Callback(job="alert"))


def test_callbacks_are_metadata_and_leave_the_handler_policy_in_force():
    options = options_of(callbacks=Callbacks(end=Callback(job="b")))

    assert not options.policy.own
    assert options.policy.or_handlers(RunPolicy(timeout_seconds=5)).timeout_seconds == 5
    assert options.metadata.callbacks == Callbacks(end=Callback(job="b"))
