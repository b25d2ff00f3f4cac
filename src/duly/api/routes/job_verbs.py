"""What is done with a job: trigger, pause, resume, skip the next, backfill."""

from __future__ import annotations

from duly.api import definitions
from duly.api.operations import Answer, Call, Routes
from duly.api.routes.jobs import find_live_job
from duly.domain.jobs.job import check_reason
from duly.moves.schedules import backfill as backfills
from duly.moves.schedules import pause as pauses
from duly.moves.schedules.skip_next import skip_next as leave_out
from duly.moves.trigger import TriggerState, trigger
from duly.wire.jobs.verbs import (
    BackfillAsked,
    BackfillRequest,
    JobStatus,
    PauseRequest,
    ResumeRequest,
    SkippedNext,
    TriggeredRun,
    TriggerRequest,
)
from duly.wire.schema.shapes import Nothing

routes = Routes("jobs")


@routes.add(
    "POST",
    "/v1/jobs/{job_id}/trigger",
    scope="jobs:trigger",
    body=TriggerRequest,
    answers={202: TriggeredRun},
    refuses=("invalid_payload", "conflict", "quota_reached"),
)
async def trigger_job(call: Call[Nothing, TriggerRequest]) -> Answer:
    """Run a job now, beside its schedule, with a payload of its own if one is given."""
    found = await find_live_job(call, call.id("job_id"))
    payload = call.body.payload
    text = None if payload is None else definitions.payload_text(payload, found["handler"])
    key = call.key or str(call.rng.uuid())
    made = await trigger(call.database, found["job_id"], key=key, payload=text, beside=call.body.beside)
    if made.state == TriggerState.READY:
        call.wake(found["queue"])
    run = TriggeredRun(run_id=made.run_id, job_id=found["job_id"], state=made.state.value)
    return Answer(202, run, {"Location": f"/v1/runs/{made.run_id}"})


@routes.add(
    "POST",
    "/v1/jobs/{job_id}/pause",
    scope="jobs:write",
    body=PauseRequest,
    answers={200: JobStatus},
    refuses=("invalid_option", "conflict"),
)
async def pause_job(call: Call[Nothing, PauseRequest]) -> Answer:
    """Stop a job from firing. What has not started is taken back, also from a worker that holds it ahead of its moment.

    Runs that were due before and wait still start, unless they are cancelled: `may_start` names them, and coming runs whose
    worker did not answer within a second.
    """
    found = await find_live_job(call, call.id("job_id"))
    paused = await pauses.pause_naming(call.database, found["job_id"], check_reason(call.body.reason))
    changed, left = paused.answer != "already", paused.may_start
    return Answer(200, JobStatus(job_id=found["job_id"], status="paused", changed=changed, may_start=left))


@routes.add(
    "POST",
    "/v1/jobs/{job_id}/resume",
    scope="jobs:write",
    body=ResumeRequest,
    answers={200: JobStatus},
    refuses=("conflict",),
)
async def resume_job(call: Call[Nothing, ResumeRequest]) -> Answer:
    """Let a job fire again."""
    found = await find_live_job(call, call.id("job_id"))
    answer = await pauses.resume(call.database, found["job_id"], catch_up=call.body.catch_up)
    return Answer(
        200,
        JobStatus(
            job_id=found["job_id"],
            status="completed" if answer == "completed" else "active",
            changed=answer != "already",
        ),
    )


@routes.add(
    "POST",
    "/v1/jobs/{job_id}/skip-next",
    scope="jobs:write",
    answers={200: SkippedNext},
    refuses=("invalid_option", "conflict"),
)
async def skip_next(call: Call[Nothing, None]) -> Answer:
    """Leave the next occurrence out that has not started, and nothing else."""
    found = await find_live_job(call, call.id("job_id"))
    moment = await leave_out(call.database, found["job_id"])
    return Answer(200, SkippedNext(job_id=found["job_id"], scheduled_at=moment))


@routes.add(
    "POST",
    "/v1/jobs/{job_id}/backfill",
    scope="jobs:write",
    body=BackfillRequest,
    answers={202: BackfillAsked},
    refuses=("invalid_option", "conflict"),
    seconds_max=60.0,
)
async def backfill_job(call: Call[Nothing, BackfillRequest]) -> Answer:
    """Make past occurrences again, at a rate and below all that is on time. With `dry_run` they are only counted."""
    found, asked = await find_live_job(call, call.id("job_id")), call.body
    made = await backfills.backfill(
        call.database,
        found["job_id"],
        *asked.stretch(),
        call.rng,
        rate=asked.rate,
        overlap=asked.overlap,
        dry_run=asked.dry_run,
        confirm=asked.confirm,
    )
    headers = {} if made.backfill_id is None else {"Location": f"/v1/backfills/{made.backfill_id}"}
    return Answer(
        202,
        BackfillAsked(
            backfill_id=made.backfill_id,
            job_id=found["job_id"],
            count=made.count,
            first=made.first,
            is_partial=made.is_partial,
        ),
        headers,
    )
