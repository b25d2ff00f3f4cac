"""The cron grammar by example: what each form picks, its canonical form, its sentence and its warnings."""

from __future__ import annotations

from datetime import UTC, datetime
from hashlib import sha256

import pytest

from duly import triggers
from duly.triggers import TriggerError

YEAR = datetime(2026, 1, 1, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC)


def dates(expr: str, count: int = 6) -> list[str]:
    found = triggers.compile({"type": "cron", "expr": expr}).between(*YEAR)
    return [f"{moment:%m-%d}" for _, moment in zip(range(count), found, strict=False)]


@pytest.mark.parametrize(
    ("days", "expected"),
    [
        ("L * *", ["01-31", "02-28", "03-31"]),
        ("L-1 * *", ["01-30", "02-27", "03-30"]),
        ("L-30 * *", ["01-01", "03-01", "05-01"]),
        ("LW * *", ["01-30", "02-27", "03-31"]),
        ("1W * *", ["01-01", "02-02", "03-02"]),
        ("1W 8 *", ["08-03"]),
        ("15W * *", ["01-15", "02-16", "03-16"]),
        ("31W * *", ["01-30", "03-31", "05-29"]),
        ("1W,15W * *", ["01-01", "01-15", "02-02"]),
        ("* * MON#1", ["01-05", "02-02", "03-02"]),
        ("* * 5#L", ["01-30", "02-27", "03-27"]),
        ("* * FRIL", ["01-30", "02-27", "03-27"]),
        ("* * MON#1,FRI#L", ["01-05", "01-30", "02-02"]),
        ("* * MON#5", ["03-30", "06-29", "08-31"]),
        ("* * FRI-SUN", ["01-02", "01-03", "01-04"]),
        ("* * 7", ["01-04", "01-11", "01-18"]),
        ("* * 7-7", ["01-04", "01-11", "01-18"]),
        ("* * 5-7", ["01-02", "01-03", "01-04"]),
        ("* * 0-7", ["01-01", "01-02", "01-03"]),
        ("* * 0-7/2", ["01-01", "01-03", "01-04"]),
        ("* * 1-7/3", ["01-01", "01-04", "01-05"]),
        ("* * 0-7/7", ["01-04", "01-11", "01-18"]),
        ("1-31/30 * *", ["01-01", "01-31", "02-01"]),
        ("13 * FRI", ["01-02", "01-09", "01-13"]),
        ("13 * +FRI", ["02-13", "03-13", "11-13"]),
        ("*/2 * +MON", ["01-05", "01-19", "02-09"]),
        ("1-31 * MON", ["01-01", "01-02", "01-03"]),
        ("? * MON", ["01-05", "01-12", "01-19"]),
        ("*/1 * MON", ["01-05", "01-12", "01-19"]),
        ("29 2 *", []),
    ],
)
def test_days(days: str, expected: list[str]):
    assert dates(f"0 0 {days}", len(expected)) == expected


def test_the_leap_day_is_found_however_far():
    leap = triggers.compile({"type": "cron", "expr": "0 0 29 2 +MON"})
    assert leap.next_after(YEAR[0]) == datetime(2044, 2, 29, tzinfo=UTC)
    assert leap.next_after(datetime(2072, 3, 1, tzinfo=UTC)) == datetime(2112, 2, 29, tzinfo=UTC)


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("*/1 * ? * ?", "* * * * *"),
        ("0 */5 * * * *", "*/5 * * * *"),
        ("0 9 * * mon-FRI", "0 9 * * 1-5"),
        ("0 9 * JAN,feb,3 *", "0 9 * 1-3 *"),
        ("30,0 9 * * *", "0,30 9 * * *"),
        ("0/15 * * * *", "0,15,30,45 * * * *"),
        ("*/15 * * * *", "*/15 * * * *"),
        ("7,*/15 * * * *", "0,7,15,30,45 * * * *"),
        ("*/15,7 * * * *", "*/15,7 * * * *"),
        ("0 0 * * 5L", "0 0 * * 5#L"),
        ("0 0 * * 0,7", "0 0 * * 0"),
        ("0 0 * * +MON", "0 0 * * 1"),
        ("0 0 1 * +MON", "0 0 1 * +1"),
        ("0 0 LW,15W,L,3 * *", "0 0 3,L,LW,15W * *"),
        ("@weekly", "0 0 * * 0"),
        ("0-59 0-23 * * *", "0-59 0-23 * * *"),
    ],
)
def test_cron_rule_has_a_single_canonical_form(written: str, canonical: str):
    assert triggers.compile({"type": "cron", "expr": written}).canonical == {
        "type": "cron",
        "expr": canonical,
        "tz": "UTC",
    }


def test_the_zone_may_be_in_the_expression():
    for text in ("CRON_TZ=Asia/Tokyo 0 9 * * *", "tz=Asia/Tokyo\t0 9 * * *"):
        compiled = triggers.compile({"type": "cron", "expr": text})
        assert compiled.canonical == {"type": "cron", "expr": "0 9 * * *", "tz": "Asia/Tokyo"}
    triggers.compile({"type": "cron", "expr": "CRON_TZ=Asia/Tokyo 0 9 * * *", "tz": "Asia/Tokyo"})


def h(text: str) -> int:
    return int.from_bytes(sha256(text.encode()).digest()[:8], "big")


def test_a_hash_is_a_stable_value_of_the_job():
    def expr(text: str) -> str:
        return str(triggers.compile({"type": "cron", "expr": text}, job_id="job-7").canonical["expr"])

    minute, hour = h("job-7/minute"), h("job-7/hour")
    assert expr("H H * * *") == f"{minute % 60} {hour % 24} * * *"
    assert expr("0 H(1-5) * * *") == f"0 {1 + hour % 5} * * *"
    assert expr("0 0 H * *") == f"0 0 {1 + h('job-7/dom') % 28} * *"
    first = minute % 20
    assert expr("H/20 * * * *") == f"{first},{first + 20},{first + 40} * * * *"
    first = 10 + minute % 7
    assert expr("H(10-30)/7 * * * *") == ",".join(map(str, range(first, 31, 7))) + " * * * *"


@pytest.mark.parametrize("expr", ["H/31 * * * *", "0 H/13 * * *", "H(5-5)/1 * * * *", "H(0-9)/6 * * * *"])
def test_a_hashed_step_that_could_pick_one_value_is_refused_for_every_job(expr: str):
    for job in ("a", "b", "c", "d"):
        with pytest.raises(TriggerError, match="does not fit"):
            triggers.compile({"type": "cron", "expr": expr}, job_id=job)


@pytest.mark.parametrize(
    ("expr", "zone", "sentence"),
    [
        ("30 2 * * 1-5", "Europe/London", "At 02:30, Monday to Friday, Europe/London time"),
        ("*/15 * * * *", "UTC", "Every 15 minutes"),
        ("0 9 15W * MON", "UTC", "At 09:00 on the weekday nearest the 15th and on every Monday"),
        ("* * * * *", "UTC", "Every minute"),
        ("* * * * * *", "UTC", "Every second"),
        ("*/10 * * * * *", "Asia/Tokyo", "Every 10 seconds, Asia/Tokyo time"),
        ("0 * * * *", "UTC", "Every hour"),
        ("20 * * * *", "UTC", "Every hour at minute 20"),
        ("0 */6 * * *", "UTC", "At 00:00, 06:00, 12:00 and 18:00"),
        ("0 */2 * * *", "UTC", "Every 2 hours"),
        ("*/20 9-17 * * MON-FRI", "UTC", "Every 20 minutes from 09:00 to 17:59, Monday to Friday"),
        ("0 9,17 * * *", "UTC", "At 09:00 and 17:00"),
        ("15 30 9 * * *", "UTC", "At 09:30:15"),
        ("0 0 1,15 * *", "UTC", "At 00:00 on the 1st and the 15th"),
        ("0 0 L * *", "UTC", "At 00:00 on the last day of the month"),
        ("0 0 L-2 * *", "UTC", "At 00:00 on the 2nd day before the last day of the month"),
        ("0 0 13 * +FRI", "UTC", "At 00:00 on the 13th, if that is a Friday"),
        ("0 0 * * MON#1", "UTC", "At 00:00 on the first Monday of the month"),
        ("0 0 1 1 *", "UTC", "At 00:00 on the 1st in January"),
        ("0 0 * 6-8 SAT,SUN", "UTC", "At 00:00 on Sunday and Saturday from June to August"),
        ("0 0 */2 * *", "UTC", "At 00:00 on every 2nd day of the month from the 1st"),
    ],
)
def test_the_sentence(expr: str, zone: str, sentence: str):
    assert triggers.compile({"type": "cron", "expr": expr, "tz": zone}).describe() == sentence


@pytest.mark.parametrize(
    ("expr", "codes"),
    [
        ("0 9 * * *", []),
        ("0 9 1 * MON", ["DAY_OR"]),
        ("0 9 1 * +MON", []),
        ("0 0 9 ? * 1", ["WEEKDAY_NUMBERS"]),
        ("0 0 9 ? * MON", []),
        ("*/7 * * * *", ["UNEVEN_STEP"]),
        ("*/15 * * * *", []),
        ("0 */5 * * *", ["UNEVEN_STEP"]),
        ("*/10 * * * * *", ["DENSE"]),
        ("0 * * * * *", []),
        ("0 0 31 2 MON", ["DAY_OR", "DEAD_PART"]),
        ("0 0 15,31 2 *", ["DEAD_PART"]),
    ],
)
def test_the_warnings_that_need_no_clock(expr: str, codes: list[str]):
    assert [warning.code for warning in triggers.compile({"type": "cron", "expr": expr}).warnings] == codes
