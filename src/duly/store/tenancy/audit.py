"""The audit log: who changed what. Rows are only added, each in the transaction of its change; only age removes them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import asyncpg
import msgspec

from duly.domain.tenancy.audit import Action, Actor, Entry, Subject, Wanted, shortened
from duly.store.connection.database import Database
from duly.store.connection.statements import load

SQL = load("tenancy/audit")
LOOKS = 2_000  # rows read for one page, at most
FIRST = UUID(int=0)
EARLIEST, LATEST = datetime(1, 1, 2, tzinfo=UTC), datetime(9999, 12, 30, tzinfo=UTC)

# Fields with an index to the rows, the most selective first. Creates are found on the way.
_BY_SUBJECT = SQL["page"].format(lead="and subject_id = $8")
_BY_ACTION = SQL["page"].format(lead=f"and action = $7 and action <> '{Action.JOB_CREATED}'")
_BY_ACTOR = SQL["page"].format(lead="and actor = $6")
_BY_TIME = SQL["page"].format(lead="")


class Position(msgspec.Struct, frozen=True):
    """A position among the changes."""

    at: datetime
    audit_id: UUID


class Page(msgspec.Struct, frozen=True):
    """Changes, the newest first, and the position after which more may follow; None: this was all."""

    entries: list[Entry]
    after: Position | None


async def record(
    database: Database,
    tenant: int,
    actor: Actor,
    action: Action,
    subject: Subject,
    count: int,
    detail: Mapping[str, Any],
) -> None:
    """Record a change in the open transaction."""
    kept = shortened(detail)
    await database.fetch(
        SQL["record"],
        tenant,
        actor.kind,
        actor.id,
        actor.name,
        action.value,
        subject.kind,
        subject.id,
        subject.name,
        count,
        actor.request_id,
        None if kept is None else msgspec.json.encode(kept).decode(),
    )


async def page(database: Database, tenant: int, wanted: Wanted, size: int, after: Position | None = None) -> Page:
    """Read changes of a tenant's things, the newest first. A page may be short, or empty, while more follow: see `after`."""
    start = after or Position(wanted.until or LATEST, FIRST)
    looks = size if _is_led(wanted) else LOOKS
    chosen = (wanted.actor, wanted.action, wanted.subject)
    found = await database.fetch(
        statement_for(wanted), tenant, start.at, start.audit_id, wanted.since or EARLIEST, looks, *chosen
    )
    fitting = [row for row in found if row["fits"]][:size]
    if len(fitting) == size:
        return Page([_entry(row) for row in fitting], _position(fitting[-1]))
    return Page([_entry(row) for row in fitting], _position(found[-1]) if len(found) == looks else None)


class Submitter(msgspec.Struct, frozen=True):
    """The submitter or trigger of a run: by which action, and when."""

    at: datetime
    actor: Actor
    action: str


async def submitter(
    database: Database, tenant: int, run_id: UUID, job_id: UUID, created_at: datetime
) -> Submitter | None:
    """Read the submitter of a one-shot or a triggered run; None: its schedule, a batch, or unknown."""
    return await database.fetch_row_with(_submitter, SQL["submitter"], tenant, str(run_id), str(job_id), created_at)


def statement_for(wanted: Wanted) -> str:
    """Choose the statement whose index fits the filter."""
    if wanted.subject is not None:
        return _BY_SUBJECT
    if wanted.action not in (None, Action.JOB_CREATED):
        return _BY_ACTION
    return _BY_TIME if wanted.actor is None else _BY_ACTOR


def _is_led(wanted: Wanted) -> bool:
    """Return whether every row read matches: then no more are read than returned."""
    chosen = [one for one in (wanted.actor, wanted.action, wanted.subject) if one is not None]
    return not chosen or (len(chosen) == 1 and wanted.action != Action.JOB_CREATED)


def _position(row: asyncpg.Record) -> Position:
    return Position(row["at"], row["audit_id"])


def _submitter(row: asyncpg.Record) -> Submitter:
    return Submitter(row["at"], _actor(row), row["action"])


def _actor(row: asyncpg.Record) -> Actor:
    return Actor(row["actor_kind"], row["actor"], row["actor_name"], row["request_id"])


def _entry(row: asyncpg.Record) -> Entry:
    detail = row["detail_text"]
    return Entry(
        audit_id=row["audit_id"],
        at=row["at"],
        actor=_actor(row),
        action=row["action"],
        subject=Subject(row["subject_kind"], row["subject_id"], row["subject_name"]),
        count=row["count"],
        detail=None if detail is None else msgspec.json.decode(detail),
    )
