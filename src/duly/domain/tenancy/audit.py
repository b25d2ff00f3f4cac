"""The audit: who changed what. The vocabulary of changes, those who make them, and one entry as it is written down."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Literal
from uuid import UUID

import msgspec

from duly.domain.duration import to_iso
from duly.domain.errors import InvalidOption

KEPT_MIN = timedelta(days=1)
DETAIL_CHARACTERS_MAX = 2_000
_WORD_CHARACTERS_MAX = 200


class Action(StrEnum):
    """What was done, by the thing it was done to. An action keeps its name for good: whoever keeps the audit searches by it."""

    JOB_CREATED = "job.created"
    JOB_EDITED = "job.edited"
    JOB_CANCELLED = "job.cancelled"
    JOB_PURGED = "job.purged"
    JOB_TRIGGERED = "job.triggered"
    JOB_PAUSED = "job.paused"
    JOB_RESUMED = "job.resumed"
    JOB_SKIPPED_NEXT = "job.skipped_next"
    JOB_BACKFILLED = "job.backfilled"
    BACKFILL_CANCELLED = "backfill.cancelled"
    FILE_APPLIED = "file.applied"
    RUN_CANCELLED = "run.cancelled"
    RUN_AGAIN = "run.run_again"
    DEAD_EDITED = "dead.edited"
    DEAD_REPLAYED = "dead.replayed"
    DEAD_DISCARDED = "dead.discarded"
    EVENT_TAKEN = "event.taken"
    WORKFLOW_CREATED = "workflow.created"
    WORKFLOW_CANCELLED = "workflow.cancelled"
    WORKFLOW_PAUSED = "workflow.paused"
    WORKFLOW_RESUMED = "workflow.resumed"
    WORKFLOW_REPLAYED = "workflow.replayed"
    WORKFLOW_EXTENDED = "workflow.extended"
    CALENDAR_KEPT = "calendar.kept"
    CALENDAR_DELETED = "calendar.deleted"
    GATE_LIMITED = "gate.limited"
    GATE_LIFTED = "gate.lifted"
    DESTINATION_CREATED = "destination.created"
    DESTINATION_LIMITED = "destination.limited"
    DESTINATION_CLOSED = "destination.closed"
    DESTINATION_OPENED = "destination.opened"
    SECRET_ROTATED = "secret.rotated"  # noqa: S105 - a word for a change, and no secret
    HOLD_PLACED = "hold.placed"
    HOLD_LIFTED = "hold.lifted"
    LIMIT_SET = "limit.set"
    LIMIT_REMOVED = "limit.removed"
    QUEUE_CHANGED = "queue.changed"
    WORKER_DRAINED = "worker.drained"
    WORKER_RESUMED = "worker.resumed"
    RECOVERY_APPROVED = "recovery.approved"
    RECOVERY_DISMISSED = "recovery.dismissed"
    TENANT_CREATED = "tenant.created"
    TENANT_CHANGED = "tenant.changed"
    KEY_CREATED = "key.created"
    KEY_REVOKED = "key.revoked"
    SESSION_OPENED = "session.opened"
    SESSION_CLOSED = "session.closed"


ActorKind = Literal["key", "session", "local", "engine"]


class Actor(msgspec.Struct, frozen=True):
    """Who makes a change: a key, a browser's session for a key, an account of this machine on the database, or ourselves.

    `id` is what a list of changes is asked for by: the key's id, `local:<account>`, or `engine`.
    """

    kind: ActorKind
    id: str
    name: str
    request_id: str | None = None

    @property
    def key_id(self) -> str | None:
        """The key that was used, if one was."""
        return self.id if self.kind in ("key", "session") else None


def local_actor(account: str) -> Actor:
    """Name an account that works on the database itself."""
    name = f"local:{account}"
    return Actor("local", name, name)


class Subject(msgspec.Struct, frozen=True):
    """What was changed. What has no id but its name is known by that; many at once have neither."""

    kind: str
    id: str | None = None
    name: str | None = None


class Entry(msgspec.Struct, frozen=True):
    """One change, as it was written down."""

    audit_id: UUID
    at: datetime
    actor: Actor
    action: str
    subject: Subject
    count: int
    detail: Mapping[str, Any] | None


class Wanted(msgspec.Struct, frozen=True):
    """Which changes are asked for; what is none asks for nothing."""

    actor: str | None = None
    action: str | None = None
    subject: str | None = None
    since: datetime | None = None
    until: datetime | None = None


def check_retention(kept: timedelta) -> timedelta:
    """Take how long the audit is kept. Raises InvalidOption: less than a day would be a way to erase a trace."""
    if kept < KEPT_MIN:
        raise InvalidOption(f"retention_audit {to_iso(kept)} is less than a day; use P1D or more")
    return kept


def shortened(detail: Mapping[str, Any]) -> dict[str, Any] | None:
    """Give what is worth keeping of a detail: what says something, words of a bearable length, and in all not too much."""
    kept = {name: _short(value) for name, value in detail.items() if value is not None}
    if not kept:
        return None
    return kept if len(msgspec.json.encode(kept)) <= DETAIL_CHARACTERS_MAX else {"is_too_long": True}


def _short(value: Any) -> Any:
    if isinstance(value, str) and len(value) > _WORD_CHARACTERS_MAX:
        return f"{value[: _WORD_CHARACTERS_MAX - 1]}…"
    return value
