"""Runs: where each stands, its attempts and its log; cancel and replay."""

from __future__ import annotations

from typing import Annotated, Literal
from uuid import UUID

import msgspec
from msgspec import Meta

from duly.api import paging
from duly.api.log_streams import Place, place_of, told
from duly.api.operations import EVENT_STREAM, Answer, Call, Routes
from duly.api.places import LOGS
from duly.api.refusals import Refusal
from duly.api.run_views import decoded, find_run, no_run, shown_attempt, shown_run
from duly.domain.errors import NotFound
from duly.domain.jobs.filter import RUNS, parse
from duly.moves.cancel import CancelledTree, cancel_tree
from duly.moves.cancel import cancel_run as cancel
from duly.moves.replay import replay
from duly.store.boxes import runs
from duly.store.reads import explain, lists
from duly.store.reads.explain import Explanation as Explained
from duly.wire.explanations import Explanation, Holding, Reason
from duly.wire.pages import RunsQuery
from duly.wire.runs import (
    AttemptList,
    Cancellation,
    LogPage,
    LogQuery,
    Run,
    RunCancelled,
    RunList,
    RunMoved,
    RunSummary,
    SavedCheckpoint,
)
from duly.wire.schema.shapes import Nothing

routes = Routes("runs")
_FIRST_LINE = (0, -1)
_Number = Annotated[int, Meta(ge=-1, lt=2**31)]
_LOG_PAGE = 1000  # lines that the store gives at once


@routes.add("GET", "/v1/runs", scope="jobs:read", query=RunsQuery, answers={200: RunList}, refuses=("invalid_filter",))
async def list_runs(call: Call[RunsQuery, None]) -> Answer:
    """List runs, wherever they stand, the last scheduled first."""
    asked, of = call.query, f"runs {call.query.workflow or ''} {call.query.filter or ''}"
    after = paging.position(asked.page_token, of, UUID)
    of_workflow = None if asked.workflow is None else str(asked.workflow)
    wanted = parse(asked.filter or "", RUNS).only("workflow", of_workflow)
    page = await lists.runs(call.database, call.tenant, wanted, asked.page_size, after)
    items = [RunSummary(**{name: row[name] for name in RunSummary.__struct_fields__}) for row in page.rows]
    return Answer(200, RunList(items=items, next_page_token=paging.next_token(page.after, of)))


@routes.add("GET", "/v1/runs/{run_id}", scope="jobs:read", answers={200: Run})
async def read_run(call: Call[Nothing, None]) -> Answer:
    """Read a run as it stands or ended, with its attempts, its payload, the definition that it used, and its result."""
    return Answer(200, await shown_run(call.database, call.tenant, call.id("run_id")))


@routes.add("GET", "/v1/runs/{run_id}/attempts", scope="jobs:read", answers={200: AttemptList})
async def list_attempts(call: Call[Nothing, None]) -> Answer:
    """List the attempts of a run, in order."""
    found = await find_run(call.database, call.tenant, call.id("run_id"))
    return Answer(200, AttemptList(items=[shown_attempt(row) for row in found["attempts"]]))


@routes.add("GET", "/v1/runs/{run_id}/checkpoint", scope="jobs:read", answers={200: SavedCheckpoint})
async def read_checkpoint(call: Call[Nothing, None]) -> Answer:
    """Read what is kept for the next attempt of a run. It goes when the run has ended well, or was cancelled."""
    run_id = call.id("run_id")
    await find_run(call.database, call.tenant, run_id)
    saved = await runs.read_checkpoint(call.database, run_id)
    if saved is None:
        raise NotFound(f"run {run_id} has no checkpoint: it saved none, or it has ended")
    return Answer(200, SavedCheckpoint(value=decoded(saved.pop("body")), **saved))


@routes.add(
    "GET",
    "/v1/runs/{run_id}/logs",
    scope="jobs:read",
    query=LogQuery,
    answers={200: LogPage},
    refuses=("invalid_header", "quota_reached"),
    may_stream=True,
)
async def read_logs(call: Call[LogQuery, None]) -> Answer:
    """Read what a run logged, over all its attempts, in order; again with the token for what came since.

    With `Accept: text/event-stream` the lines come as they are written: events `line`, each with its place as its id, and one
    event `end` with the state of the run when it has ended. A comment comes every 15 seconds. After a lost connection,
    `Last-Event-ID` names the last line that was got, and what came after it follows.
    """
    run_id = call.id("run_id")
    of = f"logs {run_id}"
    after = paging.position(call.query.page_token, of, tuple[_Number, _Number]) or _FIRST_LINE
    found = await find_run(call.database, call.tenant, run_id)
    if call.wants_events:
        return _followed(call, run_id, after)
    lines = await runs.read_logs(call.database, run_id, after)
    last = (lines[-1]["attempt"], lines[-1]["number"]) if lines else after
    page = LogPage(
        items=[told(line) for line in lines],
        next_page_token=paging.token(last, of),
        is_final=found["state"] in runs.FINAL and len(lines) < _LOG_PAGE,
    )
    return Answer(200, page)


def _followed(call: Call[LogQuery, None], run_id: UUID, after: Place) -> Answer:
    logs, last_id = call.hub.logs, call.headers.get("last-event-id")
    place = after if last_id is None else place_of(last_id)
    held = call.places.take(LOGS, call.identity.key)
    stream = logs.follow(held, run_id, place, call.open, call.is_admitted)
    return Answer(200, headers={"X-Accel-Buffering": "no"}, stream=stream, media_type=EVENT_STREAM)


@routes.add("GET", "/v1/runs/{run_id}/explain", scope="jobs:read", answers={200: Explanation}, in_session=False)
async def explain_run(call: Call[Nothing, None]) -> Answer:
    """Say why a run is where it is: what it waits for, what stands in its way, or what it came to.

    How many workers serve its queue is told, and not who they are.
    """
    run_id = call.id("run_id")
    async with call.open() as session:
        found = await explain.run(session, call.tenant, run_id, call.database, is_operator=call.identity.is_operator)
    if found is None:
        raise no_run(run_id)
    return Answer(200, shown_explanation(found))


@routes.add(
    "POST",
    "/v1/runs/{run_id}/cancel",
    scope="jobs:write",
    query=Cancellation,
    answers={200: RunCancelled},
    refuses=("conflict",),
)
async def cancel_run(call: Call[Cancellation, None]) -> Answer:
    """Cancel a run: one that waits is taken out; of one that runs, its worker is asked to end it.

    No attempt starts more than a second after this has answered. Whether a run that was asked to stop did so, or ended by
    itself before it heard of it, is on the run: one of the two counts.
    """
    run_id = call.id("run_id")
    await find_run(call.database, call.tenant, run_id)
    done = (
        await cancel_tree(call.database, run_id)
        if call.query.children
        else CancelledTree(await cancel(call.database, run_id), 0)
    )
    found = await find_run(call.database, call.tenant, run_id)
    return Answer(
        200, RunCancelled(run_id=run_id, status=done.answer.value, state=found["state"], children=done.subtasks)
    )


@routes.add("POST", "/v1/runs/{run_id}/replay", scope="jobs:write", answers={202: RunMoved}, refuses=("conflict",))
async def replay_run(call: Call[Nothing, None]) -> Answer:
    """Give a dead run another set of attempts. It keeps its id, and attempt numbers go on."""
    run_id = call.id("run_id")
    found = await find_run(call.database, call.tenant, run_id)
    if not await replay(call.database, [run_id]):
        raise Refusal("conflict", f"Run {run_id} is {found['state']}; only dead runs can be replayed.")
    call.wake(found["queue"])
    return Answer(202, RunMoved(run_id=run_id, status="replayed"), {"Location": f"/v1/runs/{run_id}"})


def shown_explanation(found: Explained) -> Explanation:
    """Tell an explanation."""
    reasons = [Reason(code=one.code, text=one.text, facts=dict(one.facts)) for one in found.reasons]
    held = found.holding
    holding = None if held is None else Holding(**msgspec.structs.asdict(held))
    kind: Literal["job", "run"] = "job" if found.kind == "job" else "run"
    return Explanation(kind=kind, id=found.id, state=found.state, holding=holding, reasons=reasons)
