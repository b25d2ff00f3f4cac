"""Arguments of a handler on the command line: JSON where it reads as JSON, text where it does not."""

import click
import pytest

from duly import App
from duly.cli.flags.arguments import read_moment, read_payload
from duly.cli.flags.submission import read
from duly.domain.errors import InvalidArguments, InvalidPayload, InvalidSchedule, Refused, UnknownQueue
from duly.domain.jobs.job import Recurring, Submission
from duly.domain.runs.options import NO_OPTIONS, options_of
from duly.domain.runs.retry import Retry


@pytest.mark.parametrize(
    ("pair", "value"),
    [
        ("x=7", 7),
        ("x=1.5", 1.5),
        ("x=true", True),
        ("x=null", None),
        ("x=[1, 2]", [1, 2]),
        ('x={"a": 1}', {"a": 1}),
        ('x="7"', "7"),
        ("x=seven", "seven"),
        ("x=a@b.example", "a@b.example"),
        ("x=a=b", "a=b"),
        ("x=", ""),
        ('x="NaN"', "NaN"),
        ("x=nan", "nan"),
        ("x=Infinity War", "Infinity War"),
        ("x=007", "007"),
        ("x=2026-11-01", "2026-11-01"),
        ("x=1e99", 1e99),
    ],
)
def test_a_value_is_json_if_it_reads_as_json_and_text_if_not(pair, value):
    assert read_payload([pair], None) == {"x": value}


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ('{"x": NaN}', "invalid character"),
        ("NaN", "invalid character"),
        ("Infinity", "invalid character"),
        ("-Infinity", "invalid character"),
        ("1e999", "Number out of range"),
        ("-1.5e999", "Number out of range"),
        ("[1,", "truncated"),
        (' "abc', "truncated"),
        ('["\\ud800"]', "a lone surrogate stands before byte 8"),
    ],
)
def test_a_value_that_was_meant_as_json_and_is_none_is_refused_with_the_remedy(value, why):
    with pytest.raises(InvalidPayload) as refused:
        read_payload([f"x={value}"], None)

    said = str(refused.value)
    assert said.startswith(f"argument x: {value!r} is not JSON: ")
    assert why in said
    assert said.endswith("""to pass it as text, quote it as a JSON string, such as 'x="some text"'""")


@pytest.mark.parametrize("text", ['{"a": NaN}', "Infinity", '{"a": 1e999}', '{"a":"\\ud800"}', "{", ""])
@pytest.mark.parametrize("flag", ["--json", "--payload"])
def test_a_whole_payload_that_is_no_json_is_refused_with_the_remedy(text, flag):
    with pytest.raises(InvalidPayload) as refused:
        read_payload([], text, flag)

    said = str(refused.value)
    assert said.startswith(f"{flag} is not JSON: ")
    assert said.endswith(f"""; give one object, such as {flag} '{{"customer": 7}}'""")


def test_half_a_character_is_named_as_the_api_names_it():
    with pytest.raises(InvalidPayload, match="--json is not JSON: a lone surrogate stands before byte 12"):
        read_payload([], '{"a":"\\ud800"}')


@pytest.mark.parametrize("pairs", [["x"], ["=1"], ["x=1", "x=2"]])
def test_argument_that_is_not_a_unique_pair_is_a_usage_error(pairs):
    with pytest.raises(click.UsageError):
        read_payload(pairs, None)


def test_pairs_and_json_exclude_each_other():
    with pytest.raises(click.UsageError):
        read_payload(["x=1"], '{"x": 1}')


@pytest.mark.parametrize("text", ["{", "[1]", "7", '{"x": NaN}', '{"x": "\\ud800"}', "[" * 5000])
def test_json_that_is_no_object_is_refused(text):
    with pytest.raises(InvalidPayload):
        read_payload([], text)


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ({"json_text": '{"x": "\\u0000"}'}, "NUL"),
        (
            {
                "words": (
                    "greet",
                    "x=\udcff",
                )
            },
            "surrogate",
        ),
        (
            {
                "words": (
                    "greet",
                    "x=" + "y" * 300_000,
                )
            },
            "262144",
        ),
        (
            {
                "words": (
                    "greet",
                    "x=" + "[" * 100 + "]" * 100,
                )
            },
            "64 levels",
        ),
        ({"delay": "-5"}, "negative"),
        ({"delay": "soon"}, "not a duration"),
        ({"at": "tomorrow"}, "not a moment"),
        ({"at": "2026-11-01T09:00:00"}, "no time zone"),
        ({"at": "9999-12-31T23:59:59.999999Z"}, "outside the years"),
        ({"expires_at": "9999-12-31T23:59:59.999999Z"}, "outside the years"),
        ({"every": "0.5"}, "shorter than one second"),
        ({"every": "PT1.5S"}, "whole number of seconds"),
        ({"priority": 10}, "0 \\(first\\) to 9"),
        ({"max_attempts": 0}, "1 to 1000"),
        ({"timeout": "0"}, "more than 0"),
        ({"queue": "a\nb"}, "printable"),
        ({"words": ("",)}, "handler ''"),
    ],
)
def test_submit_refuses_invalid_arguments_before_any_database_access(typed, words):
    with pytest.raises(Refused, match=words):
        read({"words": ("greet",), "json_text": None} | typed, None)


@pytest.mark.parametrize("value", ["30569309025904", '"3056-9309-0259"', '{"number": 30569309025904}'])
def test_submit_shows_no_value_that_a_rule_hides_when_it_refuses_it(value):
    app = App()

    @app.handler
    def pay(card: list[str]) -> None: ...

    with pytest.raises(InvalidArguments, match=r"argument card is .*\*\*\*.*: expected `array`") as refused:
        read({"words": ("pay", f"card={value}"), "json_text": None, "redact": ("$.card",)}, app)

    assert "3056" not in str(refused.value)


@pytest.mark.parametrize(
    "typed", [{"at": "2026-11-01T09:00:00Z", "delay": "1"}, {"name": "x"}, {"every": "1", "delay": "1"}]
)
def test_choices_that_exclude_each_other_are_wrong_usage(typed):
    with pytest.raises(click.UsageError):
        read(dict(words=("greet",), json_text=None, **typed), None)


def test_a_delay_makes_a_one_shot_and_a_period_a_schedule():
    shot = read({"words": ("greet", "a=1"), "json_text": None, "delay": "PT1M", "priority": 0}, None)
    schedule = read({"words": ("greet",), "json_text": None, "every": "60", "name": "minutely"}, None)

    assert isinstance(shot, Submission)
    assert shot.delay is not None
    assert (shot.payload, shot.delay.total_seconds(), shot.priority) == ('{"a":1}', 60, 0)
    assert isinstance(schedule, Recurring)
    assert (schedule.schedule["trigger"]["every"], schedule.name, schedule.queue) == ("PT1M", "minutely", "default")


def test_a_moment_may_have_any_offset():
    assert read_moment("2026-11-01T09:00:00+01:00", "at") == read_moment("2026-11-01T08:00:00Z", "at")
    with pytest.raises(InvalidSchedule):
        read_moment("9 o'clock", "at")


def test_option_equal_to_the_default_is_stored_when_given_explicitly():
    silent = read({"words": ("greet",), "json_text": None}, None)
    typed = read({"words": ("greet",), "json_text": None, "max_attempts": 5}, None)
    other = read({"words": ("greet",), "json_text": None, "max_attempts": 2, "timeout": "PT1M"}, None)

    assert (silent.options, typed.options) == (NO_OPTIONS, options_of(own=True))
    assert other.options == options_of(retry=Retry(2), timeout_seconds=60)


def test_a_strict_app_refuses_a_queue_it_does_not_know():
    app = App(queues=["mail"], strict=True)

    @app.handler(queue="mail")
    def send(to: str) -> None: ...

    sent = read({"words": ("send", "to=me"), "json_text": None}, app)
    assert sent.queue == "mail", "the handler's own"
    with pytest.raises(UnknownQueue, match="no queue 'mial'; did you mean 'mail'"):
        read({"words": ("send", "to=me"), "json_text": None, "queue": "mial"}, app)
