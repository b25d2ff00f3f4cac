"""`duly next`: the words, the fires, and errors with a caret."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner, Result

from duly.cli.commands.system.next import next_, trigger_of

AFTER = ["--after", "2026-03-07T00:00:00Z"]


def call(*arguments: str) -> Result:
    return CliRunner().invoke(next_, [*arguments, *AFTER])


def test_words_become_a_table_of_fires():
    result = call("every weekday at 9:30am", "--tz", "Europe/London", "-n", "2")
    assert result.exit_code == 0
    lines = [line.rstrip() for line in result.output.splitlines()]
    assert lines == [
        "At 09:30, Monday to Friday, Europe/London time",
        "saved as cron 30 9 * * 1-5",
        "local                    offset  UTC                   note",
        "Mon 2026-03-09 09:30:00  +00:00  2026-03-09 09:30:00Z",
        "Tue 2026-03-10 09:30:00  +00:00  2026-03-10 09:30:00Z",
    ]


def test_next_command_shows_a_clock_change():
    result = call("30 2 * * *", "--tz", "America/New_York", "-n", "2")
    assert (
        "Sun 2026-03-08 03:00:00  -04:00  2026-03-08 07:00:00Z  moved from 02:30, which does not exist that day"
        in result.output
    )
    assert "clock change: 02:30 on 2026-03-08 does not exist, and it fires at 03:00 instead" in result.output


def test_a_wrong_field_gets_a_caret():
    result = call("0 25 * * MONDAY")
    assert result.exit_code == 1
    assert result.stderr.splitlines() == [
        "duly: hour 25 is outside 0–23",
        "  0 25 * * MONDAY",
        "    ^^",
        "duly: MONDAY in day of week: use MON",
        "  0 25 * * MONDAY",
        "           ^^^^^^",
        "  try: MON",
    ]


def test_a_wrong_word_gets_a_caret():
    result = call("every banana")
    assert result.exit_code == 1
    assert result.stderr.splitlines()[1:3] == ["  every banana", "        ^^^^^^"]


def test_json_is_for_programs_even_when_it_is_an_error():
    good, bad = call("PT90M", "--json", "--start", "2026-03-07T00:00:00Z"), call("60 * * * *", "--json")
    assert json.loads(good.output)["next"][0]["scheduled_at"] == "2026-03-07T01:30:00Z"
    assert (good.exit_code, bad.exit_code) == (0, 1)
    assert json.loads(bad.output)["errors"][0]["code"] == "CRON_RANGE"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("30 9 * * 1-5", "cron"),
        ("*/5 * * * *", "cron"),
        ("@daily", "cron"),
        ("CRON_TZ=Asia/Tokyo 0 9 * * *", "cron"),
        ("H 2 * * *", "cron"),
        ("60 * * *", "cron"),
        ("R/2026-01-31T09:00:00Z/P1M", "iso8601"),
        ("R5/2026-01-31T09:00:00Z/P1M", "iso8601"),
        ("PT90M", "interval"),
        ("P1D", "interval"),
        ("FREQ=DAILY", "rrule"),
        ("RRULE:FREQ=DAILY", "rrule"),
        ("2026-12-24T09:00:00Z", "at"),
        ("2026-12-24 at noon", "text"),
        ("every day at 9am", "text"),
        ("hourly", "text"),
        ("last day of the month at 9am", "text"),
        ("", "text"),
    ],
)
def test_the_kind_is_seen_from_the_text(text: str, kind: str):
    assert trigger_of(text, None, "2026-01-01T00:00:00")["type"] == kind


def test_a_rule_needs_a_start():
    assert "--start" in call("FREQ=DAILY").output
    result = call("FREQ=MONTHLY;BYDAY=-1FR", "--start", "2026-01-01T09:00:00", "--tz", "Europe/Paris", "-n", "1")
    assert "Fri 2026-03-27 09:00:00  +01:00  2026-03-27 08:00:00Z" in result.output


def test_next_command_reports_a_schedule_that_has_ended():
    assert "it does not fire any more" in call("R2/2026-01-01T00:00:00Z/P1D").output


def test_an_after_without_offset_is_refused():
    result = CliRunner().invoke(next_, ["hourly", "--after", "2026-01-01T00:00:00"])
    assert result.exit_code == 2
    assert "with an offset" in result.output
