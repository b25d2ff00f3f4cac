"""Moments as users write them: ISO 8601 with an offset, or local time in a zone, where it must name exactly one moment."""

from __future__ import annotations

import re
from datetime import date, datetime

from duly.domain.triggers.errors import TriggerError, shown
from duly.domain.triggers.moments import DAY, EPOCH_ORDINAL, LAST_SECOND, LAST_YEAR, clock_text, local_text, offset_text
from duly.domain.triggers.zones.zones import Zone

FIRST_YEAR = 1900
SECOND = 1_000_000  # in microseconds
_STAMP = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d)(?::(\d\d)(?:[.,](\d{1,12}))?)?(Z|[+-]\d\d:\d\d(?::\d\d)?)?", re.ASCII
)
_DATE = re.compile(r"(\d{4})-(\d\d)-(\d\d)", re.ASCII)


def read(value: object, field: str, zone: Zone | None) -> int:
    """Parse a moment of whole seconds. Raises TriggerError."""
    microseconds = read_fine(value, field, zone)
    if microseconds % SECOND:
        message = f"{field} {shown(value)} names a part of a second; whole seconds only"
        raise TriggerError("SUB_SECOND", message, field, local_text(microseconds // SECOND) + "Z")
    return microseconds // SECOND


def read_fine(value: object, field: str, zone: Zone | None) -> int:
    """Parse a moment, in microseconds since 1970. Raises TriggerError."""
    local, microseconds, offset = _parts(value, field)
    if offset is not None:
        return _in_reach(local - offset, field, value) * SECOND + microseconds
    if zone is None:
        message = f"{field} {shown(value)} has no offset; add one, such as Z or +01:00, or give tz"
        raise TriggerError("DATETIME_SYNTAX", message, field)
    return _in_reach(only_instant(local, zone, field), field, value) * SECOND + microseconds


def read_local(value: object, field: str) -> tuple[int, int | None]:
    """Parse a date and time of whole seconds literally: the local time, and the offset if there is one."""
    local, microseconds, offset = _parts(value, field)
    if microseconds:
        raise TriggerError("SUB_SECOND", f"{field} {shown(value)} names a part of a second; whole seconds only", field)
    return local, offset


def read_date(value: object, field: str) -> int:
    """Parse a date, as days since 1970. Raises TriggerError."""
    match = _DATE.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise TriggerError("DATETIME_SYNTAX", f"{field} {shown(value)} is not a date; write YYYY-MM-DD", field)
    return _day(match, field, value)


def only_instant(local: int, zone: Zone, field: str) -> int:
    """Return the one moment at which the clock shows `local`. Raises TriggerError when there is none, or there are two."""
    found = zone.instants_of(local)
    if len(found) == 1:
        return found[0]
    day, time = f"{local_text(local)[:10]} in {zone.name}", clock_text(local)
    if found:
        choices = [local_text(local) + offset_text(local - instant) for instant in found]
        message = f"{field}: {time} happens twice on {day}; give {choices[0]} or {choices[-1]}"
        raise TriggerError("LOCAL_TIME_AMBIGUOUS", message, field, choices[0])
    after = zone.first_instant(local)
    nearest = [local_text(zone.local_at(at)) + offset_text(zone.offset_at(at)) for at in (after - 1, after)]
    message = f"{field}: {time} does not exist on {day}; the nearest times are {nearest[0]} and {nearest[1]}"
    raise TriggerError("LOCAL_TIME_MISSING", message, field, nearest[1])


def _parts(value: object, field: str) -> tuple[int, int, int | None]:
    """Split a timestamp: local time, microseconds, offset."""
    if isinstance(value, datetime):
        value = value.isoformat()
    if not isinstance(value, str):
        raise TriggerError("TRIGGER_VALUE", f"{field} {shown(value)} is not text; write 2026-11-01T09:00:00Z", field)
    match = _STAMP.fullmatch(value)
    if match is None:
        message = f"{field} {shown(value)} is not a date and time; write it as 2026-11-01T09:00:00Z or 2026-11-01T09:00:00+01:00"
        raise TriggerError("DATETIME_SYNTAX", message, field)
    hour, minute, second = int(match[4]), int(match[5]), int(match[6] or 0)
    if hour > 23 or minute > 59 or second > 59:
        message = f"{field} {shown(value)}: there is no such time of day; the last is 23:59:59"
        raise TriggerError("DATETIME_SYNTAX", message, field)
    local = _day(match, field, value) * DAY + hour * 3600 + minute * 60 + second
    return local, _microseconds(match[7], field, value), _offset(match[8], field, value)


def _day(match: re.Match[str], field: str, value: object) -> int:
    try:
        return date(int(match[1]), int(match[2]), int(match[3])).toordinal() - EPOCH_ORDINAL
    except ValueError:
        message = f"{field} {shown(value)}: there is no such day; check month and day"
        raise TriggerError("DATETIME_SYNTAX", message, field) from None


def _microseconds(fraction: str | None, field: str, value: object) -> int:
    if not fraction:
        return 0
    if fraction[6:].strip("0"):
        raise TriggerError(
            "SUB_SECOND", f"{field} {shown(value)} is finer than a microsecond; write six digits at most", field
        )
    return int(fraction[:6].ljust(6, "0"))


def _offset(text: str | None, field: str, value: object) -> int | None:
    if text is None or text == "Z":
        return None if text is None else 0
    # Some zones of a century ago had offsets with seconds.
    hours, minutes, seconds = int(text[1:3]), int(text[4:6]), int(text[7:] or 0)
    if hours > 23 or minutes > 59 or seconds > 59:
        raise TriggerError(
            "DATETIME_SYNTAX", f"{field} {shown(value)}: there is no offset {text}; write +01:00 or Z", field
        )
    return (hours * 3600 + minutes * 60 + seconds) * (-1 if text[0] == "-" else 1)


def _in_reach(second: int, field: str, value: object) -> int:
    if not (date(FIRST_YEAR, 1, 1).toordinal() - EPOCH_ORDINAL) * DAY <= second <= LAST_SECOND:
        message = f"{field} {shown(value)} is outside the years {FIRST_YEAR} to {LAST_YEAR}, which are supported"
        raise TriggerError("LIMIT", message, field)
    return second
