"""Compilation of a schedule's JSON, with all problems reported at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, get_args

import msgspec

from duly.domain.triggers import periods, spec, stamps
from duly.domain.triggers.at import At
from duly.domain.triggers.calendars import BLOCKED_DAYS_MAX, Calendar, Use
from duly.domain.triggers.compiled import Compiled
from duly.domain.triggers.compiling import check_keys, check_object, check_part, compile_trigger
from duly.domain.triggers.errors import TriggerError, nearest, shown, together
from duly.domain.triggers.jitter import MAX_SECONDS, Jitter
from duly.domain.triggers.moments import DAY, EPOCH, moment_of
from duly.domain.triggers.schedule.density import check_density
from duly.domain.triggers.schedule.schedules import GRACE_SECONDS, MISFIRE_LIMIT_MAX, Misfire, Overlap, Schedule

_FINEST = timedelta(microseconds=1)
_NO_JOB = "00000000-0000-0000-0000-000000000000"
# No clock changes anywhere in the following week, so every local time relative to it exists once.
_QUIET_DAY = datetime(2024, 1, 10, tzinfo=UTC)


def compile_schedule(
    shape: object,
    *,
    job_id: str | None,
    now: datetime,
    known_calendars: Mapping[str, Calendar] | None = None,
    least_period: int | None = None,
) -> Schedule:
    """Compile a schedule that is created at `now`. Raises TriggerError, which carries every problem.

    With a `least_period`, in seconds, its occurrences may not be closer together.
    """
    schedule = _read(check_object(shape, "schedule"), job_id, now, known_calendars or {})
    _check(schedule, now, least_period)
    return schedule


def check_schedule(shape: object, known_calendars: Mapping[str, Calendar]) -> Schedule:
    """Refuse a schedule that is invalid at any moment and for any job. Raises TriggerError."""
    schedule = _read(check_object(shape, "schedule"), _NO_JOB, _QUIET_DAY, known_calendars)
    _check_bounds(schedule)
    return schedule


def load_schedule(stored: Mapping[str, Any], known_calendars: Mapping[str, Calendar]) -> Schedule:
    """Compile a stored schedule. It loads even if it would be refused as a new one."""
    kept = {key: value for key, value in stored.items() if key != "requested"}
    # Nothing in it is relative to a job or to its creation any more.
    return _read(kept, None, EPOCH, known_calendars)


def _read(
    given: Mapping[str, Any], job_id: str | None, now: datetime, known_calendars: Mapping[str, Calendar]
) -> Schedule:
    check_keys(given, spec.Schedule)
    errors: list[TriggerError] = []

    def attempt(read: Any, *arguments: Any) -> Any:
        try:
            return read(*arguments)
        except TriggerError as error:
            errors.append(error)

    trigger = attempt(_trigger, given["trigger"], job_id, now)
    start, end = attempt(_bound, given, "start", trigger), attempt(_bound, given, "end", trigger)
    parts = (
        attempt(_whole, given, "max_runs", 1, 10**9),
        attempt(_jitter, given.get("jitter")),
        attempt(_misfire, given.get("misfire")),
        attempt(_overlap, given.get("overlap")),
        attempt(_uses, given.get("calendars"), known_calendars),
        attempt(_whole, given, "pause_on_failure", 1, 1000),
    )
    if errors:
        raise together(errors)
    return Schedule(trigger, start, end, *parts)


def _trigger(shape: object, job_id: str | None, now: datetime) -> Compiled:
    try:
        return compile_trigger(shape, job_id=job_id, now=now)
    except TriggerError as error:
        raise error.within("trigger") from None


def _check(schedule: Schedule, now: datetime, least_period: int | None) -> None:
    """Refuse a schedule that never fires, or fires too often."""
    trigger = schedule.trigger
    check_density(trigger, now, least_period)
    if isinstance(trigger, At) and trigger.moment < now - timedelta(seconds=schedule.misfire.grace_seconds):
        message = (
            f"at {trigger.moment:%Y-%m-%dT%H:%M:%SZ} is in the past; give a later time, or leave it out to run now"
        )
        raise TriggerError("AT_PAST", message, "trigger.at" if trigger.words is None else "trigger.text")
    _check_window(schedule, now)
    check_calendars(schedule, now)


def _check_delay(schedule: Schedule) -> None:
    """Refuse options that mean nothing to a schedule that counts from the end of its runs."""
    said = {
        "calendars": schedule.uses != (),
        "jitter": schedule.jitter is not None,
        "overlap": schedule.overlap != Overlap(),
        "misfire": schedule.misfire != Misfire(),
    }
    key = next((key for key, is_said in said.items() if is_said), None)
    if key is not None and schedule.trigger.is_estimate:
        message = f"{key} does not apply to fixed_delay, which counts from the end of each run; leave it out, or use fixed_rate"
        raise TriggerError("TRIGGER_VALUE", message, key, "fixed_rate")


def _check_bounds(schedule: Schedule) -> None:
    _check_delay(schedule)
    start, end = schedule.start, schedule.end
    if start is not None and end is not None and end <= start:
        raise TriggerError("WINDOW_EMPTY", f"end {end:%Y-%m-%dT%H:%M:%SZ} is not after start; give a later end", "end")


def _check_window(schedule: Schedule, now: datetime) -> None:
    _check_bounds(schedule)
    start, end = schedule.start, schedule.end
    if start is None and end is None:
        return
    first = schedule.trigger.next_after((start or now) - _FINEST)
    if first is None or (end is not None and first >= end):
        message = "start and end: the trigger has no occurrence between them; widen them"
        raise TriggerError("WINDOW_EMPTY", message, "end" if end is not None else "start")


def check_calendars(schedule: Schedule, now: datetime) -> None:
    """Refuse calendars that block a schedule for 400 days. Raises TriggerError."""
    if not schedule.uses:
        return
    limit = now + timedelta(days=BLOCKED_DAYS_MAX)
    plain = msgspec.structs.replace(schedule, uses=()).next_after(now)
    if plain is None or plain.scheduled_at > limit:
        return
    fire = schedule.next_after(now)
    if fire is None or fire.scheduled_at > limit:
        names = ", ".join(use.calendar.name for use in schedule.uses)
        message = (
            f"calendars: {names} block every occurrence for {BLOCKED_DAYS_MAX} days; change the calendar or the trigger"
        )
        raise TriggerError("WINDOW_EMPTY", message, "calendars")


def _bound(given: Mapping[str, Any], key: str, trigger: Compiled | None) -> datetime | None:
    if given.get(key) is None:
        return None
    zone = None if trigger is None or trigger.zone.name == "UTC" else trigger.zone
    return moment_of(stamps.read(given[key], key, zone))


def _jitter(value: object) -> Jitter | None:
    if value is None:
        return None
    shape = check_part(value, "jitter", spec.Jitter)
    seconds = periods.read_clock(shape["max"], "jitter.max")
    if seconds > MAX_SECONDS:
        raise TriggerError(
            "LIMIT", f"jitter.max {shown(shape['max'])} is over 24 hours; write PT24H or less", "jitter.max"
        )
    per = _choice(shape.get("per") or "job", "jitter.per", ("job", "occurrence"))
    return Jitter(seconds, "job" if per == "job" else "occurrence")


def _misfire(value: object) -> Misfire:
    if value is None:
        return Misfire()
    shape = check_part(value, "misfire", spec.Misfire)
    policy = _choice(shape.get("policy") or "fire_once", "misfire.policy", get_args(spec.MisfireWord))
    window = _length(shape.get("window"), "misfire.window")
    if window is None and policy == "fire_all":
        window = DAY
    grace = _length(shape.get("grace"), "misfire.grace")
    rate = shape.get("rate", 1)
    if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 < rate <= 10_000:
        raise TriggerError(
            "TRIGGER_VALUE", f"misfire.rate {shown(rate)} is not a number of runs a second", "misfire.rate"
        )
    limit = _whole(shape, "limit", 1, MISFIRE_LIMIT_MAX, "misfire.") or Misfire().limit
    return Misfire(policy, GRACE_SECONDS if grace is None else grace, window, rate, limit)


def _overlap(value: object) -> Overlap:
    if value is None:
        return Overlap()
    shape = check_part(value, "overlap", spec.Overlap)
    policy = _choice(shape.get("policy") or "skip", "overlap.policy", get_args(spec.OverlapWord))
    limit = _whole(shape, "limit", 1, 1_000_000, "overlap.")
    return Overlap(policy, 100 if limit is None and policy == "queue" else limit)


def _uses(value: object, known: Mapping[str, Calendar]) -> tuple[Use, ...]:
    if value is None:
        return ()
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise TriggerError("TRIGGER_VALUE", f"calendars {shown(value)} is not a list", "calendars")
    return tuple(_use(item, f"calendars[{index}]", known) for index, item in enumerate(value))


def _use(item: object, field: str, known: Mapping[str, Calendar]) -> Use:
    shape = check_part(item, field, spec.CalendarUse)
    name = shape["name"]
    if not isinstance(name, str) or name not in known:
        meant = nearest(name, known) if isinstance(name, str) else None
        remedy = f"did you mean {meant}?" if meant else "create it: duly calendars put FILE"
        raise TriggerError(
            "TRIGGER_VALUE", f"{field}.name {shown(name)} is not a calendar; {remedy}", f"{field}.name", meant
        )
    mode = _choice(shape.get("mode") or "exclude", f"{field}.mode", ("exclude", "include"))
    on_hit = _choice(shape.get("on_hit") or "skip", f"{field}.on_hit", ("skip", "defer"))
    return Use(known[name], "exclude" if mode == "exclude" else "include", "skip" if on_hit == "skip" else "defer")


def _choice(value: object, field: str, choices: Sequence[str]) -> str:
    if not isinstance(value, str) or value not in choices:
        meant = nearest(value, choices) if isinstance(value, str) else None
        raise TriggerError(
            "TRIGGER_VALUE", f"{field} {shown(value)} is unknown; use {', '.join(choices)}", field, meant
        )
    return value


def _length(value: object, field: str) -> int | None:
    """Parse a duration in which a calendar day counts as 24 hours; months and years are refused."""
    if value is None:
        return None
    period = periods.read(value, field)
    if period.months:
        message = f"{field} {shown(value)} has months, whose length varies; write days or hours, such as P7D"
        raise TriggerError("DURATION_CALENDAR", message, field)
    return period.seconds + period.days * DAY


def _whole(given: Mapping[str, Any], key: str, low: int, high: int, path: str = "") -> int | None:
    value = given.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        message = f"{path}{key} {shown(value)} is not a whole number from {low} to {high}"
        raise TriggerError("TRIGGER_VALUE", message, path + key)
    return value
