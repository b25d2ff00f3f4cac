"""The plan of a recovery by tenant and schedule: missed fires, the deciding rule, and when it will be done."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from duly.domain.jobs.recovery import Choice, Left, Rule, choice_for, decide, finish_at, proposed_rate
from duly.domain.triggers.errors import TriggerError
from duly.domain.triggers.schedule.timing import read_calendars, schedule_of
from duly.store.connection.database import Database
from duly.store.reads.pressure import Gauge
from duly.store.tables import recovery as store
from duly.store.tables.recovery import LIVE, OPEN, InFlight, Recovery, Stretch, Totals

LOOKED_AT_MAX = 10_000
SHOWN_MAX = 1_000
IN_FLIGHT_MAX, DUE_MAX = 1_000, 10_000
_OF_STRETCH = ("backfill_id", "job_id", "tenant", "name", "queue", "created", "rate", "is_waiting")


class Item(msgspec.Struct, frozen=True):
    """A schedule that missed fires: its policy, the choice that replaces it, and the resulting number of runs."""

    backfill_id: UUID
    job_id: UUID
    tenant: int
    name: str | None
    queue: str
    policy: str
    choice: Choice | None
    missed: int
    runs: int
    created: int
    rate: float
    is_waiting: bool

    @property
    def left(self) -> int:
        """Return how many runs are still to be created."""
        return self.runs - self.created


class OfTenant(msgspec.Struct, frozen=True):
    """The missed fires of a tenant's schedules, and the resulting number of runs."""

    tenant: int
    schedules: int
    missed: int
    runs: int


class Plan(msgspec.Struct, frozen=True):
    """A recovery, or without one the catch-ups by policy. At most 10,000 schedules are read.

    Of a restored database, `in_flight` are the runs that were held at the backup, and `due` counts those that were due.
    """

    recovery: Recovery | None
    totals: Totals
    tenants: list[OfTenant]
    items: list[Item]
    runs: int
    proposed_rate: float
    finish_at: datetime | None
    is_partial: bool
    in_flight: list[InFlight]
    due: int


async def read(
    database: Database, gauge: Gauge, *, rules: Sequence[Rule] | None = None, rate: float | None = None
) -> Plan:
    """Return what waits for a decision or is being backfilled; with rules and a rate, as it would be if they were approved."""
    found = await store.last(database)
    live = found if found is not None and found.state in LIVE else None
    if live is not None:
        found = live = msgspec.structs.replace(live, rules=tuple(rules or live.rules), rate=rate or live.rate)
    stretches = await store.stretches(database, None if live is None else live.recovery_id, LOOKED_AT_MAX)
    now = await database.read_clock()
    items = _items(stretches, live, now)
    spare = (await gauge.read()).spare_per_second({item.queue for item in items}) if items else None
    proposed = proposed_rate(spare)
    rate = rate or (live and live.rate) or proposed
    left = [Left(item.left, item.rate) for item in items]
    totals = await store.totals(database, found.recovery_id) if found is not None else Totals(0, 0, 0, 0, 0)
    restored = live if live is not None and live.state == OPEN and live.backup_at is not None else None
    return Plan(
        recovery=found,
        totals=totals,
        tenants=_by_tenant(items),
        items=items[:SHOWN_MAX],
        runs=sum(item.left for item in items),
        proposed_rate=proposed,
        finish_at=finish_at(now, left, rate, spare) if items else None,
        is_partial=len(stretches) == LOOKED_AT_MAX,
        in_flight=[] if restored is None else await store.in_flight(database, IN_FLIGHT_MAX),
        due=0 if restored is None else await store.due(database, restored.opened_at, DUE_MAX),
    )


def _items(stretches: Sequence[Stretch], live: Recovery | None, now: datetime) -> list[Item]:
    """Return each schedule's plan; schedules that are alike and missed the same are computed once."""
    known: dict[Any, tuple[str, int]] = {}
    rules: Sequence[Rule] = live.rules if live is not None else ()
    noticed_at = live.opened_at if live is not None else now
    items = []
    for one in stretches:
        choice = choice_for(rules, one.tenant, one.job_id)
        key = one.schedule, one.every_seconds, one.anchor_at, str(one.calendars), one.from_at, one.to_at, choice
        if key not in known:
            known[key] = _computed(one, noticed_at, choice)
        policy, runs = known[key]
        items.append(
            Item(
                **{name: getattr(one, name) for name in _OF_STRETCH},
                policy=policy,
                choice=choice,
                missed=one.total,
                runs=runs if one.is_waiting else one.total,
            )
        )
    return sorted(items, key=lambda item: (-item.left, item.tenant, item.name or "", str(item.job_id)))


def _computed(one: Stretch, noticed_at: datetime, choice: Choice | None) -> tuple[str, int]:
    try:
        schedule = schedule_of(one.schedule, one.every_seconds, one.anchor_at, read_calendars(one.calendars))
    except TriggerError:
        return "unknown", 0
    return schedule.misfire.policy, decide(schedule, one.from_at, one.to_at, noticed_at, choice).count


def _by_tenant(items: Sequence[Item]) -> list[OfTenant]:
    tenants = sorted({item.tenant for item in items})
    return [
        OfTenant(
            tenant,
            sum(item.tenant == tenant for item in items),
            sum(item.missed for item in items if item.tenant == tenant),
            sum(item.left for item in items if item.tenant == tenant),
        )
        for tenant in tenants
    ]
