"""Readiness: whether this installation can work. Each check has a value, a limit and a sentence; ready means all are in order.

The age of a backlog is no check: one tenant's backlog must not make the installation unready for another. Metrics and the doctor
show it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import msgspec

from duly.clock import Clock
from duly.domain.diagnosis.loops import AGE_SECONDS_MAX, NAMES, overdue
from duly.domain.errors import DulyError
from duly.domain.limits.pause import Pause
from duly.store.connection.database import Database
from duly.store.reads import maintenance_tasks
from duly.store.reads.overview import Backlog, backlog
from duly.store.tables import pauses
from duly.store.tables.shards import SHARDS

LAG_SECONDS_MAX = 5.0
# A stopped loop is reported within 5 s, so each limit leaves a second for the look.
STEP_AGE_SECONDS_MAX = 4.0
REAPER_AGE_SECONDS_MAX = 4.0
_PAUSES_SHOWN_MAX = 20


class SchedulerStatus(Protocol):
    """The state of a scheduler, as it reports it."""

    shards: int
    lag_seconds: float
    stepped_at: float | None


class Vitals(msgspec.Struct):
    """The sources of health: the parts of this process, if any, and the database."""

    database: Database
    scheduler: SchedulerStatus | None
    reaped_at: Callable[[], float | None] | None
    tick_seconds: float
    horizon_seconds: float
    workers_expected: int = 0
    started: bool = False
    rounds: Callable[[float], Mapping[str, float]] | None = None

    @property
    def clock(self) -> Clock:
        """The clock of the database."""
        return self.database.clock


class Check(msgspec.Struct, frozen=True):
    """One thing that must be in order."""

    name: str
    ok: bool
    value: float | int | str | None
    limit: float | int | None
    says: str


class Readiness(msgspec.Struct, frozen=True):
    """All checks at one moment."""

    checks: list[Check]
    tick_seconds: float
    horizon_seconds: float
    precision: str

    @property
    def ready(self) -> bool:
        """Return whether everything is in order."""
        return all(check.ok for check in self.checks)


async def readiness(vitals: Vitals) -> Readiness:
    """Run all checks once."""
    seen: Backlog | None = None
    standing: list[Pause] = []
    rounds = None if vitals.rounds is None else vitals.rounds(vitals.clock.monotonic())
    try:
        seen, standing = await backlog(vitals.database), await pauses.standing(vitals.database)
        rounds = await maintenance_tasks.ages(vitals.database, NAMES) if rounds is None else rounds
        database = _database(seen)
    except DulyError as error:
        database = Check("database", False, "silent", None, f"the database does not respond: {error}")
    checks = [
        database,
        *_task_checks(vitals, seen),
        _rounds(rounds or {}),
        *(_shared_checks(vitals, seen, standing) if seen else []),
    ]
    return Readiness(checks, vitals.tick_seconds, vitals.horizon_seconds, precision(vitals))


def precision(vitals: Vitals) -> str:
    """Describe the effect of the tick on punctuality."""
    return (
        f"The scheduler looks every {vitals.tick_seconds:g} s and stages {vitals.horizon_seconds:g} s ahead; workers fire"
        " from memory on the database's clock, never early and within milliseconds of due. What is submitted for sooner"
        " than the horizon goes straight to its queue."
    )


def _database(seen: Backlog) -> Check:
    if seen.is_read_only:
        return Check(
            "database", False, "read-only", None, "the database responds but is read-only; no run can start or end"
        )
    return Check("database", True, "answers", None, "the database responds")


def _task_checks(vitals: Vitals, seen: Backlog | None) -> list[Check]:
    """Check staging and reaping: in this process if they run in it, and in the database, where all record their rounds."""
    now, scheduler = vitals.clock.monotonic(), vitals.scheduler
    lag = None if seen is None else seen.lag_seconds
    reaper_age = None if seen is None else seen.reaper_age_seconds
    checks = []
    if scheduler is not None:
        step_age = _age(now, scheduler.stepped_at)
        checks.append(_at_most("stage_age_seconds", step_age, STEP_AGE_SECONDS_MAX, "since the last staging here"))
        lag = max(scheduler.lag_seconds, lag or 0.0)
    if vitals.reaped_at is not None:
        reaper_age = _age(now, vitals.reaped_at())
    return [
        *checks,
        _at_most("staging_lag_seconds", lag, LAG_SECONDS_MAX, "behind in staging"),
        _at_most("reaper_age_seconds", reaper_age, REAPER_AGE_SECONDS_MAX, "since the last round of the reaper"),
    ]


def _rounds(ages: Mapping[str, float]) -> Check:
    """Return the loops that have not completed a round for too long.

    A loop that never reported is not missed: it may yet begin.
    """
    oldest = round(max(ages.values(), default=0.0), 3)
    overdue_text = ", ".join(f"{name} for {ages[name]:.0f} s" for name in overdue(ages))
    says = (
        f"these loops ended no round: {overdue_text}, at most {AGE_SECONDS_MAX:g} s; each hangs or fails: see the log,"
        " and restart the scheduler's process"
        if overdue_text
        else f"{oldest:.1f} s since the slowest loop ended a round, at most {AGE_SECONDS_MAX:g} s"
    )
    return Check("round_age_seconds", not overdue_text, oldest, AGE_SECONDS_MAX, says)


def _shared_checks(vitals: Vitals, seen: Backlog, standing: list[Pause]) -> list[Check]:
    here = "" if vitals.scheduler is None else f", {vitals.scheduler.shards} of them here"
    shards_text = f"{seen.shards} of {SHARDS} shards are held by live schedulers{here}"
    expected = vitals.workers_expected
    own = f"this process should run {expected}" if expected else "this process runs none"
    living = f"{seen.workers} {'worker is' if seen.workers == 1 else 'workers are'} alive; {own}"
    return [
        Check("shards_held", seen.shards == SHARDS, seen.shards, SHARDS, shards_text),
        Check("pauses", True, len(standing), None, _paused(standing)),
        Check("workers", seen.workers >= vitals.workers_expected, seen.workers, vitals.workers_expected, living),
    ]


def _paused(standing: list[Pause]) -> str:
    """Return the pauses: waiting is intended there, so they never make us unready."""
    if not standing:
        return "nothing is paused"
    more = f" and {len(standing) - _PAUSES_SHOWN_MAX} more" if len(standing) > _PAUSES_SHOWN_MAX else ""
    return f"paused until resumed: {', '.join(str(pause.scope) for pause in standing[:_PAUSES_SHOWN_MAX])}{more}"


def _at_most(name: str, value: float | None, limit: float, what: str) -> Check:
    if value is None:
        return Check(name, False, None, limit, f"not yet measured: {what}")
    return Check(name, value <= limit, round(value, 3), limit, f"{value:.1f} s {what}, at most {limit:g} s")


def _age(now: float, then: float | None) -> float | None:
    return None if then is None else now - then
