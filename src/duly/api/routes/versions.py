"""What a job was: the versions of its definition."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from duly.api import definitions, paging
from duly.api.job_views import asked_schedule, no_job
from duly.api.operations import Answer, Call, Routes
from duly.domain.jobs.spec_of import carried_of, rules_of, waits_of
from duly.domain.runs.payload import read_anyhow
from duly.store.tables import jobs
from duly.wire.jobs.versions import JobVersion, JobVersionList
from duly.wire.pages import PageQuery

routes = Routes("jobs")
_PAGE_MAX = 20  # Each comes with its payload.


@routes.add("GET", "/v1/jobs/{job_id}/versions", scope="jobs:read", query=PageQuery, answers={200: JobVersionList})
async def list_job_versions(call: Call[PageQuery, None]) -> Answer:
    """Show what a job's definition was, the newest first: the one that stands, and the last hundred before it.

    A one-shot without a name has no definition of its own, and no versions.
    """
    job_id, asked = call.id("job_id"), call.query
    of = f"versions {job_id}"
    before = paging.position(asked.page_token, of, int) or jobs.NEWEST_VERSION
    size = min(asked.page_size, _PAGE_MAX)
    found = await jobs.versions(call.database, call.tenant, job_id, size, before)
    if not found and before == jobs.NEWEST_VERSION:
        raise no_job(job_id)
    last = found[-1]["generation"] if len(found) == size else None
    return Answer(
        200, JobVersionList(items=[_shown(row) for row in found], next_page_token=paging.next_token(last, of))
    )


def _shown(row: Mapping[str, Any]) -> JobVersion:
    options = row["options"]
    copied = ("made_at", "replaced_at", "owner", "source", "name", "queue", "priority")
    return JobVersion(
        **{name: row[name] for name in copied},
        version=row["generation"],
        request_id=carried_of(options).get("request_id"),
        target=definitions.target_shape(row["handler"], options),
        payload=None if row["payload"] is None else read_anyhow(row["payload"]),
        **waits_of(asked_schedule(row)),
        **rules_of(options),
    )
