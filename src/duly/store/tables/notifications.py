"""Notifications: channels, rules, what rules noticed, and the deliveries that carry it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from duly.domain.diagnosis.doctor import FailingChannel
from duly.domain.jobs.manifest_diff import KeptRule
from duly.domain.notifications.message import Message, Notification
from duly.domain.notifications.rule import DELIVERIES_MAX, Rule, RuleSpec
from duly.domain.tenancy.sealing import Sealed
from duly.store.connection.database import Database
from duly.store.connection.statements import load

SQL = load("tables/notifications")
BATCH_MAX = 5_000  # ends, or waiting runs of a rule, that one pass judges


class Latest(msgspec.Struct, frozen=True):
    """The latest delivery of a channel: its run, the state of that, and why it has failed, if so."""

    run_id: UUID
    created_at: datetime
    state: str | None  # none: its record is no longer kept
    attempts: int
    reason: str | None


class Channel(msgspec.Struct, frozen=True):
    """A channel as people see it."""

    name: str
    kind: str
    shown: dict[str, Any]
    updated_at: datetime
    rules: list[str]
    latest: Latest | None


class SealedChannel(msgspec.Struct, frozen=True):
    """A channel as it is stored."""

    tenant: int
    name: str
    sealed: Sealed


class StoredRule(msgspec.Struct, frozen=True):
    """A rule, its file if it has one, and how many of its notifications no delivery carries yet."""

    name: str
    spec: RuleSpec
    created_at: datetime
    updated_at: datetime
    sent_at: datetime | None
    source: str | None
    is_drifted: bool
    waiting: int


class Waiting(msgspec.Struct, frozen=True):
    """A rule with notifications that wait; `sent` are its last deliveries, the oldest first."""

    tenant: int
    rule: str
    spec: str  # as stored, so that one that cannot be read is alone with that
    sent_to: int
    first_at: datetime
    now: datetime
    sent: list[datetime]


class Delivered(msgspec.Struct, frozen=True):
    """A delivery of a notification: the run that carries it, and its state."""

    channel: str
    run_id: UUID
    state: str | None
    reason: str | None


async def put_channel(
    database: Database, tenant: int, name: str, kind: str, shown: dict[str, Any], sealed: Sealed
) -> bool:
    """Store a channel. Returns whether it is new."""
    text = msgspec.json.encode(shown).decode()
    return bool(await database.fetchval(SQL["put_channel"], tenant, name, kind, text, sealed.body, sealed.key_id))


async def drop_channel(database: Database, tenant: int, name: str) -> str:
    """Delete a channel: dropped, missing, or used by a rule."""
    return str(await database.fetchval(SQL["drop_channel"], tenant, name))


async def channels(database: Database, tenant: int, name: str | None = None) -> list[Channel]:
    """Read the channels of a tenant, or the one of this name."""
    rows = await database.fetch(SQL["channels"], tenant, name)
    return [
        Channel(
            row["name"],
            row["kind"],
            msgspec.json.decode(row["shown"]),
            row["updated_at"],
            row["rules"],
            None if row["run_id"] is None else Latest(*row[5:]),
        )
        for row in rows
    ]


async def sealed_channel(database: Database, tenant: int, name: str) -> Sealed | None:
    """Read a channel as it is sealed; None: there is none of this name."""
    row = await database.fetch(SQL["sealed_channel"], tenant, name)
    return Sealed(row[0]["key_id"], row[0]["sealed"]) if row else None


async def put_rule(database: Database, tenant: int, name: str, rule: Rule) -> bool:
    """Store a rule. Returns whether it is new."""
    spec = rule.spec
    return bool(
        await database.fetchval(
            SQL["put_rule"],
            tenant,
            name,
            msgspec.json.encode(rule.definition).decode(),
            msgspec.json.encode(rule.selects).decode(),
            spec.events,
            spec.mode,
            spec.channels,
            rule.late_after,
            rule.absent_after,
            rule.queue_age,
        )
    )


async def drop_rule(database: Database, tenant: int, name: str) -> bool:
    """Delete a rule. False: there is none of this name."""
    return bool(await database.fetchval(SQL["drop_rule"], tenant, name))


async def rules(database: Database, tenant: int, name: str | None = None) -> list[StoredRule]:
    """Read the rules of a tenant, or the one of this name."""
    rows = await database.fetch(SQL["rules"], tenant, name)
    return [StoredRule(row[0], read_spec(row[1]), *row[2:]) for row in rows]


async def ruled(database: Database, tenant: int, source: str, names: Sequence[str]) -> dict[str, KeptRule]:
    """Read the rules with these names, and all others of a file, by name."""
    rows = await database.fetch(SQL["ruled"], tenant, source, list(names))
    return {
        row["name"]: KeptRule(
            msgspec.json.decode(row["definition"]),
            row["source"],
            row["applied"] and msgspec.json.decode(row["applied"]),
        )
        for row in rows
    }


async def exported(database: Database, tenant: int, source: str, *, by_hand: bool) -> dict[str, RuleSpec]:
    """Read the rules of a file, with or without those that people have made, by name."""
    return {row[0]: read_spec(row[1]) for row in await database.fetch(SQL["exported"], tenant, source, by_hand)}


async def mark_applied(database: Database, tenant: int, source: str, names: Sequence[str]) -> None:
    """Record that rules belong to a file, and are as it says."""
    await database.execute(SQL["mark_applied"], tenant, source, list(names))


async def test_channel(database: Database, tenant: int, name: str, key: str) -> UUID | None:
    """Submit a test of a channel. Returns its run; None: there is no such channel."""
    found: UUID | None = await database.fetchval(SQL["test_channel"], tenant, name, key)
    return found


async def watch(database: Database) -> bool:
    """Record what is new for all rules; False: there are no rules, or another process did so just now."""
    return bool(await database.fetchval(SQL["watch"], BATCH_MAX))


async def waiting(database: Database) -> list[Waiting]:
    """Read the rules with notifications that no delivery carries."""
    rows = await database.fetch(SQL["waiting"], DELIVERIES_MAX)
    return [Waiting(row[0], row[1], row[2], row[3], row[4], row[5], sorted(row[6])) for row in rows]


async def send(database: Database, one: Waiting) -> bool:
    """Carry all that waits of a rule in deliveries; False: another process has done so."""
    row = await database.fetch_one(SQL["upto"], one.tenant, one.rule, one.sent_to)
    if row["upto"] is None:
        return False
    return bool(await database.fetchval(SQL["send"], one.tenant, one.rule, one.sent_to, row["upto"], row["count"]))


async def message_of(database: Database, run_id: UUID, shown_max: int) -> tuple[int, Message] | None:
    """Read what a delivery says, and its tenant; None: its record is no longer kept."""
    rows = await database.fetch(SQL["delivery"], run_id)
    if not rows:
        return None
    tenant, channel, rule, after, upto, count, created_at = rows[0]
    carried = await database.fetch(SQL["carried"], tenant, rule, after, upto, shown_max) if rule is not None else []
    return tenant, Message(run_id, rule, channel, count, [Notification(*row) for row in carried], created_at)


async def page(
    database: Database, tenant: int, rule: str | None, before: int, limit: int
) -> list[tuple[Notification, list[Delivered]]]:
    """Read notifications with their deliveries, the newest first."""
    rows = await database.fetch(SQL["page"], tenant, rule, before, limit)
    return [(Notification(*row[:-1]), msgspec.json.decode(row[-1], type=list[Delivered])) for row in rows]


async def failing(database: Database, limit: int) -> list[FailingChannel]:
    """Read the channels of all tenants whose latest delivery has not arrived."""
    return [FailingChannel(*row) for row in await database.fetch(SQL["failing"], limit)]


async def sealed_before(database: Database, key_id: str, after: tuple[int, str], limit: int) -> Sequence[SealedChannel]:
    """Read channels behind a position that are sealed with another key than this one."""
    rows = await database.fetch(SQL["before"], key_id, *after, limit)
    return [SealedChannel(row[0], row[1], Sealed(row[3], row[2])) for row in rows]


async def reseal(database: Database, held: SealedChannel, sealed: Sealed) -> bool:
    """Store a channel as it is sealed anew; False: it has changed since."""
    values = (held.tenant, held.name, held.sealed.body, sealed.body, sealed.key_id)
    return bool(await database.fetchval(SQL["reseal"], *values))


def read_spec(text: str) -> RuleSpec:
    """Read a stored rule. Raises ValidationError for one that a newer version stored."""
    return msgspec.json.decode(text, type=RuleSpec)
