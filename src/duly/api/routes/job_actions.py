"""Actions on a job: trigger, pause, resume, skip the next fire, backfill; its past versions, and backfills under way."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from duly.api import paging
from duly.api.operations import Call, Routes
from duly.api.response import Response
from duly.api.routes.jobs import find_live_job
from duly.api.views.jobs import no_job, requested_schedule
from duly.api.views.runs import target_shape
from duly.domain.errors import NotFound
from duly.domain.jobs.job import check_reason
from duly.domain.jobs.spec_of import carried_of, rules_of, shown_payload, waits_of
from duly.domain.runs import payload as payloads
from duly.domain.tenancy.audit import Action
from duly.moves.schedules import backfill as backfills
from duly.moves.schedules import pause as pauses
from duly.moves.schedules.backfill import cancel_backfill as stop
from duly.moves.schedules.pause import skip_next as leave_out
from duly.moves.trigger import TriggerState, trigger
from duly.store.tables import jobs, schedules, zones
from duly.wire.jobs.verbs import (
    BackfillCancelled,
    BackfillCreated,
    BackfillList,
    BackfillQuery,
    BackfillRequest,
    BackfillStatus,
    JobStatus,
    PauseRequest,
    ResumeRequest,
    SkippedNext,
    TriggeredRun,
    TriggerRequest,
)
from duly.wire.jobs.versions import JobVersion, JobVersionList, MovedFire, MovedFires, MovedQuery
from duly.wire.pages import PageQuery
from duly.wire.schema.shapes import Nothing

routes = Routes("jobs", reads="jobs:read", writes="jobs:write")


@routes.add(
    "POST /v1/jobs/{job_id}/trigger",
    scope="jobs:trigger",
    responses={202: TriggeredRun},
    refuses=("invalid_payload", "conflict", "quota_reached"),
    audits=(Action.JOB_TRIGGERED,),
)
async def trigger_job(call: Call[Nothing, TriggerRequest]) -> Response:
    """Run a job now, beside its schedule, with a payload of its own if one is given."""
    found = await find_live_job(call, call.id("job_id"))
    payload = call.body.payload
    text = None if payload is None else payloads.encode(payload, f"the payload of {found['handler']}")
    key = call.key or str(call.services.rng.uuid())
    created = await trigger(
        call.database, found["job_id"], key=key, payload=text, allow_overlap=call.body.allow_overlap
    )
    if created.state == TriggerState.READY:
        call.wake(found["queue"])
    run = TriggeredRun(run_id=created.run_id, job_id=found["job_id"], state=created.state.value)
    return Response(202, run, {"Location": f"/v1/runs/{created.run_id}"})


@routes.add(
    "POST /v1/jobs/{job_id}/pause",
    responses={200: JobStatus},
    refuses=("invalid_option", "conflict"),
    audits=(Action.JOB_PAUSED,),
)
async def pause_job(call: Call[Nothing, PauseRequest]) -> Response:
    """Pause a job. Runs that have not started are taken back, also from a worker that holds them ahead of their moment.

    Runs that were due before and wait still start, unless they are cancelled: `may_start` names them, and coming runs
    whose worker did not answer within a second.
    """
    found = await find_live_job(call, call.id("job_id"))
    paused = await pauses.pause_naming(call.database, found["job_id"], check_reason(call.body.reason))
    changed, left = paused.answer != "already", paused.may_start
    return Response(200, JobStatus(job_id=found["job_id"], status="paused", changed=changed, may_start=left))


@routes.add(
    "POST /v1/jobs/{job_id}/resume", responses={200: JobStatus}, refuses=("conflict",), audits=(Action.JOB_RESUMED,)
)
async def resume_job(call: Call[Nothing, ResumeRequest]) -> Response:
    """Resume a job."""
    found = await find_live_job(call, call.id("job_id"))
    answer = await pauses.resume(call.database, found["job_id"], catch_up=call.body.catch_up)
    return Response(
        200,
        JobStatus(
            job_id=found["job_id"],
            status="completed" if answer == "completed" else "active",
            changed=answer != "already",
        ),
    )


@routes.add(
    "POST /v1/jobs/{job_id}/skip-next",
    responses={200: SkippedNext},
    refuses=("invalid_option", "conflict"),
    audits=(Action.JOB_SKIPPED_NEXT,),
)
async def skip_next(call: Call[Nothing, None]) -> Response:
    """Skip the next occurrence that has not started."""
    found = await find_live_job(call, call.id("job_id"))
    moment = await leave_out(call.database, found["job_id"])
    return Response(200, SkippedNext(job_id=found["job_id"], scheduled_at=moment))


@routes.add(
    "POST /v1/jobs/{job_id}/backfill",
    responses={202: BackfillCreated},
    refuses=("invalid_option", "conflict"),
    seconds_max=60.0,
    audits=(Action.JOB_BACKFILLED,),
)
async def backfill_job(call: Call[Nothing, BackfillRequest]) -> Response:
    """Create past occurrences again, at a rate and below everything on time. With `dry_run` they are only counted."""
    found, requested = await find_live_job(call, call.id("job_id")), call.body
    created = await backfills.backfill(
        call.database,
        found["job_id"],
        requested.from_,
        requested.to,
        call.services.rng,
        rate=requested.rate,
        overlap=requested.overlap,
        dry_run=requested.dry_run,
        confirm=requested.confirm,
    )
    headers = {} if created.backfill_id is None else {"Location": f"/v1/backfills/{created.backfill_id}"}
    return Response(202, BackfillCreated.of(created, job_id=found["job_id"]), headers)


_PAGE_MAX = 20  # each comes with its payload


@routes.add("GET /v1/jobs/{job_id}/versions", responses={200: JobVersionList}, may_lag=True)
async def list_job_versions(call: Call[PageQuery, None]) -> Response:
    """List the versions of a job's definition, the newest first: the current one, and the last hundred before it.

    A one-shot without a name has no definition of its own, and no versions.
    """
    job_id, requested = call.id("job_id"), call.query
    of = f"versions {job_id}"
    before = paging.position(requested.page_token, of, int) or jobs.NEWEST_VERSION
    size = min(requested.page_size, _PAGE_MAX)
    found = await jobs.versions(call.database, call.tenant, job_id, size, before)
    if not found and before == jobs.NEWEST_VERSION:
        raise no_job(job_id)
    last = found[-1]["generation"] if len(found) == size else None
    return paging.page(JobVersionList, [_shown_version(row) for row in found], last, of)


def _shown_version(row: Mapping[str, Any]) -> JobVersion:
    options, above = row["options"], row["redact_above"]
    return JobVersion.of(
        row,
        version=row["generation"],
        request_id=carried_of(options).get("request_id"),
        target=target_shape(row["handler"], options, above),
        payload=None if row["payload"] is None else shown_payload(row["payload"], options, above),
        **waits_of(requested_schedule(row)),
        **rules_of(options),
    )


backfill_routes = Routes("backfills", reads="jobs:read", writes="jobs:write")
_NEWEST = (datetime(9999, 12, 30, tzinfo=UTC), UUID(int=(1 << 128) - 1))


@backfill_routes.add("GET /v1/backfills", responses={200: BackfillList}, may_lag=True)
async def list_backfills(call: Call[BackfillQuery, None]) -> Response:
    """List backfills, the last requested first: of a job, or of all. Catch-ups of missed fires are among them."""
    requested, of = call.query, f"backfills {call.query.job_id or ''}"
    after = paging.position(requested.page_token, of, tuple[datetime, UUID]) or _NEWEST
    if requested.job_id is None:
        found = await schedules.backfills_of_tenant(call.database, call.tenant, after, requested.page_size)
    else:
        found = await schedules.backfills_of_job(
            call.database, call.tenant, requested.job_id, after, requested.page_size
        )
    last = (found[-1]["requested_at"], found[-1]["backfill_id"]) if len(found) == requested.page_size else None
    items = [BackfillStatus(**row) for row in found]
    return paging.page(BackfillList, items, last, of)


@backfill_routes.add("GET /v1/backfills/{backfill_id}", responses={200: BackfillStatus})
async def read_backfill(call: Call[Nothing, None]) -> Response:
    """Read the progress of a backfill."""
    backfill_id = call.id("backfill_id")
    found = await schedules.find_backfill(call.database, call.tenant, backfill_id)
    if found is None:
        raise NotFound(f"no backfill {backfill_id}")
    return Response(200, BackfillStatus(**found))


@backfill_routes.add(
    "DELETE /v1/backfills/{backfill_id}", responses={200: BackfillCancelled}, audits=(Action.BACKFILL_CANCELLED,)
)
async def cancel_backfill(call: Call[Nothing, None]) -> Response:
    """Stop a backfill; its runs that have not started are removed. One of which nothing is left is not found."""
    backfill_id = call.id("backfill_id")
    if await schedules.find_backfill(call.database, call.tenant, backfill_id) is None:
        raise NotFound(f"no backfill {backfill_id}")
    return Response(200, BackfillCancelled(backfill_id=backfill_id, recalled=await stop(call.database, backfill_id)))


@routes.add("GET /v1/moved-fires", responses={200: MovedFires}, in_session=False, may_lag=True)
async def list_moved_fires(call: Call[MovedQuery, None]) -> Response:
    """List the next fires, of a job or of all, that new time zone data has moved by more than a minute."""
    found = await zones.moves(call.database, call.tenant, call.query.job_id, call.query.limit)
    return Response(200, MovedFires(items=[MovedFire.of(one) for one in found]))
