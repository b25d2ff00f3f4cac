"""Limits of runs at once, as they cross HTTP."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from duly.domain.fields import Moment, Name
from duly.wire.keys import Slots, TenantNumber
from duly.wire.pages import Items
from duly.wire.schema.shapes import RequestModel, ResponseModel


class Scoped(RequestModel, frozen=True):
    """A queue, a tenant, a tenant's share of a queue, or with `all` everything."""

    all: bool = False
    queue: Name | None = None
    tenant: TenantNumber | None = None


class LimitRequest(RequestModel, frozen=True):
    """At most `slots` runs of a queue, a tenant, or with `all` of everything, run at once.

    An admin of a tenant limits its own share of a queue; all else is the operator's.
    """

    slots: Slots
    all: bool = False
    queue: Name | None = None
    tenant: TenantNumber | None = None


class LimitQuery(Scoped, frozen=True):
    """The scope of a limit: the same that was set."""


class Limit(ResponseModel, frozen=True):
    """A limit; without a tenant and a queue, of everything."""

    tenant: int | None
    queue: str | None
    slots: int
    running: Annotated[int, Meta(description="Runs that a worker or a receiver is running.")]
    set_by: str
    set_at: Moment


class LimitList(Items[Limit], frozen=True):
    """All limits, the widest first."""
