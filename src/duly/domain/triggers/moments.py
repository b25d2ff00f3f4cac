"""The searched span of time, and conversions between moments, seconds and days."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
EPOCH_ORDINAL = date(1970, 1, 1).toordinal()
DAY = 86_400
LAST_YEAR = 2199
# The search for an occurrence begins and ends here. Two days are left at the start, so that every local time is a valid
# date.
FIRST_SECOND = (2 - EPOCH_ORDINAL) * DAY
LAST_SECOND = (date(LAST_YEAR + 1, 1, 1).toordinal() - EPOCH_ORDINAL) * DAY - 1

_MONTH_DAYS = (0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


def second_of(moment: datetime) -> int:
    """Count the whole seconds from 1970 to an aware moment."""
    since = moment - EPOCH
    return since.days * DAY + since.seconds


def moment_of(second: int) -> datetime:
    """Return the moment of a number of seconds."""
    return EPOCH + timedelta(0, second)


def month_days(year: int, month: int) -> int:
    """Return the length of a month."""
    if month == 2 and year % 4 == 0 and (year % 100 != 0 or year % 400 == 0):
        return 29
    return _MONTH_DAYS[month]


def day_of(year: int, month: int, day: int) -> int:
    """Count the days from 1970 to a date."""
    return date(year, month, day).toordinal() - EPOCH_ORDINAL


def date_of(day: int) -> date:
    """Return the date of a number of days."""
    return date.fromordinal(day + EPOCH_ORDINAL)


def clock_text(local: int) -> str:
    """Write the time of day of a local time, with seconds only if there are any."""
    minutes, second = divmod(local % DAY, 60)
    text = f"{minutes // 60:02}:{minutes % 60:02}"
    return f"{text}:{second:02}" if second else text


def local_text(local: int) -> str:
    """Write a local time as `2026-03-08T02:30:00`."""
    return f"{EPOCH + timedelta(0, local):%Y-%m-%dT%H:%M:%S}".rjust(19, "0")


def utc_text(second: int) -> str:
    """Write a moment as `2026-03-08T07:00:00Z`."""
    return local_text(second) + "Z"


def fraction_text(microseconds: int) -> str:
    """Write a part of a second as `.250` or `.250001`; empty where there is none."""
    if not microseconds:
        return ""
    return f".{microseconds:06}" if microseconds % 1000 else f".{microseconds // 1000:03}"


def offset_text(offset: int) -> str:
    """Write an offset from UTC as `+01:00`."""
    sign, size = ("-", -offset) if offset < 0 else ("+", offset)
    text = f"{sign}{size // 3600:02}:{size // 60 % 60:02}"
    return f"{text}:{size % 60:02}" if size % 60 else text
