"""The archive of history: where it is, what its files have, and the record of each."""

from __future__ import annotations

from datetime import date, datetime
from pathlib import Path
from urllib.parse import unquote, urlsplit
from uuid import UUID

import msgspec

from duly.domain.errors import DulyError, InvalidOption
from duly.domain.tenancy.api_key import Secret

INSTALL = 'pip install "duly[archive]"'
MOMENTS = ("scheduled_at", "due_at", "started_at", "finished_at")
# The columns of an archive, in order, and their types; ids and JSON are texts, and moments are in UTC.
COLUMNS = {
    "run_id": "text",
    "job_id": "text",
    "tenant": "integer",
    "attempt": "integer",
    "outcome": "text",
    "became": "text",
    "queue": "text",
    "handler": "text",
    "priority": "integer",
    **dict.fromkeys(MOMENTS, "moment"),
    "worker_id": "text",
    "fence": "bigint",
    "generation": "integer",
    "reason": "text",
    "result": "text",
    "detail": "text",
    "metadata": "text",
    "options": "text",
    "payload": "text",
    "xid": "text",
}


class ArchiveError(DulyError):
    """An archive that cannot be written, read or trusted; the message says which and why."""


class ArchiveDamaged(ArchiveError):
    """A file of the archive that is gone, or does not have what it should: reading it again does not help."""


class ArchivePlace(msgspec.Struct, frozen=True):
    """The place of archives: below a folder, or below a bucket with a prefix."""

    is_s3: bool
    root: str
    endpoint: str | None = None
    region: str | None = None
    access_key: Secret | None = None
    secret_key: Secret | None = None

    def text(self, location: str = "") -> str:
        """Return the place of a file for people."""
        return f"{'s3' if self.is_s3 else 'file'}://{self.root}{'/' if location else ''}{location}"


class Archived(msgspec.Struct, frozen=True, kw_only=True):
    """The record of an archive: of a partition, or of rows that missed theirs.

    `exporting`: its rows are here alone. `verified`: they are in the archive, too. `dropped`: they are in the archive
    alone. `deleted`: they are nowhere, because the archive was older than its retention.
    """

    name: str
    source: str
    kind: str
    day: date
    is_late: bool
    state: str
    location: str
    rows: int | None
    left_out: int | None
    checksum: int | None
    bytes: int | None
    first_run: UUID | None
    last_run: UUID | None
    error: str | None
    failed_at: datetime | None
    archived_at: datetime | None
    dropped_at: datetime | None


class Contents(msgspec.Struct, frozen=True):
    """The contents of an archive: its rows, the sum of their hashes, and their runs and tenants."""

    rows: int
    checksum: int
    bytes: int
    first_run: UUID | None
    last_run: UUID | None
    tenants: list[int]


class ArchiveFailure(msgspec.Struct, frozen=True):
    """An archive that could not be made, and why."""

    name: str
    day: date
    kind: str
    error: str
    failed_at: datetime


class LegalHold(msgspec.Struct, frozen=True):
    """A tenant, or one of its jobs, whose history is neither dropped nor sampled."""

    tenant: int
    job_id: UUID | None
    reason: str
    held_at: datetime


def read_place(
    url: str,
    *,
    endpoint: str | None = None,
    region: str | None = None,
    access_key: str | None = None,
    secret_key: str | None = None,
) -> ArchivePlace:
    """Read the place of the archive from its URL. Raises InvalidOption."""
    parts = urlsplit(url)
    if parts.scheme not in ("file", "s3") or parts.query or parts.fragment:
        raise InvalidOption("write it as file:///folder or s3://bucket/prefix")
    if "@" in parts.netloc:
        raise InvalidOption("credentials do not belong in it: use archive_access_key and archive_secret_key")
    if (access_key is None) != (secret_key is None):
        raise InvalidOption("archive_access_key and archive_secret_key go together: set both, or neither")
    path = unquote(parts.path).strip("/")
    if ".." in path.split("/"):
        raise InvalidOption("it leads upwards; write the folder itself")
    if parts.scheme == "file":
        if parts.netloc or not path:
            raise InvalidOption("write a folder as file:///folder, with three slashes")
        return ArchivePlace(False, str(Path("/") / path))
    if not parts.netloc:
        raise InvalidOption("it names no bucket: write s3://bucket/prefix")
    secrets = [None if key is None else Secret(key) for key in (access_key, secret_key)]
    return ArchivePlace(True, "/".join(filter(None, (parts.netloc, path))), endpoint, region, *secrets)
