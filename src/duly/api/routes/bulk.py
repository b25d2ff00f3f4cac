"""Bulk changes: pause, resume or end jobs, cancel or replay runs, that match a filter, or that are named."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any
from uuid import UUID

import msgspec

from duly.api import paging
from duly.api.operations import Call, Routes
from duly.api.problems import Refusal
from duly.api.response import Response
from duly.domain.errors import NotFound
from duly.domain.jobs.filter import JOBS, RUNS, Field, Filter, parse
from duly.domain.jobs.job import check_reason
from duly.domain.tenancy.audit import Action
from duly.moves import bulk
from duly.moves.bulk import ChangeJob, ChangeRuns, Done, Position, Read, Way
from duly.moves.cancel import cancel_live, end_job
from duly.moves.dead import check_rate, replay
from duly.moves.schedules import pause as pauses
from duly.store.boxes import runs
from duly.store.connection.database import Database, Unavailable
from duly.store.connection.together import OpenSession
from duly.store.reads import lists
from duly.store.tables import jobs
from duly.wire.jobs.bulk import (
    LIMIT_DEFAULT,
    Many,
    ManyDeleted,
    ManyDone,
    ManyPaused,
    ManyReplayed,
    ManyResumed,
    NotChanged,
)
from duly.wire.schema.shapes import Nothing

_CHOOSE = "No selection: give exactly one of filter, ids and all."
_REMEDY = 'Send a filter, or `"ids": [...]`, or `"all": true`.'
_REFUSED = ("invalid_filter", "invalid_query")
_SECONDS_MAX = 60.0
routes = Routes(
    "bulk",
    scope="jobs:write",
    responses={200: ManyDone},
    refuses=_REFUSED,
    seconds_max=_SECONDS_MAX,
    in_session=False,
    is_resumable=True,
)
_CHANGE_SECONDS, _COUNT_SECONDS = 40.0, 20.0  # after this it reports how far it came


@routes.add("POST /v1/jobs:pause", refuses=(*_REFUSED, "invalid_option"), audits=(Action.JOB_PAUSED,))
async def pause_jobs(call: Call[Nothing, ManyPaused]) -> Response:
    """Pause the jobs that match; with `dry_run` the active ones are only counted."""
    reason = check_reason(call.body.reason)

    async def pause(session: Database, job_id: UUID) -> bool:
        return await pauses.pause(session, await _ours(session, call.tenant, job_id), reason) != "already"

    return await _jobs(call, ("active",), pause)


@routes.add("POST /v1/jobs:resume", audits=(Action.JOB_RESUMED,))
async def resume_jobs(call: Call[Nothing, ManyResumed]) -> Response:
    """Resume the jobs that match; with `dry_run` the paused ones are only counted."""

    async def resume(session: Database, job_id: UUID) -> bool:
        found = await _ours(session, call.tenant, job_id)
        return await pauses.resume(session, found, catch_up=call.body.catch_up) != "already"

    return await _jobs(call, ("paused",), resume)


@routes.add("POST /v1/jobs:delete", audits=(Action.JOB_CANCELLED,))
async def delete_jobs(call: Call[Nothing, ManyDeleted]) -> Response:
    """End the jobs that match: their future runs are cancelled; started ones go on, or are asked to stop."""

    async def end(session: Database, job_id: UUID) -> bool:
        await end_job(session, await _ours(session, call.tenant, job_id), stop=call.body.running == "stop")
        return True

    return await _jobs(call, bulk.OPEN, end)


@routes.add("POST /v1/runs:cancel", audits=(Action.RUN_CANCELLED,))
async def cancel_runs(call: Call[Nothing, Many]) -> Response:
    """Cancel the runs that match and have not ended: waiting ones are removed, the workers of active ones are asked to
    stop them.
    """

    async def cancel(session: Database, run_ids: Sequence[UUID], _: int) -> int:
        return await cancel_live(session, run_ids, "cancelled")

    return await _runs(call, bulk.LIVE, cancel)


@routes.add("POST /v1/runs:replay", audits=(Action.DEAD_REPLAYED,))
async def replay_runs(call: Call[Nothing, ManyReplayed]) -> Response:
    """Replay the dead runs that match, at once or so many a second. They keep their ids."""
    rate = check_rate(call.body.rate)

    async def replay_some(session: Database, run_ids: Sequence[UUID], passed: int) -> int:
        return len(await replay(session, run_ids, rate=rate, first=passed))

    return await _runs(call, ("dead",), replay_some)


def _opened(call: Call[Nothing, Any]) -> OpenSession:
    """Open transactions with the caller as actor: each job has its own audit entry, and each batch of runs one."""

    @asynccontextmanager
    async def opened() -> AsyncIterator[Database]:
        async with call.open() as session:
            yield session.acting_as(call.actor)

    return opened


async def _ours(session: Database, tenant: int, job_id: UUID) -> UUID:
    """Return the id of a job that has a definition of its own. Raises NotFound."""
    found = await jobs.find(session, job_id)
    if found is None or found["tenant"] != tenant:
        raise NotFound(f"no job {job_id} with a schedule or a name; GET /v1/jobs lists them")
    return job_id


async def _jobs(call: Call[Nothing, Any], states: tuple[str, ...], change: ChangeJob) -> Response:
    requested: Many = call.body
    of = f"jobs in bulk {requested.filter}"
    chosen = _chosen(requested, JOBS, states)
    if requested.ids:
        return await _named(call, of, lambda: bulk.change_jobs(_opened(call), _distinct(requested), change))
    read = _reading(lists.jobs, call.tenant, chosen)
    if requested.dry_run:
        return await _resumed(call, of, partial(bulk.count_matching, _opened(call), read, "job_id"))
    return await _resumed(call, of, partial(bulk.change_jobs_matching, _opened(call), read, change))


async def _runs(call: Call[Nothing, Any], states: tuple[str, ...], change: ChangeRuns) -> Response:
    requested: Many = call.body
    of = f"runs in bulk {requested.filter}"
    chosen = _chosen(requested, RUNS, states)
    if requested.ids:
        return await _named(call, of, lambda: _named_runs(call, requested, change))
    read = _reading(lists.runs, call.tenant, chosen)
    if requested.dry_run:
        return await _resumed(call, of, partial(bulk.count_matching, _opened(call), read, "run_id"))
    return await _resumed(call, of, partial(bulk.change_runs_matching, _opened(call), read, change))


async def _named(call: Call[Nothing, Any], of: str, go: Callable[[], Awaitable[Done]]) -> Response:
    """Change the named ones, or only count them."""

    async def named(_: Way) -> Done:
        return _counted(call.body) if call.body.dry_run else await go()

    return await _resumed(call, of, named)


async def _resumed(call: Call[Nothing, Any], of: str, go: Callable[[Way], Awaitable[Done]]) -> Response:
    """Change or count the matches, from where the request's page begins, or where an earlier try under its key ended."""
    requested: Many = call.body
    position = paging.position(requested.page_token, of, Position)
    limit, seconds = (
        (requested.limit, _COUNT_SECONDS) if requested.dry_run else (requested.limit or LIMIT_DEFAULT, _CHANGE_SECONDS)
    )
    way = Way(limit=limit, position=position, is_over=_over(call, seconds))
    keyed = call.keyed
    if keyed is None:
        return _reported(requested, await go(way), of)
    found, way = keyed.progress, msgspec.structs.replace(way, keep=keyed.store_progress)
    if found is not None:
        passed = found.done.matched + (0 if position is None else position.passed)
        behind = None if found.after is None else Position(found.after.after, passed)
        way = msgspec.structs.replace(way, done=found.done, position=behind)
    done = found.done if found is not None and found.after is None else await go(way)
    answer = _reported(requested, done, of)
    if not done.is_partial:
        with suppress(Unavailable):  # all of it is done and recorded: repeated, it ends here once more
            async with call.open() as session:
                await keyed.store_last(session, answer)
    return answer


def _over(call: Call[Nothing, Any], seconds: float) -> Callable[[], bool]:
    clock = call.database.clock
    ends_at = clock.monotonic() + seconds
    return lambda: clock.monotonic() >= ends_at


async def _named_runs(call: Call[Nothing, Any], requested: Many, change: ChangeRuns) -> Done:
    """Change the named runs of the caller; another tenant's are not found."""
    async with _opened(call)() as session:
        known = [run_id for run_id in _distinct(requested) if await runs.find(session, run_id) is not None]
        changed = await change(session, known, 0) if known else 0
    return Done(len(known), changed, known[:10])


def _distinct(requested: Many) -> list[UUID]:
    return list(dict.fromkeys(requested.ids))


def _counted(requested: Many) -> Done:
    ids = _distinct(requested)
    return Done(len(ids), 0, ids[:10])


def _chosen(requested: Many, fields: Mapping[str, Field], states: tuple[str, ...]) -> Filter:
    """Return the selection, among those that can be changed. Raises Refusal, InvalidFilter."""
    if [bool(requested.filter.strip()), bool(requested.ids), requested.all].count(True) != 1:
        raise Refusal("invalid_filter", _CHOOSE, remedy=_REMEDY)
    return parse(requested.filter, fields).among("state", states)


def _reading(read: Callable[..., Awaitable[Any]], tenant: int, chosen: Filter) -> Read:
    async def page(session: Database, size: int, after: UUID | None, looks: int) -> Any:
        return await read(session, tenant, chosen, size, after, looks)

    return page


def _reported(requested: Many, done: Done, of: str) -> Response:
    refused, more = [NotChanged.of(one) for one in done.refused], paging.next_token(done.after, of)
    return Response(200, ManyDone.of(done, dry_run=requested.dry_run, refused=refused, next_page_token=more))
