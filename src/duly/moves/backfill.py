"""Backfill: make the occurrences of a stretch, at a rate and below all that is on time; missed ones go the same way."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from uuid import UUID

import msgspec

from duly.clock import Rng
from duly.domain.audit import Action, Subject
from duly.domain.errors import InvalidOption, NotFound
from duly.domain.triggers.errors import TriggerError
from duly.domain.triggers.on_event import OnEvent
from duly.domain.triggers.planning import moments_between
from duly.domain.triggers.schedules import Schedule
from duly.domain.triggers.timing import read_calendars, schedule_of
from duly.moves.note import actor_of, audited, note
from duly.moves.schedule import see
from duly.store import schedules
from duly.store.database import Database
from duly.store.schedules import LaneWork, Made

FLEET_RATE = 500.0  # runs a second that all schedulers together make in the lane
_KEPT_SECONDS = 2.0  # of what was not used
UNCONFIRMED_MAX = 10_000
OCCURRENCES_MAX = 1_000_000
RATE_MAX = 1_000.0
SHOWN_MAX = 20
_WAITING_MAX = 100  # made and not begun, of one job
_LOOK_MAX = 500
_TURN = 1_000  # occurrences computed before others on this loop have their turn
_FINEST = timedelta(microseconds=1)
# How many runs of a backfill may be under way at once, by its overlap; bounded, for the case that nobody takes them.
_PLACES = {"queue": 1, "allow": 100}


class Asked(msgspec.Struct, frozen=True):
    """A backfill: how many occurrences it has and the first of them; without an id nothing was made."""

    backfill_id: UUID | None
    count: int
    first: list[datetime]


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
) -> Asked:
    """Make the occurrences of [start, end) again, one after the other or, with the overlap `allow`, beside each other.

    More than 10,000 need `confirm`. Raises NotFound, InvalidOption.
    """
    if overlap not in _PLACES:
        raise InvalidOption(f"overlap {overlap!r} is none of a backfill; use queue, one after the other, or allow")
    if not 0 < rate <= RATE_MAX:
        raise InvalidOption(f"rate {rate!r} is not a number of runs a second: above 0 and at most {RATE_MAX:g}")
    seen = await see(database, job_id)
    if seen.schedule.trigger.is_estimate:
        raise InvalidOption(f"job {job_id} counts from the end of its last run; it has no occurrences to make again")
    if isinstance(seen.schedule.trigger, OnEvent):
        raise InvalidOption(f"job {job_id} waits for events; it has no occurrences to make again")
    end = _end_of(start, end, seen.read_at)
    most = OCCURRENCES_MAX if dry_run or confirm else UNCONFIRMED_MAX
    moments = await _moments(database, seen.schedule, start, end, most + 1)
    if len(moments) > OCCURRENCES_MAX:
        raise InvalidOption(f"the stretch has over {OCCURRENCES_MAX:,} occurrences; ask for a shorter one")
    asked = Asked(None, len(moments), moments[:SHOWN_MAX])
    if dry_run or not moments:
        return asked
    if len(moments) > UNCONFIRMED_MAX and not confirm:
        raise InvalidOption(
            f"the stretch has more than {UNCONFIRMED_MAX:,} occurrences, which need to be confirmed; a dry run counts them"
        )
    backfill_id = rng.uuid()
    before = seen.schedule.latest_at_or_before(start - _FINEST)
    previous = None if before is None else before.scheduled_at
    if not await schedules.submit_backfill(
        database, backfill_id, job_id, start, end, rate, len(moments), previous, _PLACES[overlap]
    ):
        raise NotFound(f"no schedule {job_id}; `duly jobs` lists them")
    subject = Subject("job", str(job_id), seen.job.name)
    stretch = {"backfill_id": backfill_id, "from": start, "to": end, "runs": len(moments), "rate": rate}
    await note(database, seen.job.tenant, Action.JOB_BACKFILLED, subject, **stretch)
    return msgspec.structs.replace(asked, backfill_id=backfill_id)


def _end_of(start: datetime, end: datetime, now: datetime) -> datetime:
    """Say where a stretch ends: what is still to come is left to the schedule. Raises InvalidOption when nothing is left."""
    if end <= start:
        raise InvalidOption(f"to {end.isoformat()} is not after from {start.isoformat()}; give a later one")
    if start >= now:
        raise InvalidOption(
            f"from {start.isoformat()} is still to come, which is left to the schedule; give a moment before now"
        )
    return min(end, now)


async def _moments(database: Database, schedule: Schedule, start: datetime, end: datetime, most: int) -> list[datetime]:
    """Give the occurrences of a stretch, up to so many. A million take seconds: others have their turn in between."""
    found: list[datetime] = []
    while start < end and len(found) < most:
        some = moments_between(schedule, start, end, min(_TURN, most - len(found)))
        if not some:
            break
        found += some
        start = some[-1] + _FINEST
        await database.clock.sleep(0)
    return found


@audited
async def cancel_backfill(database: Database, backfill_id: UUID) -> int:
    """Stop a backfill. Returns how many of its runs that had not begun were taken back. Raises NotFound."""
    tenant = await schedules.tenant_of_backfill(database, backfill_id) if actor_of(database) else None
    taken = await schedules.cancel_backfill(database, backfill_id)
    if taken is None:
        raise NotFound(f"no backfill {backfill_id} of which anything is left; `duly jobs backfills` lists them")
    if tenant is not None:
        subject = Subject("backfill", str(backfill_id))
        await note(database, tenant, Action.BACKFILL_CANCELLED, subject, taken_back=taken)
    return taken


class Allowance:
    """How many runs a scheduler may make: its share of a rate, the fleet's in the lane, over time. Fractions are not lost."""

    def __init__(self, rate: float = FLEET_RATE) -> None:
        self.rate = rate
        self._left = 0.0
        self._counted_at: datetime | None = None

    def until(self, now: datetime, share: float) -> int:
        """Count up to a moment, and say how many may be made."""
        rate = self.rate * share
        passed = 1.0 if self._counted_at is None else (now - self._counted_at).total_seconds()
        self._left = min(self._left + max(0.0, passed) * rate, _KEPT_SECONDS * rate)
        self._counted_at = now
        return int(self._left)

    @property
    def left(self) -> int:
        """How many may be made, as of the last count."""
        return int(self._left)

    def spend(self, made: int) -> None:
        """Count what was made."""
        self._left -= made


async def go_on(
    database: Database, shards: Sequence[int], now: datetime, budget: int, recovered: Allowance | None = None
) -> int:
    """Make what the backfills of the shards held may make now, at most so many runs. Returns how many were made.

    Those of a recovery are bounded by what it is allowed, and spend that.
    """
    if budget < 1:
        return 0
    made = list(_made(await schedules.lane_work(database, shards, _LOOK_MAX), now, budget, recovered))
    return await schedules.make_backfills(database, made) if made else 0


def _made(works: Sequence[LaneWork], now: datetime, budget: int, recovered: Allowance | None) -> Iterator[Made]:
    for work in works:
        if budget < 1:
            return
        bound = recovered if work.is_recovered else None
        most = budget if bound is None else min(budget, bound.left)
        if most < 1:
            continue
        one = _one(work, now, most)
        budget -= len(one.moments)
        if bound is not None:
            bound.spend(len(one.moments))
        yield one


def _one(work: LaneWork, now: datetime, budget: int) -> Made:
    """Say how far one backfill goes: as many as its rate allows since it was last looked at, while there is room."""
    backfill, room = work.backfill, min(budget, _WAITING_MAX - work.waiting)
    if room < 1:
        return _later(work, now + timedelta(seconds=1))
    try:
        schedule = schedule_of(work.schedule, work.every_seconds, work.anchor_at, read_calendars(work.calendars))
    except TriggerError:  # A calendar it names is gone, and may come back.
        return _later(work, now + timedelta(minutes=1))
    allowed = 1 + int(min(1.0, (now - backfill.due_at).total_seconds()) * backfill.rate)
    count = min(allowed, room)
    moments = moments_between(schedule, backfill.cursor_at, backfill.to_at, count + 1)
    cursor = moments[count] if len(moments) > count else None
    made = moments[:count]
    due_at = max(backfill.due_at, now - timedelta(seconds=1)) + timedelta(seconds=len(made) / backfill.rate)
    return Made(backfill.backfill_id, backfill.cursor_at, cursor, due_at, made)


def _later(work: LaneWork, due_at: datetime) -> Made:
    """Make nothing for a while, so that whoever waits behind it has a turn."""
    return Made(work.backfill.backfill_id, work.backfill.cursor_at, work.backfill.cursor_at, due_at, [])
