"""Definitions of jobs as they are sent, and the check whether a job has the requested definition."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, TypedDict

import msgspec

from duly.client.errors import ApiError, VersionChanged
from duly.client.requests import JSON, MERGE_PATCH, ApiRequest, Id, Reply, Settling, getting, path, posting, reader
from duly.client.writing import write
from duly.domain.errors import Refused
from duly.domain.jobs.spec import Callback, Concurrency, EventMatch, JobSpec, RateLimit, RetryPolicy, WorkflowTarget
from duly.domain.targets.spec import CommandTarget, ContainerTarget, FunctionTarget, WebhookTarget
from duly.wire.jobs.definitions import JobTarget
from duly.wire.jobs.jobs import CreatedJob, Job
from duly.wire.jobs.verbs import TriggeredRun

Target = FunctionTarget | WebhookTarget | CommandTarget | ContainerTarget | WorkflowTarget | JobTarget | str
"""The target of a job: a plain name is that of a handler, and what was read of a job can be sent as it is."""


_NOW = datetime(2000, 1, 1, tzinfo=UTC)  # stands in for the moment of a job that has none


class JobFields(TypedDict, total=False):
    """The fields of a definition besides its target. Those left out have the server's default."""

    name: str | None
    queue: str
    priority: int
    payload: dict[str, Any]
    schedule: dict[str, Any] | None
    retry: RetryPolicy | dict[str, Any] | None
    timeout: str | float | None
    concurrency: Concurrency | dict[str, Any] | None
    rate_limit: RateLimit | dict[str, Any] | None
    expires_at: datetime | str | None
    expires_after: str | float | None
    redact: list[str]
    on_event: EventMatch | dict[str, Any] | None
    tags: list[str]
    on_end: Callback | dict[str, str] | None
    on_failure: Callback | dict[str, str] | None


def definition(target: Target, fields: Mapping[str, object]) -> dict[str, Any]:
    """Write a definition with the given fields only."""
    chosen = FunctionTarget(handler=target) if isinstance(target, str) else target
    return {"target": chosen, **fields}


def written(job: JobSpec) -> bytes:
    """Write a definition as one line of JSON, without the fields that are at their defaults."""
    return write({name: value for name, value in _fields(job) if value is not None})


def _fields(job: JobSpec) -> list[tuple[str, Any]]:
    found = []
    for field in msgspec.structs.fields(job):
        value = getattr(job, field.name)
        created = None if field.default_factory is msgspec.NODEFAULT else field.default_factory()
        if value != (created if field.default is msgspec.NODEFAULT else field.default):
            found.append((field.name, value))
    return found


class SubmittedJob(CreatedJob, frozen=True):
    """An accepted job; `is_replayed`: it was submitted before under its key, and nothing was created."""

    is_replayed: bool = False


def creating(body: Mapping[str, Any], key: str | None, wait: int | None) -> ApiRequest[SubmittedJob]:
    """Build the request that creates a job, and perhaps waits for its end."""
    headers = {} if wait is None else {"Prefer": f"wait={wait}"}
    request = posting(path("jobs"), SubmittedJob, body, key=key, headers=headers, seconds_more=wait or 0)
    return msgspec.structs.replace(request, read=_submitted)


def _submitted(reply: Reply) -> SubmittedJob:
    return msgspec.structs.replace(reader(SubmittedJob)(reply), is_replayed=reply.is_replayed)


def triggering(job_id: Id, body: object, key: str | None) -> ApiRequest[TriggeredRun]:
    """Build the request that runs a job now."""
    request = posting(path("jobs", job_id, "trigger"), TriggeredRun, body, key=key)
    return msgspec.structs.replace(request, read=_triggered)


def _triggered(reply: Reply) -> TriggeredRun:
    created = reader(TriggeredRun)(reply)
    return msgspec.structs.replace(created, state="replayed") if reply.is_replayed else created


def replacing(job_id: Id, version: int | None, body: Mapping[str, Any]) -> ApiRequest[Job]:
    """Build the request that replaces a job's definition, if it still has that version; None: any."""
    return _editing("PUT", job_id, version, body, JSON)


def changing(job_id: Id, version: int | None, patch: Mapping[str, Any]) -> ApiRequest[Job]:
    """Build the request that changes parts of a job's definition, if it still has that version; None: any."""
    return _editing("PATCH", job_id, version, patch, MERGE_PATCH)


def _editing(
    method: str, job_id: Id, version: int | None, requested: Mapping[str, Any], media_type: str
) -> ApiRequest[Job]:
    where, body = path("jobs", job_id), write(requested)

    def settle(error: ApiError) -> Settling[Job]:
        """Return whether our own first try changed the version, and its response was lost."""
        if not isinstance(error, VersionChanged) or version is None:
            raise error
        job: Job = yield getting(where, Job)
        if job.version == version + 1 and _has_definition(job, msgspec.json.decode(body), is_patch=method == "PATCH"):
            return job
        raise VersionChanged(
            f"The answer to a first try was lost, and job {job_id} is now of version {job.version}."
            " Whether that try or another client changed it is unknown.",
            error.status,
            error.code,
            "Read it again, and decide anew.",
            error.request_id,
        )

    return ApiRequest(
        method=method,
        path=where,
        read=reader(Job),
        body=body,
        media_type=media_type,
        headers={"If-Match": "*" if version is None else f'"{version}"'},
        settle=settle,
    )


def _has_definition(job: Job, requested: Mapping[str, Any], *, is_patch: bool) -> bool:
    """Return whether a job has the requested definition. When in doubt, it has not."""
    # Here, because a lost response is rare, and compiling loads much of the domain.
    from duly.domain.jobs.compile import compile_recurring
    from duly.domain.jobs.manifest_diff import compared
    from duly.wire.schema.reading import merge_patch

    fields = msgspec.to_builtins(job)
    standing = {name: fields[name] for name in JobSpec.__struct_fields__ if fields[name] is not None}
    try:
        before, after = (
            compile_recurring(msgspec.convert(one, JobSpec), _NOW)
            for one in (standing, merge_patch(standing, requested) if is_patch else requested)
        )
    except (msgspec.ValidationError, Refused):
        return False
    return before.name == after.name and not compared(before, after)
