"""Schedules as code, as they cross HTTP: the file, its plan, and the result of applying it."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
from msgspec import Meta

from duly.domain.fields import Moment, Name
from duly.domain.jobs.manifest_schema import OF_FILES, components
from duly.wire.pages import Page, PageQuery
from duly.wire.schema.shapes import RequestModel, ResponseModel

MANIFEST_BYTES_MAX = 16_777_216
_DIGEST = "Digest of a plan: apply exactly this plan, or nothing."
_REFERENCE = "#/components/schemas/"


def _of_files() -> dict[str, dict[str, Any]]:
    """Return the schemas of structs that a file writes differently than HTTP does, each under a name of its own."""
    found = msgspec.json.encode(components(_REFERENCE + "{name}")[1]).decode()
    for name in OF_FILES:
        found = found.replace(f'"{_REFERENCE}{name}"', f'"{_REFERENCE}File{name}"')
    schemas: dict[str, dict[str, Any]] = msgspec.json.decode(found)
    return {f"File{name}" if name in OF_FILES else name: schema for name, schema in schemas.items()}


# A file has short forms of its own, and a reader that reports every problem.
COMPONENTS = _of_files()
FileShape = Annotated[dict[str, Any], Meta(extra_json_schema={"$ref": f"{_REFERENCE}FileManifestSpec"})]


class ApplyQuery(RequestModel, frozen=True):
    """Options of applying a file."""

    dry_run: Annotated[bool, Meta(description="Show the plan; change nothing.")] = False
    prune: Annotated[bool, Meta(description="Remove the jobs and rules of this file that it no longer contains.")] = (
        False
    )
    adopt: Annotated[
        bool, Meta(description="Take over jobs and rules that were created by hand or by another file.")
    ] = False
    digest: Annotated[str, Meta(min_length=64, max_length=64, description=_DIGEST)] | None = None


class ExportQuery(RequestModel, frozen=True):
    """The jobs to export."""

    source: Annotated[Name, Meta(description="Source of the file; optional if there is only one.")] | None = None
    by_hand: Annotated[bool, Meta(description="Include named jobs and rules that were created by hand.")] = False


class FileDifference(ResponseModel, frozen=True):
    """A field with its current and its requested value; null: not given."""

    field: str
    before: Any
    after: Any


class FileStep(ResponseModel, frozen=True):
    """The step for one name. `is_drift`: it was changed since the file was applied."""

    name: str
    kind: Literal["create", "change", "adopt", "remove", "refuse"]
    job_id: UUID | None
    version: int | None
    differences: list[FileDifference]
    pausing: Literal["pause", "resume"] | None
    is_drift: bool
    note: str | None


class FileCalendar(ResponseModel, frozen=True):
    """A calendar to store."""

    name: str
    kind: Literal["create", "change"]
    differences: list[FileDifference]


class FileRule(ResponseModel, frozen=True):
    """The step for a rule of notifications. `is_drift`: it was changed since the file was applied."""

    name: str
    kind: Literal["create", "change", "adopt", "remove"]
    differences: list[FileDifference]
    is_drift: bool
    note: str | None


class FileDone(ResponseModel, frozen=True):
    """The action on one job."""

    name: str
    kind: Literal["create", "change", "adopt", "remove"]
    job_id: UUID
    pausing: Literal["pause", "resume"] | None


class FileSummary(ResponseModel, frozen=True):
    """A file of schedules: its live jobs and rules, how many have drifted, and when it was applied and by whom."""

    source: str
    jobs: int
    drifted: Annotated[int, Meta(description="Jobs changed or ended by hand since.")]
    rules: Annotated[int, Meta(description="Rules of notifications.")]
    drifted_rules: Annotated[int, Meta(description="Rules changed by hand since.")]
    applied_at: Annotated[Moment | None, Meta(description="Null: not recorded.")]
    applied_by: str | None


class FileList(Page[FileSummary], frozen=True):
    """A page of files, in order of their names."""


class FileJobQuery(PageQuery, frozen=True):
    """Filters of a file's jobs."""

    drifted: Annotated[bool, Meta(description="Only jobs changed or ended by hand since.")] = False


class FileJob(ResponseModel, frozen=True):
    """A job of a file, and its drift: `before` is the file's value, `after` the current one."""

    job_id: UUID
    name: str
    status: Literal["active", "paused", "cancelled"]
    pause_reason: str | None
    version: int
    applied_version: int
    drift: Annotated[
        Literal["changed", "cancelled"] | None, Meta(description="Null: unchanged since it was applied, paused or not.")
    ]
    differences: Annotated[
        list[FileDifference], Meta(description="Empty if it was changed back, or changed too often.")
    ]
    changed_at: Annotated[Moment | None, Meta(description="Time of the last change, if it has drifted.")]


class FileJobList(Page[FileJob], frozen=True):
    """A page of a file's jobs, in order of their names."""


class Applied(ResponseModel, frozen=True):
    """The plan of applying the file, and, unless it was a dry run, the actions. `digest` identifies the plan."""

    source: str
    dry_run: bool
    digest: str
    steps: list[FileStep]
    calendars: list[FileCalendar]
    rules: list[FileRule]
    unchanged: Annotated[int, Meta(description="Jobs and rules that are as in the file.")]
    done: list[FileDone]
    orphans: Annotated[list[str], Meta(description="Jobs that the file no longer contains and that were kept.")]
    orphan_rules: Annotated[list[str], Meta(description="Rules that the file no longer contains and that were kept.")]
