"""Every refusal: its code, its message with field, value and remedy, and where it can be pointed at, the place."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from duly import triggers
from duly.domain.errors import Refused
from duly.domain.triggers.errors import CODES
from duly.triggers import TriggerError, compile_schedule, read_calendar

NOW = datetime(2026, 3, 7, 10, tzinfo=UTC)
NEW_YORK = "America/New_York"


def cron(expr: Any, **more: Any) -> dict[str, Any]:
    return {"type": "cron", "expr": expr, **more}


def rule(text: str, dtstart: str = "2026-01-01T09:00:00") -> dict[str, Any]:
    return {"type": "rrule", "rrule": text, "dtstart": dtstart}


def iso(text: str, **more: Any) -> dict[str, Any]:
    return {"type": "iso8601", "text": text, **more}


def every(duration: object, **more: Any) -> dict[str, Any]:
    return {"type": "interval", "every": duration, **more}


def at(text: object, **more: Any) -> dict[str, Any]:
    return {"type": "at", "at": text, **more}


# ruff: noqa: E501
# fmt: off
# code, trigger, message, field
TABLE: list[tuple[str, object, str, str]] = [
    ('CRON_FIELD_COUNT', cron("0 0 1 1 * 2026 *"), 'expr has 7 fields; 5 or 6 expected. There is no year field: use start and end', 'expr'),
    ('CRON_FIELD_COUNT', cron("* * * *"), 'expr has 4 fields; 5 or 6 expected: [second] minute hour day-of-month month day-of-week', 'expr'),
    ('CRON_FIELD_COUNT', cron(""), 'expr has 0 fields; 5 or 6 expected: [second] minute hour day-of-month month day-of-week', 'expr'),
    ('CRON_RANGE', cron("60 * * * *"), 'minute 60 is outside 0–59', 'expr'),
    ('CRON_RANGE', cron("0 24 * * *"), 'hour 24 is outside 0–23', 'expr'),
    ('CRON_RANGE', cron("0 0 0 * *"), 'day of month 0 is outside 1–31', 'expr'),
    ('CRON_RANGE', cron("0 0 * 13 *"), 'month 13 is outside 1–12', 'expr'),
    ('CRON_RANGE', cron("0 0 * * 8"), 'day of week 8 is outside 0–7', 'expr'),
    ('CRON_RANGE', cron("60 0 0 * * *"), 'second 60 is outside 0–59', 'expr'),
    ('CRON_RANGE', cron("0 0 L-31 * *"), 'L-31 in day of month: L-n takes an n of 1–30; the last day is L', 'expr'),
    ('CRON_RANGE', cron("0 0 32W * *"), 'day of month 32 is outside 1–31', 'expr'),
    ('CRON_RANGE', cron("0 0 * * MON#6"), 'MON#6 in day of week: a month has a 1st to 5th of a weekday; use 1–5 or L', 'expr'),
    ('CRON_RANGE_REVERSED', cron("0 22-2 * * *"), '22-2 in hour runs backwards; write 22-23,0-2', 'expr'),
    ('CRON_STEP', cron("*/90 * * * *"), 'step 90 of */90 in minute does not fit 0–59; for every 90 minutes use an interval', 'expr'),
    ('CRON_STEP', cron("*/0 * * * *"), "step '0' of */0 in minute is not a number from 1 up; write */5", 'expr'),
    ('CRON_STEP', cron("/15 * * * *"), '/15 in minute has a step but no start; write */15', 'expr'),
    ('CRON_STEP', cron("*/x * * * *"), "step 'X' of */X in minute is not a number from 1 up; write */5", 'expr'),
    ('CRON_STEP', cron("59/1 * * * *"), 'step 1 of 59/1 in minute does not fit 59–59; it would pick one value; write 59 alone', 'expr'),
    ('CRON_STEP', cron("0 0 1-1/1 * *"), 'step 1 of 1-1/1 in day of month does not fit 1–1; it would pick one value; write 1 alone', 'expr'),
    ('CRON_NAME', cron("0 0 * * MONDAY"), 'MONDAY in day of week: use MON', 'expr'),
    ('CRON_NAME', cron("0 0 * MON *"), 'MON in month is a name for day of week; it takes numbers 1–12 or JAN–DEC, as *, a, a-b, a,b or */n', 'expr'),
    ('CRON_NAME', cron("JAN * * * *"), 'JAN in minute is a name for month; it takes numbers 0–59, as *, a, a-b, a,b or */n', 'expr'),
    ('CRON_NAME', cron("five * * * *"), 'FIVE is not a name in minute; it takes numbers 0–59, as *, a, a-b, a,b or */n', 'expr'),
    ('CRON_MODIFIER', cron("0 0 1-15W * *"), '1-15W in day of month: W takes a single day, such as 15W or LW', 'expr'),
    ('CRON_MODIFIER', cron("L * * * *"), 'L in minute: L and W stand in day of month: L, L-3, 15W, LW', 'expr'),
    ('CRON_MODIFIER', cron("0 0 * * L"), 'L in day of week: L takes one weekday here: 5L or FRIL', 'expr'),
    ('CRON_MODIFIER', cron("? * * * *"), '? in minute has no meaning; write *', 'expr'),
    ('CRON_MODIFIER', cron("0 0 ?/2 * *"), '?/2 in day of month: ? stands alone, in a day field', 'expr'),
    ('CRON_MODIFIER', cron("0 0 +1 * *"), '+1 in day of month: + stands before the day of week: +MON', 'expr'),
    ('CRON_MODIFIER', cron("0 0 1#2 * *"), '1#2 in day of month: # stands in day of week, after one weekday: MON#2 or FRI#L', 'expr'),
    ('CRON_MODIFIER', cron("H * * * *"), 'H in minute needs a job to hash; give a job id or a number', 'expr'),
    ('CRON_MODIFIER', cron("0 0 L/2 * *"), 'L in day of month takes no step; write L alone', 'expr'),
    ('CRON_SYNTAX', cron("1,,2 * * * *"), "empty list item in minute '1,,2'; remove the extra comma", 'expr'),
    ('CRON_SYNTAX', cron("** * * * *"), '** in minute cannot be read; it takes numbers 0–59, as *, a, a-b, a,b or */n', 'expr'),
    ('CRON_SYNTAX', cron("1-2-3 * * * *"), '1-2-3 in minute cannot be read; it takes numbers 0–59, as *, a, a-b, a,b or */n', 'expr'),
    ('CRON_SYNTAX', cron("-5 * * * *"), '-5 in minute cannot be read; it takes numbers 0–59, as *, a, a-b, a,b or */n', 'expr'),
    ('CRON_SYNTAX', cron("1.5 * * * *"), '1.5 in minute cannot be read; it takes numbers 0–59, as *, a, a-b, a,b or */n', 'expr'),
    ('CRON_SYNTAX', cron("*/2/3 * * * *"), '*/2/3 in minute has more than one step; give one', 'expr'),
    ('CRON_SYNTAX', cron("0\n0 * * *"), "'\\n' at position 2 of expr is not allowed in a cron expression; remove it", 'expr'),
    ('CRON_MACRO', cron("@reboot"), '@reboot is not supported; use a time, or submit the job when your program starts', 'expr'),
    ('CRON_MACRO', cron("@every 5m"), '@every 5m: use an interval, such as every PT5M', 'expr'),
    ('CRON_MACRO', cron("@dayly"), '@dayly is not a macro; did you mean @daily?', 'expr'),
    ('CRON_MACRO', cron("@daily 5"), '@daily takes nothing after it; remove the rest', 'expr'),
    ('CRON_NEVER_FIRES', cron("0 0 30 2 *"), "expr '0 0 30 2 *': no date in the 400-year calendar matches; check day and month", 'expr'),
    ('CRON_NEVER_FIRES', cron("0 0 31 4,6,9,11 *"), "expr '0 0 31 4,6,9,11 *': no date in the 400-year calendar matches; check day and month", 'expr'),
    ('CRON_NEVER_FIRES', cron("0 0 1 * +MON#2"), "expr '0 0 1 * +MON#2': no date in the 400-year calendar matches; check day and month", 'expr'),
    ('TZ_UNKNOWN', cron("0 9 * * *", tz="EST"), "tz 'EST' is not a time zone here; did you mean America/New_York?", 'tz'),
    ('TZ_UNKNOWN', cron("0 9 * * *", tz="europe/london"), "tz 'europe/london' is not a time zone here; did you mean Europe/London?", 'tz'),
    ('TZ_UNKNOWN', cron("0 9 * * *", tz="Europe/Lundon"), "tz 'Europe/Lundon' is not a time zone here; did you mean Europe/London?", 'tz'),
    ('TZ_UNKNOWN', cron("0 9 * * *", tz="Nope/Zone"), "tz 'Nope/Zone' is not a time zone here; use a tz database name such as Europe/London, or UTC", 'tz'),
    ('TZ_UNKNOWN', cron("0 9 * * *", tz="+01:00"), "tz '+01:00' is not a time zone here; use a tz database name such as Europe/London, or UTC", 'tz'),
    ('TZ_UNKNOWN', cron("CRON_TZ=Japan 0 9 * * *"), "expr 'Japan' is not a time zone here; did you mean Asia/Tokyo?", 'expr'),
    ('TZ_CONFLICT', cron("CRON_TZ=Asia/Tokyo 0 9 * * *", tz="UTC"), 'expr says Asia/Tokyo and tz says UTC; keep one of them', 'tz'),
    ('LIMIT', cron("0 9 * * *" + " " * 300), 'expr has 309 characters, over the limit of 256; split it into several triggers with any', 'expr'),
    ('TRIGGER_VALUE', cron(5), 'expr 5 is not text; put it in quotes', 'expr'),
    ('SUB_SECOND', every("PT0.5S"), "every 'PT0.5S' names a part of a second; whole seconds only", 'every'),
    ('SUB_SECOND', every("PT1H", anchor="2026-01-01T00:00:00.250Z"), "anchor '2026-01-01T00:00:00.250Z' names a part of a second; whole seconds only", 'anchor'),
    ('SUB_SECOND', at("2026-01-01T00:00:00.0000001Z"), "at '2026-01-01T00:00:00.0000001Z' is finer than a microsecond; write six digits at most", 'at'),
    ('SUB_SECOND', iso("R/2026-01-01T00:00:00.5Z/P1D"), "text '2026-01-01T00:00:00.5Z' names a part of a second; whole seconds only", 'text'),
    ('LOCAL_TIME_MISSING', at("2026-03-08T02:30:00", tz=NEW_YORK), 'at: 02:30 does not exist on 2026-03-08 in America/New_York; the nearest times are 2026-03-08T01:59:59-05:00 and 2026-03-08T03:00:00-04:00', 'at'),
    ('LOCAL_TIME_AMBIGUOUS', at("2026-11-01T01:30:00", tz=NEW_YORK), 'at: 01:30 happens twice on 2026-11-01 in America/New_York; give 2026-11-01T01:30:00-04:00 or 2026-11-01T01:30:00-05:00', 'at'),
    ('LOCAL_TIME_MISSING', every("PT1H", anchor="2026-03-08T02:30:00", tz=NEW_YORK), 'anchor: 02:30 does not exist on 2026-03-08 in America/New_York; the nearest times are 2026-03-08T01:59:59-05:00 and 2026-03-08T03:00:00-04:00', 'anchor'),
    ('LOCAL_TIME_AMBIGUOUS', iso("R/2026-11-01T01:30:00/P1D", tz=NEW_YORK), 'text: 01:30 happens twice on 2026-11-01 in America/New_York; give 2026-11-01T01:30:00-04:00 or 2026-11-01T01:30:00-05:00', 'text'),
    ('DATETIME_SYNTAX', at("2026-02-30T00:00:00Z"), "at '2026-02-30T00:00:00Z': there is no such day; check month and day", 'at'),
    ('DATETIME_SYNTAX', at("2026-02-28"), "at '2026-02-28' is not a date and time; write it as 2026-11-01T09:00:00Z or 2026-11-01T09:00:00+01:00", 'at'),
    ('DATETIME_SYNTAX', at("tomorrow"), "at 'tomorrow' is not a date and time; write it as 2026-11-01T09:00:00Z or 2026-11-01T09:00:00+01:00", 'at'),
    ('DATETIME_SYNTAX', at("2026-02-28T25:00:00Z"), "at '2026-02-28T25:00:00Z': there is no such time of day; the last is 23:59:59", 'at'),
    ('DATETIME_SYNTAX', at("2026-02-28T12:00:00"), "at '2026-02-28T12:00:00' has no offset; add one, such as Z or +01:00, or give tz", 'at'),
    ('TRIGGER_VALUE', at(1772000000), 'at 1772000000 is not text; write 2026-11-01T09:00:00Z', 'at'),
    ('DATETIME_SYNTAX', at("2026-02-28T12:00:00+25:00"), "at '2026-02-28T12:00:00+25:00': there is no offset +25:00; write +01:00 or Z", 'at'),
    ('LIMIT', at("2200-01-01T00:00:00Z"), "at '2200-01-01T00:00:00Z' is outside the years 1900 to 2199, which are supported", 'at'),
    ('DURATION_SYNTAX', every("15m"), "every '15m' is not a duration; write PT15M", 'every'),
    ('DURATION_SYNTAX', every("PT"), "every 'PT' is not a duration; write PT30S, PT15M, PT2H or P1D", 'every'),
    ('DURATION_SYNTAX', every(90), 'every 90 is not a duration; write PT30S, PT15M, PT2H or P1D', 'every'),
    ('DURATION_ZERO', every("PT0S"), "every 'PT0S' is zero; the shortest is PT1S", 'every'),
    ('DURATION_MIXED', every("P1DT12H"), "every 'P1DT12H' mixes calendar and clock units; write one kind, such as PT36H or P2D", 'every'),
    ('DURATION_CALENDAR', every("P1M"), "every 'P1M' is in calendar units, whose length varies; write clock units such as PT24H, or use an iso8601 trigger", 'every'),
    ('LIMIT', every("PT9999999999H"), "every 'PT9999999999H' is longer than 300 years; write a shorter one", 'every'),
    ('TRIGGER_VALUE', every("PT1H", mode="sometimes"), "mode 'sometimes' is unknown; use fixed_rate or fixed_delay", 'mode'),
    ('ISO_SYNTAX', iso("2026-01-01T00:00:00Z/P1D"), "text '2026-01-01T00:00:00Z/P1D' is not a repetition; write R/start/duration or R5/start/duration, such as R/2026-01-31T09:00:00Z/P1M", 'text'),
    ('ISO_SYNTAX', iso("Rx/2026-01-01T00:00:00Z/P1D"), "text begins with 'Rx'; write R for no limit, or R5 for five times", 'text'),
    ('ISO_COUNT', iso("R0/2026-01-01T00:00:00Z/P1D"), 'text begins with R0, which would never fire; write R1 or more, or R for no limit', 'text'),
    ('ISO_COUNT', iso("R-2/2026-01-01T00:00:00Z/P1D"), 'text begins with R-2, which would never fire; write R1 or more, or R for no limit', 'text'),
    ('ISO_FORM', iso("R5/PT1H/2026-01-01T00:00:00Z"), "text 'R5/PT1H/2026-01-01T00:00:00Z' counts back from its end, which has no first occurrence; write R/start/duration or R5/start/duration, such as R/2026-01-31T09:00:00Z/P1M", 'text'),
    ('WINDOW_EMPTY', iso("R/2026-01-02T00:00:00Z/2026-01-01T00:00:00Z"), "text 'R/2026-01-02T00:00:00Z/2026-01-01T00:00:00Z' ends before it has begun; swap start and end", 'text'),
    ('RRULE_FREQ', rule("FREQ=HOURLY"), 'FREQ=HOURLY in rrule: less than a day is for a cron or an interval trigger', 'rrule'),
    ('RRULE_FREQ', rule("INTERVAL=2"), 'rrule has no FREQ; begin with FREQ=DAILY, WEEKLY, MONTHLY or YEARLY', 'rrule'),
    ('RRULE_FREQ', rule("FREQ=SOMETIMES"), 'FREQ=SOMETIMES in rrule: use DAILY, WEEKLY, MONTHLY or YEARLY', 'rrule'),
    ('RRULE_PART', rule("FREQ=YEARLY;BYWEEKNO=3"), 'BYWEEKNO in rrule is not supported; name dates with BYYEARDAY or BYMONTHDAY', 'rrule'),
    ('RRULE_PART', rule("FREQ=DAILY;BYSECOND=3"), 'BYSECOND in rrule is not supported; the second is that of dtstart', 'rrule'),
    ('RRULE_PART', rule("FREQ=DAILY;INTERVALL=3"), "'INTERVALL' in rrule is not a known part; did you mean INTERVAL?", 'rrule'),
    ('RRULE_PART', rule("FREQ=DAILY;FREQ=DAILY"), 'FREQ in rrule is given twice; keep one', 'rrule'),
    ('RRULE_PART', rule("FREQ=WEEKLY;BYMONTHDAY=1"), 'BYMONTHDAY=1 in rrule: a week has no days of the month; use FREQ=MONTHLY or DAILY', 'rrule'),
    ('RRULE_PART', rule("FREQ=DAILY;BYDAY=1MO"), 'BYDAY=1MO in rrule: a number before a day needs MONTHLY or YEARLY; write MO', 'rrule'),
    ('RRULE_PART', rule("FREQ=MONTHLY;BYSETPOS=1"), 'BYSETPOS=1 in rrule: it picks from what another BY part gives; add BYDAY or BYMONTHDAY', 'rrule'),
    ('RRULE_BOUNDS', rule("FREQ=DAILY;COUNT=3;UNTIL=20260101T000000Z"), 'COUNT=3 in rrule: COUNT and UNTIL exclude each other; keep one', 'rrule'),
    ('RRULE_BOUNDS', rule("FREQ=DAILY;UNTIL=20260101"), 'UNTIL=20260101 in rrule: write a moment in UTC, such as 20261231T235959Z', 'rrule'),
    ('RRULE_BOUNDS', rule("FREQ=DAILY;INTERVAL=0"), 'INTERVAL=0 in rrule: use a number from 1 to 10000', 'rrule'),
    ('RRULE_BOUNDS', rule("FREQ=DAILY;COUNT=100000"), 'COUNT=100000 in rrule: use a number from 1 to 5000', 'rrule'),
    ('RRULE_BOUNDS', rule("FREQ=MONTHLY;BYMONTHDAY=32"), "BYMONTHDAY=32 in rrule: '32' is not a number from 1 to 31 or -31 to -1", 'rrule'),
    ('RRULE_BOUNDS', rule("FREQ=MONTHLY;BYDAY=XX"), "BYDAY=XX in rrule: 'XX' is not a day such as MO, 2TU or -1FR", 'rrule'),
    ('WINDOW_EMPTY', rule("FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30"), "rrule 'FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30' has no occurrence from dtstart on; check COUNT, UNTIL and the BY parts", 'rrule'),
    ('WINDOW_EMPTY', rule("FREQ=DAILY;UNTIL=20250101T000000Z"), "rrule 'FREQ=DAILY;UNTIL=20250101T000000Z' has no occurrence from dtstart on; check COUNT, UNTIL and the BY parts", 'rrule'),
    ('TEXT_UNREADABLE', {"type": "text", "text": "every banana"}, 'text: stopped at "banana", position 7; expected a number, a unit such as hour or day, or a day of the week such as monday; accepted are such as every hour; every minute; every second', 'text'),
    ('TEXT_UNREADABLE', {"type": "text", "text": "every day at 9"}, 'text: stopped at "9", position 14; 9 is unclear: write 9am, 9pm or 09:00; accepted are such as every day at 9am; at 9am every day; every weekday at 9am', 'text'),
    ('TRIGGER_TYPE', {"type": "crom", "expr": "* * * * *"}, "type 'crom' is not a trigger type; did you mean cron?", 'type'),
    ('TRIGGER_TYPE', {"expr": "* * * * *"}, 'type None is not a trigger type; use one of at, cron, interval, iso8601, rrule, text, any', 'type'),
    ('TRIGGER_KEY', {"type": "cron", "exp": "* * * * *"}, "'exp' is not a key here; did you mean expr?", 'exp'),
    ('TRIGGER_KEY', {"type": "cron", "expr": "* * * * *", "timezone": "UTC"}, "'timezone' is not a key here; did you mean tz?", 'timezone'),
    ('TRIGGER_KEY', {"type": "cron"}, 'expr is missing; give it', 'expr'),
    ('LIMIT', {"type": "any", "of": [cron("* * * * *")] * 11}, 'of has 11 members; 2 to 10 are allowed', 'of'),
    ('LIMIT', {"type": "any", "of": [cron("* * * * *")]}, 'of has 1 members; 2 to 10 are allowed', 'of'),
    ('TRIGGER_TYPE', {"type": "any", "of": [cron("* * * * *"), {"type": "any", "of": []}]}, 'type any inside any; put all members into one list', 'of[1].type'),
    ('CRON_RANGE', {"type": "any", "of": [cron("* * * * *"), cron("60 * * * *")]}, 'minute 60 is outside 0–59', 'of[1].expr'),
    ('TRIGGER_TYPE', {"type": "any", "of": [cron("* * * * *"), every("PT1H", mode="fixed_delay")]}, 'mode fixed_delay counts from the end of its own runs, so it cannot be part of any; use fixed_rate', 'of[1].mode'),
    ('TRIGGER_VALUE', ["cron"], "trigger ['cron'] is not an object with keys", ''),
]
# fmt: on


@pytest.mark.parametrize(("code", "trigger", "message", "field"), TABLE, ids=lambda value: str(value)[:40])
def test_trigger_refusal_has_a_code_a_field_and_a_remedy(code: str, trigger: Any, message: str, field: str):
    with pytest.raises(TriggerError) as caught:
        triggers.compile(trigger, now=NOW)
    error = caught.value
    assert (error.code, error.message, error.field) == (code, message, field)
    assert str(error) == message
    assert isinstance(error, Refused)


def schedule(**parts: Any) -> dict[str, Any]:
    return {"trigger": cron("0 9 * * *"), **parts}


# fmt: off
SCHEDULES: list[tuple[str, object, str, str]] = [
    ('WINDOW_EMPTY', schedule(end="2026-03-07T10:30:00Z"), 'start and end: the trigger has no occurrence between them; widen them', 'end'),
    ('WINDOW_EMPTY', schedule(start="2026-05-01T00:00:00Z", end="2026-04-01T00:00:00Z"), 'end 2026-04-01T00:00:00Z is not after start; give a later end', 'end'),
    ('SUB_SECOND', schedule(start="2026-05-01T00:00:00.5Z"), "start '2026-05-01T00:00:00.5Z' names a part of a second; whole seconds only", 'start'),
    ('AT_PAST', {"trigger": at("2026-03-07T09:00:00Z")}, 'at 2026-03-07T09:00:00Z is in the past; give a later time, or leave it out to run now', 'trigger.at'),
    ('AT_PAST', {"trigger": {"type": "text", "text": "today at 6am"}}, 'at 2026-03-07T06:00:00Z is in the past; give a later time, or leave it out to run now', 'trigger.text'),
    ('LIMIT', {"trigger": cron("*/2 * * * * *", tz="UTC"), "jitter": {"max": "PT25H"}}, "jitter.max 'PT25H' is over 24 hours; write PT24H or less", 'jitter.max'),
    ('LIMIT', {"trigger": {"type": "any", "of": [cron("* * * * * *"), every("PT2S")]}}, 'trigger: its occurrences can be PT1S apart, and this tenant\'s limit is PT2S apart or more; fire less often, or have the operator lower least_period with duly tenants limits', 'trigger'),
    ('TRIGGER_VALUE', schedule(jitter={"max": "PT5M", "per": "run"}), "jitter.per 'run' is unknown; use job, occurrence", 'jitter.per'),
    ('TRIGGER_KEY', schedule(jitter={"maximum": "PT5M"}), "'maximum' is not a key here; did you mean max?", 'jitter.maximum'),
    ('TRIGGER_VALUE', schedule(misfire={"policy": "fire_twice"}), "misfire.policy 'fire_twice' is unknown; use fire_once, fire_all, skip", 'misfire.policy'),
    ('DURATION_CALENDAR', schedule(misfire={"window": "P1M"}), "misfire.window 'P1M' has months, whose length varies; write days or hours, such as P7D", 'misfire.window'),
    ('TRIGGER_VALUE', schedule(misfire={"rate": 0}), 'misfire.rate 0 is not a number of runs a second', 'misfire.rate'),
    ('TRIGGER_VALUE', schedule(max_runs=0), 'max_runs 0 is not a whole number from 1 to 1000000000', 'max_runs'),
    ('TRIGGER_VALUE', schedule(calendars=[{"name": "uk"}]), "calendars[0].name 'uk' is not a calendar; create it: duly calendars put FILE", 'calendars[0].name'),
    ('TRIGGER_KEY', schedule(calendar=[]), "'calendar' is not a key here; did you mean calendars?", 'calendar'),
    ('TRIGGER_KEY', {}, 'trigger is missing; give it', 'trigger'),
]
# fmt: on


@pytest.mark.parametrize(("code", "shape", "message", "field"), SCHEDULES, ids=lambda value: str(value)[:40])
def test_a_schedule_is_refused_likewise(code: str, shape: Any, message: str, field: str):
    with pytest.raises(TriggerError) as caught:
        compile_schedule(shape, job_id="job", now=NOW, least_period=2)
    error = caught.value
    assert (error.code, error.message, error.field) == (code, message, field)


def test_every_code_is_shown_here_or_in_the_tests_of_text():
    shown = {row[0] for row in TABLE} | {row[0] for row in SCHEDULES}
    assert shown == CODES


def test_trigger_refusal_lists_every_error():
    with pytest.raises(TriggerError) as caught:
        triggers.compile(cron("60 25 0 13 8"), now=NOW)
    assert [error.message for error in caught.value.errors] == [
        "minute 60 is outside 0–59",
        "hour 25 is outside 0–23",
        "day of month 0 is outside 1–31",
        "month 13 is outside 1–12",
        "day of week 8 is outside 0–7",
    ]
    assert [error.span for error in caught.value.errors] == [(0, 2), (3, 5), (6, 7), (8, 10), (11, 12)]


def test_a_schedule_names_all_its_faults_with_their_paths():
    shape = {"trigger": cron("60 * * * *"), "jitter": {"max": "PT0S"}, "overlap": {"policy": "never"}, "max_runs": 0}
    with pytest.raises(TriggerError) as caught:
        compile_schedule(shape, job_id="job", now=NOW)
    assert [error.field for error in caught.value.errors] == [
        "trigger.expr",
        "max_runs",
        "jitter.max",
        "overlap.policy",
    ]


@pytest.mark.parametrize(
    ("expr", "hint"),
    [("0 22-2 * * *", "22-23,0-2"), ("/15 * * * *", "*/15"), ("0 0 * * MONDAY", "MON"), ("0 0 * * FRI-MON", "5-6,0-1")],
)
def test_hint_replaces_the_invalid_span_and_compiles(expr: str, hint: str):
    with pytest.raises(TriggerError) as caught:
        triggers.compile(cron(expr), now=NOW)
    error = caught.value
    assert error.hint == hint
    assert error.span is not None
    start, end = error.span
    triggers.compile(cron(expr[:start] + hint + expr[end:]), now=NOW)


def test_a_calendar_is_refused_with_all_its_faults():
    with pytest.raises(TriggerError) as caught:
        read_calendar(
            {
                "name": "odd",
                "dates": ["2026-02-30", "2026-12-25"],
                "windows": [{"start": "2026-01-02T00:00:00Z", "end": "2026-01-01T00:00:00Z"}, {"start": "x"}],
                "weekly": [
                    {"days": "SAT,SUN", "from": "22:00", "to": "06:00"},
                    {"days": "FUNDAY", "from": "0", "to": "1"},
                ],
            }
        )
    assert [(error.code, error.field) for error in caught.value.errors] == [
        ("DATETIME_SYNTAX", "dates[0]"),
        ("WINDOW_EMPTY", "windows[0]"),
        ("TRIGGER_KEY", "windows[1].end"),
        ("WINDOW_EMPTY", "weekly[0]"),
        ("DATETIME_SYNTAX", "weekly[1].from"),
    ]
