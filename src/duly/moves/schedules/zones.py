"""Time zone data: put another version in force when all schedulers have it, and retime the pending fires by it.

A fire belongs to the version in its cohort's number. Staging holds back fires of changed zones until they are retimed,
so nothing fires by the old rules and goes on by the new ones. The next look goes on with what was interrupted.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from uuid import UUID

import msgspec

from duly.domain.triggers.errors import TriggerError
from duly.domain.triggers.moments import second_of
from duly.domain.triggers.on_event import OnEvent
from duly.domain.triggers.schedule.planning import arm_anew, cohort_of
from duly.domain.triggers.schedule.schedules import Schedule
from duly.domain.triggers.schedule.timing import read_calendars, schedule_of
from duly.domain.triggers.zones import zones
from duly.domain.triggers.zones.change import is_listed, pending_after_change, zones_of
from duly.domain.triggers.zones.zones import Edition
from duly.log import Log
from duly.moves.schedules.retry_on_conflict import retry_on_conflict
from duly.store.connection.database import Database
from duly.store.tables import schedules
from duly.store.tables import zones as store
from duly.store.tables.schedules import Retiming
from duly.store.tables.zones import Zoned, ZoneData

_PAGE = 500
_KEPT_MAX = 10_000
_Look = Callable[[], Awaitable[Sequence[Zoned]]]


async def adopt(database: Database, log: Log) -> ZoneData:
    """Put our version in force once every live scheduler reports it. Returns the version in force then."""
    seen = await store.state(database)
    if seen.version == zones.database_version() or not seen.is_unanimous:
        return seen
    changed, before = await _changes(database, seen)
    if await store.adopt(database, seen, changed, before):
        listed = "unknown" if changed is None else changed
        log.info("time_zones_adopted", version=zones.database_version(), before=seen.version, changed=listed)
    return await store.state(database)


async def _changes(database: Database, seen: ZoneData) -> tuple[list[str] | None, dict[str, bytes]]:
    """Return the zones whose clocks differ from now on, with the rules that fires were timed by; None: they are not known."""
    if seen.version is None:
        return None, {}
    rules = await store.rules(database, seen.version)
    changed = zones.current().changed_since(rules, second_of(await database.read_clock()))
    before = {name: rules.contents[name] for name in changed}
    if seen.is_settled:
        return changed, before
    if seen.changed is None:
        return None, {}
    # Some fires still belong to the version before that one, whose rules are kept.
    return sorted({*changed, *seen.changed}), before | seen.before


class Swept(msgspec.Struct, frozen=True):
    """The progress of retiming: all done, more to do right now, or more to do after a while."""

    is_settled: bool
    has_more: bool


class Sweep:
    """Retimes the schedules page by page. Compiled schedules are kept for the next page: many are alike."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._clocks: Clocks | None = None

    async def go_on(self, database: Database) -> Swept:
        """Retime one page of the schedules whose zones have changed."""
        data = await store.state(database)
        if data.is_settled or data.version != zones.database_version():
            self._clocks = None
            return Swept(data.is_settled, has_more=False)
        page = await store.page(database, data.after, data.changed, _PAGE)
        ids = [one.job_id for one in page.zoned]

        async def look() -> list[Zoned]:
            first = None if not ids else UUID(int=ids[0].int - 1)
            return (await store.page(database, first, data.changed, _PAGE)).zoned

        if self._clocks is None or not self._clocks.go_by(data.before):
            self._clocks = Clocks(data.before)
        await _retime(database, page.zoned, look, self._clocks, self._log)
        return Swept(await store.swept(database, data.after, page.last_id), has_more=page.last_id is not None)


async def correct(database: Database, log: Log) -> int:
    """Retime what a program with another version has timed; the version in force decides. Returns how many there were."""
    found = await store.timed_otherwise(database, _PAGE)
    ours = zones.database_version()
    if rightly := [one.job_id for one in found if one.tzdb == ours]:
        await store.timed_rightly(database, rightly)
    others = [one for one in found if one.tzdb != ours]

    async def look() -> list[Zoned]:
        return await store.timed_otherwise(database, _PAGE)

    await _retime(database, others, look, Clocks({}), log)
    return len(found)


class Clocks:
    """Compiles schedules by the rules in force and by those before them, each once."""

    def __init__(self, before: Mapping[str, bytes]) -> None:
        ours = zones.current()
        self._ours = ours
        self._before = Edition("before", ChainMap(dict(before), ours.contents))  # type: ignore[arg-type]
        self._rules = before
        self._compiled: dict[tuple[Edition, str, str | None], Schedule] = {}
        self._cohorts: dict[tuple[str, str | None], int] = {}

    def go_by(self, before: Mapping[str, bytes]) -> bool:
        """Return whether these are the rules in force and those before them."""
        return self._ours is zones.current() and self._rules == before

    def timing(self, one: Zoned, left_out: datetime | None) -> Retiming | None:
        """Return when a schedule fires next; None for one that belongs to the version in force. Raises TriggerError."""
        new = self._compile(self._ours, one)
        if isinstance(new.trigger, OnEvent):  # no clock decides when it fires
            still = Retiming(one.job_id, one.generation, one.scheduled_at, one.cohort, one.scheduled_at, 0)
            return None if one.tzdb is None else still
        cohort = self._cohort(new, one)
        if one.tzdb is None and one.cohort == cohort:
            return None
        if one.tzdb is None and zones_of(new) & self._rules.keys():
            next_at = pending_after_change(self._compile(self._before, one), new, one.scheduled_at, one.created_at)
            window = 0 if next_at is None else new.jitter_window(next_at)
        else:  # the rules by which it was timed are unknown, so it counts from now
            passed = one.previous_scheduled_at, left_out
            next_at, window = arm_anew(new, one.scheduled_at, one.read_at, passed)
        return Retiming(one.job_id, one.generation, one.scheduled_at, cohort, next_at, window)

    def _compile(self, edition: Edition, one: Zoned) -> Schedule:
        cache_key = edition, one.schedule, one.calendars
        found = self._compiled.get(cache_key)
        if found is None:
            if len(self._compiled) >= _KEPT_MAX:
                self._compiled.clear()
                self._cohorts.clear()
            with zones.using(edition):
                calendars = read_calendars(msgspec.json.decode(one.calendars or "{}"))
                found = self._compiled[cache_key] = schedule_of(one.schedule, None, None, calendars)
        return found

    def _cohort(self, schedule: Schedule, one: Zoned) -> int:
        cache_key = one.schedule, one.calendars
        found = self._cohorts.get(cache_key)
        if found is None:
            found = self._cohorts[cache_key] = cohort_of(schedule)
        return found


async def _retime(database: Database, found: Sequence[Zoned], look: _Look, clocks: Clocks, log: Log) -> None:
    """Retime schedules; one that has moved on meanwhile is tried again."""
    waiting = list(found)

    async def attempt() -> bool | None:
        nonlocal waiting
        timings = await _timings(database, waiting, clocks, log)
        done = await _move(database, waiting, timings, log) if timings else set()
        in_conflict = {timing.job_id for timing in timings} - done
        if not in_conflict:
            return True
        waiting = [one for one in await look() if one.job_id in in_conflict]
        return None

    await retry_on_conflict("the schedules of a time zone", attempt)


async def _timings(database: Database, waiting: Sequence[Zoned], clocks: Clocks, log: Log) -> list[Retiming]:
    floors = await schedules.left_out(database, [one.job_id for one in waiting]) if waiting else {}
    timings = []
    for one in waiting:
        try:
            timing = clocks.timing(one, floors.get(one.job_id))
        except TriggerError as error:  # its zone or its calendar no longer exists; staging reports it too
            log.error("schedule_unreadable", job=one.name, schedule=one.schedule, error=str(error))
            continue
        if timing is not None:
            timings.append(timing)
    return timings


async def _move(database: Database, waiting: Sequence[Zoned], timings: Sequence[Retiming], log: Log) -> set[UUID]:
    listed = [is_listed(timing.seen, timing.next_at) for timing in timings]
    done = await store.retime(database, timings, listed)
    names = {one.job_id: one.name for one in waiting}
    for timing, is_moved in zip(timings, listed, strict=True):
        if is_moved and timing.job_id in done:
            log.warning(
                "next_fire_moved", job=names[timing.job_id], was=timing.seen, next=timing.next_at,
                tzdb=zones.database_version(),
            )  # fmt: skip
    return done
