"""Text of a compiled cron expression: its canonical form, and a sentence."""

from __future__ import annotations

from duly.domain.triggers.cron.days import DayRule
from duly.domain.triggers.cron.parser import Expression
from duly.domain.triggers.cron.specs import HOUR, LAST, MINUTE, MONTH, SECOND, Field, Spec, mask_of
from duly.domain.triggers.english.phrases import MONTHS, WEEKDAYS, bits, every, in_zone, listed, ordinal, runs

_TIMES_LISTED_MAX = 6
_NTH = {LAST: "last", 1: "first", 2: "second", 3: "third", 4: "fourth", 5: "fifth"}


def expression(spelled: Expression, days: DayRule) -> str:
    """Write the expression in canonical form: all spellings of one rule give the same text, which fires the same."""
    second = "" if spelled.second.mask == 1 else _free_field(SECOND, spelled.second.mask) + " "
    minute, hour = _clock_field(MINUTE, spelled.minute), _clock_field(HOUR, spelled.hour)
    by_month = "*" if days.day_of_month is None else _day_terms(days.day_of_month)
    by_week = "*" if days.day_of_week is None else _weekday_terms(days.day_of_week)
    plus = "+" if days.needs_both else ""
    return f"{second}{minute} {hour} {by_month} {_free_field(MONTH, spelled.month.mask)} {plus}{by_week}"


def _clock_field(spec: Spec, field: Field) -> str:
    """Write minutes or hours. A leading star decides what a clock change does, so it is kept."""
    return _starred(spec, field.mask) if field.is_star else _ranges(bits(field.mask))


def _free_field(spec: Spec, mask: int) -> str:
    step = _whole_step(spec, mask)
    return _ranges(bits(mask)) if step is None else _step_text(step)


def _starred(spec: Spec, mask: int) -> str:
    for step in range(1, spec.high - spec.low + 1):
        steps = mask_of(spec.low, spec.high, step)
        if steps & mask == steps:
            rest = bits(mask & ~steps)
            return _step_text(step) + ("," + _ranges(rest) if rest else "")
    raise AssertionError(mask)


def _whole_step(spec: Spec, mask: int) -> int | None:
    return next(
        (step for step in range(1, spec.high - spec.low + 1) if mask_of(spec.low, spec.high, step) == mask), None
    )


def _step_text(step: int) -> str:
    return "*" if step == 1 else f"*/{step}"


def _ranges(values: list[int]) -> str:
    """Write numbers as a list, with three or more in a row as a range."""
    parts: list[str] = []
    for low, high in runs(values):
        parts += [f"{low}-{high}"] if high - low > 1 else [str(value) for value in range(low, high + 1)]
    return ",".join(parts)


def _day_terms(field: Field) -> str:
    plain = [_ranges(bits(field.mask))] if field.mask else []
    lasts = [f"L-{before}" if before else "L" for before in field.lasts]
    nears = ["LW" if day == LAST else f"{day}W" for day in field.nears]
    return ",".join(plain + lasts + nears)


def _weekday_terms(field: Field) -> str:
    plain = [_ranges(bits(field.mask))] if field.mask else []
    nths = [f"{weekday}#{'L' if which == LAST else which}" for weekday, which in field.weekdays_of_month]
    return ",".join(plain + nths)


def sentence(seconds: int, minutes: int, hours: int, months: int, days: DayRule, zone: str) -> str:
    """Describe when it fires."""
    return in_zone((_clock(seconds, minutes, hours) + _days(days) + _months(months)).rstrip(","), zone)


def _clock(seconds: int, minutes: int, hours: int) -> str:
    if seconds.bit_count() * minutes.bit_count() * hours.bit_count() <= _TIMES_LISTED_MAX:
        return "At " + listed(_times(seconds, minutes, hours))
    if seconds == 1:
        return _minutes(minutes, hours)
    second = _rhythm(SECOND, seconds)
    where = "" if _is_full(MINUTE, minutes) else f" of {_numbers('minute', minutes)}"
    if second is None:
        return f"At {_numbers('second', seconds)} of {_numbers('minute', minutes)}{_of_hours(hours)}"
    return every(second, "second") + where + _of_hours(hours)


def _minutes(minutes: int, hours: int) -> str:
    minute, hour = _rhythm(MINUTE, minutes), _rhythm(HOUR, hours)
    if minute is not None:
        return every(minute, "minute") + _of_hours(hours)
    if hour is not None:
        if minutes.bit_count() == 1:
            past = bits(minutes)[0]
            return every(hour, "hour") + (f" at minute {past}" if past else "")
        return f"At {_numbers('minute', minutes)} of {every(hour, 'hour').lower()}"
    return f"At {_numbers('minute', minutes)}{_of_hours(hours)}"


def _of_hours(hours: int) -> str:
    if _is_full(HOUR, hours):
        return ""
    stretches = runs(bits(hours))
    if len(stretches) == 1:
        low, high = stretches[0]
        return f" from {low:02}:00 to {high:02}:59"
    return f" of {_numbers('hour', hours)}"


def _rhythm(spec: Spec, mask: int) -> int | None:
    """Return n where the values are every n-th from the first, and the field's length is a multiple of it."""
    step = _whole_step(spec, mask)
    return step if step is not None and (spec.high + 1) % step == 0 else None


def _is_full(spec: Spec, mask: int) -> bool:
    return mask == mask_of(spec.low, spec.high)


def _numbers(unit: str, mask: int) -> str:
    values = bits(mask)
    parts = [str(low) if low == high else f"{low} to {high}" for low, high in runs(values)]
    return f"{unit} {parts[0]}" if len(values) == 1 else f"{unit}s {listed(parts)}"


def _times(seconds: int, minutes: int, hours: int) -> list[str]:
    return [
        f"{hour:02}:{minute:02}" + (f":{second:02}" if second or seconds != 1 else "")
        for hour in bits(hours)
        for minute in bits(minutes)
        for second in bits(seconds)
    ]


def _days(days: DayRule) -> str:
    by_month, by_week = days.day_of_month, days.day_of_week
    if by_month is None:
        return "" if by_week is None else _only_weekdays(by_week)
    dates = " on " + listed(_dates(by_month))
    if by_week is None:
        return dates
    if days.needs_both:
        names = [f"a {name}" if name in WEEKDAYS else name for name in _weekdays(by_week)]
        return f"{dates}, if that is {listed(names, 'or')},"
    return f"{dates} and on {listed(['every ' + name if name in WEEKDAYS else name for name in _weekdays(by_week)])}"


def _only_weekdays(field: Field) -> str:
    values = bits(field.mask)
    if not field.weekdays_of_month and len(values) > 2 and len(runs(values)) == 1:
        return f", {WEEKDAYS[values[0]]} to {WEEKDAYS[values[-1]]}"
    if not field.weekdays_of_month and len(values) == 1:
        return f" on every {WEEKDAYS[values[0]]}"
    return " on " + listed(_weekdays(field))


def _weekdays(field: Field) -> list[str]:
    plain = [WEEKDAYS[value] for value in bits(field.mask)]
    return plain + [f"the {_NTH[which]} {WEEKDAYS[weekday]} of the month" for weekday, which in field.weekdays_of_month]


def _dates(field: Field) -> list[str]:
    nears = [
        "the last weekday of the month" if day == LAST else f"the weekday nearest the {ordinal(day)}"
        for day in field.nears
    ]
    lasts = [_from_last(before) for before in field.lasts]
    return [*_plain_dates(bits(field.mask)), *nears, *lasts]


def _plain_dates(values: list[int]) -> list[str]:
    step = values[1] - values[0] if len(values) > 4 else 0
    if step > 1 and values == list(range(values[0], 32, step)):
        return [f"every {ordinal(step)} day of the month from the {ordinal(values[0])}"]
    return [
        f"the {ordinal(low)}" if low == high else f"the {ordinal(low)} to {ordinal(high)}" for low, high in runs(values)
    ]


def _from_last(before: int) -> str:
    if before == 0:
        return "the last day of the month"
    return f"the {'day' if before == 1 else f'{ordinal(before)} day'} before the last day of the month"


def _months(months: int) -> str:
    values = bits(months)
    if len(values) == 12:
        return ""
    stretches = runs(values)
    if len(stretches) == 1 and len(values) > 2:
        return f" from {MONTHS[values[0]]} to {MONTHS[values[-1]]}"
    return " in " + listed([MONTHS[value] for value in values])
