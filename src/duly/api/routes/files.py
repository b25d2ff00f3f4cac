"""Schedules as code: apply a file, export one, and list the applied files with their drift."""

from __future__ import annotations

import msgspec

from duly.api import paging
from duly.api.operations import Call, Routes
from duly.api.response import Response
from duly.domain.errors import InvalidOption, NotFound
from duly.domain.jobs.job import check_name
from duly.domain.jobs.manifest import read_manifest
from duly.domain.jobs.manifest_diff import drift
from duly.domain.jobs.manifest_export import export as exported
from duly.domain.jobs.manifest_plan import Plan, StepKind
from duly.domain.jobs.manifest_shapes import JOBS_MAX
from duly.domain.tenancy.audit import Action
from duly.moves.schedules.apply import Done, apply, plan
from duly.store.tables import applied, notifications, schedules
from duly.wire.jobs.manifests import (
    MANIFEST_BYTES_MAX,
    Applied,
    ApplyQuery,
    ExportQuery,
    FileDifference,
    FileJob,
    FileJobList,
    FileJobQuery,
    FileList,
    FileShape,
    FileSummary,
)
from duly.wire.pages import PageQuery
from duly.wire.schema.reading import read_value
from duly.wire.schema.shapes import Nothing

routes = Routes("schedules as code", reads="jobs:read", writes="jobs:write")


@routes.add(
    "POST /v1/jobs:apply",
    responses={200: Applied},
    refuses=("invalid_manifest", "not_the_files", "plan_changed", "conflict", "rate_limited", "quota_reached"),
    body_bytes_max=MANIFEST_BYTES_MAX,
    seconds_max=60.0,
    is_submit=True,
    audits=(Action.FILE_APPLIED,),
)
async def apply_file(call: Call[ApplyQuery, FileShape]) -> Response:
    """Bring the jobs and rules of a file to its definitions, in one transaction.

    The body is the file, as JSON. Both are identified by name: an existing one is changed, a new one is created. With
    `dry_run` the plan is returned and nothing is changed; its `digest`, sent with the apply, makes sure that this very
    plan is carried out.
    """
    requested, manifest = call.query, read_manifest(call.body)
    manifest.check_allowed(call.services.allowed)
    if requested.dry_run:
        return Response(200, _reported(await plan(call.database, call.tenant, manifest), dry_run=True))
    created = await apply(
        call.database,
        call.tenant,
        manifest,
        call.services.rng,
        prune=requested.prune,
        adopt=requested.adopt,
        expected=requested.digest,
        by=call.identity.shown_name,
    )
    return Response(200, _reported(created.plan, created.done, created.orphans, created.orphan_rules))


@routes.add("GET /v1/jobs:export", responses={200: FileShape}, refuses=("invalid_option", "not_found"))
async def export_file(call: Call[ExportQuery, None]) -> Response:
    """Export the jobs and rules of a file as that file: applied again, it changes nothing.

    With `by_hand` the named jobs and rules that people created are included. Jobs declared in code stay there.
    """
    by_hand = call.query.by_hand
    source = await _source(call)
    found = await applied.exported(call.database, call.tenant, source, JOBS_MAX + 1, by_hand=by_hand)
    if len(found) > JOBS_MAX:
        raise InvalidOption(f"more than {JOBS_MAX} jobs, the limit of a file; export without by_hand")
    rules = await notifications.exported(call.database, call.tenant, source, by_hand=by_hand)
    if not found and not rules:
        raise NotFound(
            f"no file {source!r} has a job here; by_hand=true, `duly export --by-hand`, exports jobs created by hand"
        )
    calendars = await schedules.calendars(call.database, call.tenant, None)
    return Response(200, exported(source, found, calendars, rules))


async def _source(call: Call[ExportQuery, None]) -> str:
    """Choose the file: the named one, or the only one."""
    if call.query.source is not None:
        return check_name(call.query.source, "source")
    known = list(await applied.sources(call.database, call.tenant))
    if len(known) > 1:
        raise InvalidOption(f"several files exist; name one with source: {', '.join(known[:10])}")
    return known[0] if known else "duly"


def _reported(
    found: Plan,
    done: tuple[Done, ...] = (),
    orphans: tuple[str, ...] = (),
    orphan_rules: tuple[str, ...] = (),
    *,
    dry_run: bool = False,
) -> Applied:
    reported = {
        **msgspec.to_builtins(found),
        "dry_run": dry_run,
        "done": msgspec.to_builtins(done),
        "orphans": list(orphans) or [step.name for step in found.of(StepKind.REMOVE) if dry_run],
        "orphan_rules": list(orphan_rules) or [step.name for step in found.rules_of(StepKind.REMOVE) if dry_run],
    }
    return read_value(reported, Applied)


_PAGE_MAX = 50  # each is counted again


@routes.add("GET /v1/files", responses={200: FileList}, is_figure=True, may_lag=True)
async def list_files(call: Call[PageQuery, None]) -> Response:
    """List the applied files, and how many jobs and rules of each have drifted."""
    after = paging.position(call.query.page_token, "files", str)
    size = min(call.query.page_size, _PAGE_MAX)
    found = await applied.files(call.database, call.tenant, after or "", size)
    last = found[-1].source if len(found) == size else None
    return paging.page(FileList, [FileSummary.of(one) for one in found], last, "files")


# Before the one that is found by its name alone, which may have any end.
@routes.add("GET /v1/files/{name}/jobs", responses={200: FileJobList}, is_figure=True, may_lag=True)
async def list_file_jobs(call: Call[FileJobQuery, None]) -> Response:
    """List the jobs of a file, each with its drift since the file was applied, field by field.

    A pause is no drift: a file may leave that open.
    """
    source, requested = call.known_name, call.query
    of = f"file {requested.drifted} {source}"
    after = paging.position(requested.page_token, of, str)
    if await applied.file(call.database, call.tenant, source) is None:
        raise _no_file(source)
    found = await applied.file_jobs(
        call.database, call.tenant, source, after or "", requested.page_size, drifted=requested.drifted
    )
    last = found[-1].now.name if len(found) == requested.page_size else None
    return paging.page(FileJobList, [_job(one) for one in found], last, of)


@routes.add("GET /v1/files/{name}", responses={200: FileSummary}, is_figure=True)
async def read_file(call: Call[Nothing, None]) -> Response:
    """Read when a file was applied and by whom, and how much of it has drifted. Its name is its `source`."""
    found = await applied.file(call.database, call.tenant, call.known_name)
    if found is None:
        raise _no_file(call.name)
    return Response(200, FileSummary.of(found))


def _job(one: applied.AppliedJob) -> FileJob:
    now = one.now
    assert now.applied is not None
    return FileJob.of(
        now,
        status=now.state,
        applied_version=now.applied,
        drift=one.drift,
        differences=[FileDifference.of(each) for each in (() if one.was is None else drift(one.was, now))],
        changed_at=one.changed_at,
    )


def _no_file(source: str) -> NotFound:
    return NotFound(f"no file {source!r} was applied; GET /v1/files lists them")
