"""Schedules as code: bring the jobs of a file to what it says, and write them as a file."""

from __future__ import annotations

from typing import Any

import msgspec

from duly.api.operations import Answer, Call, Routes
from duly.domain.errors import InvalidOption, NotFound
from duly.domain.jobs.job import check_name
from duly.domain.jobs.manifest import read_manifest
from duly.domain.jobs.manifest_export import export as exported
from duly.domain.jobs.manifest_plan import Plan, StepKind
from duly.domain.jobs.manifest_shapes import JOBS_MAX
from duly.moves.schedules.apply import Done, apply, plan
from duly.store.tables import applied, schedules
from duly.wire.jobs.manifests import MANIFEST_BYTES_MAX, Applied, ApplyQuery, ExportQuery, FileShape
from duly.wire.schema.reading import read_value

routes = Routes("schedules as code")


@routes.add(
    "POST",
    "/v1/jobs:apply",
    scope="jobs:write",
    query=ApplyQuery,
    body=FileShape,
    answers={200: Applied},
    refuses=("invalid_manifest", "not_the_files", "plan_changed", "conflict", "rate_limited", "quota_reached"),
    body_bytes_max=MANIFEST_BYTES_MAX,
    seconds_max=60.0,
    is_submit=True,
)
async def apply_file(call: Call[ApplyQuery, dict[str, Any]]) -> Answer:
    """Bring the jobs of a file to what it says, in one transaction: all of it, or none.

    The body is the file, as JSON. Names own jobs: one that is there is changed, one that is not is made. With `dry_run` the
    plan is told and nothing is done; its `digest`, sent with the apply, makes sure that this very plan is carried out.
    """
    asked, manifest = call.query, read_manifest(call.body)
    manifest.check_allowed(call.allowed)
    if asked.dry_run:
        return Answer(200, _told(await plan(call.database, call.tenant, manifest), dry_run=True))
    made = await apply(
        call.database,
        call.tenant,
        manifest,
        call.rng,
        prune=asked.prune,
        adopt=asked.adopt,
        expected=asked.digest,
        by=f"key {call.identity.key.name}"[:200],
    )
    return Answer(200, _told(made.plan, made.done, made.orphans))


@routes.add(
    "GET",
    "/v1/jobs:export",
    scope="jobs:read",
    query=ExportQuery,
    answers={200: FileShape},
    refuses=("invalid_option", "not_found"),
)
async def export_file(call: Call[ExportQuery, None]) -> Answer:
    """Write the jobs of a file as that file: applied again, it changes nothing.

    With `by_hand` the named jobs that were made one by one are written, too. Those declared in code stay there.
    """
    by_hand = call.query.by_hand
    source = await _source(call)
    found = await applied.exported(call.database, call.tenant, source, JOBS_MAX + 1, by_hand=by_hand)
    if len(found) > JOBS_MAX:
        raise InvalidOption(f"there are more than {JOBS_MAX} jobs, the limit of a file; export without by_hand")
    if not found:
        raise NotFound(
            f"no file {source!r} has a job here; by_hand=true, `duly export --by-hand`, writes the jobs that were made by hand"
        )
    return Answer(200, exported(source, found, await schedules.calendars(call.database, call.tenant, None)))


async def _source(call: Call[ExportQuery, None]) -> str:
    """Choose the file: the one that was named, or the only one there is."""
    if call.query.source is not None:
        return check_name(call.query.source, "source")
    known = list(await applied.sources(call.database, call.tenant))
    if len(known) > 1:
        raise InvalidOption(f"there are several files; name one with source: {', '.join(known[:10])}")
    return known[0] if known else "duly"


def _told(found: Plan, done: tuple[Done, ...] = (), orphans: tuple[str, ...] = (), *, dry_run: bool = False) -> Applied:
    told = {
        **msgspec.to_builtins(found),
        "dry_run": dry_run,
        "done": msgspec.to_builtins(done),
        "orphans": list(orphans) or [step.name for step in found.of(StepKind.REMOVE) if dry_run],
    }
    return read_value(told, Applied)
