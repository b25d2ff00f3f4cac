"""Jobs: create, read, change, end."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

import msgspec

from duly.api import definitions, paging, waiting
from duly.api.operations import MERGE_PATCH, Answer, Call, Routes
from duly.api.refusals import Refusal
from duly.api.routes.runs import shown_run
from duly.clock import moment_of
from duly.domain.declaration import OWNER
from duly.domain.errors import DeclaredInCode, InvalidOption, NameTaken, NotFound, VersionChanged
from duly.domain.filter import JOBS, parse
from duly.domain.job import check_traceparent
from duly.domain.run import HORIZON
from duly.domain.triggers.asking import asked_shape
from duly.domain.triggers.summary import sentence
from duly.moves import submit as moves
from duly.moves.cancel import cancel_job
from duly.moves.edit import edit_version
from duly.moves.submit import Accepted
from duly.store import jobs, lists, overview, runs
from duly.store.database import Database
from duly.wire.jobs import (
    CreatedJob,
    FunctionTarget,
    Job,
    JobDefinition,
    JobList,
    JobPatch,
    JobSummary,
    LastRun,
    NewJob,
)
from duly.wire.pages import FilteredQuery
from duly.wire.reading import merge_patch, read_value
from duly.wire.shapes import Nothing
from duly.wire.verbs import Deleted, Deletion

routes = Routes("jobs")
_FINEST = timedelta(microseconds=1)
_REFUSED = ("invalid_schedule", "invalid_payload", "invalid_option", "name_taken")
_DEFINITION = tuple(JobDefinition.__struct_fields__)


@routes.add(
    "POST",
    "/v1/jobs",
    scope="jobs:write",
    body=NewJob,
    answers={202: CreatedJob, 200: CreatedJob},
    refuses=(*_REFUSED, "rate_limited", "quota_reached"),
    in_session=False,
    takes_prefer=True,
    is_submit=True,
)
async def create_job(call: Call[Nothing, NewJob]) -> Answer:
    """Create a job: durable when this answers.

    Without a schedule it runs now, once. A one-shot without a name is its own run: both have one id. With `Prefer: wait=10`
    the end of a one-shot is waited for, up to so many seconds: 200 when it has ended, and 202 otherwise.
    """
    made = await (_submit_plain(call) if definitions.is_plain(call.body) else _submit_defined(call, call.body))
    wait = waiting.seconds_asked(call.headers.get("prefer"))
    answer = Answer(202, made, _headers(made.job_id, made.version))
    if wait is None or made.run_id is None:
        return answer
    return msgspec.structs.replace(answer, then=partial(waiting.for_the_end, call, made, wait, answer))


@routes.add(
    "GET", "/v1/jobs", scope="jobs:read", query=FilteredQuery, answers={200: JobList}, refuses=("invalid_filter",)
)
async def list_jobs(call: Call[FilteredQuery, None]) -> Answer:
    """List jobs with a schedule or a name, the newest first. Plain one-shots are found among the runs."""
    asked, of = call.query, f"jobs {call.query.filter or ''}"
    after = paging.position(asked.page_token, of, UUID)
    page = await lists.jobs(call.database, call.tenant, parse(asked.filter or "", JOBS), asked.page_size, after)
    items = [_summary(row) for row in page.rows]
    return Answer(200, JobList(items=items, next_page_token=paging.next_token(page.after, of)))


@routes.add("GET", "/v1/jobs/{job_id}", scope="jobs:read", answers={200: Job})
async def read_job(call: Call[Nothing, None]) -> Answer:
    """Read a job as it stands, with its next fires and its last run."""
    job = await shown_job(call.database, call.tenant, call.id("job_id"))
    return Answer(200, job, {"ETag": _tag(job.version)})


@routes.add(
    "PUT",
    "/v1/jobs/{job_id}",
    scope="jobs:write",
    body=JobDefinition,
    answers={200: Job},
    refuses=(*_REFUSED, "declared_in_code"),
    is_matched=True,
)
async def replace_job(call: Call[Nothing, JobDefinition]) -> Answer:
    """Replace a job's definition, from now on. `If-Match` names the version that was read."""
    found = await find_job(call, call.id("job_id"))
    return await _edit(call, found, call.body)


@routes.add(
    "PATCH",
    "/v1/jobs/{job_id}",
    scope="jobs:write",
    body=JobPatch,
    media_type=MERGE_PATCH,
    answers={200: Job},
    refuses=(*_REFUSED, "declared_in_code"),
    is_matched=True,
)
async def change_job(call: Call[Nothing, dict[str, Any]]) -> Answer:
    """Change parts of a job's definition, from now on, by a merge patch (RFC 7396): null takes a part away."""
    found = await find_job(call, call.id("job_id"))
    shown = msgspec.to_builtins(await _shown(call.database, found))
    standing = {name: shown[name] for name in _DEFINITION if shown.get(name) is not None}
    return await _edit(call, found, read_value(merge_patch(standing, call.body), JobDefinition))


@routes.add(
    "PUT",
    "/v1/jobs/by-name/{name}",
    scope="jobs:write",
    body=JobDefinition,
    answers={200: Job, 201: Job},
    refuses=("invalid_schedule", "invalid_payload", "invalid_option", "declared_in_code"),
)
async def put_job_by_name(call: Call[Nothing, JobDefinition]) -> Answer:
    """Make a job of this name, or bring the one there is to this definition."""
    name, asked = call.name, call.body
    if asked.name not in (None, name):
        raise InvalidOption(f"the path names the job {name!r} and the body {asked.name!r}; name one")
    definition = msgspec.structs.replace(asked, name=name)
    standing = await overview.job_by_name(call.database, name, call.tenant)
    if standing is not None:
        found = await find_job(call, standing.job_id)
        return await _edit(call, found, definition, version=found["generation"])
    try:
        made = await _submit_defined(call, definition)
    except NameTaken as error:  # Somebody made it at the same moment.
        raise Refusal("conflict", f"{error}", headers={"Retry-After": "1"}) from None
    job = await shown_job(call.database, call.tenant, made.job_id)
    return Answer(201, job, _headers(made.job_id, made.version))


@routes.add(
    "DELETE",
    "/v1/jobs/{job_id}",
    scope="jobs:write",
    query=Deletion,
    answers={200: Deleted},
    refuses=("declared_in_code",),
)
async def delete_job(call: Call[Deletion, None]) -> Answer:
    """End a job: its future runs are cancelled. Runs that have started go on, or are asked to stop."""
    job_id = call.id("job_id")
    await _must_be_known(call, job_id)
    stop = call.query.running == "stop"
    answer = await cancel_job(call.database, job_id)
    stopping = await runs.signal(call.database, await jobs.staged_runs(call.database, job_id), "cancel") if stop else []
    return Answer(200, Deleted(job_id=job_id, status=answer.value, stopping=len(stopping)))


async def find_job(call: Call[Any, Any], job_id: UUID) -> dict[str, Any]:
    """Read a job that has a definition of its own. Raises NotFound."""
    found = await jobs.find(call.database, job_id)
    if found is None or found["tenant"] != call.tenant:
        raise NotFound(f"no job {job_id} with a schedule or a name; GET /v1/jobs lists them")
    return found


async def _must_be_known(call: Call[Any, Any], job_id: UUID) -> None:
    """Raises NotFound when neither a job nor a one-shot of this tenant has the id."""
    found = await jobs.find(call.database, job_id) or await runs.find(call.database, job_id)
    if found is None or found["tenant"] != call.tenant or found["job_id"] != job_id:
        raise NotFound(f"no job {job_id}; GET /v1/jobs lists them")


async def _submit_plain(call: Call[Nothing, NewJob]) -> CreatedJob:
    shot = definitions.one_shot(call.body, extra_of(call))
    submitted = await moves.submit(call.database, shot, key=_key(call), tenant=call.tenant)
    if submitted.scheduled_at - now_of(call) <= HORIZON:
        call.wake(shot.queue)
    words = "Once, now" if shot.at is None else f"Once, at {shot.at.astimezone(UTC).isoformat()}"
    return _created(submitted.job_id, submitted.job_id, None, submitted.scheduled_at, [], words)


async def _submit_defined(call: Call[Any, Any], asked: JobDefinition) -> CreatedJob:
    job = definitions.recurring(asked, now_of(call), extra_of(call))
    accepted = await moves.submit_recurring(call.database, job, key=_key(call), tenant=call.tenant)
    return _scheduled(accepted, job.name)


async def _edit(
    call: Call[Any, Any], found: Mapping[str, Any], asked: JobDefinition, version: int | None = None
) -> Answer:
    if found["owner"] == OWNER:
        raise DeclaredInCode(f"job {found['name']!r} is declared in {found['source']}; change it there")
    job = definitions.recurring(asked, now_of(call), extra_of(call))
    job = msgspec.structs.replace(job, owner=found["owner"], source=found["source"])
    matched = _matched(call, found["generation"]) if version is None else version
    await edit_version(call.database, found["job_id"], matched, job)
    shown = await shown_job(call.database, call.tenant, found["job_id"])
    return Answer(200, shown, {"ETag": _tag(shown.version)})


def _matched(call: Call[Any, Any], version: int) -> int:
    """Read the version that the caller has seen. Raises Refusal, VersionChanged."""
    given = call.headers.get("if-match")
    if given is None:
        raise Refusal("precondition_required", "A change needs If-Match with the ETag of what was read.")
    tags = [tag.strip() for tag in given.split(",")]
    if "*" not in tags and _tag(version) not in tags:
        raise VersionChanged(f"the job is of version {version}, ETag {_tag(version)}, and not {given}")
    return version


def extra_of(call: Call[Any, Any]) -> dict[str, Any]:
    """Give what a run carries of the request that made it: the caller's own id for it, and its place in a trace."""
    marks: dict[str, Any] = {}
    if (given := call.headers.get("x-request-id")) is not None and given == call.request_id:
        marks["request_id"] = given
    if call.traceparent is not None:
        with suppress(InvalidOption):  # A trace that cannot be read is not passed on.
            marks["traceparent"] = check_traceparent(call.traceparent)
    return marks


def _key(call: Call[Any, Any]) -> str:
    return call.key or str(call.rng.uuid())


def now_of(call: Call[Any, Any]) -> datetime:
    """Give the time, as far as it is known without asking the database."""
    return moment_of(call.clock.now())


def _tag(version: int) -> str:
    return f'"{version}"'


def _headers(job_id: UUID, version: int) -> dict[str, str]:
    return {"Location": f"/v1/jobs/{job_id}", "ETag": _tag(version)}


def _scheduled(accepted: Accepted, name: str | None) -> CreatedJob:
    job_id, first = accepted.job_id, accepted.scheduled_at
    fires = definitions.coming_fires(accepted.schedule, first - _FINEST, definitions.NEXT_FIRES, str(job_id))
    return _created(job_id, None, name, first, fires, sentence(accepted.schedule))


def _created(
    job_id: UUID, run_id: UUID | None, name: str | None, first: datetime, fires: list[Any], words: str
) -> CreatedJob:
    return CreatedJob(
        job_id=job_id,
        run_id=run_id,
        name=name,
        status="active",
        next_run_at=first.astimezone(UTC),
        next_fires=fires,
        description=words,
        version=1,
    )


async def shown_job(database: Database, tenant: int, job_id: UUID) -> Job:
    """Read a job, or the run that is its own job. Raises NotFound."""
    found = await jobs.find(database, job_id)
    if found is not None and found["tenant"] == tenant:
        return await _shown(database, found)
    return await _shown_one_shot(database, tenant, job_id)


async def _shown_one_shot(database: Database, tenant: int, job_id: UUID) -> Job:
    try:
        run = await shown_run(database, tenant, job_id)
    except NotFound:
        run = None
    if run is None or run.job_id != job_id:
        raise NotFound(f"no job {job_id}; GET /v1/jobs lists them")
    carried = await overview.arguments(database, job_id)
    options, is_live = carried.get("options"), run.state not in runs.FINAL
    return Job(
        **{name: getattr(run, name) for name in ("job_id", "queue", "payload", "tags")},
        name=None,
        status="active" if is_live else "cancelled" if run.state == "cancelled" else "completed",
        target=FunctionTarget(handler=run.handler),
        priority=5 if run.priority is None else run.priority,
        schedule={"trigger": {"type": "at", "at": run.scheduled_at.isoformat()}},
        description=f"Once, at {run.scheduled_at.astimezone(UTC).isoformat()}",
        next_run_at=run.due_at if is_live and run.state != "running" else None,
        next_fires=[],
        retry=definitions.retry_shape(options),
        timeout=definitions.timeout_shape(options),
        concurrency=definitions.concurrency_shape(options),
        version=1,
        owner="api",
        source=None,
        pause_reason=None,
        last_run=LastRun(run_id=run.run_id, state=run.state, attempts=run.attempt),
        created_at=None,
    )


async def _shown(database: Database, found: Mapping[str, Any]) -> Job:
    schedule = await jobs.schedule_of_job(database, found)
    pending, options = found["next_run_at"], found["options"]
    left = min(definitions.NEXT_FIRES, found["runs_left"] or definitions.NEXT_FIRES)
    return Job(
        **{name: found[name] for name in _COPIED},
        status=found["state"],
        target=FunctionTarget(handler=found["handler"]),
        payload=msgspec.json.decode(found["payload"] or "{}"),
        schedule=asked_shape(found["schedule"], found["every_seconds"]),
        description=sentence(schedule),
        next_run_at=pending,
        next_fires=[]
        if pending is None
        else definitions.coming_fires(schedule, pending - _FINEST, left, str(found["job_id"])),
        retry=definitions.retry_shape(options),
        timeout=definitions.timeout_shape(options),
        concurrency=definitions.concurrency_shape(options),
        tags=definitions.tags_shape(options),
        version=found["generation"],
        last_run=None,
    )


def _summary(row: Mapping[str, Any]) -> JobSummary:
    copied = (
        "job_id",
        "name",
        "queue",
        "priority",
        "tags",
        "owner",
        "source",
        "pause_reason",
        "next_run_at",
        "created_at",
    )
    return JobSummary(
        **{name: row[name] for name in copied},
        status=row["state"],
        target=FunctionTarget(handler=row["handler"]),
        schedule=asked_shape(row["schedule"], row["every_seconds"]),
        version=row["generation"],
    )


_COPIED = ("job_id", "name", "queue", "priority", "owner", "source", "pause_reason", "created_at")
