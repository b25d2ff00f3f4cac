"""The audit log: who changed what. The vocabulary of actions, the actors, and an entry."""

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
    """The action, by the thing that it changed. Actions are never renamed: people search the audit by them."""

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
    RUN_RERUN = "run.rerun"
    DEAD_EDITED = "dead.edited"
    DEAD_REPLAYED = "dead.replayed"
    DEAD_DISCARDED = "dead.discarded"
    EVENT_ACCEPTED = "event.accepted"
    WORKFLOW_CREATED = "workflow.created"
    WORKFLOW_CANCELLED = "workflow.cancelled"
    WORKFLOW_PAUSED = "workflow.paused"
    WORKFLOW_RESUMED = "workflow.resumed"
    WORKFLOW_REPLAYED = "workflow.replayed"
    WORKFLOW_EXTENDED = "workflow.extended"
    CALENDAR_SAVED = "calendar.saved"
    CALENDAR_DELETED = "calendar.deleted"
    CONCURRENCY_KEY_LIMITED = "concurrency_key.limited"
    CONCURRENCY_KEY_UNLIMITED = "concurrency_key.unlimited"
    DESTINATION_CREATED = "destination.created"
    DESTINATION_LIMITED = "destination.limited"
    DESTINATION_CLOSED = "destination.closed"
    DESTINATION_OPENED = "destination.opened"
    CHANNEL_SAVED = "channel.saved"
    CHANNEL_DELETED = "channel.deleted"
    CHANNEL_TESTED = "channel.tested"
    RULE_SAVED = "rule.saved"
    RULE_DELETED = "rule.deleted"
    SECRET_ROTATED = "secret.rotated"  # noqa: S105 - a word for a change, and no secret
    PAUSE_CREATED = "pause.created"
    PAUSE_REMOVED = "pause.removed"
    LIMIT_SET = "limit.set"
    LIMIT_REMOVED = "limit.removed"
    QUEUE_CHANGED = "queue.changed"
    WORKER_DRAINED = "worker.drained"
    WORKER_RESUMED = "worker.resumed"
    HOST_DRAINED = "host.drained"
    HOST_RESUMED = "host.resumed"
    RECOVERY_APPROVED = "recovery.approved"
    RECOVERY_DISMISSED = "recovery.dismissed"
    HOLD_CREATED = "hold.created"
    HOLD_REMOVED = "hold.removed"
    ARCHIVE_STOPPED = "archive.stopped"
    TENANT_CREATED = "tenant.created"
    TENANT_CHANGED = "tenant.changed"
    KEY_CREATED = "key.created"
    KEY_REVOKED = "key.revoked"
    SESSION_OPENED = "session.opened"
    SESSION_CLOSED = "session.closed"


ActorKind = Literal["key", "session", "local", "engine"]


class Actor(msgspec.Struct, frozen=True):
    """The actor of a change: a key, a key's browser session, a local account with database access, or the engine.

    `id` is what lists of changes filter by: the key's id, `local:<account>`, or `engine`.
    """

    kind: ActorKind
    id: str
    name: str
    request_id: str | None = None

    @property
    def key_id(self) -> str | None:
        """The key that was used, if any."""
        return self.id if self.kind in ("key", "session") else None


def local_actor(account: str) -> Actor:
    """Return the actor of an account that works on the database itself."""
    name = f"local:{account}"
    return Actor("local", name, name)


class Subject(msgspec.Struct, frozen=True):
    """The thing that was changed. A thing without an id is identified by its name; many at once have neither."""

    kind: str
    id: str | None = None
    name: str | None = None


class Entry(msgspec.Struct, frozen=True):
    """One change, as recorded."""

    audit_id: UUID
    at: datetime
    actor: Actor
    action: str
    subject: Subject
    count: int
    detail: Mapping[str, Any] | None


class Wanted(msgspec.Struct, frozen=True):
    """A filter of changes; None asks for nothing."""

    actor: str | None = None
    action: str | None = None
    subject: str | None = None
    since: datetime | None = None
    until: datetime | None = None


def check_retention(kept: timedelta) -> timedelta:
    """Check how long the audit is kept. Raises InvalidOption: less than a day would be a way to erase a trace."""
    if kept < KEPT_MIN:
        raise InvalidOption(f"retention_audit {to_iso(kept)} is less than a day; use P1D or more")
    return kept


def shortened(detail: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a detail worth recording: non-empty values, words of bounded length, and a bounded total."""
    kept = {name: _short(value) for name, value in detail.items() if value is not None}
    if not kept:
        return None
    return kept if len(msgspec.json.encode(kept)) <= DETAIL_CHARACTERS_MAX else {"is_too_long": True}


def _short(value: Any) -> Any:
    if isinstance(value, str) and len(value) > _WORD_CHARACTERS_MAX:
        return f"{value[: _WORD_CHARACTERS_MAX - 1]}…"
    return value
