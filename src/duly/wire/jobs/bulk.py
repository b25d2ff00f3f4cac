"""Bulk changes of jobs and runs, as they cross HTTP."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

import msgspec
from msgspec import Meta

from duly.wire.jobs.verbs import Running
from duly.wire.pages import ListFilter, NextPageToken, PageToken
from duly.wire.schema.shapes import Reason, ReplayRate, RequestModel, ResponseModel

IDS_MAX = 200
LIMIT_DEFAULT = 500  # changed by one request
Ids = Annotated[list[UUID], Meta(max_length=IDS_MAX, description="Ids, instead of a filter.")]


class Many(RequestModel, frozen=True, kw_only=True):
    """The selection: by a filter, by name, or all; up to a limit, from where an earlier request ended."""

    filter: ListFilter = ""
    ids: Ids = msgspec.field(default_factory=list)
    all: Annotated[bool, Meta(description="All, instead of a filter.")] = False
    dry_run: Annotated[bool, Meta(description="Count only; change nothing.")] = False
    limit: Annotated[
        Annotated[int, Meta(ge=1, le=10_000)] | None,
        Meta(
            description="Maximum number to change; default: 500, and a dry run counts all. One request changes at most 500"
            " jobs."
        ),
    ] = None
    page_token: PageToken | None = None


class ManyPaused(Many, frozen=True, kw_only=True):
    """The jobs to pause, and why."""

    reason: Reason = "paused on request"


class ManyResumed(Many, frozen=True, kw_only=True):
    """The jobs to resume; occurrences of the meantime are skipped, or with `catch_up` treated as missed."""

    catch_up: bool = False


class ManyDeleted(Many, frozen=True, kw_only=True):
    """The jobs to end, and what happens to runs that have started."""

    running: Running = "keep"


class ManyReplayed(Many, frozen=True, kw_only=True):
    """The dead runs to replay, at once or at a rate: each is due a moment after the one before."""

    rate: ReplayRate | None = None


class NotChanged(ResponseModel, frozen=True):
    """One that was left unchanged, and why."""

    id: UUID
    reason: str


class ManyDone(ResponseModel, frozen=True):
    """The number that matched, up to the limit, and that were changed: none by a dry run, and not those already so.

    `refused`: a few of those that could not be changed, and why. `next_page_token`, and the same idempotency key, go on
    with the rest.
    """

    matched: int
    changed: int
    dry_run: bool
    sample: list[UUID]
    refused: list[NotChanged]
    next_page_token: NextPageToken
    is_partial: Annotated[
        bool,
        Meta(description="It stopped early, because of its time limit or the database: at least this many match."),
    ]
