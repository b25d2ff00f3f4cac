"""Files of schedules: which there are, who applied them and when, and which of their jobs were changed since."""

from __future__ import annotations

from typing import Any

from duly.api import paging
from duly.api.operations import Answer, Call, Routes
from duly.domain.errors import NotFound
from duly.domain.jobs.manifest_diff import drift
from duly.store.tables import applied
from duly.wire.jobs.manifests import FileDifference, FileJob, FileJobList, FileJobQuery, FileList, FileSummary
from duly.wire.pages import PageQuery
from duly.wire.schema.shapes import Nothing

routes = Routes("schedules as code")
_PAGE_MAX = 50  # Each is counted anew.


@routes.add("GET", "/v1/files", scope="jobs:read", query=PageQuery, answers={200: FileList}, is_figure=True)
async def list_files(call: Call[PageQuery, None]) -> Answer:
    """List the files of schedules that were applied, and how many of the jobs of each have drifted."""
    after = paging.position(call.query.page_token, "files", str)
    size = min(call.query.page_size, _PAGE_MAX)
    found = await applied.files(call.database, call.tenant, after or "", size)
    more = paging.token(found[-1].source, "files") if len(found) == size else None
    return Answer(200, FileList(items=[_shown(one) for one in found], next_page_token=more))


# Before the one that is found by its name alone, which may have any end.
@routes.add(
    "GET",
    "/v1/files/{name}/jobs",
    scope="jobs:read",
    query=FileJobQuery,
    answers={200: FileJobList},
    is_figure=True,
)
async def list_file_jobs(call: Call[FileJobQuery, None]) -> Answer:
    """List the jobs of a file, each with what was changed by hand since the file was applied, field by field.

    One that is paused or goes on is as it was applied: a file may leave that open.
    """
    source, asked = call.known_name, call.query
    of = f"file {asked.drifted} {source}"
    after = paging.position(asked.page_token, of, str)
    if await applied.file(call.database, call.tenant, source) is None:
        raise _no_file(source)
    found = await applied.file_jobs(
        call.database, call.tenant, source, after or "", asked.page_size, drifted=asked.drifted
    )
    more = paging.token(found[-1].now.name, of) if len(found) == asked.page_size else None
    return Answer(200, FileJobList(items=[_job(one) for one in found], next_page_token=more))


@routes.add("GET", "/v1/files/{name}", scope="jobs:read", answers={200: FileSummary}, is_figure=True)
async def read_file(call: Call[Nothing, None]) -> Answer:
    """Read when a file was applied and by whom, and how many of its jobs have drifted. Its name is its `source`."""
    found = await applied.file(call.database, call.tenant, call.known_name)
    if found is None:
        raise _no_file(call.name)
    return Answer(200, _shown(found))


def _shown(one: applied.AppliedFile) -> FileSummary:
    return FileSummary(**{name: getattr(one, name) for name in FileSummary.__struct_fields__})


def _job(one: applied.AppliedJob) -> FileJob:
    now = one.now
    differences = () if one.was is None else drift(one.was, now)
    status: Any = now.state
    assert now.applied is not None
    return FileJob(
        job_id=now.job_id,
        name=now.name,
        status=status,
        pause_reason=now.pause_reason,
        version=now.version,
        applied_version=now.applied,
        drift=one.drift,
        differences=[FileDifference(field=each.field, before=each.before, after=each.after) for each in differences],
        changed_at=one.changed_at,
    )


def _no_file(source: str) -> NotFound:
    return NotFound(f"no file {source!r} was applied; GET /v1/files lists them")
