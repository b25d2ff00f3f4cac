"""The audit as it crosses HTTP."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from uuid import UUID

from msgspec import Meta

from duly.domain.fields import PRINTABLE, Moment
from duly.domain.tenancy.audit import Action
from duly.wire.keys import TenantNumber
from duly.wire.pages import Page, PageQuery
from duly.wire.schema.shapes import ResponseModel, check_reach

ActionName = Annotated[str, Meta(description="Action.", examples=["job.paused"], extra_json_schema={"enum": [*Action]})]
ActorText = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=200,
        description="A key's id, `local:<account>`, or `engine`.",
        extra_json_schema=PRINTABLE,
    ),
]
SubjectText = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=400,
        description="Id of the changed thing, or its name if it has no id.",
        extra_json_schema=PRINTABLE,
    ),
]


class AuditQuery(PageQuery, frozen=True):
    """Filters of changes. Only the operator may name another tenant."""

    actor: ActorText | None = None
    action: ActionName | None = None
    subject: SubjectText | None = None
    since: Moment | None = None
    until: Moment | None = None
    tenant: TenantNumber | None = None

    def __post_init__(self) -> None:
        check_reach(since=self.since, until=self.until)


class AuditActor(ResponseModel, frozen=True):
    """The actor of a change: a key, a browser session of a key, a local account with database access, or Duly itself."""

    kind: Literal["key", "session", "local", "engine"]
    key_id: str | None
    name: str


class AuditSubject(ResponseModel, frozen=True):
    """The thing that was changed. Many at once have no id."""

    kind: str
    id: str | None
    name: str | None


class AuditEntry(ResponseModel, frozen=True):
    """One change."""

    audit_id: UUID
    at: Moment
    actor: AuditActor
    action: str
    subject: AuditSubject
    count: Annotated[int, Meta(ge=1, description="Number of things changed at once.")]
    request_id: str | None
    detail: Annotated[dict[str, Any] | None, Meta(description="Details of the change; never a secret or a payload.")]


class AuditList(Page[AuditEntry], frozen=True):
    """Some of the changes, the newest first."""
