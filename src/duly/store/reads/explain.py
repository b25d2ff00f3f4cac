"""Facts around a run or a job, for an explanation of its state.

A tenant's own rows are read through `database`, which may be a tenant's session; others, such as the workers of a
queue, through `engine`. Where these are two, workers are counted and not named.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec

from duly.domain.diagnosis.explain.facts import (
    POSITION_MAX,
    Awaited,
    ConcurrencyKey,
    Excluded,
    JobFacts,
    Parents,
    Passed,
    Reason,
    Reservation,
    RunFacts,
    Serving,
    Stall,
    blocker_of,
)
from duly.domain.diagnosis.explain.jobs import explain_job
from duly.domain.diagnosis.explain.runs import explain_run
from duly.domain.jobs.filter import Filter
from duly.domain.limits.limit import Limit
from duly.domain.limits.pause import Pause, Scope
from duly.domain.limits.scaling import Throughput
from duly.domain.runs.run import FINAL_STATES
from duly.domain.targets.target import WEBHOOK
from duly.domain.triggers.errors import TriggerError
from duly.domain.triggers.on_event import is_on_event
from duly.domain.triggers.schedule.planning import taken_by_calendars
from duly.store.boxes import runs
from duly.store.boxes.options import decode
from duly.store.connection.database import Database
from duly.store.connection.statements import load
from duly.store.reads import lists
from duly.store.reads.pressure import throughputs
from duly.store.tables import jobs, limits, overloads, pauses, workers

SQL = load("reads/explain")
_HOLDERS_SHOWN = 5
_RUNS_LOOKED_AT = 20
_PARENTS_SHOWN = 20
_OF_JOB = (
    *("state", "queue", "handler", "priority", "pause_reason", "paused_at", "removed_at", "source", "next_run_at"),
    "failures",
)
_WAITING = frozenset({"blocked", "ready", "retrying"})  # their start depends on how fast others end


class Explanation(msgspec.Struct, frozen=True):
    """The explanation of a run or a job: the first reason that holds it back, if any, and all reasons."""

    kind: str
    id: UUID
    state: str
    blocker: Reason | None
    reasons: list[Reason]


async def run(
    database: Database, tenant: int, run_id: UUID, engine: Database | None = None, *, is_operator: bool = False
) -> Explanation | None:
    """Explain one run; None when it is unknown. Only the operator sees other handlers' names."""
    whole, are_named = engine or database, engine is None or is_operator
    found = await runs.find(database, run_id)
    if found is None or found["tenant"] != tenant:
        return None
    around = await database.fetch_one(SQL["around"], run_id)
    beyond = await whole.fetch_one(SQL["beyond"], run_id, POSITION_MAX)
    policy = decode(around["options"]).policy
    attempts = [attempt for attempt in found["attempts"] if attempt["started_at"]]
    last = attempts[-1] if attempts else {}
    is_over = found["state"] in FINAL_STATES
    facts = RunFacts(
        now=around["now"],
        **{name: found[name] for name in ("state", "queue", "handler", "attempt", "scheduled_at", "reason")},
        max_attempts=policy.retry.max_attempts if policy.own else None,
        due_at=last["due_at"] if is_over and last else found["due_at"],
        worker=beyond["worker"] if engine is None else found["worker_id"] and str(found["worker_id"]),
        worker_is_live=beyond["worker_is_live"] is not False,
        awaits_recovery=bool(beyond["awaits_recovery"]),
        stall=_stall(beyond["stalled_at"], beyond["stalled_in"], None if are_named else found["handler"]),
        claimed_at=around["claimed_at"],
        deadline_at=around["deadline_at"],
        started_at=last.get("started_at") if is_over else None,
        finished_at=found["attempts"][-1]["finished_at"] if is_over and found["attempts"] else None,
        last_error=last.get("reason"),
        replays=around["replays"] or 0,
        before=beyond["before"],
        throughput=(await throughputs(whole)).get(found["queue"], Throughput())
        if found["state"] in _WAITING
        else Throughput(),
        limits=await _reached_limits(whole, Scope(tenant, found["queue"])) if found["state"] == "ready" else (),
        concurrency=await _concurrency(database, whole, tenant, run_id, around),
        passed=_passed(found["handler"], around["options"] or await database.fetchval(SQL["metadata"], run_id)),
        parents=await _parents(database, tenant, around),
        reservation=await _reservation(database, tenant, run_id, around),
        destination=_destination(around),
        pauses=await _pauses(whole, Scope(tenant, found["queue"])),
        workers=await _serving(whole, tenant, engine is None, None if are_named else found["handler"]),
        schedulers=await whole.fetchval(SQL["schedulers"]),
    )
    return _explanation("run", run_id, found["state"], explain_run(facts))


async def job(
    database: Database, tenant: int, job_id: UUID, engine: Database | None = None, *, is_operator: bool = False
) -> Explanation | None:
    """Explain one recurring job; None when there is none of that id."""
    whole, are_named = engine or database, engine is None or is_operator
    found = await jobs.find(database, job_id)
    if found is None or found["tenant"] != tenant:
        return None
    last = await lists.runs(database, tenant, Filter().only("job_id", str(job_id)), _RUNS_LOOKED_AT)
    facts = JobFacts(
        called=found["name"] or str(job_id),
        now=found["read_at"],
        **{name: found[name] for name in _OF_JOB},
        waits_for_event=is_on_event(_shape(found)),
        excluded=await _excluded(database, found),
        overload=(await overloads.standing(whole)).get((tenant, found["queue"])),
        last=last.rows,
        pauses=await _pauses(whole, Scope(tenant, found["queue"])),
        workers=await _serving(whole, tenant, engine is None, None if are_named else found["handler"]),
        schedulers=await whole.fetchval(SQL["schedulers"]),
    )
    return _explanation("job", job_id, found["state"], explain_job(facts))


async def job_or_run(
    database: Database, tenant: int, identifier: UUID, engine: Database | None = None, *, is_operator: bool = False
) -> Explanation | None:
    """Explain the recurring job or the run with an id."""
    explained = await job(database, tenant, identifier, engine, is_operator=is_operator)
    return explained or await run(database, tenant, identifier, engine, is_operator=is_operator)


def _explanation(kind: str, identifier: UUID, state: str, reasons: list[Reason]) -> Explanation:
    return Explanation(kind, identifier, state, blocker_of(reasons), reasons)


async def _concurrency(
    database: Database, engine: Database, tenant: int, run_id: UUID, around: Any
) -> ConcurrencyKey | None:
    if around["waits_for"] != "concurrency":
        return None
    if around["slots"] is None and not around["is_fifo"]:
        return None
    rows = await database.fetch(SQL["holders"], tenant, around["key"], _HOLDERS_SHOWN)
    statement = SQL["fifo_position" if around["is_fifo"] else "key_position"]
    position = await engine.fetch_one(statement, tenant, around["key"], run_id, POSITION_MAX)
    return ConcurrencyKey(
        around["key"],
        around["slots"] or 1,
        around["active"] or 0,
        [row[0] for row in rows],
        before=position["before"],
        is_fifo=around["is_fifo"],
        next_run=position["first"],
    )


def _passed(handler: str, text: str | None) -> Passed:
    policy = decode(text).policy
    key, rate = policy.concurrency and policy.concurrency[0], policy.rate and policy.rate[0]
    return Passed(key, policy.fifo is not False, rate, has_destination=handler == WEBHOOK)


async def _reservation(database: Database, tenant: int, run_id: UUID, around: Any) -> Reservation | None:
    """Read the rate limit that a run waits at; its reservation comes after those ahead of it."""
    if around["waits_for"] != "rate":
        return None
    throughput = await database.fetchrow(SQL["reservation"], tenant, around["key"])
    if throughput is None:
        return None
    position = await database.fetch_one(SQL["rate_position"], tenant, around["key"], run_id, POSITION_MAX)
    begins = max(throughput["next_at"], around["now"])
    reservation_at = begins + timedelta(seconds=position["before"] / throughput["per_second"])
    is_known = position["before"] < POSITION_MAX
    return Reservation(
        throughput["key"],
        throughput["per_second"],
        throughput["burst"],
        position["before"],
        reservation_at if is_known else None,
    )


async def _parents(database: Database, tenant: int, around: Any) -> Parents | None:
    """Read what a node, or a run with dependencies, waits for."""
    if around["waits_for"] not in ("workflow", "dependency", "recall"):
        return None
    if around["waits_for"] != "workflow" or around["node"] is None:
        dependency = await database.fetch(SQL["dependency"], around["run_id"], tenant, _PARENTS_SHOWN)
        return Parents([f"job {row[0]}" for row in dependency])
    workflow_id = UUID(around["key"])
    rows = await database.fetch(SQL["parents"], workflow_id, around["node"], tenant, _PARENTS_SHOWN)
    is_paused = await database.fetchval(SQL["workflow_is_paused"], workflow_id, tenant)
    return Parents([row[0] for row in rows], workflow_id, is_paused=bool(is_paused))


def _shape(found: Mapping[str, Any]) -> dict[str, Any]:
    return {} if found["schedule"] is None else msgspec.json.decode(found["schedule"], type=dict[str, Any])


async def _excluded(database: Database, found: Mapping[str, Any]) -> Excluded | None:
    """Return the occurrence that a job would have had before its next fire, if a calendar excludes it."""
    if found["state"] != "active" or not _shape(found).get("calendars"):
        return None
    try:
        schedule = await jobs.schedule_of_job(database, found)
    except TriggerError:  # a calendar that it names no longer exists
        return None
    taken = taken_by_calendars(schedule, found["read_at"], found["next_run_at"])
    return None if taken is None else Excluded(*taken)


def _destination(around: Any) -> Awaited | None:
    if around["destination_id"] is None:
        return None
    return Awaited(
        origin=around["origin"],
        state=around["destination_state"],
        probe_at=_ahead(around["probe_at"], around["now"]),
        slots=around["destination_slots"],
        in_flight=around["in_flight"],
        rate=around["rate_per_second"],
        ramp_rate=around["ramp_rate"],
    )


def _ahead(moment: datetime | None, now: datetime) -> datetime | None:
    return moment if moment is not None and moment > now else None


async def _reached_limits(database: Database, scope: Scope) -> Sequence[Limit]:
    found = await limits.standing(database)
    return [limit for limit in found if limit.scope.touches(scope) and limit.running >= limit.slots]


async def _pauses(database: Database, scope: Scope) -> Sequence[Pause]:
    return [pause for pause in await pauses.standing(database) if pause.scope.touches(scope)]


async def _serving(database: Database, tenant: int, are_named: bool, only: str | None) -> list[Serving]:
    live = [row for row in await workers.live(database) if row.serves(tenant)]
    return [
        Serving(
            row.name if are_named else None,
            row.queues,
            row.handlers,
            row.slots,
            row.pools,
            _stall(row.stalled_at, row.stalled_in, only),
        )
        for row in live
    ]


def _stall(since: datetime | None, handlers: Sequence[str] | None, only: str | None) -> Stall | None:
    """Return a stall with the names of its handlers; a tenant sees only its own."""
    return None if since is None else Stall(since, [one for one in handlers or () if only in (None, one)])
