"""Definitions of jobs as they are sent, and the question whether a job is as it was asked to be."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, TypedDict

import msgspec

from duly.client.asking import JSON, MERGE_PATCH, Ask, Id, Settling, getting, path, posting, reader
from duly.client.errors import ApiError, VersionChanged
from duly.client.writing import write
from duly.domain.duration import parse
from duly.domain.errors import InvalidSchedule
from duly.domain.jobs.spec import Callback, Concurrency, EventMatch, JobSpec, RateLimit, RetryPolicy, WorkflowTarget
from duly.domain.targets.spec import CommandTarget, ContainerTarget, FunctionTarget, WebhookTarget
from duly.wire.jobs.definitions import JobTarget
from duly.wire.jobs.jobs import CreatedJob, Job

Target = FunctionTarget | WebhookTarget | CommandTarget | ContainerTarget | WorkflowTarget | JobTarget | str
"""What a job runs: a plain name is that of a handler, and what was read of a job can be sent as it is."""

Agrees = Callable[[dict[str, Any], Mapping[str, Any]], bool]

_DURATIONS = (
    "timeout",
    "base",
    "cap",
    "max_age",
    "delay",
    "delays",
    "expires_after",
    "every",
    "max",
    "grace",
    "window",
    "callback_within",
)  # Told in another spelling, perhaps.
_MOMENTS = ("expires_at",)
_TOLD = ("anchor",)  # The server tells them where nothing was said.
_RETRY_DEFAULT = msgspec.to_builtins(RetryPolicy())


class JobFields(TypedDict, total=False):
    """The fields of a definition besides its target. What is left out has the server's default."""

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
    on_event: EventMatch | dict[str, Any] | None
    tags: list[str]
    on_done: Callback | dict[str, str] | None
    on_dead: Callback | dict[str, str] | None


def definition(target: Target, fields: Mapping[str, object]) -> dict[str, Any]:
    """Write a definition: what was given, and no more."""
    chosen = FunctionTarget(handler=target) if isinstance(target, str) else target
    return {"target": chosen, **fields}


def written(job: JobSpec) -> bytes:
    """Write a definition as one line of JSON, without the fields that are at their defaults."""
    return write({name: value for name, value in _fields(job) if value is not None})


def _fields(job: JobSpec) -> list[tuple[str, Any]]:
    found = []
    for field in msgspec.structs.fields(job):
        value = getattr(job, field.name)
        made = None if field.default_factory is msgspec.NODEFAULT else field.default_factory()
        if value != (made if field.default is msgspec.NODEFAULT else field.default):
            found.append((field.name, value))
    return found


def creating(body: Mapping[str, Any], key: str | None, wait: int | None) -> Ask[CreatedJob]:
    """Ask for a job to be made, and perhaps for its end to be waited for."""
    ask = posting(path("jobs"), CreatedJob, body, key=key, seconds_more=wait or 0)
    return ask if wait is None else msgspec.structs.replace(ask, headers={"Prefer": f"wait={wait}"})


def replacing(job_id: Id, version: int | None, body: Mapping[str, Any]) -> Ask[Job]:
    """Ask for a job's definition to be replaced, if it is still of that version; None: whatever its version."""
    return _editing("PUT", job_id, version, body, JSON, is_as_replaced)


def changing(job_id: Id, version: int | None, patch: Mapping[str, Any]) -> Ask[Job]:
    """Ask for parts of a job's definition to be changed, if it is still of that version; None: whatever its version."""
    return _editing("PATCH", job_id, version, patch, MERGE_PATCH, is_as_patched)


def _editing(
    method: str, job_id: Id, version: int | None, asked: Mapping[str, Any], media_type: str, agrees: Agrees
) -> Ask[Job]:
    where, body = path("jobs", job_id), write(asked)
    plain = msgspec.json.decode(body)

    def settle(error: ApiError) -> Settling[Job]:
        """Find out whether it was our own first try that changed the version, because its answer was lost."""
        if not isinstance(error, VersionChanged) or version is None:
            raise error
        job: Job = yield getting(where, Job)
        if job.version == version + 1 and agrees(msgspec.to_builtins(job), plain):
            return job
        raise VersionChanged(
            f"The answer to a first try was lost, and job {job_id} is now of version {job.version}."
            " Whether that try changed it, or somebody else, cannot be told.",
            error.status,
            error.code,
            "Read it again, and decide anew.",
            error.request_id,
        )

    return Ask(
        method=method,
        path=where,
        read=reader(Job),
        body=body,
        media_type=media_type,
        headers={"If-Match": "*" if version is None else f'"{version}"'},
        settle=settle,
    )


def is_as_patched(found: object, patch: object, name: str = "") -> bool:
    """Say whether all that a patch asks for is so; None asks for a part to be away. When in doubt, it is not."""
    if not isinstance(patch, Mapping):
        return _is_same(found, patch, name)
    return isinstance(found, Mapping) and all(
        is_as_patched(found.get(field), value, field) for field, value in patch.items()
    )


def is_as_replaced(found: Mapping[str, Any], asked: Mapping[str, Any]) -> bool:
    """Say whether a job is just as a whole definition asks for, defaults included. When in doubt, it is not."""
    try:
        whole = msgspec.to_builtins(msgspec.convert(asked, JobSpec))
    except msgspec.ValidationError:
        return False
    retry = found["retry"] if whole["retry"] is not None or found["retry"] != _RETRY_DEFAULT else None
    standing = {name: found[name] for name in whole if name in found} | {"retry": retry}
    return _is_same(standing, whole, "")


def _is_same(found: Any, asked: Any, name: str) -> bool:
    if isinstance(asked, Mapping) and isinstance(found, Mapping):
        names = {field for side in (found, asked) for field, value in side.items() if value is not None}
        names -= {field for field in _TOLD if asked.get(field) is None}
        return all(_is_same(found.get(field), asked.get(field), field) for field in names)
    if isinstance(asked, list) and isinstance(found, list) and asked and found:
        return len(found) == len(asked) and all(_is_same(*pair, name) for pair in zip(found, asked, strict=True))
    if name in _MOMENTS and isinstance(found, str) and isinstance(asked, str):
        return _is_same_moment(found, asked)
    return bool(found == asked) or (name in _DURATIONS and _is_same_duration(found, asked))


def _is_same_moment(found: str, asked: str) -> bool:
    try:
        return datetime.fromisoformat(found) == datetime.fromisoformat(asked)
    except ValueError:
        return False


def _is_same_duration(found: Any, asked: Any) -> bool:
    try:
        return parse(found, "found") == parse(asked, "asked")
    except (InvalidSchedule, TypeError):
        return False
