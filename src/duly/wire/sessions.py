"""Sessions of the dashboard as they cross HTTP."""

from __future__ import annotations

from duly.wire.shapes import Asked, Told


class LogIn(Asked, frozen=True):
    """The key that a session is opened with."""

    key: str


class Who(Told, frozen=True):
    """Who asks, what they may do, and what a page must send with each change; a key needs nothing of the kind."""

    tenant: int
    tenant_name: str
    key_id: str
    key_name: str
    scopes: list[str]
    is_operator: bool
    csrf: str | None
    version: str
