"""What all lists share."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from duly.wire.shapes import Asked

PAGE_SIZE_MAX = 200

PageSize = Annotated[
    int, Meta(ge=1, le=PAGE_SIZE_MAX, description="How many at most; a page may hold fewer although more follow.")
]
PageToken = Annotated[str, Meta(min_length=1, max_length=400, description="`next_page_token` of the page before.")]
NextPageToken = Annotated[str | None, Meta(description="Where the next page begins; null: this was the last.")]
FilterText = Annotated[
    str,
    Meta(
        max_length=2000,
        description='Terms joined by AND: state:dead AND queue:(mail,reports) AND name:report* AND created_at>"2026-11-01".',
        examples=["state:dead AND queue:mail"],
    ),
]


class PageQuery(Asked, frozen=True):
    """Which page, of what size."""

    page_size: PageSize = 50
    page_token: PageToken | None = None


class FilteredQuery(PageQuery, frozen=True):
    """Which page, of what size, of what fits a filter."""

    filter: FilterText | None = None
