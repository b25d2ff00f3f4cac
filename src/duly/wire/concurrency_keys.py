"""Concurrency keys and rate limits, as they cross HTTP."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from duly.domain.fields import Duration, Moment
from duly.domain.jobs.job import CONCURRENCY_SLOTS_MAX
from duly.domain.limits.concurrency import BURST_MAX, RATE_MAX
from duly.wire.pages import Page
from duly.wire.schema.shapes import RequestModel, ResponseModel

Slots = Annotated[
    int, Meta(ge=1, le=CONCURRENCY_SLOTS_MAX, description="Maximum number of concurrent runs of the key.")
]


class ConcurrencyKeyRate(RequestModel, frozen=True):
    """The rate limit of a key: the runs that start in each `per`; after a rest, `burst` of them at once."""

    limit: Annotated[float, Meta(gt=0, le=RATE_MAX)]
    per: Duration = "PT1S"
    burst: Annotated[int, Meta(ge=1, le=BURST_MAX)] = 1


class ConcurrencyKeyLimits(RequestModel, frozen=True):
    """The limits of a key, which override those of its runs. A limit that is left out comes from the runs."""

    limit: Slots | None = None
    rate: ConcurrencyKeyRate | None = None


class SetLimits(ResponseModel, frozen=True):
    """The limits that were set for a key."""

    limit: int | None
    rate: ConcurrencyKeyRate | None
    changed_at: Moment


class ConcurrencyKey(ResponseModel, frozen=True):
    """A concurrency key or rate limit: how many runs hold a slot, and how many wait."""

    key: str
    kind: Annotated[
        Literal["concurrency", "fifo", "overlap", "backfill", "rate"],
        Meta(
            description="Kind of key; rate: a rate limit only. A key with a concurrency limit may have a rate limit as well."
        ),
    ]
    slots: Annotated[int | None, Meta(description="Concurrency limit; null: no run has or waits for a slot.")]
    slots_used: Annotated[int, Meta(description="Runs that have a slot.")]
    waiting: Annotated[int, Meta(description="Runs that wait for a slot, counted up to 10,000.")]
    rate: Annotated[ConcurrencyKeyRate | None, Meta(description="Rate limit; null: none.")]
    waiting_for_rate: Annotated[int, Meta(description="Runs that wait for the rate limit, counted up to 10,000.")]
    limits: Annotated[SetLimits | None, Meta(description="Limits set for the key; null: the limits of its runs apply.")]


class ConcurrencyKeyList(Page[ConcurrencyKey], frozen=True):
    """A page of keys that are in use or limited, in order."""
