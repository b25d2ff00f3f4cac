"""Tenants and their keys as they cross HTTP."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from duly.domain.fields import Duration, Moment, Name
from duly.domain.jobs.spec import RedactionPath
from duly.domain.limits.limit import SLOTS_MAX
from duly.domain.redaction import RULES_MAX
from duly.wire.pages import Page, PageQuery
from duly.wire.schema.shapes import RequestModel, ResponseModel, check_reach

TENANT_HEADER = "Duly-Tenant"  # percent-encoded; local callers name the tenant they act in, others act in their key's
Scope = Literal["jobs:read", "jobs:write", "jobs:trigger", "worker", "admin"]
Rate = Annotated[float, Meta(ge=0.001, le=1_000_000, description="Submits a second.")]
Count = Annotated[int, Meta(ge=0, le=2_000_000_000)]
Slots = Annotated[int, Meta(ge=1, le=SLOTS_MAX, description="Maximum number of concurrent runs.")]
Weight = Annotated[int, Meta(ge=1, le=1_000, description="Its share relative to other tenants when slots are scarce.")]
TenantNumber = Annotated[int, Meta(ge=1, le=2_147_483_647)]


class KeyRequest(RequestModel, frozen=True):
    """A key to create. Only the operator may name another tenant."""

    name: Name
    scopes: Annotated[list[Scope], Meta(min_length=1, max_length=5)]
    tenant: TenantNumber | None = None
    expires_at: Moment | None = None
    expires_after: (
        Annotated[Duration, Meta(description="Instead of expires_at: time from now, by the database's clock.")] | None
    ) = None
    rate: Rate | None = None

    def __post_init__(self) -> None:
        check_reach(expires_at=self.expires_at)


class Key(ResponseModel, frozen=True):
    """A key, without its secret."""

    key_id: str
    tenant: int
    name: str
    scopes: list[Scope]
    rate: float | None
    created_at: Moment
    expires_at: Moment | None
    revoked_at: Moment | None
    last_used_at: Moment | None
    # Always there; of an older server they are not.
    tenant_name: str = ""
    state: Annotated[
        Literal["active", "suspended", "expired", "revoked"], Meta(description="suspended: its tenant is suspended.")
    ] = "active"


class CreatedKey(ResponseModel, frozen=True):
    """A new key. `key` is its whole text, shown this once."""

    key_id: str
    tenant: int
    name: str
    scopes: list[Scope]
    expires_at: Moment | None
    key: str

    def __repr__(self) -> str:
        return f"CreatedKey({', '.join(f'{name}={value!r}' for name, value in self.__rich_repr__())})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """Return the fields for printing, without the key."""
        return [(name, "***" if name == "key" else getattr(self, name)) for name in self.__struct_fields__]


class KeyQuery(PageQuery, frozen=True):
    """The owner of the keys: the caller's tenant, or, for the operator, another."""

    tenant: TenantNumber | None = None


class KeyList(Page[Key], frozen=True):
    """A page of keys, in order of their ids."""


Redact = Annotated[
    list[RedactionPath],
    Meta(max_length=RULES_MAX, description="Fields of the payloads and results of all its jobs that are shown as ***."),
]


class TenantLimits(RequestModel, frozen=True):
    """The limits of a tenant; null: unlimited."""

    schedules_max: Count | None = None
    ready_max: Count | None = None
    submit_rate: Rate | None = None
    running_max: Slots | None = None
    weight: Weight = 1
    least_period: (
        Annotated[Duration, Meta(description="Shortest interval between occurrences of a schedule: PT1S to P366D.")]
        | None
    ) = None


class TenantRequest(RequestModel, frozen=True):
    """A tenant to create."""

    name: Name
    limits: TenantLimits = TenantLimits()
    redact: Redact = msgspec.field(default_factory=list)


class TenantChange(RequestModel, frozen=True):
    """Changes of a tenant; limits and rules of redaction are replaced as a whole."""

    state: Literal["active", "suspended"] | UnsetType = UNSET
    limits: TenantLimits | UnsetType = UNSET
    redact: Redact | UnsetType = UNSET


class Tenant(ResponseModel, frozen=True):
    """A tenant."""

    tenant: int
    name: str
    state: Literal["active", "suspended"]
    limits: TenantLimits
    created_at: Moment
    redact: list[str] = msgspec.field(default_factory=list)


class TenantList(Page[Tenant], frozen=True):
    """A page of tenants, in order of their numbers."""
