"""Queues: backlogs, workers, and pauses. Within a second of a pause nothing new starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import msgspec

from duly.api.operations import Call, Routes
from duly.api.request import read_duration
from duly.api.response import Response
from duly.domain.errors import InvalidOption, NotFound
from duly.domain.limits.overload import AGE_LIMIT_MAX, AGE_LIMIT_MIN, Overload
from duly.domain.limits.pause import Pause as StoredPause
from duly.domain.limits.pause import Scope
from duly.domain.tenancy.audit import Action
from duly.moves.admin.overload import limit_age
from duly.moves.admin.pause import Change, pause_scope, resume_scope
from duly.moves.workers import drain as drain_moves
from duly.store.boxes import ready
from duly.store.connection.database import Database
from duly.store.reads.pressure import Depth, Pressure
from duly.store.tables import hosts, overloads, pauses
from duly.store.tables import workers as store
from duly.store.tables.workers import WorkerRow
from duly.store.tenancy import tenants
from duly.wire.limits import LimitRequest, Scoped
from duly.wire.queues import (
    Draining,
    HeldRun,
    HeldRuns,
    HostDraining,
    HostProcess,
    Pause,
    PauseChange,
    PauseList,
    Queue,
    QueueChange,
    QueueChanged,
    QueueList,
    QueueOverload,
    QueuePause,
    QueueQuery,
    QueueResume,
    ScopedPause,
    ScopedResume,
    UnknownHandler,
    Worker,
    WorkerList,
)
from duly.wire.schema.shapes import Nothing

routes = Routes("queues", reads="jobs:read", writes="jobs:write", in_session=False, takes_key=False)
_HELD_COUNTED_MAX, _HELD_SHOWN_MAX = 10_000, 200
_OF_ANOTHER = "A scope beyond the own tenant is for the operator: use an admin key of the first tenant."


@routes.add("GET /v1/queues", responses={200: QueueList})
async def list_queues(call: Call[QueueQuery, None]) -> Response:
    """List queues: the caller's own backlog in each, its workers, and its pauses.

    With `everyone`, which is for the operator, the whole backlog, and the handlers that no live worker has.
    """
    everyone = call.query.everyone
    if everyone:
        call.check_operator("The backlog of all tenants is for the operator: use an admin key of the first tenant.")
    pressure = await call.services.gauge.read(call.tenant)
    remaining = (await overloads.standing(call.database)).values()
    overloaded = [one for one in remaining if everyone or one.tenant == call.tenant]
    living = [row for row in pressure.living if (_takes_runs(row) if everyone else row.serves(call.tenant))]
    shown = [one for one in await pauses.standing(call.database) if everyone or one.scope.tenant in (None, call.tenant)]
    depths = await _depths(call.database) if everyone else pressure.own
    unknown = await ready.unroutable(call.database) if everyone else []
    named = (one.scope.queue for one in shown if one.scope.queue is not None)
    names = sorted({*depths, *(queue for row in living for queue in row.queues), *named})
    seen = _Seen(pressure, depths, living, shown, overloaded, unknown)
    return Response(200, QueueList(items=[_queue(name, seen) for name in names]))


@routes.add(
    "PUT /v1/queues/{name}",
    scope="admin",
    responses={200: QueueChanged},
    refuses=("invalid_option",),
    is_operators=True,
    audits=(Action.QUEUE_CHANGED,),
)
async def change_queue(call: Call[Nothing, QueueChange]) -> Response:
    """Set the maximum age of a queue's oldest due run before work of low priority is shed; null restores the default.

    It takes effect within a second.
    """
    age_limit = (
        None
        if call.body.age_limit is None
        else read_duration(call.body.age_limit, "age_limit", AGE_LIMIT_MIN, AGE_LIMIT_MAX)
    )
    await limit_age(call.database, call.name, age_limit, call.identity.shown_name)
    remaining = call.services.gauge.age_limit if age_limit is None else age_limit
    return Response(200, QueueChanged(name=call.name, age_limit_seconds=remaining.total_seconds()))


@routes.add(
    "POST /v1/queues/{name}/pause",
    responses={200: PauseChange},
    refuses=("invalid_option", "conflict"),
    audits=(Action.PAUSE_CREATED,),
)
async def pause_queue(call: Call[Nothing, QueuePause]) -> Response:
    """Pause a queue: nothing new of it starts. Waiting runs are kept, active ones end as usual."""
    scope = _scope_of_queue(call, call.body.everyone)
    return _reported(
        call, await pause_scope(call.database, scope, reason=call.body.reason, paused_by=call.identity.shown_name)
    )


@routes.add(
    "POST /v1/queues/{name}/resume",
    responses={200: PauseChange},
    refuses=("invalid_option",),
    audits=(Action.PAUSE_REMOVED,),
)
async def resume_queue(call: Call[Nothing, QueueResume]) -> Response:
    """Resume a queue."""
    return _reported(call, await resume_scope(call.database, _scope_of_queue(call, call.body.everyone)))


@routes.add("GET /v1/pauses", responses={200: PauseList})
async def list_pauses(call: Call[Nothing, None]) -> Response:
    """List the pauses that touch the caller's runs; for the operator, all."""
    remaining = await pauses.standing(call.database)
    return Response(200, PauseList(items=_shown(call, remaining)))


@routes.add(
    "POST /v1/pause",
    scope="admin",
    responses={200: PauseChange},
    refuses=("invalid_option", "not_found", "conflict"),
    audits=(Action.PAUSE_CREATED,),
)
async def pause(call: Call[Nothing, ScopedPause]) -> Response:
    """Pause a scope, the emergency stop: within a second nothing new of it starts.

    Waiting runs are kept, active ones end as usual.
    """
    scope = scope_of(call, call.body)
    await check_tenant(call, scope)
    return _reported(
        call, await pause_scope(call.database, scope, reason=call.body.reason, paused_by=call.identity.shown_name)
    )


@routes.add(
    "POST /v1/resume",
    scope="admin",
    responses={200: PauseChange},
    refuses=("invalid_option",),
    audits=(Action.PAUSE_REMOVED,),
)
async def resume(call: Call[Nothing, ScopedResume]) -> Response:
    """Resume a scope; what other pauses cover stays paused."""
    return _reported(call, await resume_scope(call.database, scope_of(call, call.body)))


worker_routes = Routes("queues", scope="admin", in_session=False, takes_key=False, is_operators=True)


@worker_routes.add("GET /v1/workers", responses={200: WorkerList})
async def list_workers(call: Call[Nothing, None]) -> Response:
    """List every live worker, what it serves and how long its lease is still valid."""
    living = [row for row in await store.live(call.database) if row.until > row.read_at]
    held = await store.held_counts(call.database, _HELD_COUNTED_MAX)
    return Response(200, WorkerList(items=[_worker(row, held.get(row.worker_id, 0)) for row in living]))


@worker_routes.add("GET /v1/workers/{worker_id}/runs", responses={200: HeldRuns})
async def list_held_runs(call: Call[Nothing, None]) -> Response:
    """List the runs that a worker holds: active ones, and those claimed ahead."""
    worker_id = call.id("worker_id")
    await _living(call, worker_id)
    found = await store.held_runs(call.database, worker_id, _HELD_SHOWN_MAX + 1)
    items = [HeldRun.of(row) for row in found[:_HELD_SHOWN_MAX]]
    return Response(200, HeldRuns(items=items, is_complete=len(found) <= _HELD_SHOWN_MAX))


@worker_routes.add("POST /v1/workers/{worker_id}/drain", responses={200: Draining}, audits=(Action.WORKER_DRAINED,))
async def drain_worker(call: Call[Nothing, None]) -> Response:
    """Drain a worker: it claims nothing more, finishes what it runs, hands back the rest, and lives on without work.

    It sees that within a second. It does not stop by itself, so that its supervisor does not start another.
    """
    await drain_moves.drain(call.database, call.id("worker_id"))
    return await _draining(call, is_draining=True)


@worker_routes.add("POST /v1/workers/{worker_id}/resume", responses={200: Draining}, audits=(Action.WORKER_RESUMED,))
async def resume_worker(call: Call[Nothing, None]) -> Response:
    """Let a drained worker claim runs again."""
    await drain_moves.undrain(call.database, call.id("worker_id"))
    return await _draining(call, is_draining=False)


@worker_routes.add("POST /v1/hosts/{host}/drain", responses={200: HostDraining}, audits=(Action.HOST_DRAINED,))
async def drain_host(call: Call[Nothing, None]) -> Response:
    """Drain a host: its workers claim nothing more and hand back what they have not started; its schedulers give up their
    shards. So does whatever starts there before the host is resumed. Ask again to see what is still held.
    """
    await drain_moves.drain_host(call.database, call.path["host"])
    return await _host_draining(call)


@worker_routes.add("POST /v1/hosts/{host}/resume", responses={200: HostDraining}, audits=(Action.HOST_RESUMED,))
async def resume_host(call: Call[Nothing, None]) -> Response:
    """Let the processes of a drained host take work again."""
    await drain_moves.resume_host(call.database, call.path["host"])
    return await _host_draining(call)


async def _host_draining(call: Call[Nothing, None]) -> Response:
    host = call.path["host"]
    found = [HostProcess.of(one) for one in await hosts.held(call.database, host)]
    is_drained = await hosts.is_drained(call.database, host)
    is_empty = not any(one.held for one in found)
    return Response(200, HostDraining(host=host, is_draining=is_drained, is_empty=is_empty, processes=found))


async def _draining(call: Call[Nothing, None], *, is_draining: bool) -> Response:
    worker_id = call.id("worker_id")
    held = await store.held_counts(call.database, _HELD_COUNTED_MAX)
    return Response(200, Draining(worker_id=worker_id, is_draining=is_draining, held_runs=held.get(worker_id, 0)))


async def _living(call: Call[Nothing, None], worker_id: UUID) -> None:
    if not any(row.worker_id == worker_id and row.until > row.read_at for row in await store.live(call.database)):
        raise NotFound(f"no live worker {worker_id}; GET /v1/workers lists them")


class _Seen(msgspec.Struct, frozen=True):
    """The facts read of queues."""

    pressure: Pressure
    depths: Mapping[str, Depth]
    living: Sequence[WorkerRow]
    pauses: Sequence[StoredPause]
    overloaded: Sequence[Overload]
    unknown: Sequence[Mapping[str, Any]]


async def _depths(database: Database) -> dict[str, Depth]:
    return {row["queue"]: Depth(row["runs"], row["oldest_due_at"]) for row in await ready.depth(database)}


def _takes_runs(row: WorkerRow) -> bool:
    return row.until > row.read_at and not row.is_draining


def _queue(name: str, seen: _Seen) -> Queue:
    pressure, depth = seen.pressure, seen.depths.get(name)
    serving = [row for row in seen.living if name in row.queues]
    touching = [one for one in seen.pauses if one.scope.touches(Scope(queue=name))]
    overloaded = [one for one in seen.overloaded if one.queue == name]
    age = (pressure.read_at - depth.oldest_due_at).total_seconds() if depth else 0.0
    return Queue(
        name=name,
        ready=depth.runs if depth else 0,
        oldest_age_seconds=max(0.0, age),
        workers=len(serving),
        slots=sum(row.slots_for(pressure.busiest_handler(name)) for row in serving),
        is_paused=bool(touching),
        age_limit_seconds=pressure.age_limit_seconds(name),
        is_overloaded=bool(overloaded),
        desired_workers=pressure.desired_workers(name),
        upcoming=pressure.upcoming(name),
        pauses=[_shown_pause(one) for one in touching],
        overloads=[
            QueueOverload(
                tenant=one.tenant, age_seconds=one.age.total_seconds(), age_limit_seconds=one.age_limit.total_seconds()
            )
            for one in overloaded
        ],
        unroutable=[UnknownHandler.of(row) for row in seen.unknown if row["queue"] == name],
    )


def _worker(row: WorkerRow, held: int) -> Worker:
    return Worker.of(row, lease_seconds_left=(row.until - row.read_at).total_seconds(), held_runs=held)


def _scope_of_queue(call: Call[Any, Any], everyone: bool) -> Scope:
    if everyone:
        call.check_operator("A queue of all tenants is for the operator: use an admin key of the first tenant.")
    return Scope(None if everyone else call.tenant, call.name)


def scope_of(call: Call[Any, Any], requested: Scoped | LimitRequest, detail: str = _OF_ANOTHER) -> Scope:
    """Return the scope; an admin of a tenant means that tenant's. Raises InvalidOption, Refusal."""
    if requested.all and (requested.queue is not None or requested.tenant is not None):
        raise InvalidOption("all does not go with queue or tenant; give all, or queue, tenant or both")
    if not requested.all and requested.queue is None and requested.tenant is None:
        raise InvalidOption("no scope given; give all, queue, tenant, or queue and tenant")
    if call.identity.is_operator:
        return Scope(requested.tenant, requested.queue)
    if requested.all or requested.tenant not in (None, call.tenant):
        call.check_operator(detail)
    return Scope(call.tenant, requested.queue)


async def check_tenant(call: Call[Any, Any], scope: Scope) -> None:
    """Refuse a scope of an unknown tenant. Raises NotFound."""
    if scope.tenant is not None and await tenants.find(call.database, scope.tenant) is None:
        raise NotFound(f"no tenant {scope.tenant}; GET /v1/tenants lists them")


def _reported(call: Call[Any, Any], change: Change) -> Response:
    return Response(200, PauseChange(status=change.answer.value, remaining=_shown(call, change.remaining)))


def _shown(call: Call[Any, Any], remaining: Sequence[StoredPause]) -> list[Pause]:
    seen = [one for one in remaining if call.identity.is_operator or one.scope.tenant in (None, call.tenant)]
    return [_shown_pause(one) for one in seen]


def _shown_pause(one: StoredPause) -> Pause:
    return Pause.of(one, tenant=one.scope.tenant, queue=one.scope.queue)
