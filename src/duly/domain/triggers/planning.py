"""What becomes of an occurrence that is due, for all jobs of one cohort at once.

A *cohort* is all that decides when a schedule fires and what happens when it is late: its canonical trigger, bounds,
calendars, jitter and misfire policy. Jobs of one cohort share the answer, so it is computed once for all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from hashlib import sha256
from itertools import islice
from typing import Any

import msgspec

from duly.domain.triggers import zones
from duly.domain.triggers.at import At
from duly.domain.triggers.counting import count_between, fires_between, start_of_last
from duly.domain.triggers.moments import DAY
from duly.domain.triggers.schedules import Schedule

_FINEST = timedelta(microseconds=1)
_COHORT_BITS = 62


class Skip(msgspec.Struct, frozen=True):
    """A stretch of occurrences that do not run, for one reason. A count of COUNT_MAX or more is a lower bound."""

    reason: str
    first: datetime
    last: datetime
    count: int


class FirePlan(msgspec.Struct, frozen=True):
    """What to do about an occurrence that is due.

    `run_at` is the occurrence to run now, and `missed` how many late ones it stands for, itself included: 0 on time.
    `catch_up` holds those to run in the backfill lane, from its first moment up to, and without, its second.
    `next_at` is the occurrence to arm, None when there is none left, and `next_window` its room for jitter in seconds.
    """

    run_at: datetime | None
    missed: int
    skips: tuple[Skip, ...]
    catch_up: tuple[datetime, datetime] | None
    catch_up_count: int
    next_at: datetime | None
    next_window: int


def plan_fire(schedule: Schedule, scheduled_at: datetime, *, is_late: bool, now: datetime) -> FirePlan:
    """Say what to do about the occurrence at `scheduled_at`, and about all since then when it is late."""
    if is_late:
        return _plan_late(schedule, scheduled_at, now)
    # From the occurrence and not from now, so that nothing between the two is lost.
    return FirePlan(scheduled_at, 0, (), None, 0, *(arm(schedule, scheduled_at) or _NEVER))


def arm(schedule: Schedule, after: datetime) -> tuple[datetime, int] | None:
    """Give the first fire after a moment and the seconds of jitter there is room for; None when there is none left."""
    fire = schedule.next_after(after)
    return None if fire is None else (fire.scheduled_at, schedule.jitter_window(fire.scheduled_at))


def latest_due(schedule: Schedule, job_id: str, now: datetime) -> datetime | None:
    """Give the last fire of a job that is due by now, its jitter counted in."""
    fire = schedule.latest_at_or_before(now)
    if fire is not None and schedule.due_at(fire, job_id) > now:
        fire = schedule.latest_at_or_before(fire.scheduled_at - _FINEST)
    return None if fire is None else fire.scheduled_at


def stretch(schedule: Schedule, first: datetime, last: datetime, reason: str) -> Skip:
    """Give the fires from one to another, both included, as one stretch that does not run."""
    return Skip(reason, first, last, max(1, count_between(schedule, first, last + _FINEST)))


def moments_between(schedule: Schedule, start: datetime, end: datetime, limit: int) -> list[datetime]:
    """Give the fires from `start` on and before `end`, at most `limit` of them."""
    return list(islice(fires_between(schedule, start, end), limit))


_NEVER: tuple[None, int] = (None, 0)


def _plan_late(schedule: Schedule, scheduled_at: datetime, now: datetime) -> FirePlan:
    # The armed occurrence stands, even if the schedule would no longer name it.
    latest = max(scheduled_at, _latest_missed(schedule, now) or scheduled_at)
    armed = arm(schedule, latest) or _NEVER
    policy = schedule.misfire.policy
    if policy == "skip":
        return _none(schedule, scheduled_at, latest, armed)
    # A one-shot has nothing to catch up with.
    if policy == "fire_once" or isinstance(schedule.trigger, At):
        return _once(schedule, scheduled_at, latest, armed, now)
    return _all(schedule, scheduled_at, latest, armed, now)


def _latest_missed(schedule: Schedule, now: datetime) -> datetime | None:
    """Give the last fire that is due by now for every job of the cohort, however its jitter falls."""
    fire = schedule.latest_at_or_before(now)
    if fire is not None and fire.scheduled_at + timedelta(seconds=schedule.jitter_window(fire.scheduled_at)) > now:
        fire = schedule.latest_at_or_before(fire.scheduled_at - _FINEST)
    return None if fire is None else fire.scheduled_at


_Armed = tuple[datetime | None, int]


def _none(schedule: Schedule, first: datetime, last: datetime, armed: _Armed) -> FirePlan:
    return FirePlan(None, 0, (stretch(schedule, first, last, "skipped_misfire"),), None, 0, *armed)


def _once(schedule: Schedule, first: datetime, last: datetime, armed: _Armed, now: datetime) -> FirePlan:
    """Run the latest for all, unless even that is older than the window."""
    window = schedule.misfire.window_seconds
    if window is not None and last < now - timedelta(seconds=window):
        return _none(schedule, first, last, armed)
    older = _before(schedule, first, last, "skipped_misfire")
    return FirePlan(last, 1 + sum(skip.count for skip in older), older, None, 0, *armed)


def _all(schedule: Schedule, first: datetime, last: datetime, armed: _Armed, now: datetime) -> FirePlan:
    """Keep those within the window, and of them the latest up to the limit."""
    misfire = schedule.misfire
    window = DAY if misfire.window_seconds is None else misfire.window_seconds
    kept = _first_from(schedule, first, now - timedelta(seconds=window))
    if kept is None or kept > last:
        return _none(schedule, first, last, armed)
    begin = start_of_last(schedule, kept, last, misfire.limit)
    skips = (
        *_before(schedule, first, kept, "skipped_misfire"),
        *_before(schedule, kept, begin, "skipped_limit"),
    )
    end = last + _FINEST
    return FirePlan(None, 0, skips, (begin, end), count_between(schedule, begin, end), *armed)


def _first_from(schedule: Schedule, first: datetime, moment: datetime) -> datetime | None:
    """Give the first fire from a moment on, where `first` is the first of all."""
    if first >= moment:
        return first
    fire = schedule.next_after(moment - _FINEST)
    return None if fire is None else fire.scheduled_at


def _before(schedule: Schedule, first: datetime, end: datetime, reason: str) -> tuple[Skip, ...]:
    """Give the stretch from the fire `first` up to, and without, the fire `end`; nothing when they are one."""
    last = schedule.latest_at_or_before(end - _FINEST) if first < end else None
    return () if last is None else (stretch(schedule, first, last.scheduled_at, reason),)


def cohort_text(schedule: Schedule) -> str:
    """Write down all that decides when a schedule fires, in one way for all spellings of it."""
    return msgspec.json.encode(
        {
            "trigger": schedule.trigger.canonical,
            "start": schedule.start,
            "end": schedule.end,
            "jitter": schedule.jitter,
            "misfire": schedule.misfire,
            "calendars": sorted(
                (use.calendar.name, use.calendar.digest, use.mode, use.on_hit) for use in schedule.uses
            ),
            "tzdb": zones.database_version(),
        },
        order="deterministic",
    ).decode()


def cohort_of(schedule: Schedule) -> int:
    """Give the number of a schedule's cohort: the first 62 bits of the SHA-256 of its text."""
    return int.from_bytes(sha256(cohort_text(schedule).encode()).digest()[:8], "big") >> 64 - _COHORT_BITS


def stored_shape(shape: Mapping[str, Any], schedule: Schedule) -> dict[str, Any]:
    """Give what the store keeps of a schedule: its trigger in canonical form, and beside it what was asked for."""
    canonical = schedule.trigger.canonical
    asked = {} if shape["trigger"] == canonical else {"asked": shape["trigger"]}
    return asked | {**shape, "trigger": canonical}
