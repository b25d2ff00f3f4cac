"""Figures: completed runs over time, the current state, and the next fires. Every read is bounded, in rows and in time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta

from duly.api.operations import Call, Routes
from duly.api.response import Response
from duly.api.views.attention import needing_attention, unknown_of
from duly.api.views.jobs import no_job
from duly.clock import moment_of
from duly.domain.diagnosis.figures import MINUTE, counted_per_minute, fires_per_minute, percentile
from duly.domain.errors import InvalidOption
from duly.domain.limits.pause import Scope
from duly.domain.triggers.errors import TriggerError
from duly.domain.triggers.schedule.planning import moments_between
from duly.domain.triggers.schedule.timing import read_calendars, schedule_of
from duly.domain.triggers.zones.days import begin_of, change_days, day_in
from duly.domain.triggers.zones.zones import Zone
from duly.domain.triggers.zones.zones import find as find_zone
from duly.store.connection.database import Database
from duly.store.reads import figures
from duly.store.reads.figures import COUNTED_MAX, Quarter, Step, Upcoming, Waiting
from duly.store.tables import jobs, pauses, schedules, workers
from duly.wire.figures import (
    DaysQuery,
    JobDay,
    JobDays,
    Overview,
    Point,
    QueueDepth,
    Series,
    SeriesQuery,
    UpcomingFires,
    UpcomingMinute,
)
from duly.wire.schema.shapes import Nothing, check_reach

routes = Routes("figures", reads="jobs:read", is_figure=True)
POINTS_MAX = 1_500
_HOUR = timedelta(hours=1)
_SPAN_MAX, _MINUTES_SPAN_MAX = timedelta(days=92), timedelta(days=2)
_RECENT = timedelta(minutes=5)
_FINEST = timedelta(microseconds=1)
_MINUTES = 60
# Cohorts are compiled one by one: beyond so many only the next fire of each is counted.
_COHORTS_MAX = 200
_FIRES_OF_COHORT_MAX = 3_600
_CHANGES_AHEAD = timedelta(days=35)
_SHARES = (50, 95, 99)
_BECAME = ("succeeded", "retried", "dead", "skipped", "cancelled")


@routes.add("GET /v1/series", responses={200: Series}, refuses=("invalid_option",), may_lag=True)
async def read_series(call: Call[SeriesQuery, None]) -> Response:
    """Read completed runs over time: counts, the share of successes, and percentiles of start delay and duration.

    It is read from roll-ups by the minute, which are kept for 90 days; over more than two days, by the hour.
    """
    requested = call.query
    since, until, step = _stretch(requested, moment_of(call.clock.now()))
    grain = "minute" if step < _HOUR or until - since <= _MINUTES_SPAN_MAX else "hour"
    found = await figures.series(call.database, call.tenant, since, until, step, requested.queue, grain)
    by_moment = {one.at: one for one in found}
    moments = [since + number * step for number in range((until - since) // step)]
    points = [_point(at, by_moment.get(at)) for at in moments]
    total = _point(since, _summed(found))
    seconds = round(step.total_seconds())
    return Response(
        200, Series(since=since, until=until, step=seconds, queue=requested.queue, total=total, points=points)
    )


@routes.add("GET /v1/overview", responses={200: Overview}, in_session=False, may_lag=True)
async def read_overview(call: Call[Nothing, None]) -> Response:
    """Read the current state: four numbers, each queue, and what needs a person.

    The numbers: the oldest age in a queue, the start delay, completed runs a second, and failures.
    """
    now = await call.database.read_clock()
    living = [row for row in await workers.live(call.database) if row.serves(call.tenant)]
    standing = [one for one in await pauses.standing(call.database) if one.scope.tenant in (None, call.tenant)]
    async with call.open() as session:
        recent = await _recent(session, call.tenant, now)
        waiting = await figures.waiting(session, call.tenant)
        buried = await figures.buried(session, call.tenant)
        open_circuits = await figures.open_destinations(session, call.tenant)
        failing = await figures.failing_schedules(session, call.tenant)
    summed = _summed(recent)
    depths = _depths(waiting)
    named = (one.scope.queue for one in standing if one.scope.queue is not None)
    names = sorted({*depths, *named, *(queue for row in living for queue in row.queues)})
    queues = [
        QueueDepth(
            name=name,
            ready=depths[name][0] if name in depths else 0,
            oldest_age_seconds=_age(depths[name][1], now) if name in depths else 0.0,
            workers=sum(name in row.queues for row in living),
            is_paused=any(one.scope.touches(Scope(queue=name)) for one in standing),
        )
        for name in names
    ]
    ready = sum(one.runs for one in waiting)
    shown = Overview(
        read_at=now,
        oldest_ready_seconds=max((one.oldest_age_seconds for one in queues), default=0.0),
        skew_p95_seconds=percentile(summed.skew, 0.95),
        runs_per_second=_rate(recent, now),
        failing=summed.failed + summed.timed_out + summed.lost,
        ready=min(ready, COUNTED_MAX),
        ready_is_more=ready > COUNTED_MAX,
        dead=min(buried.runs, COUNTED_MAX),
        dead_is_more=buried.runs > COUNTED_MAX,
        queues=queues,
        attention=needing_attention(queues, standing, buried, open_circuits, failing, unknown_of(waiting, living, now)),
    )
    return Response(200, shown)


@routes.add("GET /v1/upcoming", responses={200: UpcomingFires}, in_session=False, may_lag=True)
async def read_upcoming(call: Call[Nothing, None]) -> Response:
    """Count the fires of the next hour, minute by minute."""
    now = (await call.database.read_clock()).replace(second=0, microsecond=0)
    until = now + _MINUTES * MINUTE
    async with call.open() as session:
        timers = await figures.upcoming(session, call.tenant, until)
    counts, is_cut = await _fires(call.database, timers, now, until)
    minutes = [UpcomingMinute(at=now + number * MINUTE, fires=count) for number, count in enumerate(counts)]
    is_complete = not is_cut and not any(one.is_cut for one in timers)
    return Response(200, UpcomingFires(minutes=minutes, is_complete=is_complete))


@routes.add("GET /v1/jobs/{job_id}/days", responses={200: JobDays}, refuses=("invalid_option",), may_lag=True)
async def read_job_days(call: Call[DaysQuery, None]) -> Response:
    """Count the outcomes of a schedule's occurrences, day by day of a time zone."""
    job_id = call.id("job_id")
    job = await jobs.find(call.database, job_id)
    if job is None or job["tenant"] != call.tenant:
        raise no_job(job_id)
    zone, now = _zone(call.query.zone), round(call.clock.now())
    first = day_in(zone, now) - timedelta(days=call.query.days - 1)
    since = begin_of(zone, first)
    found = await figures.days_of_job(call.database, call.tenant, job_id, since)
    changes = change_days(zone, since, moment_of(now) + _CHANGES_AHEAD)
    return Response(200, JobDays(items=_by_day(found, zone), zone=zone.name, clock_changes=changes))


def _zone(name: str) -> Zone:
    try:
        return find_zone(name, "zone")
    except TriggerError as error:
        raise InvalidOption(str(error)) from None


def _by_day(found: Sequence[Quarter], zone: Zone) -> list[JobDay]:
    """Add quarters of an hour up to days of a zone."""
    days: dict[date, Counter[str]] = {}
    for one in found:
        counted = {name: getattr(one, name) for name in _BECAME}
        days.setdefault(day_in(zone, round(one.at.timestamp())), Counter()).update(counted)
    return [JobDay(day=day, **{name: counts[name] for name in _BECAME}) for day, counts in sorted(days.items())]


def _stretch(requested: SeriesQuery, now: datetime) -> tuple[datetime, datetime, timedelta]:
    """Return the range and its step, all of them whole. Raises InvalidOption."""
    try:
        check_reach(**{"from": requested.since, "to": requested.until})
    except ValueError as error:
        raise InvalidOption(str(error)) from None
    until = now + _FINEST if requested.until is None else requested.until  # includes the step that begins just now
    since = until - _HOUR if requested.since is None else requested.since
    if not timedelta() < until - since <= _SPAN_MAX:
        raise InvalidOption("from and to are invalid: from must be before to, by at most 92 days")
    step = _step(until - since) if requested.step is None else timedelta(seconds=requested.step)
    grain = MINUTE if until - since <= _MINUTES_SPAN_MAX else _HOUR
    if step % grain:
        raise InvalidOption(f"step {requested.step} is too fine for this range; give a multiple of {grain.seconds}")
    begin, end = _floor(since, step), _floor(until - _FINEST, step) + step
    if (end - begin) // step > POINTS_MAX:
        raise InvalidOption(f"step {requested.step} makes more than {POINTS_MAX} points; give a larger one")
    return begin, end, step


def _step(span: timedelta) -> timedelta:
    """Choose the step that makes about a hundred points."""
    if span <= timedelta(hours=3):
        return MINUTE
    if span <= timedelta(days=1):
        return 10 * MINUTE
    if span <= _MINUTES_SPAN_MAX:
        return 30 * MINUTE
    return _HOUR if span <= timedelta(days=14) else 12 * _HOUR


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _floor(moment: datetime, step: timedelta) -> datetime:
    return _EPOCH + (moment - _EPOCH) // step * step


def _point(at: datetime, step: Step | None) -> Point:
    found = step or _NOTHING
    failed = found.failed + found.timed_out + found.lost
    judged = found.succeeded + failed
    return Point.of(
        found,
        at=at,
        ended=found.started,
        failed=failed,
        success_rate=found.succeeded / judged if judged else None,
        **{f"skew_p{share}": percentile(found.skew, share / 100) for share in _SHARES},
        **{f"duration_p{share}": percentile(found.duration, share / 100) for share in _SHARES},
    )


def _depths(waiting: Sequence[Waiting]) -> dict[str, tuple[int, datetime]]:
    """Return the backlog and the oldest age of each queue."""
    found: dict[str, tuple[int, datetime]] = {}
    for one in waiting:
        runs, oldest = found.get(one.queue, (0, one.oldest_due_at))
        found[one.queue] = runs + one.runs, min(oldest, one.oldest_due_at)
    return found


_COUNTS = tuple(name for name in Step.__struct_fields__ if name not in ("at", "skew", "duration"))


def _summed(steps: Sequence[Step]) -> Step:
    counts = {name: sum(getattr(one, name) for one in steps) for name in _COUNTS}
    skew = [sum(counts) for counts in zip(*(one.skew for one in steps), strict=True)]
    duration = [sum(counts) for counts in zip(*(one.duration for one in steps), strict=True)]
    return Step(at=_EPOCH, **counts, skew=skew, duration=duration)


_NOTHING = _summed([])


async def _recent(session: Database, tenant: int, now: datetime) -> list[Step]:
    return await figures.series(session, tenant, _floor(now - _RECENT, MINUTE), now, MINUTE, None, "minute")


def _rate(recent: Sequence[Step], now: datetime) -> float:
    """Return how many attempts ended a second, over the last whole minute."""
    last = _floor(now, MINUTE) - MINUTE
    return sum(one.started for one in recent if one.at == last) / MINUTE.total_seconds()


def _age(due_at: datetime, now: datetime) -> float:
    return max(0.0, (now - due_at).total_seconds())


async def _fires(
    database: Database, timers: Sequence[Upcoming], start: datetime, until: datetime
) -> tuple[list[int], bool]:
    """Count fires by the minute, and return whether something was left out."""
    counts = [0] * _MINUTES
    cohorts = sorted({one.cohort for one in timers if one.cohort is not None and one.repeats})
    compiled = {one.cohort: one for one in await schedules.definitions(database, cohorts[:_COHORTS_MAX])}
    for one in timers:
        found = _of_timer(one, compiled, start, until)
        counts = [count + one.timers * more for count, more in zip(counts, found, strict=True)]
    return counts, len(cohorts) > _COHORTS_MAX


def _of_timer(one: Upcoming, known: dict[int, schedules.Definition], start: datetime, until: datetime) -> list[int]:
    if one.repeats and one.every_seconds is not None:
        return fires_per_minute(one.due_at, timedelta(seconds=one.every_seconds), start, _MINUTES)
    definition = known.get(one.cohort) if one.repeats and one.cohort is not None else None
    if definition is None:
        return counted_per_minute([one.due_at], start, _MINUTES)
    try:
        schedule = schedule_of(definition.schedule, None, None, read_calendars(definition.calendars))
    except TriggerError:  # the scheduler logs it; here only its next fire is known
        return counted_per_minute([one.due_at], start, _MINUTES)
    return counted_per_minute(
        [one.due_at, *moments_between(schedule, one.due_at + _FINEST, until, _FIRES_OF_COHORT_MAX)],
        start,
        _MINUTES,
    )
