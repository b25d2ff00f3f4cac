"""Recovery after downtime: what becomes of missed fires, by each schedule's own policy or a person's choice."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Literal
from uuid import UUID

import msgspec

from duly.domain.triggers.schedule.planning import Skip, plan_missed
from duly.domain.triggers.schedule.schedules import MISFIRE_LIMIT_MAX, Misfire, Schedule

Choice = Literal["skip", "fire_once", "fire_all"]
RATE_MAX = 500.0  # runs a second: the maximum of the backfill lane
_RATE_UNKNOWN = 50.0  # proposed where the spare capacity is unknown
_SPARE_SHARE = 0.5  # of the spare capacity: runs on time may need the rest
_FINEST = timedelta(microseconds=1)
# The policy that a choice amounts to, without a window, because it is made for this time only.
_MISFIRES: dict[Choice, Misfire] = {
    "skip": Misfire(policy="skip"),
    "fire_once": Misfire(policy="fire_once"),
    "fire_all": Misfire(policy="fire_all", window_seconds=100 * 366 * 86_400, limit=MISFIRE_LIMIT_MAX),
}


class Rule(msgspec.Struct, frozen=True):
    """A person's choice for one schedule, for all of a tenant, or, with neither, for all."""

    choice: Choice
    tenant: int | None = None
    job_id: UUID | None = None


class Verdict(msgspec.Struct, frozen=True):
    """The decision on missed fires: the part to create, its number of runs, and the number left out."""

    created: tuple[datetime, datetime] | None
    count: int
    skips: tuple[Skip, ...]


class Left(msgspec.Struct, frozen=True):
    """The runs that one schedule has yet to create, and its maximum rate."""

    runs: int
    rate: float


def choice_for(rules: Iterable[Rule], tenant: int, job_id: UUID) -> Choice | None:
    """Return the choice for a schedule, nearest rule first; None: its own policy decides."""
    found: dict[int, Choice] = {}
    for rule in rules:
        if rule.job_id == job_id:
            found[0] = rule.choice
        elif rule.job_id is None and rule.tenant == tenant:
            found[1] = rule.choice
        elif rule.job_id is None and rule.tenant is None:
            found[2] = rule.choice
    return found[min(found)] if found else None


def decide(schedule: Schedule, start: datetime, end: datetime, noticed_at: datetime, choice: Choice | None) -> Verdict:
    """Decide on the fires of [start, end), all missed, as seen at the moment when that was noticed."""
    last = schedule.latest_at_or_before(end - _FINEST)
    latest = start if last is None else max(start, last.scheduled_at)
    meant = schedule if choice is None else msgspec.structs.replace(schedule, misfire=_MISFIRES[choice])
    plan = plan_missed(meant, start, latest, noticed_at)
    if plan.run_at is not None:
        return Verdict((plan.run_at, plan.run_at + _FINEST), 1, plan.skips)
    return Verdict(plan.catch_up, plan.catch_up_count, plan.skips)


def proposed_rate(spare_per_second: float | None) -> float:
    """Propose a rate in runs a second: half of the spare capacity, and at least one."""
    if spare_per_second is None:
        return _RATE_UNKNOWN
    return min(RATE_MAX, max(1.0, round(spare_per_second * _SPARE_SHARE, 1)))


def finish_at(
    now: datetime, left: Sequence[Left], rate: float | None, spare_per_second: float | None
) -> datetime | None:
    """Return when all runs will have been created: by the rate, the spare capacity, and the slowest schedule.

    None when no worker serves them.
    """
    runs = sum(one.runs for one in left)
    if not runs:
        return now
    if spare_per_second is not None and spare_per_second <= 0:
        return None
    fastest = min(RATE_MAX, rate or RATE_MAX, spare_per_second or RATE_MAX)
    slowest = max(one.runs / one.rate for one in left)
    return now + timedelta(seconds=max(runs / fastest, slowest))
