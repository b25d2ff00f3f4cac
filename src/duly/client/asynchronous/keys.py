"""Keys, sessions, tenants, and the audit log."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import Literal

from duly.client.asynchronous.transport import AsyncResource
from duly.client.requests import Id, getting, given, listing, patching, path, posting, reader, removing, uncertain
from duly.wire.audit import AuditEntry
from duly.wire.keys import CreatedKey, Key, Scope, Tenant, TenantLimits
from duly.wire.sessions import Session


class AsyncKeys(AsyncResource):
    """Keys, by their ids."""

    def list(self, *, tenant: int | None = None, page_size: int | None = None) -> AsyncIterator[Key]:
        """Return the keys of a tenant, without their secrets."""
        return self._transport.pages(listing(path("keys"), Key, tenant=tenant, page_size=page_size))

    async def create(
        self,
        name: str,
        scopes: Sequence[Scope],
        *,
        tenant: int | None = None,
        expires_at: datetime | None = None,
        expires_after: str | float | None = None,
        rate: float | None = None,
    ) -> CreatedKey:
        """Create a key. Its text is only in this response, so after a lost response it is not retried: Unavailable."""
        body = given(
            name=name, scopes=scopes, tenant=tenant, expires_at=expires_at, expires_after=expires_after, rate=rate
        )
        return await self._transport.send(posting(path("keys"), CreatedKey, body, is_repeatable=False))

    async def revoke(self, key_id: str) -> None:
        """Revoke a key; within five seconds it grants nothing any more. Raises NotFound."""
        await self._transport.send(removing(path("keys", key_id)))


class AsyncSessions(AsyncResource):
    """Browsers that have logged in, by the ids of their sessions."""

    def list(self, *, tenant: int | None = None, page_size: int | None = None) -> AsyncIterator[Session]:
        """Return the sessions of a tenant, or, for a key that is no admin, its own; the last opened first."""
        return self._transport.pages(listing(path("sessions"), Session, tenant=tenant, page_size=page_size))

    async def revoke(self, session_id: Id) -> None:
        """End a session; within five seconds it grants nothing any more. Raises NotFound."""
        await self._transport.send(removing(path("sessions", session_id)))


class AsyncTenants(AsyncResource):
    """Tenants, by their numbers; for the operator."""

    def list(self, *, page_size: int | None = None) -> AsyncIterator[Tenant]:
        """Return all tenants."""
        return self._transport.pages(listing(path("tenants"), Tenant, page_size=page_size))

    async def create(
        self, name: str, *, limits: TenantLimits | None = None, redact: Sequence[str] | None = None
    ) -> Tenant:
        """Create a tenant. Raises NameTaken."""
        body = given(name=name, limits=limits, redact=redact)
        return await self._transport.send(posting(path("tenants"), Tenant, body, settle=uncertain))

    async def get(self, tenant: int) -> Tenant:
        """Read a tenant. Raises NotFound."""
        return await self._transport.send(getting(path("tenants", tenant), Tenant))

    async def change(
        self,
        tenant: int,
        *,
        state: Literal["active", "suspended"] | None = None,
        limits: TenantLimits | None = None,
        redact: Sequence[str] | None = None,
    ) -> Tenant:
        """Change a tenant's limits or its rules of redaction, as a whole; or suspend it. Raises NotFound."""
        body = given(state=state, limits=limits, redact=redact)
        return await self._transport.send(patching(path("tenants", tenant), reader(Tenant), body))


class AsyncAudit(AsyncResource):
    """Changes, the newest first."""

    def list(
        self,
        *,
        actor: str | None = None,
        action: str | None = None,
        subject: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        tenant: int | None = None,
        page_size: int | None = None,
    ) -> AsyncIterator[AuditEntry]:
        """Return the changes that match; pages are read as they are needed.

        `actor` is a key's id, or `local:<account>`.

        `subject` is the id of the changed thing, or its name if it has no id.
        """
        filters = {"actor": actor, "action": action, "subject": subject, "since": since, "until": until}
        return self._transport.pages(listing(path("audit"), AuditEntry, **filters, tenant=tenant, page_size=page_size))
