"""Stored responses of idempotency keys, so that a repeated request gets the same response and is not carried out again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from duly.store.connection.database import Database
from duly.store.connection.statements import load

SQL = load("tenancy/answers")


class KeptAnswer(msgspec.Struct, frozen=True):
    """A stored response, and the hash of its request."""

    body_hash: bytes
    status: int
    headers: Mapping[str, str]
    body: bytes


class KeyState(msgspec.Struct, frozen=True):
    """The state of a key: whether we hold it until the transaction ends, and its stored response."""

    is_ours: bool
    answer: KeptAnswer | None


async def lock(session: Database, tenant: int, route: str, key: str) -> KeyState:
    """Lock a key until the end of the transaction, if no other holds it, and read its response."""
    row = await session.fetch_one(SQL["lock"], tenant, route, key)
    if row["body_hash"] is None:
        return KeyState(row["is_ours"], None)
    return KeyState(
        row["is_ours"],
        KeptAnswer(row["body_hash"], row["status"], msgspec.json.decode(row["headers"]), row["body"]),
    )


async def keep(session: Database, tenant: int, route: str, key: str, answer: KeptAnswer) -> bool:
    """Store a response for a day. False: another transaction was faster."""
    values: tuple[Any, ...] = (
        answer.body_hash,
        answer.status,
        msgspec.json.encode(dict(answer.headers)).decode(),
        answer.body,
    )
    return bool(await session.fetchval(SQL["keep"], tenant, route, key, *values))
