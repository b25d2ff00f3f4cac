"""Other libraries as witnesses, where they and we mean the same; each way in which they differ is listed and explained."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from random import Random
from zoneinfo import ZoneInfo

import pytest

from duly import triggers
from duly.triggers import TriggerError
from tests.triggers.expressions import ZONES, field
from tests.triggers.shapes import random_rule

cronsim = pytest.importorskip("cronsim")
croniter = pytest.importorskip("croniter")
rrule = pytest.importorskip("dateutil.rrule")
START = datetime(2026, 1, 1, tzinfo=UTC)


def ours(trigger: dict[str, str], after: datetime, count: int) -> list[datetime]:
    compiled = triggers.compile(trigger)
    found: list[datetime] = []
    moment: datetime | None = after
    while len(found) < count and moment is not None:
        moment = compiled.next_after(moment)
        found += [moment] if moment is not None else []
    return found


def a_plain_field(random: Random, name: str) -> str:
    """Write a field that all three read alike."""
    while True:
        text = field(random, name)
        if not set(text.upper()) & set("HLW?#") and "*/1" not in text and not ("SUN" in text.upper() and "-" in text):
            return text.upper() if "7" not in text or name != "dow" else "0"


def plain_expressions(seed: int, count: int) -> list[str]:
    random = Random(seed)
    found: list[str] = []
    while len(found) < count:
        text = " ".join(a_plain_field(random, name) for name in ("minute", "hour", "dom", "month", "dow"))
        day, weekday = text.split()[2], text.split()[4]
        # Cronsim lets a/n in the weekday run to 7, and classic cron calls a
        # day field free when it begins with a star: such fields are in the list of disagreements.
        if day != "*" and weekday != "*":
            text = " ".join([*text.split()[:4], "*"])
        if "/" in weekday:
            continue
        try:
            triggers.compile({"type": "cron", "expr": text})
        except TriggerError:
            continue
        found.append(text)
    return found


def test_cronsim_agrees_in_utc():
    for text in plain_expressions(3, 150):
        witness = cronsim.CronSim(text, START)
        assert ours({"type": "cron", "expr": text}, START, 20) == [next(witness) for _ in range(20)], text


def test_croniter_agrees_in_utc():
    for text in plain_expressions(4, 150):
        witness = croniter.croniter(text, START)
        assert ours({"type": "cron", "expr": text}, START, 20) == [witness.get_next(datetime) for _ in range(20)], text


NEW_YORK, LORD_HOWE, SANTIAGO = "America/New_York", "Australia/Lord_Howe", "America/Santiago"
STAR_STEP = "Classic cron calls a day field free when a star leads it, so both must match; here */2 restricts, either is enough."
TWICE = "A fixed time that comes twice fires at both there, and at the first alone here."
MOVED = "A wildcard whose hour is jumped is moved there; here it keeps to what the clock shows, and does not fire."
SUNDAY_AGAIN = "There a/n runs to 7, so Sunday is added; here the week ends with Saturday, 6."
NO_PAIR = "A step that picks one value is taken there; here it is refused, as it is never what was meant."
LOST_HALF = "There the hour that is jumped fires half an hour late; here a wildcard does not fire for a time that does not exist."
HALF_HOUR = "There the half hour that comes twice is passed over the second time; here a wildcard fires at both."
# Each entry: who, expression, zone, from, what they say, what we say (or refuse), and why.
DISAGREEMENTS = [
    ("croniter", "*/30 2 * * *", NEW_YORK, "2026-03-08T04:00", "03-08T07:00 03-09T06:00", "03-09T06:00 03-09T06:30", MOVED),
    ("croniter", "*/30 0 * * *", SANTIAGO, "2026-09-06T02:00", "09-06T04:00 09-07T03:00", "09-07T03:00 09-07T03:30", MOVED),
    ("croniter", "30 1 * * *", NEW_YORK, "2026-11-01T04:00", "11-01T05:30 11-01T06:30", "11-01T05:30 11-02T06:30", TWICE),
    ("croniter", "45 1 * * *", LORD_HOWE, "2026-04-04T13:00", "04-04T14:45 04-04T15:15", "04-04T14:45 04-05T15:15", TWICE),
    ("croniter", "0 * * * *", LORD_HOWE, "2026-10-03T14:00", "10-03T14:30 10-03T15:30", "10-03T14:30 10-03T16:00", LOST_HALF),
    ("croniter", "*/20 1 * * *", LORD_HOWE, "2026-04-04T14:30", "04-04T14:40 04-05T14:30", "04-04T14:40 04-04T15:10", HALF_HOUR),
    ("cronsim", "*/30 2 * * *", LORD_HOWE, "2026-04-04T14:00", "04-04T16:00 04-05T15:30", "04-04T15:30 04-04T16:00",
     "The clock goes back at 02:00 to 01:30, so 02:00 comes once, half an hour later; there it is passed over."),
    ("cronsim", "0 0 */2 * MON", "UTC", "2026-01-01T00:00", "01-05T00:00 01-19T00:00", "01-03T00:00 01-05T00:00", STAR_STEP),
    ("cronsim", "0 0 15 * */2", "UTC", "2026-01-01T00:00", "01-15T00:00 02-15T00:00", "01-03T00:00 01-04T00:00", STAR_STEP),
    ("cronsim", "0 0 * * 4/1", "UTC", "2026-01-02T00:00", "01-03T00:00 01-04T00:00", "01-03T00:00 01-08T00:00", SUNDAY_AGAIN),
    ("cronsim", "59/1 * * * *", "UTC", "2026-01-01T00:00", "01-01T00:59 01-01T01:59", "CRON_STEP", NO_PAIR),
    ("croniter", "59/1 * * * *", "UTC", "2026-01-01T00:00", "01-01T00:01 01-01T00:02", "CRON_STEP",
     "There the step wraps around and fires each minute."),
    ("cronsim", "*/90 * * * *", "UTC", "2026-01-01T00:00", "01-01T01:00 01-01T02:00", "CRON_STEP", "There it means each hour."),
    ("croniter", "0 22-2 * * *", "UTC", "2026-01-01T00:00", "01-01T01:00 01-01T02:00", "CRON_RANGE_REVERSED",
     "There a range wraps around midnight; here it must be written out."),
    ("cronsim", "0 0 * * FRI-SUN", "UTC", "2026-01-01T00:00", "CronSimError", "01-02T00:00 01-03T00:00", "Sunday may end it."),
    ("croniter", "0 0 * * 5L", "UTC", "2026-01-01T00:00", "CroniterNotAlphaError", "01-30T00:00 02-27T00:00", "Spelt L5."),
    ("croniter", "0 0 LW * *", "UTC", "2026-01-01T00:00", "CroniterNotAlphaError", "01-30T00:00 02-27T00:00", "It has no W."),
]  # fmt: skip


def they_say(who: str, text: str, local: datetime) -> str:
    try:
        if who == "cronsim":
            simulation = cronsim.CronSim(text, local)
            return written([next(simulation) for _ in range(2)])
        iterator = croniter.croniter(text, local)
        return written([iterator.get_next(datetime) for _ in range(2)])
    except Exception as error:
        return type(error).__name__


def we_say(text: str, zone: str, after: datetime) -> str:
    try:
        return written(ours({"type": "cron", "expr": text, "tz": zone}, after, 2))
    except TriggerError as error:
        return error.code


def written(moments: list[datetime]) -> str:
    return " ".join(f"{moment.astimezone(UTC):%m-%dT%H:%M}" for moment in moments)


@pytest.mark.parametrize(("who", "text", "zone", "after", "theirs", "expected", "why"), DISAGREEMENTS)
def test_each_disagreement_is_known(who, text, zone, after, theirs, expected, why):
    moment = datetime.fromisoformat(after).replace(tzinfo=UTC)
    assert they_say(who, text, moment.astimezone(ZoneInfo(zone))) == theirs
    assert we_say(text, zone, moment) == expected, why


def test_cronsim_agrees_around_clock_changes():
    """It follows Debian's cron, which treats clock changes as we do."""
    for zone, change in [
        (NEW_YORK, "2026-03-08"),
        (NEW_YORK, "2026-11-01"),
        (LORD_HOWE, "2026-04-04"),
        (SANTIAGO, "2026-09-06"),
    ]:
        after = datetime.fromisoformat(change).replace(tzinfo=UTC) - timedelta(hours=6)
        for text in [
            "30 2 * * *",
            "30 1 * * *",
            "*/15 * * * *",
            "0 * * * *",
            "*/30 2 * * *",
            "0 0 * * *",
            "*/20 1 * * *",
        ]:
            if (zone, text) == (LORD_HOWE, "*/30 2 * * *"):
                continue  # In the list above.
            simulation = cronsim.CronSim(text, after.astimezone(ZoneInfo(zone)))
            expected = [next(simulation).astimezone(UTC) for _ in range(60)]
            assert ours({"type": "cron", "expr": text, "tz": zone}, after, 60) == expected, (zone, text)


def picks_from_weeks(text: str) -> bool:
    """Tell the one case in which dateutil and we differ; see the test below."""
    return "WEEKLY" in text and "BYSETPOS" in text


def test_dateutil_picks_positions_from_the_remainder_of_the_first_week():
    """It counts positions from dtstart on in the first week, but over the whole month or year; here always over the whole."""
    text, start = "FREQ=WEEKLY;BYDAY=MO,TU,SA;BYSETPOS=3", datetime(2026, 1, 1, 9, tzinfo=UTC)
    trigger = {"type": "rrule", "rrule": text, "dtstart": start.isoformat()}
    theirs = take_until(rrule.rrulestr(text, dtstart=start), 2)
    assert [moment.day for moment in theirs] == [10, 17]
    assert [moment.day for moment in ours(trigger, start, 2)] == [3, 10]


def test_dateutil_agrees_on_rules_in_utc():
    random, compared = Random(5), 0
    while compared < 300:
        text = random_rule(random)
        if picks_from_weeks(text):
            continue
        start = datetime(2020, 1, 1, tzinfo=UTC) + timedelta(minutes=random.randrange(10**6))
        trigger = {"type": "rrule", "rrule": text, "dtstart": start.isoformat(timespec="seconds")}
        try:
            triggers.compile(trigger)
        except TriggerError as error:
            if error.code != "WINDOW_EMPTY":
                raise
            continue
        witness = rrule.rrulestr(text, dtstart=start)
        expected = take_until(witness, 12)
        assert ours(trigger, start - timedelta(seconds=1), 12)[: len(expected)] == expected, (text, start)
        compared += 1


def first_instant(local: datetime, zone: ZoneInfo) -> datetime:
    """Give the first moment the clock shows `local`, or the end of the jump over it, by zoneinfo alone."""
    moment = local.replace(tzinfo=zone, fold=0).astimezone(UTC)
    if moment.astimezone(zone).replace(tzinfo=None) == local:
        return moment
    low, high = moment - timedelta(days=2), moment + timedelta(days=2)
    while high - low > timedelta(seconds=1):
        middle = (low + (high - low) / 2).replace(microsecond=0)
        low, high = (low, middle) if middle.astimezone(zone).replace(tzinfo=None) > local else (middle, high)
    return high


def test_dateutil_agrees_on_rules_in_zones():
    """It gives the local times; what becomes of them in a clock change is worked out apart from our code."""
    random, compared = Random(6), 0
    while compared < 150:
        text, name = random_rule(random), random.choice(ZONES)
        zone = ZoneInfo(name)
        hours = random.choice([0, 1, 2, 2])
        local = datetime.fromisoformat(f"2009-01-01T{hours:02}:30:00") + timedelta(days=random.randrange(2000))
        start = first_instant(local, zone)
        trigger = {"type": "rrule", "rrule": text, "dtstart": start.isoformat(timespec="seconds"), "tz": name}
        if "UNTIL" in text or picks_from_weeks(text) or start.astimezone(zone).replace(tzinfo=None) != local:
            continue
        try:
            triggers.compile(trigger)
        except TriggerError:
            continue
        expected = take_until(rrule.rrulestr(text, dtstart=local), 200)
        moments = sorted({first_instant(moment, zone) for moment in expected})
        found = ours(trigger, start - timedelta(seconds=1), 200)
        assert found[: len(moments)] == moments[: len(found)], (text, name, start)
        compared += 1


def take_until(witness, count: int) -> list[datetime]:
    """Take the first occurrences; dateutil goes on to the year 9999, we stop at 2199."""
    found: list[datetime] = []
    for moment in witness:
        if len(found) == count or moment.year > 2199:
            break
        found.append(moment)
    return found
