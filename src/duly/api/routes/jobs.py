"""Jobs: create, read, change, end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import msgspec

from duly.api import paging
from duly.api.operations import Call, Routes
from duly.api.problems import Refusal
from duly.api.response import Response
from duly.api.views.jobs import FINEST, NEXT_FIRES, job_summary, no_job, shown_job, upcoming_fires
from duly.api.views.runs import shown_explanation
from duly.domain.errors import InvalidOption, NotFound
from duly.domain.jobs.compile import compile_one_shot, compile_recurring
from duly.domain.jobs.filter import JOBS, parse
from duly.domain.jobs.job import Submission
from duly.domain.jobs.spec import JobSpec
from duly.domain.jobs.when import is_for_now
from duly.domain.jobs.when import is_one_shot as is_one_shot_spec
from duly.domain.runs.dependencies import check_dependencies
from duly.domain.runs.run import HORIZON
from duly.domain.tenancy.audit import Action
from duly.domain.triggers.on_event import NEVER
from duly.domain.triggers.schedule.summary import only_run_id, sentence
from duly.moves import submit as moves
from duly.moves.cancel import end_job
from duly.moves.schedules.purge import purge
from duly.moves.submit import Accepted
from duly.store.boxes import runs
from duly.store.connection.database import Database
from duly.store.connection.hints import DUE
from duly.store.reads import explain, lists, overview
from duly.store.reads.lists import NamedAt, NextAt
from duly.store.tables import jobs
from duly.wire.explanations import Explanation
from duly.wire.jobs.jobs import CreatedJob, Job, JobList, NewJob
from duly.wire.jobs.verbs import Deleted, Deletion
from duly.wire.pages import JobsQuery
from duly.wire.runs import Dependency
from duly.wire.schema.shapes import Nothing

routes = Routes("jobs", reads="jobs:read", writes="jobs:write")
_ONE_SHOT = (
    "Change or delete it while it waits, run it again after it ended, or create a job with a name or a schedule."
)
REFUSED = ("invalid_schedule", "invalid_payload", "invalid_option", "invalid_workflow", "name_taken")


class _List(msgspec.Struct, frozen=True):
    """A list of jobs: its name in page tokens, the type of a position in it, and its query."""

    name: str
    position: type
    read: Callable[..., Awaitable[Any]]


_SORTED = {
    "created": _List("jobs", UUID, lists.jobs),
    "name": _List("jobs by name", NamedAt, lists.jobs_by_name),
    "next_run_at": _List("jobs by next fire", NextAt, lists.jobs_by_next),
}
_WITH_ONE_SHOTS = _List("jobs and one-shots", UUID, lists.jobs_and_one_shots)


@routes.add(
    "POST /v1/jobs",
    responses={202: CreatedJob, 200: CreatedJob},
    refuses=(*REFUSED, "conflict", "rate_limited", "quota_reached", "shed"),
    in_session=False,
    takes_prefer=True,
    is_submit=True,
    audits=(Action.JOB_CREATED,),
)
async def create_job(call: Call[Nothing, NewJob]) -> Response:
    """Create a job: durable when this answers.

    Without a schedule it runs now, once. A one-shot without a name is its own run: both have one id. With `Prefer:
    wait=10` this waits for the end of a one-shot, up to so many seconds: 200 when it has ended, and 202 otherwise. An
    overloaded queue refuses one-shots of priority 7 or less urgent that are due at once: 429, code `shed`.
    """
    created = await (_submit_plain(call) if is_one_shot_spec(call.body) else _submit_named(call))
    return Response(202, created, created_headers(created.job_id, created.version))


@routes.add("GET /v1/jobs", responses={200: JobList}, refuses=("invalid_filter", "invalid_option"), may_lag=True)
async def list_jobs(call: Call[JobsQuery, None]) -> Response:
    """List jobs with a schedule or a name, the newest first, by name or by next fire.

    One-shots without a name are found among the runs, and with `include=one_shots` here. By next fire, a job that fires
    between two pages may be on both.
    """
    requested, chosen = call.query, parse(call.query.filter or "", JOBS)
    if requested.include is not None and requested.sort != "created":
        raise InvalidOption(f"include one_shots does not go with sort {requested.sort}; leave one of them out")
    listed = _SORTED[requested.sort] if requested.include is None else _WITH_ONE_SHOTS
    of = f"{listed.name} {requested.filter or ''}"
    after = paging.position(requested.page_token, of, listed.position)
    page = await listed.read(call.database, call.tenant, chosen, requested.page_size, after)
    items = [job_summary(row) for row in page.rows]
    return paging.page(JobList, items, page.after, of)


@routes.add("GET /v1/jobs/{job_id}", responses={200: Job})
async def read_job(call: Call[Nothing, None]) -> Response:
    """Read a job, with its next fires and its last run."""
    job = await shown_job(call.database, call.tenant, call.id("job_id"))
    return Response(200, job, {"ETag": tag_of(job.version)})


@routes.add("GET /v1/jobs/by-name/{name}", responses={200: Job})
async def read_job_by_name(call: Call[Nothing, None]) -> Response:
    """Read the job that has a name now. An ended job has no name, and is found by its id."""
    name = call.known_name
    found = await overview.job_by_name(call.database, name, call.tenant)
    if found is None:
        raise NotFound(f"no job is named {name!r}; GET /v1/jobs lists them")
    job = await shown_job(call.database, call.tenant, found.job_id)
    return Response(200, job, {"ETag": tag_of(job.version), "Content-Location": f"/v1/jobs/{job.job_id}"})


@routes.add("GET /v1/jobs/{job_id}/explain", responses={200: Explanation}, in_session=False)
async def explain_job(call: Call[Nothing, None]) -> Response:
    """Explain the state of a job: when it fires next, what holds it back, and the outcomes of its last runs.

    A one-shot is explained as its run. The workers of its queue are counted, and not named.
    """
    job_id = call.id("job_id")
    async with call.open() as session:
        found = await explain.job_or_run(
            session, call.tenant, job_id, call.database, is_operator=call.identity.is_operator
        )
        if found is None or (found.kind == "run" and not await is_one_shot(session, call.tenant, job_id)):
            raise no_job(job_id)
    return Response(200, shown_explanation(found))


@routes.add(
    "DELETE /v1/jobs/{job_id}",
    responses={200: Deleted},
    refuses=("declared_in_code", "conflict"),
    audits=(Action.JOB_CANCELLED, Action.JOB_PURGED),
)
async def delete_job(call: Call[Deletion, None]) -> Response:
    """End a job: its future runs are cancelled. Started runs go on, or are asked to stop.

    With `purge` its definition and versions are removed, and its history: some at once, the rest by maintenance. An
    ended job can be purged, too.
    """
    job_id = call.id("job_id")
    found = await jobs.find(call.database, job_id)
    is_ours = found is not None and found["tenant"] == call.tenant
    if not is_ours and not await is_one_shot(call.database, call.tenant, job_id):
        raise no_job(job_id)
    ended = await end_job(call.database, job_id, stop=call.query.running == "stop")
    state = await _state(call.database, job_id)
    if call.query.purge:
        await purge(call.database, call.tenant, job_id, found["name"] if found is not None and is_ours else None)
    reported = Deleted(
        job_id=job_id,
        status=ended.answer.value,
        state=state,
        stopping=ended.stopping,
        may_start=ended.may_start,
        purged=call.query.purge,
    )
    return Response(200, reported)


async def find_live_job(call: Call[Any, Any], job_id: UUID) -> dict[str, Any]:
    """Read an active job with a definition of its own. Raises NotFound, Refusal."""
    found = await jobs.find(call.database, job_id)
    if found is None or found["tenant"] != call.tenant:
        if await is_one_shot(call.database, call.tenant, job_id):
            raise Refusal("conflict", f"Job {job_id} is a one-shot without a name.", remedy=_ONE_SHOT)
        raise no_job(job_id)
    if found["state"] not in ("active", "paused"):
        raise Refusal(
            "conflict", f"Job {job_id} is {found['state']} and will not fire again.", remedy="Create a new one."
        )
    return found


async def _state(database: Database, job_id: UUID) -> str:
    """Return the status of a known job; for a one-shot, its run's."""
    found = await jobs.find(database, job_id) or await runs.find(database, job_id)
    assert found is not None
    return str(found["state"])


async def is_one_shot(database: Database, tenant: int, job_id: UUID) -> bool:
    """Return whether a run of this tenant is its own job."""
    found = await runs.find(database, job_id)
    return found is not None and found["tenant"] == tenant and found["job_id"] == job_id


async def _submit_plain(call: Call[Nothing, NewJob]) -> CreatedJob:
    carried = carried_by(call.body) | call.run_metadata
    shot = call.services.allowed.admitted(compile_one_shot(call.body, carried))
    await call.services.shedding.look()
    call.services.shedding.check(call.tenant, shot.queue, shot.priority, due_of(shot, call.now), call.now)
    submitted = await call.services.group_commit.submit(call.database, shot, key=call.key, tenant=call.tenant)
    if submitted.needs_hint:
        call.wake(shot.queue)
    is_now = shot.at is None and shot.delay is None
    words = "Once, now" if is_now else f"Once, at {submitted.scheduled_at.astimezone(UTC).isoformat()}"
    return _created(submitted.job_id, submitted.job_id, None, submitted.scheduled_at, [], words)


async def _submit_named(call: Call[Nothing, NewJob]) -> CreatedJob:
    if is_for_now(call.body):
        await call.services.shedding.look()
        call.services.shedding.check(call.tenant, call.body.queue, call.body.priority, None, call.now)
    return await submit_defined(call, call.body)


async def submit_defined(call: Call[Any, Any], requested: JobSpec) -> CreatedJob:
    """Create a job with a definition of its own. Raises Refused."""
    carried = carried_by(requested) | call.run_metadata
    job = call.services.allowed.admitted(compile_recurring(requested, call.now, carried))
    key = call.key or str(call.services.rng.uuid())
    accepted = await call.in_transaction(
        lambda database: moves.submit_recurring(database, job, key=key, tenant=call.tenant)
    )
    if accepted.scheduled_at != NEVER and accepted.scheduled_at - call.now <= HORIZON:
        call.wake(DUE)
    return _scheduled(accepted, job.name)


def carried_by(body: JobSpec) -> dict[str, Any]:
    """Return the options of runs that only the creating request names. Raises InvalidOption."""
    if not isinstance(body, NewJob):
        return {}
    found: dict[str, Any] = {} if body.parent is None else {"parent": body.parent}
    if body.depends_on:
        pairs = ((one.job, one.on) if isinstance(one, Dependency) else (one, "success") for one in body.depends_on)
        found["depends_on"] = check_dependencies(pairs)
    return found


def due_of(shot: Submission, now: datetime) -> datetime | None:
    """Return when a one-shot is due, as far as it is known without the database; None: now."""
    return shot.at if shot.delay is None else now + shot.delay


def tag_of(version: int) -> str:
    """Write the ETag of a version."""
    return f'"{version}"'


def created_headers(job_id: UUID, version: int) -> dict[str, str]:
    """Return the headers of a created job."""
    return {"Location": f"/v1/jobs/{job_id}", "ETag": tag_of(version)}


def _scheduled(accepted: Accepted, name: str | None) -> CreatedJob:
    job_id, first = accepted.job_id, accepted.scheduled_at
    if first == NEVER:
        return _created(job_id, None, name, None, [], sentence(accepted.schedule))
    fires = upcoming_fires(accepted.schedule, first - FINEST, NEXT_FIRES, str(job_id))
    run_id = only_run_id(accepted.schedule, job_id, first)
    return _created(job_id, run_id, name, first, fires, sentence(accepted.schedule))


def _created(
    job_id: UUID, run_id: UUID | None, name: str | None, first: datetime | None, fires: list[Any], words: str
) -> CreatedJob:
    return CreatedJob(
        job_id=job_id,
        run_id=run_id,
        name=name,
        status="active",
        next_run_at=None if first is None else first.astimezone(UTC),
        next_fires=fires,
        description=words,
        version=1,
    )
