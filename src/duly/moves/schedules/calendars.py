"""Calendars: store one, and rearm the schedules that use it; or delete an unused one.

A calendar is checked against every schedule that uses it before it is stored. Then each schedule is rearmed by itself,
so a crash leaves some as they were: putting the calendar again finishes it. The former definition is kept until then,
and the cohort of a schedule says by which of them it was timed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime
from itertools import islice, product
from uuid import UUID

import msgspec

from duly.domain.errors import InvalidOption, NotFound
from duly.domain.jobs.job import check_name
from duly.domain.runs.run import TENANT_DEFAULT
from duly.domain.tenancy.audit import Action, Subject
from duly.domain.triggers.calendars import Calendar, read_calendar
from duly.domain.triggers.errors import TriggerError
from duly.domain.triggers.schedule.planning import Skip, arm_after_calendar, cohort_of, left_out_by_calendars
from duly.domain.triggers.schedule.reading import check_calendars
from duly.domain.triggers.schedule.schedules import Schedule
from duly.domain.triggers.schedule.timing import calendars_in, read_calendars, schedule_of
from duly.moves.admin.audit import audited, record
from duly.moves.schedules.retry_on_conflict import retry_on_conflict
from duly.store.connection.database import Database
from duly.store.tables import schedules
from duly.store.tables.schedules import Pending, Retiming

_PAGE = 500
# Ways tried in which a schedule may have been timed: its calendars, as each was before interrupted
# changes.
_WAYS_MAX = 64


class Change(msgspec.Struct, frozen=True):
    """A changed calendar: all of its tenant's calendars now, and all former definitions, the newest first."""

    tenant: int
    name: str
    before: Mapping[str, Sequence[Calendar]]
    after: Mapping[str, Calendar]


class Kept(msgspec.Struct, frozen=True):
    """A stored calendar, and how many schedules were rearmed."""

    name: str
    schedules: int


async def put_calendar(database: Database, definition: object, tenant: int = TENANT_DEFAULT) -> Kept:
    """Store a calendar, new or changed, and rearm what uses it. Raises TriggerError, naming a job it would block for long."""
    calendar = read_calendar(definition)
    name = check_name(calendar.name, "calendar")
    before = read_calendars(await schedules.calendars(database, tenant, None))
    others = before | {name: calendar}
    async for page in _pages(database, tenant, name):
        for pending in page:
            _check(pending, others)
    kept = msgspec.json.encode(definition).decode()
    await _keep(database, tenant, name, kept, is_changed=before.get(name) != calendar)
    change = Change(tenant, name, await _histories(database, tenant, before, others), others)
    armed = [await _arm_page(database, change, page) async for page in _pages(database, tenant, name)]
    await schedules.calendar_settled(database, tenant, name, kept)
    return Kept(name, sum(armed))


@audited
async def _keep(database: Database, tenant: int, name: str, definition: str, *, is_changed: bool) -> None:
    await schedules.put_calendar(database, tenant, name, definition)
    await record(database, tenant, Action.CALENDAR_SAVED, Subject("calendar", name, name), int(is_changed))


@audited
async def drop_calendar(database: Database, name: str, tenant: int = TENANT_DEFAULT) -> None:
    """Delete a calendar. Raises NotFound, or InvalidOption while a job uses it."""
    answer = await schedules.drop_calendar(database, tenant, name)
    if answer == "missing":
        raise NotFound(f"no calendar is named {name!r}; `duly calendars` lists them")
    if answer != "dropped":
        raise InvalidOption(f"calendar {name!r} is {answer}; edit or cancel that job first")
    await record(database, tenant, Action.CALENDAR_DELETED, Subject("calendar", name, name))


async def _histories(
    database: Database, tenant: int, before: Mapping[str, Calendar], after: Mapping[str, Calendar]
) -> dict[str, list[Calendar]]:
    """Return the possible definitions of each calendar for a schedule that uses it: the previous one, earlier ones, and
    the current.
    """
    earlier = await schedules.earlier_calendars(database, tenant)
    return {
        name: [
            *([before[name]] if name in before else []),
            *(read_calendar(definition) for definition in earlier.get(name, ())),
            calendar,
        ]
        for name, calendar in after.items()
    }


async def _pages(database: Database, tenant: int, name: str) -> AsyncIterator[Sequence[Pending]]:
    after: UUID | None = None
    while page := await schedules.using_calendar(database, tenant, name, after, _PAGE):
        yield page
        after = page[-1].job_id


def _check(pending: Pending, calendars: Mapping[str, Calendar]) -> None:
    try:
        check_calendars(_schedule(pending, calendars), pending.read_at)
    except TriggerError as error:
        message = f"job {pending.name} would never fire again: {error.message}"
        raise TriggerError(error.code, message, error.field) from None


async def _arm_page(database: Database, change: Change, page: Sequence[Pending]) -> int:
    """Arm the next fires of a page; one that has moved on meanwhile is tried again."""
    before, waiting, armed = UUID(int=page[0].job_id.int - 1), list(page), 0

    async def attempt() -> int | None:
        nonlocal waiting, armed
        floors = await schedules.left_out(database, [pending.job_id for pending in waiting])
        timings = [timing for pending in waiting if (timing := _timing(pending, change.after, floors)) is not None]
        skips = {pending.job_id: _left_out(pending, change) for pending in waiting}
        done = await schedules.retime(database, timings, skips) if timings else set()
        armed += len(done)
        moved = {timing.job_id for timing in timings} - done
        if not moved:
            return armed
        reread = await schedules.using_calendar(database, change.tenant, change.name, before, _PAGE)
        waiting = [pending for pending in reread if pending.job_id in moved]
        return None

    return await retry_on_conflict(f"a job of calendar {change.name!r}", attempt)


def _timing(pending: Pending, calendars: Mapping[str, Calendar], floors: Mapping[UUID, datetime]) -> Retiming | None:
    """Return when a schedule fires next; None for one that counts from the end of its runs."""
    schedule = _schedule(pending, calendars)
    if schedule.trigger.is_estimate:
        return None
    passed = [pending.previous_scheduled_at, floors.get(pending.job_id)]
    next_at, window = arm_after_calendar(schedule, pending.scheduled_at, pending.read_at, pending.created_at, passed)
    return Retiming(pending.job_id, pending.generation, pending.scheduled_at, cohort_of(schedule), next_at, window)


def _left_out(pending: Pending, change: Change) -> Sequence[Skip]:
    """Return what the former calendars blocked of a schedule, which the new ones cannot tell."""
    schedule = _as_timed(pending, change)
    return left_out_by_calendars(schedule, pending.scheduled_at, pending.read_at, pending.accountable_from)


def _as_timed(pending: Pending, change: Change) -> Schedule:
    """Return a schedule with its calendars as they were when it was timed, according to its cohort."""
    names = calendars_in(msgspec.json.decode(pending.schedule))
    ways = product(*(change.before[name] for name in names))
    known = [_schedule(pending, dict(zip(names, way, strict=True))) for way in islice(ways, _WAYS_MAX)]
    return next((schedule for schedule in known if cohort_of(schedule) == pending.cohort), known[0])


def _schedule(pending: Pending, calendars: Mapping[str, Calendar]) -> Schedule:
    return schedule_of(pending.schedule, None, None, calendars)
