"""The audit: who changed what."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime

from duly.client.asynchronous.transport import AsyncLine
from duly.client.paging import listing
from duly.client.requests import path
from duly.wire.audit import AuditEntry


class AsyncAudit:
    """Changes, the newest first."""

    def __init__(self, line: AsyncLine) -> None:
        self._line = line

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
        """Give the changes that fit; pages are read as they are needed. `actor` is a key's id, or `local:<account>`.

        `subject` is the id of what was changed, or its name where it has none.
        """
        asked = {"actor": actor, "action": action, "subject": subject, "since": since, "until": until}
        return self._line.pages(listing(path("audit"), AuditEntry, **asked, tenant=tenant, page_size=page_size))
