"""Runs: where each stands, its attempts and its log; cancel and replay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Annotated, Any
from uuid import UUID

import msgspec
from msgspec import Meta

from duly.api import paging
from duly.api.definitions import target_summary
from duly.api.operations import Answer, Call, Routes
from duly.api.refusals import Refusal
from duly.domain.errors import NotFound
from duly.domain.filter import RUNS, parse
from duly.moves.cancel import cancel_run as cancel
from duly.moves.replay import replay
from duly.store import explain, lists, overview, runs
from duly.store.database import Database
from duly.store.explain import Explanation as Explained
from duly.wire.explanations import Explanation, Reason
from duly.wire.pages import FilteredQuery
from duly.wire.runs import (
    Attempt,
    AttemptList,
    LogLine,
    LogPage,
    LogQuery,
    Progress,
    Run,
    RunCancelled,
    RunList,
    RunMoved,
    RunSummary,
)
from duly.wire.shapes import Nothing

routes = Routes("runs")
_FIRST_LINE = (0, -1)
_Number = Annotated[int, Meta(ge=-1, lt=2**31)]
_LOG_PAGE = 1000  # lines that the store gives at once


@routes.add(
    "GET", "/v1/runs", scope="jobs:read", query=FilteredQuery, answers={200: RunList}, refuses=("invalid_filter",)
)
async def list_runs(call: Call[FilteredQuery, None]) -> Answer:
    """List runs, wherever they stand, the last scheduled first."""
    asked, of = call.query, f"runs {call.query.filter or ''}"
    after = paging.position(asked.page_token, of, UUID)
    page = await lists.runs(call.database, call.tenant, parse(asked.filter or "", RUNS), asked.page_size, after)
    items = [RunSummary(**{name: row[name] for name in RunSummary.__struct_fields__}) for row in page.rows]
    return Answer(200, RunList(items=items, next_page_token=paging.next_token(page.after, of)))


@routes.add("GET", "/v1/runs/{run_id}", scope="jobs:read", answers={200: Run})
async def read_run(call: Call[Nothing, None]) -> Answer:
    """Read a run as it stands, with its attempts, its payload while it lives, and its result."""
    return Answer(200, await shown_run(call.database, call.tenant, call.id("run_id")))


@routes.add("GET", "/v1/runs/{run_id}/attempts", scope="jobs:read", answers={200: AttemptList})
async def list_attempts(call: Call[Nothing, None]) -> Answer:
    """List the attempts of a run, in order."""
    found = await find_run(call.database, call.tenant, call.id("run_id"))
    return Answer(200, AttemptList(items=[_attempt(row) for row in found["attempts"]]))


@routes.add("GET", "/v1/runs/{run_id}/logs", scope="jobs:read", query=LogQuery, answers={200: LogPage})
async def read_logs(call: Call[LogQuery, None]) -> Answer:
    """Read what a run logged, over all its attempts, in order; again with the token for what came since."""
    run_id = call.id("run_id")
    of = f"logs {run_id}"
    after = paging.position(call.query.page_token, of, tuple[_Number, _Number]) or _FIRST_LINE
    found = await find_run(call.database, call.tenant, run_id)
    lines = await runs.read_logs(call.database, run_id, after)
    last = (lines[-1]["attempt"], lines[-1]["number"]) if lines else after
    page = LogPage(
        items=[LogLine(**{**line, "fields": _decoded(line["fields"])}) for line in lines],
        next_page_token=paging.token(last, of),
        is_final=found["state"] in runs.FINAL and len(lines) < _LOG_PAGE,
    )
    return Answer(200, page)


@routes.add("GET", "/v1/runs/{run_id}/explain", scope="jobs:read", answers={200: Explanation}, in_session=False)
async def explain_run(call: Call[Nothing, None]) -> Answer:
    """Say why a run is where it is: what it waits for, what stands in its way, or what it came to.

    How many workers serve its queue is told, and not who they are.
    """
    run_id = call.id("run_id")
    async with call.open() as session:
        found = await explain.run(session, call.tenant, run_id, call.database)
    if found is None:
        raise _no_run(run_id)
    return Answer(200, shown_explanation(found))


@routes.add("POST", "/v1/runs/{run_id}/cancel", scope="jobs:write", answers={200: RunCancelled}, refuses=("conflict",))
async def cancel_run(call: Call[Nothing, None]) -> Answer:
    """Cancel a run: one that waits is taken out; of one that runs, its worker is asked to end it."""
    run_id = call.id("run_id")
    await find_run(call.database, call.tenant, run_id)
    answer = await cancel(call.database, run_id)
    return Answer(200, RunCancelled(run_id=run_id, status=answer.value))


@routes.add("POST", "/v1/runs/{run_id}/replay", scope="jobs:write", answers={202: RunMoved}, refuses=("conflict",))
async def replay_run(call: Call[Nothing, None]) -> Answer:
    """Give a dead run another set of attempts. It keeps its id, and attempt numbers go on."""
    run_id = call.id("run_id")
    found = await find_run(call.database, call.tenant, run_id)
    if not await replay(call.database, [run_id]):
        raise Refusal("conflict", f"Run {run_id} is {found['state']}; only dead runs can be replayed.")
    call.wake(found["queue"])
    return Answer(202, RunMoved(run_id=run_id, status="replayed"), {"Location": f"/v1/runs/{run_id}"})


async def find_run(database: Database, tenant: int, run_id: UUID) -> dict[str, Any]:
    """Read a run of a tenant with its attempts. Raises NotFound."""
    found = await runs.find(database, run_id)
    if found is None or found["tenant"] != tenant:
        raise _no_run(run_id)
    return found


def _no_run(run_id: UUID) -> NotFound:
    return NotFound(f"no run {run_id}; GET /v1/runs lists them")


def shown_explanation(found: Explained) -> Explanation:
    """Tell an explanation."""
    reasons = [Reason(code=one.code, text=one.text, facts=dict(one.facts)) for one in found.reasons]
    return Explanation(kind="job" if found.kind == "job" else "run", id=found.id, state=found.state, reasons=reasons)


async def shown_run(database: Database, tenant: int, run_id: UUID) -> Run:
    """Read a run of a tenant, as it is told. Raises NotFound."""
    found = await find_run(database, tenant, run_id)
    carried = await overview.arguments(database, run_id)
    progress = await runs.read_progress(database, run_id)
    attempts = [_attempt(row) for row in found["attempts"]]
    started = _last([row["started_at"] for row in found["attempts"]])
    is_final = found["state"] in runs.FINAL
    return Run(
        **{name: found[name] for name in _COPIED},
        started_at=started,
        finished_at=_last([row["finished_at"] for row in found["attempts"]]) if is_final else None,
        fire_skew_ms=_skew(found["attempts"]),
        payload=_decoded(carried.get("payload")),
        result=_last([attempt.result for attempt in attempts if attempt.outcome == "succeeded"]),
        progress=None if progress is None else Progress(**progress),
        attempts=attempts,
        target=target_summary(found["handler"], carried.get("options")),
    )


_COPIED = (
    "run_id",
    "job_id",
    "state",
    "queue",
    "handler",
    "priority",
    "attempt",
    "scheduled_at",
    "due_at",
    "reason",
    "worker_id",
    "fence",
    "tags",
    "request_id",
    "traceparent",
)


def _attempt(row: Mapping[str, Any]) -> Attempt:
    copied = ("attempt", "outcome", "started_at", "finished_at", "fence", "worker_id", "reason")
    return Attempt(
        **{name: row[name] for name in copied}, result=_decoded(row["result"]), detail=_decoded(row["detail"])
    )


def _skew(attempts: Sequence[Mapping[str, Any]]) -> float | None:
    """Say by how much the first attempt that started was late."""
    for row in attempts:
        if row["started_at"] is not None:
            late: timedelta = row["started_at"] - row["due_at"]
            return round(late.total_seconds() * 1000, 3)
    return None


def _last(values: Sequence[Any]) -> Any:
    return next((value for value in reversed(values) if value is not None), None)


def _decoded(text: str | None) -> Any:
    return None if text is None else msgspec.json.decode(text)
