"""The archive of history, and legal holds; for the operator."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec

from duly.client.asynchronous.transport import AsyncResource
from duly.client.requests import ApiRequest, Id, given, listing, nothing, path, posting, putting, query_of, removing
from duly.wire.system import ArchiveRecord, LegalHold


class AsyncArchive(AsyncResource):
    """Archives, by their names, and legal holds on history."""

    def list(self, *, page_size: int | None = None) -> AsyncIterator[ArchiveRecord]:
        """Return all archives, by name."""
        return self._transport.pages(listing(path("archive"), ArchiveRecord, page_size=page_size))

    async def verify(self, name: str) -> ArchiveRecord:
        """Read an archive back and compare it with its record. Raises NotFound, Conflict, Unavailable."""
        return await self._transport.send(posting(path("archive", name, "verify"), ArchiveRecord))

    async def stop(self) -> None:
        """Drop history without an archive from now on, unless a scheduler with one runs."""
        await self._transport.send(ApiRequest(method="POST", path="/v1/archive:stop", read=nothing))

    def holds(self) -> AsyncIterator[LegalHold]:
        """Return all legal holds."""
        return self._transport.pages(listing(path("legal-holds"), LegalHold))

    async def hold(self, tenant: int, reason: str, *, job_id: Id | None = None) -> LegalHold:
        """Hold the history of a tenant, or of one of its jobs. Raises NotFound."""
        body = given(tenant=tenant, job_id=None if job_id is None else str(job_id), reason=reason)
        return await self._transport.send(putting(path("legal-holds"), LegalHold, body))

    async def release(self, tenant: int, *, job_id: Id | None = None) -> None:
        """End a legal hold. Raises NotFound."""
        query = query_of(given(tenant=tenant, job_id=None if job_id is None else str(job_id)))
        await self._transport.send(msgspec.structs.replace(removing(path("legal-holds")), query=query))
