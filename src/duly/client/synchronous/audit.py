# Made from ../asynchronous by scripts/sync_client.py; change that one.
"""The audit: who changed what."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from duly.client.paging import listing
from duly.client.requests import path
from duly.client.synchronous.transport import Line
from duly.wire.audit import AuditEntry


class Audit:
    """Changes, the newest first."""

    def __init__(self, line: Line) -> None:
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
    ) -> Iterator[AuditEntry]:
        """Give the changes that fit; pages are read as they are needed. `actor` is a key's id, or `local:<account>`.

        `subject` is the id of what was changed, or its name where it has none.
        """
        asked = {"actor": actor, "action": action, "subject": subject, "since": since, "until": until}
        return self._line.pages(listing(path("audit"), AuditEntry, **asked, tenant=tenant, page_size=page_size))
