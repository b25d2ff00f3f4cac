"""Pages: the shapes that all lists share."""

from __future__ import annotations

from typing import Annotated, Generic, Literal, TypeVar
from uuid import UUID

from msgspec import Meta

from duly.wire.schema.shapes import RequestModel, ResponseModel

T = TypeVar("T")
PAGE_SIZE_MAX = 200

PageSize = Annotated[
    int, Meta(ge=1, le=PAGE_SIZE_MAX, description="Maximum number per page; a page may have fewer even if more follow.")
]
PageToken = Annotated[str, Meta(min_length=1, max_length=1200, description="`next_page_token` of the previous page.")]
NextPageToken = Annotated[str | None, Meta(description="Token of the next page; null: this is the last.")]
FILTER_CHARACTERS_MAX = 2_000


def _terms(example: str) -> Meta:
    return Meta(max_length=FILTER_CHARACTERS_MAX, description=f"Terms joined by AND: {example}.", examples=[example])


# Each example has fields of its own list, because another's are refused.
JobFilter = Annotated[str, _terms('state:paused AND queue:(mail,reports) AND name:report* AND created_at>"2026-11-01"')]
RunFilter = Annotated[str, _terms('state:(dead,cancelled) AND queue:mail AND scheduled_at>"2026-11-01"')]
WorkflowFilter = Annotated[str, _terms('state:failed AND name:import* AND submitted_at>"2026-11-01"')]
ListFilter = Annotated[
    str,
    Meta(max_length=FILTER_CHARACTERS_MAX, description="Terms joined by AND, as in the list operation."),
]
DeadFilter = Annotated[str, _terms('queue:(mail,reports) AND reason:Timeout* AND buried_at>"2026-11-01"')]


class Items(ResponseModel, Generic[T], frozen=True):
    """A list without pages."""

    items: list[T]


class Page(Items[T], frozen=True):
    """A part of a list, and where the next one begins."""

    next_page_token: NextPageToken


class PageQuery(RequestModel, frozen=True):
    """The page, and its size."""

    page_size: PageSize = 50
    page_token: PageToken | None = None


class JobsQuery(PageQuery, frozen=True):
    """The page, its size, and the filter and order of jobs."""

    filter: JobFilter | None = None
    sort: Annotated[
        Literal["created", "name", "next_run_at"],
        Meta(
            description="created: newest first. name: named jobs by name. next_run_at: jobs that will fire, the next first;"
            " refused above 5,000 jobs."
        ),
    ] = "created"
    include: (
        Annotated[
            Literal["one_shots"],
            Meta(
                description="one_shots: include unnamed one-shots, by their scheduled time. Only with the default sort."
            ),
        ]
        | None
    ) = None


class RunsQuery(PageQuery, frozen=True):
    """The page, its size, and the filter of runs."""

    filter: RunFilter | None = None
    workflow: Annotated[UUID, Meta(description="Only the runs of this workflow's nodes.")] | None = None


class WorkflowsQuery(PageQuery, frozen=True):
    """The page, its size, and the filter of workflows."""

    filter: WorkflowFilter | None = None
