"""Stage: move runs due within the horizon from timers into ready, and arm the next fires, in one statement.

The plan for a cohort's fire is computed before, once for all jobs of the cohort, and passed to the statement; a fire
without a plan stays where it is until the next look.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from uuid import UUID

import msgspec

from duly.domain.runs.run import HORIZON
from duly.domain.triggers.errors import TriggerError
from duly.domain.triggers.schedule.planning import FirePlan, cohort_of, cut_to, first_left_out, hold_fire, plan_fire
from duly.domain.triggers.schedule.schedules import GRACE_SECONDS, Schedule
from duly.domain.triggers.schedule.timing import read_calendars, schedule_of
from duly.domain.triggers.zones.change import zones_of
from duly.log import Log
from duly.moves.stage_around import Batch, LeftOut, stage_around
from duly.store.boxes import timers
from duly.store.boxes.timers import Answer, DueFire, Staged
from duly.store.connection.database import Database
from duly.store.tables import schedules

GRACE = timedelta(seconds=GRACE_SECONDS)
BATCH_MAX = 10_000
_KEPT_MAX = 100_000
_CALENDARS_SECONDS = 10.0


class Cohorts:
    """The schedules that fire, compiled once for each cohort, with their recent plans. One for each scheduler."""

    def __init__(self, log: Log | None = None) -> None:
        self._schedules: dict[int, Schedule | None] = {}
        self._plans: dict[tuple[int, datetime], FirePlan] = {}
        self._log = log or Log("scheduler")
        self._looked_at = 0.0
        self._excluded: frozenset[str] = frozenset()
        self.holds_missed = False  # while a recovery is open: missed fires wait for a decision

    @property
    def has_excluded(self) -> bool:
        """Return whether anything has yet to be retimed."""
        return bool(self._excluded)

    def exclude(self, names: Iterable[str]) -> None:
        """Plan no fires of schedules of these zones that have yet to be retimed."""
        self._excluded = frozenset(names)

    async def answers(self, database: Database, fires: Sequence[DueFire]) -> list[Answer]:
        """Return the plan for each fire; one whose schedule cannot be read is left out and logged."""
        self._forget_calendars(database.clock.monotonic())
        unknown = {fire.cohort for fire in fires} - self._schedules.keys()
        if unknown:
            await self._load(database, unknown)
        found = (self._answer(fire) for fire in fires)
        return [answer for answer in found if answer is not None]

    def cut(self, answer: Answer, moments: Collection[datetime]) -> Answer:
        """Add to a plan what calendars blocked from each of the moments on."""
        schedule = self._schedules.get(answer.fire.cohort)
        if schedule is None or not moments:
            return answer
        return msgspec.structs.replace(answer, plan=cut_to(schedule, answer.plan, moments))

    def _forget_calendars(self, monotonic: float) -> None:
        """Reload schedules with calendars now and then: one submitted while a calendar changed uses the old one."""
        if monotonic - self._looked_at < _CALENDARS_SECONDS:
            return
        self._looked_at = monotonic
        kept: dict[int, Schedule | None] = {
            cohort: found for cohort, found in self._schedules.items() if found is not None and not found.uses
        }
        if len(kept) < len(self._schedules):
            self._schedules = kept
            self._plans = {fire_key: plan for fire_key, plan in self._plans.items() if fire_key[0] in kept}

    def _answer(self, fire: DueFire) -> Answer | None:
        schedule = self._schedules.get(fire.cohort)
        if schedule is None or self._waits(fire.cohort, schedule):
            return None
        return Answer(fire, self._plan(schedule, fire), schedule.misfire.rate)

    def _waits(self, cohort: int, schedule: Schedule) -> bool:
        """Return whether other time zone data than ours has timed the fires of a cohort, and the clocks differ."""
        return bool(self._excluded and zones_of(schedule) & self._excluded and cohort != cohort_of(schedule))

    def _plan(self, schedule: Schedule, fire: DueFire) -> FirePlan:
        if fire.is_late and self.holds_missed:
            return hold_fire(schedule, fire.scheduled_at, fire.read_at)
        if fire.is_late:  # depends on the moment too, so it is not worth keeping
            return plan_fire(schedule, fire.scheduled_at, is_late=True, now=fire.read_at)
        fire_key = fire.cohort, fire.scheduled_at
        plan = self._plans.get(fire_key)
        if plan is None:
            if len(self._plans) >= _KEPT_MAX:
                self._plans.clear()
            plan = self._plans[fire_key] = plan_fire(schedule, fire.scheduled_at, is_late=False, now=fire.read_at)
        return plan

    async def _load(self, database: Database, cohorts: set[int]) -> None:
        if len(self._schedules) + len(cohorts) > _KEPT_MAX:
            self._schedules.clear()
        for row in await schedules.definitions(database, sorted(cohorts)):
            try:
                calendars = read_calendars(row.calendars)
                self._schedules[row.cohort] = schedule_of(row.schedule, None, None, calendars)
            except TriggerError as error:
                self._schedules[row.cohort] = None
                self._log.error("schedule_unreadable", cohort=row.cohort, schedule=row.schedule, error=str(error))


async def look(
    database: Database,
    shards: Collection[int],
    cohorts: Cohorts,
    *,
    horizon: timedelta = HORIZON,
    batch: int = BATCH_MAX,
) -> list[Answer]:
    """Plan the fires of cohorts that are due within the horizon. Nothing is moved yet."""
    fires = await timers.due_fires(database, list(shards), horizon, _per_shard(batch, shards))
    answers = await cohorts.answers(database, fires) if fires else []
    firsts = {answer.fire: first for answer in answers if (first := first_left_out(answer.plan)) is not None}
    if not firsts:
        return answers
    # Some jobs may have been created after the first blocked occurrence: for them the count begins later.
    found = await timers.due_accounts(database, list(shards), horizon, _per_shard(batch, shards), firsts)
    return [cohorts.cut(answer, found.get((answer.fire.cohort, answer.fire.scheduled_at), ())) for answer in answers]


async def move(
    database: Database,
    holder: UUID,
    epochs: Mapping[int, int],
    answers: Sequence[Answer],
    *,
    horizon: timedelta = HORIZON,
    batch: int = BATCH_MAX,
    left_out: LeftOut | None = None,
) -> Staged:
    """Stage one batch over the held shards.

    A stale epoch moves nothing; a fire without a plan stays, and so does one that is refused.
    """
    requested = Batch(
        database, holder, horizon, _per_shard(batch, epochs), answers, LeftOut() if left_out is None else left_out
    )
    staged = await stage_around(requested, epochs)
    database.clock.observe(staged.read_at)
    return staged


async def stage(
    database: Database,
    holder: UUID,
    epochs: Mapping[int, int],
    *,
    cohorts: Cohorts | None = None,
    horizon: timedelta = HORIZON,
    batch: int = BATCH_MAX,
    left_out: LeftOut | None = None,
) -> Staged:
    """Look and move."""
    answers = await look(database, epochs, cohorts or Cohorts(), horizon=horizon, batch=batch)
    return await move(database, holder, epochs, answers, horizon=horizon, batch=batch, left_out=left_out)


def _per_shard(batch: int, shards: Collection[int]) -> int:
    return max(1, batch // max(1, len(shards)))
