"""HTTP workers, in any language and any network: register, claim, renew, settle; and reports of active runs.

A lease over HTTP is a lease like any other: the same rows, fences, reaper and retries. docs/decisions/0013-workers-over-http.md
says what differs, and docs/how-to/workers-over-http.md how such a worker is written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from datetime import timedelta
from typing import Any
from uuid import UUID

import msgspec

from duly.api.admission import CLAIMS
from duly.api.operations import ACT_SECONDS, Call, Routes
from duly.api.request import read_duration, watched_connection
from duly.api.response import Response
from duly.api.views.worker_runs import claimed_run, reported
from duly.domain.errors import LeaseOver
from duly.domain.jobs.job import check_name
from duly.domain.redaction import Redactor
from duly.domain.runs import payload as payloads
from duly.domain.runs.progress import progress_of
from duly.domain.targets.target import check_handler
from duly.moves.redact import redactor_for
from duly.moves.settle import hand_back
from duly.moves.workers import retire
from duly.moves.workers.lend import Parcel, lend
from duly.moves.workers.take_back import take_back
from duly.store.boxes import runs
from duly.store.boxes.leased import Handle
from duly.store.tables import remote_workers
from duly.store.tables.workers import Identity
from duly.wire.schema.shapes import Nothing
from duly.wire.workers import (
    Checkpoint,
    ClaimedRuns,
    ClaimRequest,
    HeldLease,
    Lease,
    Leaving,
    Left,
    LogEntries,
    LogsKept,
    NewWorker,
    ProgressReport,
    RegisteredWorker,
    Renewal,
    Renewed,
    Settled,
    SettledRun,
    Settlement,
)

_IN_ATTEMPTS = "The run's attempts record what a worker did."
routes = Routes("workers", scope="worker", takes_key=False, unaudited=_IN_ATTEMPTS)
_IN_LIST = "Registration changes no job; `GET /v1/workers` lists live workers."
LEASE_MIN, LEASE_MAX = timedelta(seconds=2), timedelta(minutes=10)
WAIT_MAX = timedelta(seconds=30)
POLL_SECONDS = 0.25
SETTLE_BYTES_MAX = LOGS_BYTES_MAX = 16_777_216
FIELDS_BYTES_MAX = 16_384
_Line = tuple[str, str, str | None]  # of a log: its level, message and fields
_RENEWALS = 5  # in the time of a lease


@routes.add(
    "POST /v1/worker/register",
    responses={201: RegisteredWorker},
    refuses=("invalid_option", "quota_reached"),
    unaudited=_IN_LIST,
    takes_key=True,
)
async def register_worker(call: Call[Nothing, NewWorker]) -> Response:
    """Register a worker. The id is new, and is never used again: a worker whose lease has expired registers again."""
    requested = call.body
    lease = read_duration(requested.lease, "lease", LEASE_MIN, LEASE_MAX)
    identity = Identity(
        call.services.rng.uuid(),
        check_name(requested.name, "name"),
        payloads.storable(requested.version),
        _names(requested.queues, "queue"),
        [check_handler(name) for name in _names(requested.handlers, "handler")],
        requested.slots,
        lease,
    )
    await remote_workers.register(call.database, identity)
    seconds = lease.total_seconds()
    answer = RegisteredWorker(
        worker_id=identity.worker_id,
        lease_seconds=seconds,
        renew_every_seconds=seconds / _RENEWALS,
        start_within_seconds=_start_within(lease),
    )
    return Response(201, answer)


@routes.add(
    "POST /v1/worker/{worker_id}/claim",
    responses={200: ClaimedRuns},
    refuses=("worker_expired", "conflict", "invalid_option", "quota_reached"),
    seconds_max=WAIT_MAX.total_seconds() + ACT_SECONDS,
    in_session=False,
)
async def claim_runs(call: Call[Nothing, ClaimRequest]) -> Response:
    """Claim due runs of the worker's queues and handlers; wait for them while there are none.

    They are to be started at once. A claim whose response is lost is given up: its runs go back when the worker renews
    its lease.
    """
    worker_id = call.id("worker_id")
    wait = read_duration(call.body.wait, "wait", timedelta(), WAIT_MAX)
    # A claim that does not wait needs no slot.
    open_request = call.services.open_requests.take(CLAIMS, call.identity.key) if wait else nullcontext()
    with open_request:
        async with watched_connection() as hung_up:
            parcels = await _poll(call, worker_id, wait.total_seconds(), hung_up)
            if parcels and hung_up.done():  # the client will not receive them
                async with call.open() as session:
                    await hand_back(session, worker_id, [parcel.run for parcel in parcels])
    return Response(200, ClaimedRuns(runs=list(map(claimed_run, parcels))))


@routes.add("POST /v1/worker/{worker_id}/renew", responses={200: Renewed})
async def renew_lease(call: Call[Nothing, Renewal]) -> Response:
    """Renew the lease, with the runs that the worker holds; the response names the runs to stop.

    Call it five times in a lease.
    """
    renewal = await remote_workers.renew(
        call.database, call.id("worker_id"), _handles(call.body.leases), call.body.answered
    )
    answer = Renewed(
        until_seconds=renewal.lease.total_seconds(),
        start_within_seconds=_start_within(renewal.lease),
        cancel=_shown_handles(renewal.cancel),
        lost=_shown_handles(renewal.lost),
    )
    return Response(200, answer)


@routes.add(
    "POST /v1/worker/{worker_id}/settle",
    responses={200: Settled},
    refuses=("invalid_option",),
    body_bytes_max=SETTLE_BYTES_MAX,
)
async def settle_runs(call: Call[Nothing, Settlement]) -> Response:
    """Report the outcomes of runs. Repeated after a lost response, it answers the same.

    An outcome that comes after its lease was lost is fenced: it changes nothing, and is recorded.
    """
    outcomes = [reported(item) for item in call.body.outcomes]
    taken = await take_back(call.database, call.id("worker_id"), outcomes, call.services.rng)
    for queue in taken.queues:
        call.wake(queue)
    statuses = [
        SettledRun(
            run_id=item.handle[0],
            fence=item.handle[1],
            status="settled" if item.handle in taken.settled else "fenced",
        )
        for item in outcomes
    ]
    return Response(200, Settled(outcomes=statuses))


@routes.add("POST /v1/worker/{worker_id}/progress", responses={204: None}, refuses=("lease_lost",))
async def report_progress(call: Call[Nothing, ProgressReport]) -> Response:
    """Report the progress of a run. Once a second suffices."""
    said = call.body
    progress = progress_of(said.done or 0, said.total, said.note)
    if progress.note is not None and (redactor := await redactor_for(call.database, said.run_id)) is not None:
        progress = msgspec.structs.replace(progress, note=redactor.text(progress.note))
    if not await runs.save_progress(call.database, said.run_id, said.fence, call.id("worker_id"), progress):
        raise _lease_over(said.run_id, said.fence)
    return Response(204)


@routes.add("POST /v1/worker/{worker_id}/checkpoint", responses={204: None}, refuses=("lease_lost", "invalid_payload"))
async def save_checkpoint(call: Call[Nothing, Checkpoint]) -> Response:
    """Save a checkpoint for the next attempt; durable when this answers."""
    said = call.body
    text = payloads.encode(said.value, f"the checkpoint of run {said.run_id}", payloads.CHECKPOINT_BYTES_MAX)
    if not await runs.save_checkpoint(call.database, said.run_id, said.fence, call.id("worker_id"), text):
        raise _lease_over(said.run_id, said.fence)
    return Response(204)


@routes.add(
    "POST /v1/worker/{worker_id}/logs",
    responses={200: LogsKept},
    refuses=("lease_lost", "invalid_payload"),
    body_bytes_max=LOGS_BYTES_MAX,
)
async def append_logs(call: Call[Nothing, LogEntries]) -> Response:
    """Append lines to the run's log."""
    said = call.body
    lines: list[_Line] = [
        (entry.level, payloads.storable(entry.message), _fields_text(entry.fields, said.run_id)) for entry in said.lines
    ]
    if (redactor := await redactor_for(call.database, said.run_id)) is not None:
        # In a thread: with many values and lines it takes seconds, in which nobody else would be answered.
        lines = await asyncio.to_thread(_redacted, lines, redactor)
    handle = (said.run_id, said.fence)
    kept = await remote_workers.append_logs(call.database, call.id("worker_id"), handle, lines)
    if kept is None:
        raise _lease_over(*handle)
    return Response(200, LogsKept(kept=kept))


@routes.add("DELETE /v1/worker/{worker_id}", responses={200: Left}, unaudited=_IN_LIST)
async def leave(call: Call[Nothing, Leaving]) -> Response:
    """Deregister the worker. Its runs that are not in `leases` were not started, and go back unused.

    Settle started runs first. Runs in `leases` still have no outcome: then the lease expires by itself.
    """
    has_left, returned = await retire.leave(call.database, call.id("worker_id"), _handles(call.body.leases))
    return Response(200, Left(left=has_left, returned=_shown_handles(returned)))


def _redacted(lines: Sequence[_Line], redactor: Redactor) -> list[_Line]:
    return [(level, redactor.text(text), fields and redactor.json(fields)) for level, text, fields in lines]


async def _poll(
    call: Call[Nothing, ClaimRequest], worker_id: UUID, seconds: float, hung_up: asyncio.Task[None]
) -> list[Parcel]:
    """Look until there is something, the time is over, or the caller has disconnected; hold no connection in between."""
    until, wake = call.clock.monotonic() + seconds, asyncio.Event()
    hung_up.add_done_callback(lambda _: wake.set())
    while not hung_up.done():
        ahead = await remote_workers.foresee(call.database, worker_id, call.tenant)
        if ahead == 0:
            requested = call.body
            parcels = await lend(
                call.database, call.open, worker_id, requested.number, requested.limit, call.services.rng
            )
            if parcels is not None:
                return parcels
        left = until - call.clock.monotonic()
        if left <= 0:
            break
        await call.clock.wait(wake, max(0.001, min(left, ahead or POLL_SECONDS, POLL_SECONDS)))
    return []


def _names(given: Iterable[str], what: str) -> list[str]:
    return list(dict.fromkeys(check_name(name, what) for name in given))


def _fields_text(fields: dict[str, Any], run_id: UUID) -> str | None:
    if not fields:
        return None
    return payloads.encode(payloads.storable_value(fields), f"the fields of a line of run {run_id}", FIELDS_BYTES_MAX)


def _start_within(lease: timedelta) -> float:
    """Return how long after a renewal runs may be started: two thirds, so that nothing starts after the lease has expired."""
    return (lease * 2 / 3).total_seconds()


def _handles(leases: Iterable[Lease]) -> list[Handle]:
    return [(lease.run_id, lease.fence) for lease in leases]


def _shown_handles(handles: Sequence[Handle]) -> list[HeldLease]:
    return [HeldLease(run_id=run_id, fence=fence) for run_id, fence in handles]


def _lease_over(run_id: UUID, fence: int) -> LeaseOver:
    return LeaseOver(f"run {run_id}, fence {fence}: the lease was lost; stop here")
