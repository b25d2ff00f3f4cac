"""Run again: a new run of what an ended run was."""

from __future__ import annotations

from duly.api import definitions
from duly.api.operations import Answer, Call, Routes
from duly.api.routes.jobs import extra_of, now_of
from duly.api.run_views import find_run
from duly.domain.jobs.job import check_name
from duly.domain.runs.run import HORIZON
from duly.moves.run_again import Changes
from duly.moves.run_again import run_again as make_again
from duly.wire.runs import RunAgain, RunAgainRequest
from duly.wire.schema.shapes import Nothing

routes = Routes("runs")


@routes.add(
    "POST",
    "/v1/runs/{run_id}/run-again",
    scope="jobs:write",
    body=RunAgainRequest,
    answers={202: RunAgain},
    refuses=("invalid_payload", "invalid_option", "invalid_schedule", "conflict", "quota_reached"),
)
async def run_again(call: Call[Nothing, RunAgainRequest]) -> Answer:
    """Make a new run of what an ended run was, as it was or changed: a one-shot that names it in `again_of`.

    It has the target, payload, retries, limits, tags and callbacks of the ended run, which stays as it is. A payload that
    is no longer kept must be given.
    """
    run_id, asked = call.id("run_id"), call.body
    found = await find_run(call.database, call.tenant, run_id)
    payload = None if asked.payload is None else definitions.payload_text(asked.payload, found["handler"])
    queue = None if asked.queue is None else check_name(asked.queue, "queue")
    made = await make_again(
        call.database,
        run_id,
        key=call.key or str(call.rng.uuid()),
        tenant=call.tenant,
        changes=Changes(payload, queue, asked.priority, asked.at),
        marks=extra_of(call),
        check=lambda job: definitions.admitted(job, call.allowed),
    )
    if made.scheduled_at - now_of(call) <= HORIZON:
        call.wake(made.queue)
    told = RunAgain(run_id=made.run_id, job_id=made.run_id, again_of=run_id, scheduled_at=made.scheduled_at)
    return Answer(202, told, {"Location": f"/v1/runs/{made.run_id}"})
