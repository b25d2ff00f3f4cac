"""Changes to jobs: replace, change a part, upsert by name."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from uuid import UUID

import msgspec

from duly.api.operations import MERGE_PATCH, Call, Routes
from duly.api.problems import Refusal
from duly.api.response import Response
from duly.api.routes.jobs import (
    REFUSED,
    created_headers,
    find_live_job,
    is_one_shot,
    submit_defined,
    tag_of,
)
from duly.api.views.jobs import shown_job
from duly.domain.errors import DeclaredInCode, InvalidOption, NameTaken, NotFound, VersionChanged
from duly.domain.jobs.compile import compile_one_shot, compile_recurring
from duly.domain.jobs.declaration import OWNER
from duly.domain.jobs.filter import Filter
from duly.domain.jobs.job import check_name
from duly.domain.jobs.spec import JobSpec
from duly.domain.jobs.spec_of import carried_of
from duly.domain.jobs.unmasked import unmasked
from duly.domain.jobs.when import delay_of, moment_of
from duly.domain.jobs.when import is_one_shot as is_one_shot_spec
from duly.domain.runs.options import RunOptions
from duly.domain.tenancy.audit import Action
from duly.moves.schedules.change_one_shot import change_one_shot
from duly.moves.schedules.edit import edit_version
from duly.moves.schedules.retry_on_conflict import retry_on_conflict
from duly.store.reads import lists, overview
from duly.store.tables import jobs
from duly.wire.jobs.jobs import Job, JobPatch, PutJob
from duly.wire.schema.reading import merge_patch, read_value
from duly.wire.schema.shapes import Nothing

routes = Routes("jobs", reads="jobs:read", writes="jobs:write")
_DEFINITION = tuple(JobSpec.__struct_fields__)
_KEPT = ("parent", "depends_on", "rerun_of")  # a change of a one-shot keeps its origin


@routes.add(
    "PUT /v1/jobs/{job_id}",
    body=PutJob,
    responses={200: Job},
    refuses=(*REFUSED, "declared_in_code", "conflict"),
    is_matched=True,
    audits=(Action.JOB_EDITED,),
)
async def replace_job(call: Call[Nothing, JobSpec]) -> Response:
    """Replace a job's definition, from now on. `If-Match` names the version that was read, or is `*`.

    A job as it was read can be put back: fields that only the server writes are ignored. A replacement that changes
    nothing makes no version. A one-shot without a name can be changed while it waits for its first attempt.
    """

    async def replaced(_: Mapping[str, Any]) -> JobSpec:
        return call.body

    return await _edit(call, replaced)


@routes.add(
    "PATCH /v1/jobs/{job_id}",
    media_type=MERGE_PATCH,
    responses={200: Job},
    refuses=(*REFUSED, "declared_in_code", "conflict"),
    is_matched=True,
    audits=(Action.JOB_EDITED,),
)
async def change_job(call: Call[Nothing, JobPatch]) -> Response:
    """Change parts of a job's definition, from now on, by a merge patch (RFC 7396): null removes a part.

    `If-Match` names the version that was read, or is `*`. A schedule is merged, too: to change the type of its trigger,
    remove the fields of the old type by null. A one-shot without a name can be changed while it waits for its first
    attempt; its moment is `schedule.trigger.at`.
    """

    async def patched(found: Mapping[str, Any]) -> JobSpec:
        shown = await shown_job(call.database, call.tenant, found["job_id"])
        return read_value(merge_patch(_standing(shown), call.body), JobSpec)

    return await _edit(call, patched)


@routes.add(
    "PUT /v1/jobs/by-name/{name}",
    body=PutJob,
    responses={200: Job, 201: Job},
    refuses=(
        "invalid_schedule",
        "invalid_payload",
        "invalid_option",
        "invalid_workflow",
        "declared_in_code",
        "conflict",
        "quota_reached",
    ),
    audits=(Action.JOB_CREATED, Action.JOB_EDITED),
)
async def put_job_by_name(call: Call[Nothing, JobSpec]) -> Response:
    """Create a job of this name, or bring the existing one to this definition. Repeated, there is one job."""
    name, requested = check_name(call.name, "name"), call.body
    if requested.name not in (None, name):
        raise InvalidOption(
            f"the path names the job {name!r} and the body {requested.name!r}; use the same name in both"
        )
    if requested.schedule is None and requested.on_event is None:
        raise InvalidOption(
            "a job that is put by its name needs a schedule or on_event, so that asking twice makes one;"
            " POST /v1/jobs runs one now"
        )
    definition = msgspec.structs.replace(requested, name=name)

    async def attempt() -> Response | None:  # it may be created, changed or ended between the look and the move
        standing = await overview.job_by_name(call.database, name, call.tenant)
        try:
            async with call.database.transaction():
                if standing is None:
                    return await _over(call, definition) or await _make(call, definition)
                return await _bring(call, await find_live_job(call, standing.job_id), definition)
        except (NameTaken, VersionChanged, NotFound):
            return None

    return await retry_on_conflict(f"job {name!r}", attempt)


async def _over(call: Call[Any, Any], definition: JobSpec) -> Response | None:
    """Return the one-shot of this name and moment, or delay, that has fired already: repeated, it is not created again."""
    moment, delay = moment_of(definition.schedule), delay_of(definition.schedule)
    if moment is None and delay is None:
        return None
    chosen = Filter({"name": (str(definition.name),), "state": ("completed",)})
    page = await lists.jobs(call.database, call.tenant, chosen, 1)
    for row in page.rows:
        shown = await shown_job(call.database, call.tenant, row["job_id"])
        was = moment_of(shown.schedule), delay_of(shown.schedule)
        if was == (moment, delay):
            return Response(200, shown, {"ETag": tag_of(shown.version)})
    return None


async def _make(call: Call[Any, Any], definition: JobSpec) -> Response:
    created = await submit_defined(call, definition)
    job = await shown_job(call.database, call.tenant, created.job_id)
    return Response(201, job, created_headers(created.job_id, created.version))


async def _edit(call: Call[Any, Any], requested: Callable[[Mapping[str, Any]], Awaitable[JobSpec]]) -> Response:
    """Change the job in the path, if it has the version that the caller has read."""
    given = call.headers.get("if-match")

    async def attempt() -> Response | None:
        job_id = call.id("job_id")
        if await jobs.find(call.database, job_id) is None and await is_one_shot(call.database, call.tenant, job_id):
            return await _change_one_shot(call, job_id, given, await requested({"job_id": job_id}))
        found = await find_live_job(call, job_id)
        is_any = _check_match(given, found["generation"])
        try:
            return await _bring(call, found, await requested(found))
        except VersionChanged:
            if is_any:  # then the order of changes does not matter
                return None
            raise

    return await retry_on_conflict("the job", attempt)


async def _change_one_shot(
    call: Call[Any, Any], job_id: UUID, given: str | None, requested: JobSpec
) -> Response | None:
    """Change a waiting one-shot without a name; None: another change was faster. Raises VersionChanged, Refused."""
    if not is_one_shot_spec(requested):
        raise InvalidOption(
            "a one-shot takes no name, no on_event and no schedule but a time; create a new job with them"
        )
    carried = await overview.arguments(call.database, job_id)
    options: RunOptions = carried["options"]
    version: int = carried["generation"]
    _check_match(given, version)
    shown = await shown_job(call.database, call.tenant, job_id)
    if _parts(requested) == _parts(read_value(_standing(shown), JobSpec)):
        return Response(200, shown, {"ETag": tag_of(shown.version)})
    job = call.services.allowed.admitted(compile_one_shot(requested, carried_of(options) | call.run_metadata))
    kept = {name: getattr(options.metadata, name) for name in _KEPT}
    job = msgspec.structs.replace(job, options=job.options.but(**kept))
    job = unmasked(job, carried["payload"], options, carried["redact_above"])
    if not await change_one_shot(call.database, call.tenant, job_id, version, job, options):
        return None
    call.wake(job.queue)
    shown = await shown_job(call.database, call.tenant, job_id)
    return Response(200, shown, {"ETag": tag_of(shown.version)})


def _standing(shown: Job) -> dict[str, Any]:
    """Return the current definition of a job, as the body of a change."""
    fields = msgspec.to_builtins(shown)
    return {name: fields[name] for name in _DEFINITION if fields.get(name) is not None}


def _parts(requested: JobSpec) -> dict[str, Any]:
    return {name: getattr(requested, name) for name in _DEFINITION}


async def _bring(call: Call[Any, Any], found: Mapping[str, Any], requested: JobSpec) -> Response:
    """Bring a job, as it was read, to a definition. Raises VersionChanged, Refused."""
    if found["owner"] == OWNER:
        raise DeclaredInCode(f"job {found['name']!r} is declared in {found['source']}; change it there")
    carried = carried_of(found["options"]) | call.run_metadata
    job = call.services.allowed.admitted(compile_recurring(requested, call.now, carried))
    job = msgspec.structs.replace(job, owner=found["owner"], source=found["source"])
    await edit_version(call.database, found["job_id"], found["generation"], job)
    shown = await shown_job(call.database, call.tenant, found["job_id"])
    return Response(200, shown, {"ETag": tag_of(shown.version)})


def _check_match(given: str | None, version: int) -> bool:
    """Check the version that the caller has read, and return whether any will do. Raises Refusal, VersionChanged."""
    if given is None:
        raise Refusal("precondition_required", "If-Match is missing; send the ETag of the job as you read it.")
    tags = [tag.strip() for tag in given.split(",")]
    if "*" not in tags and tag_of(version) not in tags:
        raise VersionChanged(f"the job has version {version}, ETag {tag_of(version)}, not {given}")
    return "*" in tags
