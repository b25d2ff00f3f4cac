"""Backfill: create the occurrences of a span, at a rate and below everything on time; missed fires go the same way."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from math import ceil
from uuid import UUID

import msgspec

from duly.clock import Rng
from duly.domain.errors import InvalidOption, NotFound
from duly.domain.tenancy.audit import Action, Subject
from duly.domain.triggers.errors import TriggerError
from duly.domain.triggers.on_event import OnEvent
from duly.domain.triggers.schedule.counting import tally
from duly.domain.triggers.schedule.planning import moments_between
from duly.domain.triggers.schedule.timing import read_calendars, schedule_of
from duly.moves.admin.audit import actor_of, audited, record
from duly.moves.schedules.schedule import see
from duly.store.connection.database import Database
from duly.store.tables import recovery, schedules
from duly.store.tables.schedules import BackfillStep, LaneWork

FLEET_RATE = 500.0  # runs a second that all schedulers together make in the lane
UNCONFIRMED_MAX = 10_000
OCCURRENCES_MAX = 1_000_000
RATE_MAX = 1_000.0
SHOWN_MAX = 20
_WAITING_MAX = 100  # created and not started, of one job
_LOOK_MAX = 500
_FINEST = timedelta(microseconds=1)
# How many runs of a backfill may be active at once, by its overlap; bounded, for the case that no worker takes them.
_SLOTS = {"queue": 1, "allow": 100}


class Requested(msgspec.Struct, frozen=True):
    """A backfill: how many occurrences it has and the first of them; without an id nothing was created.

    `is_partial`: a lower bound, because counting all would take long.
    """

    backfill_id: UUID | None
    count: int
    first: list[datetime]
    is_partial: bool = False


@audited
async def backfill(
    database: Database,
    job_id: UUID,
    start: datetime,
    end: datetime,
    rng: Rng,
    *,
    rate: float = 1.0,
    overlap: str = "queue",
    dry_run: bool = False,
    confirm: bool = False,
) -> Requested:
    """Create the occurrences of [start, end) again, one after the other or, with the overlap `allow`, side by side.

    More than 10,000 need `confirm`. Raises NotFound, InvalidOption.
    """
    if overlap not in _SLOTS:
        raise InvalidOption(f"overlap {overlap!r} is unknown; use queue (one after the other) or allow")
    if not 0 < rate <= RATE_MAX:
        raise InvalidOption(f"rate {rate!r} is not above 0 and at most {RATE_MAX:g} runs a second")
    seen = await see(database, job_id)
    if seen.compiled.trigger.is_estimate:
        raise InvalidOption(
            f"job {job_id} counts from the end of its last run, so it has no past occurrences to backfill"
        )
    if isinstance(seen.compiled.trigger, OnEvent):
        raise InvalidOption(f"job {job_id} waits for events, so it has no past occurrences to backfill")
    end = _end_of(start, end, seen.read_at)
    count = tally(seen.compiled, start, end)
    requested = Requested(None, count.number, moments_between(seen.compiled, start, end, SHOWN_MAX), count.is_partial)
    if dry_run or not count.number:
        return requested
    if count.number > OCCURRENCES_MAX:
        raise InvalidOption(f"the range has over {OCCURRENCES_MAX:,} occurrences; choose a shorter one")
    if count.is_partial:
        raise InvalidOption(
            f"the range has at least {count.number:,} occurrences, and counting all would take long; choose a shorter one"
        )
    if count.number > UNCONFIRMED_MAX and not confirm:
        raise InvalidOption(
            f"the range has more than {UNCONFIRMED_MAX:,} occurrences, which must be confirmed; count them with a dry run"
        )
    backfill_id = rng.uuid()
    before = seen.compiled.latest_at_or_before(start - _FINEST)
    previous = None if before is None else before.scheduled_at
    if not await schedules.submit_backfill(
        database, backfill_id, job_id, start, end, rate, count.number, previous, _SLOTS[overlap]
    ):
        raise NotFound(f"no schedule {job_id}; `duly jobs` lists them")
    subject = Subject("job", str(job_id), seen.name)
    stretch = {"backfill_id": backfill_id, "from": start, "to": end, "runs": count.number, "rate": rate}
    await record(database, seen.tenant, Action.JOB_BACKFILLED, subject, **stretch)
    return msgspec.structs.replace(requested, backfill_id=backfill_id)


def _end_of(start: datetime, end: datetime, now: datetime) -> datetime:
    """Return the end of a span: future fires are left to the schedule. Raises InvalidOption when nothing is left."""
    if end <= start:
        raise InvalidOption(f"to {end.isoformat()} is not after from {start.isoformat()}; give a later one")
    if start >= now:
        raise InvalidOption(f"from {start.isoformat()} is in the future; give a time in the past")
    return min(end, now)


@audited
async def cancel_backfill(database: Database, backfill_id: UUID) -> int:
    """Stop a backfill. Returns how many of its runs that had not started were removed. Raises NotFound."""
    tenant = await schedules.tenant_of_backfill(database, backfill_id) if actor_of(database) else None
    taken = await schedules.cancel_backfill(database, backfill_id)
    if taken is None:
        raise NotFound(f"no unfinished backfill {backfill_id}; `duly jobs backfills` lists them")
    if tenant is not None:
        subject = Subject("backfill", str(backfill_id))
        await record(database, tenant, Action.BACKFILL_CANCELLED, subject, recalled=taken)
    return taken


class Allowance:
    """The number of runs that a scheduler may create: its share of the fleet's rate in the lane, at most that in any second."""

    def __init__(self, rate: float = FLEET_RATE) -> None:
        self.rate = rate
        self._spent: deque[tuple[datetime, int]] = deque()
        self._now: datetime | None = None

    def until(self, now: datetime, share: float) -> int:
        """Return how many may be created at a moment. A share of less than one run a second is one run in so much more time."""
        rate = self.rate * share
        most = ceil(rate)
        while self._spent and self._spent[0][0] <= now - timedelta(seconds=most / rate):
            self._spent.popleft()
        self._now = now
        return max(0, most - sum(created for _, created in self._spent))

    def spend(self, created: int) -> None:
        """Count runs that were created at the last moment asked for."""
        assert self._now is not None
        if created:
            self._spent.append((self._now, created))


class Went(msgspec.Struct, frozen=True):
    """One look at the lane: how many runs were created, and when the backfills seen may go on."""

    created: int = 0
    due_at: frozenset[datetime] = frozenset()


async def go_on(
    database: Database, shards: Sequence[int], now: datetime, budget: int, recovery_id: UUID | None = None
) -> Went:
    """Create what the backfills of the held shards may create now, at most so many runs.

    The runs of a recovery need reservations at its rate, which all schedulers share.
    """
    if budget < 1:
        return Went()
    works = await schedules.lane_work(database, shards, _LOOK_MAX)
    recovered = [work for work in works if work.is_recovered and recovery_id is not None]
    created = list(_created(recovered, budget))
    if recovery_id is not None and (wanted := _count(created)):
        given = await recovery.take_reservations(database, recovery_id, wanted)
        created = created if given == wanted else list(_created(recovered, given))
    created += _created([work for work in works if work not in recovered], budget - _count(created))
    if not created:
        return Went()
    count = await schedules.create_backfills(database, created)
    return Went(count, frozenset(now + one.wait for one in created if one.cursor is not None))


def _count(created: Sequence[BackfillStep]) -> int:
    return sum(len(one.moments) for one in created)


def _created(works: Sequence[LaneWork], budget: int) -> Iterator[BackfillStep]:
    for work in works:
        if budget < 1:
            return
        one = _one(work, budget)
        budget -= len(one.moments)
        yield one


def _one(work: LaneWork, budget: int) -> BackfillStep:
    """Return how far one backfill goes: one batch at its rate, while not too many of its runs wait."""
    backfill, (size, wait) = work.backfill, batch_at(work.backfill.rate)
    count = min(budget, size, _WAITING_MAX - work.waiting)
    if count < 1:
        return _later(work, timedelta(seconds=1))
    try:
        schedule = schedule_of(work.schedule, work.every_seconds, work.anchor_at, read_calendars(work.calendars))
    except TriggerError:  # a calendar it names does not exist, and may come back
        return _later(work, timedelta(minutes=1))
    moments = moments_between(schedule, backfill.cursor_at, backfill.to_at, count + 1)
    cursor = moments[count] if len(moments) > count else None
    return BackfillStep(backfill.backfill_id, backfill.cursor_at, cursor, wait, moments[:count])


def batch_at(rate: float) -> tuple[int, timedelta]:
    """Return how many runs are created at once, and how long none are created after: no second exceeds the rate.

    A second's worth is created at once, so that one look a second suffices; above a hundred, in equal parts of a
    second.
    """
    parts = ceil(rate / _WAITING_MAX)
    size = ceil(rate) if parts == 1 else int(rate / parts)
    return size, _at_least(max(size / rate, 1 / parts))


def _at_least(span: float) -> timedelta:
    return timedelta(microseconds=ceil(span * 1_000_000))


def _later(work: LaneWork, wait: timedelta) -> BackfillStep:
    """Create nothing for a while, so that backfills behind it go on."""
    return BackfillStep(work.backfill.backfill_id, work.backfill.cursor_at, work.backfill.cursor_at, wait, [])
