"""Runs: their state, attempts and logs; cancel, replay and run again."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from msgspec import Meta

from duly.api import paging
from duly.api.admission import ARCHIVES, LOGS
from duly.api.operations import Call, Routes
from duly.api.problems import Refusal
from duly.api.response import EVENT_STREAM, Response
from duly.api.streams.logs import Cursor, cursor_of, reported
from duly.api.views.runs import (
    find_run,
    no_run,
    quoted_value,
    run_of,
    run_summary,
    shown_attempt,
    shown_explanation,
    shown_run,
)
from duly.domain.errors import NotFound
from duly.domain.jobs.filter import RUNS, Filter, parse
from duly.domain.jobs.job import check_name
from duly.domain.runs import payload as payloads
from duly.domain.runs.run import FINAL_STATES
from duly.domain.tenancy.audit import Action
from duly.moves.archive.cold import reaches_back
from duly.moves.cancel import CancelledTree, cancel_tree
from duly.moves.cancel import cancel_run as cancel
from duly.moves.dead import replay
from duly.moves.rerun import Changes
from duly.moves.rerun import rerun as create_rerun
from duly.store.boxes import runs
from duly.store.reads import explain, lists, overview
from duly.store.reads.lists import Page
from duly.store.tables import archive
from duly.wire.explanations import Explanation
from duly.wire.pages import RunsQuery
from duly.wire.runs import (
    AttemptList,
    Cancellation,
    LogPage,
    LogQuery,
    Rerun,
    RerunRequest,
    Run,
    RunCancelled,
    RunList,
    RunMoved,
    SavedCheckpoint,
)
from duly.wire.schema.shapes import Nothing

routes = Routes("runs", reads="jobs:read", writes="jobs:write")
_FIRST_LINE = (0, -1)
_Number = Annotated[int, Meta(ge=-1, lt=2**31)]
_LOG_PAGE = 1000  # lines that the store gives at once


@routes.add(
    "GET /v1/runs",
    responses={200: RunList},
    refuses=("invalid_filter", "quota_reached", "archive_unavailable"),
    in_session=False,
    may_lag=True,
)
async def list_runs(call: Call[RunsQuery, None]) -> Response:
    """List runs in every state, the last scheduled first.

    Where history is archived, a filter by `scheduled_at` or `finished_at` also reads archived runs.
    """
    requested, of = call.query, f"runs {call.query.workflow or ''} {call.query.filter or ''}"
    after = paging.position(requested.page_token, of, UUID)
    of_workflow = None if requested.workflow is None else str(requested.workflow)
    wanted = parse(requested.filter or "", RUNS).only("workflow", of_workflow)
    async with call.open() as session:
        page = await lists.runs(session, call.tenant, wanted, requested.page_size, after)
    page = await _with_archived(call, page, wanted, after)
    async with call.open() as session:
        previews = await overview.payload_previews(session, page.rows)
        names = await archive.job_names(session, [row["job_id"] for row in page.rows if row.get("is_archived")])
    for row in page.rows:
        row["job_name"] = names.get(row["job_id"], row["job_name"])
    items = [run_summary(row, previews.get(row["run_id"])) for row in page.rows]
    return paging.page(RunList, items, page.after, of)


async def _with_archived(
    call: Call[RunsQuery, None], page: Page[UUID], wanted: Filter, after: UUID | None
) -> Page[UUID]:
    """Add archived runs to a page, if its filter reaches back to them. Raises Refusal, ArchiveError."""
    cold = call.services.cold
    if cold is None or not reaches_back(wanted):
        return page
    with call.services.open_requests.take(ARCHIVES, call.identity.key):
        return await cold.beside(page, call.database, call.tenant, wanted, call.query.page_size, after)


@routes.add(
    "GET /v1/runs/{run_id}",
    responses={200: Run},
    refuses=("quota_reached", "archive_unavailable"),
    in_session=False,
)
async def read_run(call: Call[Nothing, None]) -> Response:
    """Read a run, with its attempts, its payload, the definition that it used, and its result; also an archived one."""
    run_id, cold = call.id("run_id"), call.services.cold
    try:
        async with call.open() as session:
            return Response(200, await shown_run(session, call.tenant, run_id))
    except NotFound:
        if cold is None:
            raise
    with call.services.open_requests.take(ARCHIVES, call.identity.key):
        found = await cold.run(call.database, call.tenant, run_id)
    if found is None:
        raise no_run(run_id)
    async with call.open() as session:
        return Response(200, await run_of(session, *found, is_archived=True))


@routes.add("GET /v1/runs/{run_id}/attempts", responses={200: AttemptList})
async def list_attempts(call: Call[Nothing, None]) -> Response:
    """List the attempts of a run, in order."""
    found = await find_run(call.database, call.tenant, call.id("run_id"))
    return Response(200, AttemptList(items=[shown_attempt(row) for row in found["attempts"]]))


@routes.add("GET /v1/runs/{run_id}/checkpoint", responses={200: SavedCheckpoint})
async def read_checkpoint(call: Call[Nothing, None]) -> Response:
    """Read the checkpoint for the next attempt of a run. It is deleted when the run has succeeded, or was cancelled."""
    run_id = call.id("run_id")
    await find_run(call.database, call.tenant, run_id)
    saved, carried = await runs.read_checkpoint(call.database, run_id), await overview.arguments(call.database, run_id)
    if saved is None:
        raise NotFound(f"run {run_id} has no checkpoint: it saved none, or it has ended")
    return Response(200, SavedCheckpoint(value=quoted_value(saved.pop("body"), carried), **saved))


@routes.add(
    "GET /v1/runs/{run_id}/logs", responses={200: LogPage}, refuses=("invalid_header", "quota_reached"), may_stream=True
)
async def read_logs(call: Call[LogQuery, None]) -> Response:
    """Read the log of a run, over all its attempts, in order; the token reads later lines.

    With `Accept: text/event-stream` the lines come as they are written: events `line`, each with its cursor as its id,
    and one event `end` with the state of the run when it has ended. A comment comes every 15 seconds. After a lost
    connection, `Last-Event-ID` names the last line received, and later ones follow.
    """
    run_id = call.id("run_id")
    of = f"logs {run_id}"
    after = paging.position(call.query.page_token, of, tuple[_Number, _Number]) or _FIRST_LINE
    found = await find_run(call.database, call.tenant, run_id)
    if call.wants_events:
        return _log_stream(call, run_id, after)
    lines = await runs.read_logs(call.database, run_id, after)
    last = (lines[-1]["attempt"], lines[-1]["number"]) if lines else after
    page = LogPage(
        items=[reported(line) for line in lines],
        next_page_token=paging.token(last, of),
        is_final=found["state"] in FINAL_STATES and len(lines) < _LOG_PAGE,
    )
    return Response(200, page)


def _log_stream(call: Call[LogQuery, None], run_id: UUID, after: Cursor) -> Response:
    logs, last_id = call.services.hub.logs, call.headers.get("last-event-id")
    cursor = after if last_id is None else cursor_of(last_id)
    held = call.services.open_requests.take(LOGS, call.identity.key)
    stream = logs.read(held, run_id, cursor, call.open, call.is_admitted)
    return Response(200, headers={"X-Accel-Buffering": "no"}, stream=stream, media_type=EVENT_STREAM)


@routes.add("GET /v1/runs/{run_id}/explain", responses={200: Explanation}, in_session=False)
async def explain_run(call: Call[Nothing, None]) -> Response:
    """Explain the state of a run: what it waits for, what holds it back, or its outcome.

    The workers of its queue are counted, and not named.
    """
    run_id = call.id("run_id")
    async with call.open() as session:
        found = await explain.run(session, call.tenant, run_id, call.database, is_operator=call.identity.is_operator)
    if found is None:
        raise no_run(run_id)
    return Response(200, shown_explanation(found))


@routes.add(
    "POST /v1/runs/{run_id}/cancel",
    responses={200: RunCancelled},
    refuses=("conflict",),
    audits=(Action.RUN_CANCELLED,),
)
async def cancel_run(call: Call[Cancellation, None]) -> Response:
    """Cancel a run: a waiting one is removed; the worker of an active one is asked to stop it.

    No attempt starts more than a second after this has answered. Whether a run that was asked to stop did so, or ended
    by itself before, is on the run: one of the two counts.
    """
    run_id = call.id("run_id")
    await find_run(call.database, call.tenant, run_id)
    done = (
        await cancel_tree(call.database, run_id)
        if call.query.children
        else CancelledTree(await cancel(call.database, run_id), 0)
    )
    found = await find_run(call.database, call.tenant, run_id)
    return Response(
        200, RunCancelled(run_id=run_id, status=done.answer.value, state=found["state"], children=done.subtasks)
    )


@routes.add(
    "POST /v1/runs/{run_id}/replay", responses={202: RunMoved}, refuses=("conflict",), audits=(Action.DEAD_REPLAYED,)
)
async def replay_run(call: Call[Nothing, None]) -> Response:
    """Replay a dead run with a new set of attempts. It keeps its id, and attempt numbers go on."""
    run_id = call.id("run_id")
    found = await find_run(call.database, call.tenant, run_id)
    if not await replay(call.database, [run_id]):
        raise Refusal("conflict", f"Run {run_id} is {found['state']}; only dead runs can be replayed.")
    call.wake(found["queue"])
    return Response(202, RunMoved(run_id=run_id, status="replayed"), {"Location": f"/v1/runs/{run_id}"})


@routes.add(
    "POST /v1/runs/{run_id}/rerun",
    responses={202: Rerun},
    refuses=("invalid_payload", "invalid_option", "invalid_schedule", "conflict", "quota_reached"),
    audits=(Action.RUN_RERUN,),
)
async def rerun(call: Call[Nothing, RerunRequest]) -> Response:
    """Create a new run from an ended one, unchanged or changed: a one-shot that names it in `rerun_of`.

    It has the target, payload, retries, limits, tags and callbacks of the ended run, which stays as it is. A payload
    that is no longer stored must be given. An archived run cannot be run again: the answer is 404, and says so.
    """
    run_id, requested = call.id("run_id"), call.body
    payload = None if requested.payload is None else payloads.encode(requested.payload, f"the payload of run {run_id}")
    queue = None if requested.queue is None else check_name(requested.queue, "queue")
    created = await create_rerun(
        call.database,
        run_id,
        key=call.key or str(call.services.rng.uuid()),
        tenant=call.tenant,
        changes=Changes(payload, queue, requested.priority, requested.at),
        labels=call.run_metadata,
        check=call.services.allowed.admitted,
    )
    if created.needs_hint:
        call.wake(created.queue)
    return Response(
        202, Rerun.of(created, job_id=created.run_id, rerun_of=run_id), {"Location": f"/v1/runs/{created.run_id}"}
    )
