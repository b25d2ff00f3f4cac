"""Plans for a due occurrence, for all jobs of one cohort at once.

A *cohort* is everything that decides when a schedule fires and what happens when it is late: its canonical trigger,
bounds, calendars, jitter and misfire policy. Jobs of one cohort share the plan, so it is computed once for all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from hashlib import sha256
from itertools import islice
from typing import Any

import msgspec

from duly.domain.triggers.at import At
from duly.domain.triggers.calendars import BLOCKED_DAYS_MAX, blockers
from duly.domain.triggers.moments import DAY, second_of, utc_text
from duly.domain.triggers.schedule import counting
from duly.domain.triggers.schedule.schedules import Schedule
from duly.domain.triggers.zones import zones

_FINEST = timedelta(microseconds=1)
_COHORT_BITS = 62
_BY_CALENDAR = "skipped_calendar"
# Each job of the cohort walks them. Beyond this, a count is a lower bound.
_CUTS_MAX = 256


class Cut(msgspec.Struct, frozen=True):
    """The number of a span's occurrences left from one of them on."""

    first: datetime
    count: int


class Skip(msgspec.Struct, frozen=True, omit_defaults=True):
    """A span of occurrences that do not run, for one reason.

    `count` is exact for cron and fixed periods. Other triggers are walked, and calendars checked, only so far (see
    `counting`); beyond that it is a lower bound. `cuts` are for jobs created in the midst of it.
    """

    reason: str
    first: datetime
    last: datetime
    count: int
    cuts: tuple[Cut, ...] = ()


class FirePlan(msgspec.Struct, frozen=True):
    """The plan for a due occurrence.

    `run_at` is the occurrence to run now, and `missed` how many late ones it stands for, including itself: 0 on time.
    `catch_up` holds those to run in the backfill lane, from its first moment up to, and without, its second. `next_at`
    is the occurrence to arm, None when there is none left, and `next_window` its room for jitter in seconds.
    """

    run_at: datetime | None
    missed: int
    skips: tuple[Skip, ...]
    catch_up: tuple[datetime, datetime] | None
    catch_up_count: int
    next_at: datetime | None
    next_window: int


def plan_fire(schedule: Schedule, scheduled_at: datetime, *, is_late: bool, now: datetime) -> FirePlan:
    """Plan the occurrence at `scheduled_at`, and, when it is late, all that are missed by `now`."""
    if is_late:
        return _plan_missed(schedule, scheduled_at, now)
    # From the occurrence and not from now, so that nothing between the two is lost.
    next_at, next_window = arm(schedule, scheduled_at) or (None, 0)
    skips = left_out_by_calendars(schedule, scheduled_at, scheduled_at) + left_out_behind(
        schedule, scheduled_at, next_at
    )
    return FirePlan(scheduled_at, 0, skips, None, 0, next_at, next_window)


def hold_fire(schedule: Schedule, scheduled_at: datetime, now: datetime) -> FirePlan:
    """Leave undecided the fires that are missed by `now`, from `scheduled_at` on, and arm the next after them."""
    latest, next_at, next_window = _behind(schedule, scheduled_at, now)
    missed = stretch(schedule, scheduled_at, latest, "skipped_misfire")
    skips = left_out_by_calendars(schedule, scheduled_at, latest) + left_out_behind(schedule, latest, next_at)
    return FirePlan(None, 0, skips, (scheduled_at, latest + _FINEST), missed.count, next_at, next_window)


def arm(schedule: Schedule, after: datetime) -> tuple[datetime, int] | None:
    """Return the first fire after a moment and its room for jitter in seconds; None when there is none left."""
    fire = schedule.next_after(after)
    return None if fire is None else (fire.scheduled_at, schedule.jitter_window(fire.scheduled_at))


def arm_anew(
    schedule: Schedule, pending_at: datetime, now: datetime, passed: Iterable[datetime | None]
) -> tuple[datetime | None, int]:
    """Return the replacement of a pending fire under another rule, after `now` and all past fires.

    A fire that is already late stays: staging it decides about all since then.
    """
    if pending_at <= now:
        return pending_at, schedule.jitter_window(pending_at)
    return arm(schedule, max(moment for moment in (now, *passed) if moment is not None)) or (None, 0)


def arm_after_calendar(
    schedule: Schedule, pending_at: datetime, now: datetime, created_at: datetime, passed: Sequence[datetime | None]
) -> tuple[datetime | None, int]:
    """Return the replacement of a pending fire under other calendars.

    A fire that stood for deferred occurrences which are no longer blocked comes at once: that is the first permitted
    instant.
    """
    since = max(moment for moment in (created_at, *passed) if moment is not None)
    if pending_at > now and _was_put_off(schedule, pending_at):
        latest = schedule.latest_at_or_before(now)
        if latest is not None and latest.scheduled_at > since:
            at_once = now.replace(microsecond=0) + timedelta(seconds=1)
            return at_once, schedule.jitter_window(at_once)
    return arm_anew(schedule, pending_at, now, passed)


def _was_put_off(schedule: Schedule, pending_at: datetime) -> bool:
    """Return whether a fire stands for an earlier, deferred occurrence: its moment is not one of the trigger's."""
    return any(use.on_hit == "defer" for use in schedule.uses) and (
        schedule.trigger.latest_at_or_before(pending_at) != pending_at
    )


def latest_due(schedule: Schedule, job_id: str, now: datetime) -> datetime | None:
    """Return the last fire of a job that is due by now, with its jitter."""
    fire = schedule.latest_at_or_before(now)
    if fire is not None and schedule.due_at(fire, job_id) > now:
        fire = schedule.latest_at_or_before(fire.scheduled_at - _FINEST)
    return None if fire is None else fire.scheduled_at


def stretch(schedule: Schedule, first: datetime, last: datetime, reason: str) -> Skip:
    """Return the fires from one to another, both included, as one span that does not run."""
    # At least the armed one, even if the schedule no longer has it.
    return Skip(reason, first, last, max(1, counting.count_between(schedule, first, last + _FINEST)))


def moments_between(schedule: Schedule, start: datetime, end: datetime, limit: int) -> list[datetime]:
    """Return the fires from `start` on and before `end`, at most `limit` of them."""
    return list(islice(counting.fires_between(schedule, start, end), limit))


def _plan_missed(schedule: Schedule, scheduled_at: datetime, now: datetime) -> FirePlan:
    latest, next_at, next_window = _behind(schedule, scheduled_at, now)
    plan = plan_missed(schedule, scheduled_at, latest, now)
    return msgspec.structs.replace(
        plan,
        skips=(
            *left_out_by_calendars(schedule, scheduled_at, latest),
            *plan.skips,
            *left_out_behind(schedule, latest, next_at),
        ),
        next_at=next_at,
        next_window=next_window,
    )


def _behind(schedule: Schedule, scheduled_at: datetime, now: datetime) -> tuple[datetime, datetime | None, int]:
    """Return the last fire that is missed by `now`, and the one to arm after it."""
    # The armed occurrence counts, even if the schedule no longer has it.
    latest = max(scheduled_at, _latest_missed(schedule, now) or scheduled_at)
    return latest, *(arm(schedule, latest) or (None, 0))


def plan_missed(schedule: Schedule, first: datetime, last: datetime, now: datetime) -> FirePlan:
    """Plan the missed fires from `first` to `last` by the schedule's policy, without the next one."""
    misfire = schedule.misfire
    if misfire.policy == "skip":
        return _none(schedule, first, last)
    # A one-shot has nothing to catch up on.
    if misfire.policy == "fire_once" or isinstance(schedule.trigger, At):
        return _run_latest(schedule, first, last, now)
    return _all(schedule, first, last, now)


def _latest_missed(schedule: Schedule, now: datetime) -> datetime | None:
    """Return the last fire that is due by now for every job of the cohort, whatever its jitter."""
    fire = schedule.latest_at_or_before(now)
    if fire is not None and fire.scheduled_at + timedelta(seconds=schedule.jitter_window(fire.scheduled_at)) > now:
        fire = schedule.latest_at_or_before(fire.scheduled_at - _FINEST)
    return None if fire is None else fire.scheduled_at


def _none(schedule: Schedule, first: datetime, last: datetime) -> FirePlan:
    return FirePlan(None, 0, (stretch(schedule, first, last, "skipped_misfire"),), None, 0, None, 0)


def _run_latest(schedule: Schedule, first: datetime, last: datetime, now: datetime) -> FirePlan:
    """Run the latest for all, unless even that is older than the window."""
    window = schedule.misfire.window_seconds
    if window is not None and last < now - timedelta(seconds=window):
        return _none(schedule, first, last)
    older = _before(schedule, first, last, "skipped_misfire")
    return FirePlan(last, 1 + sum(skip.count for skip in older), older, None, 0, None, 0)


def _all(schedule: Schedule, first: datetime, last: datetime, now: datetime) -> FirePlan:
    """Keep the fires within the window, and of them the latest up to the limit."""
    window = DAY if schedule.misfire.window_seconds is None else schedule.misfire.window_seconds
    kept = _first_from(schedule, first, now - timedelta(seconds=window))
    if kept is None or kept > last:
        return _none(schedule, first, last)
    begin, count = counting.last_fires(schedule, kept, last, schedule.misfire.limit)
    skips = _before(schedule, first, kept, "skipped_misfire") + _before(schedule, kept, begin, "skipped_limit")
    return FirePlan(None, 0, skips, (begin, last + _FINEST), count, None, 0)


def _first_from(schedule: Schedule, first: datetime, moment: datetime) -> datetime | None:
    """Return the first fire from a moment on, where `first` is the first of all."""
    if first >= moment:
        return first
    fire = schedule.next_after(moment - _FINEST)
    return None if fire is None else fire.scheduled_at


def _before(schedule: Schedule, first: datetime, end: datetime, reason: str) -> tuple[Skip, ...]:
    """Return the span from the fire `first` up to, and without, the fire `end`; None when they are the same."""
    if first >= end:
        return ()
    fire = schedule.latest_at_or_before(end - _FINEST)
    return (stretch(schedule, first, first if fire is None else max(first, fire.scheduled_at), reason),)


def taken_by_calendars(
    schedule: Schedule, now: datetime, pending_at: datetime | None
) -> tuple[datetime, list[str]] | None:
    """Return the trigger's occurrence before the pending fire, if calendars block it, and their names."""
    start, end = schedule.within(now, pending_at or now + timedelta(days=BLOCKED_DAYS_MAX))
    moment = schedule.trigger.next_after(start)
    if moment is None or moment >= end:
        return None
    names = [use.calendar.name for use in blockers(schedule.uses, second_of(moment))]
    return (moment, names) if names else None


def left_out_before(schedule: Schedule, pending_at: datetime, since: datetime, *, is_last: bool) -> tuple[Skip, ...]:
    """Return what calendars blocked between the fire before the pending one, or `since`, and it; after the last fire,
    the rest too.
    """
    before = left_out_by_calendars(schedule, pending_at, pending_at, since)
    return before + left_out_behind(schedule, pending_at) if is_last else before


def first_left_out(plan: FirePlan) -> datetime | None:
    """Return the first occurrence that calendars blocked before a fire, if any."""
    return next((skip.first for skip in plan.skips if skip.reason == _BY_CALENDAR), None)


def cut_to(schedule: Schedule, plan: FirePlan, moments: Iterable[datetime]) -> FirePlan:
    """Add to a plan what is left of the blocked occurrences from each of the moments on."""
    skips = tuple(_cut(schedule, skip, moments) if skip.reason == _BY_CALENDAR else skip for skip in plan.skips)
    return msgspec.structs.replace(plan, skips=skips)


def _cut(schedule: Schedule, skip: Skip, moments: Iterable[datetime]) -> Skip:
    within = sorted(moment for moment in moments if skip.first < moment <= skip.last)
    found: dict[datetime, Cut] = {}
    for moment in within[:: 1 + len(within) // _CUTS_MAX]:
        left = counting.blocked_between(schedule, moment, skip.last + _FINEST)
        if left is not None:
            found[left.first] = Cut(left.first, left.count)
    return msgspec.structs.replace(skip, cuts=tuple(found.values()))


def left_out_by_calendars(
    schedule: Schedule, first: datetime, last: datetime, since: datetime | None = None
) -> tuple[Skip, ...]:
    """Return what calendars blocked from the fire before `first`, or `since`, to the fire `last`, so that each is
    recorded once.
    """
    if not schedule.uses:
        return ()
    before = schedule.latest_at_or_before(first - _FINEST)
    # A schedule that never fired was blocked for ever; the record covers as much as is ever searched.
    earliest = first - timedelta(days=BLOCKED_DAYS_MAX)
    earliest = earliest if since is None else max(earliest, since)
    start = earliest if before is None else max(earliest, before.scheduled_at + _FINEST)
    return _blocked(schedule, start, last)


def left_out_behind(schedule: Schedule, last: datetime, next_at: datetime | None = None) -> tuple[Skip, ...]:
    """Return what calendars block after the last fire of all, since no later fire reports it; None where another comes."""
    if next_at is not None or not schedule.uses:
        return ()
    until = last + timedelta(days=BLOCKED_DAYS_MAX)
    return _blocked(schedule, last + _FINEST, until if schedule.end is None else schedule.end)


def _blocked(schedule: Schedule, start: datetime, end: datetime) -> tuple[Skip, ...]:
    blocked = counting.blocked_between(schedule, start, end)
    return () if blocked is None else (Skip(_BY_CALENDAR, blocked.first, blocked.last, blocked.count),)


def cohort_text(schedule: Schedule) -> str:
    """Write everything that decides when a schedule fires, in one form for all its spellings."""
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
    """Return the number of a schedule's cohort: the first 62 bits of the SHA-256 of its text."""
    return int.from_bytes(sha256(cohort_text(schedule).encode()).digest()[:8], "big") >> 64 - _COHORT_BITS


def stored_shape(shape: Mapping[str, Any], schedule: Schedule) -> dict[str, Any]:
    """Return the stored form of a schedule: its canonical trigger, and beside it the requested one.

    Local and relative times are made absolute, so that it means the same whenever it is loaded.
    """
    canonical = schedule.trigger.canonical
    bounds = {"start": schedule.start, "end": schedule.end}
    absolute = {key: utc_text(second_of(moment)) for key, moment in bounds.items() if moment is not None}
    requested = {} if shape["trigger"] == canonical else {"requested": shape["trigger"]}
    return requested | {**shape, **absolute, "trigger": canonical}
