"""Sessions of the dashboard as they cross HTTP."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from msgspec import Meta

from duly.domain.fields import Moment
from duly.wire.keys import TenantNumber
from duly.wire.pages import Page, PageQuery
from duly.wire.schema.shapes import RequestModel, ResponseModel


class LogIn(RequestModel, frozen=True):
    """The key that a session is opened with."""

    key: str


class Caller(ResponseModel, frozen=True):
    """The caller, its scopes, and the token that a page must send with each change; a key needs none."""

    tenant: int
    tenant_name: str
    key_id: str
    key_name: str
    scopes: list[str]
    is_operator: bool
    csrf: str | None
    version: str


class SessionQuery(PageQuery, frozen=True):
    """Filters of sessions. Only the operator may name another tenant."""

    tenant: TenantNumber | None = None


class Session(ResponseModel, frozen=True):
    """A browser that has logged in with a key. Its id grants nothing."""

    session_id: UUID
    tenant: int
    key_id: str
    key_name: str
    opened_at: Moment
    last_used_at: Annotated[Moment, Meta(description="Precise to the minute.")]
    expires_at: Annotated[Moment, Meta(description="12 hours after its last use.")]
    address: Annotated[str, Meta(description="Address of the client; behind a proxy, the proxy's.")]
    user_agent: Annotated[str, Meta(description="User agent of the browser.")]
    is_current: Annotated[bool, Meta(description="Whether this is the session of the request.")]


class SessionList(Page[Session], frozen=True):
    """A page of sessions, the last opened first."""
