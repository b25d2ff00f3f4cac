"""Answers kept under idempotency keys, so that a request asked again is answered the same and not done again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from duly.store.connection.database import Database
from duly.store.connection.statements import load

SQL = load("tenancy/answers")


class KeptAnswer(msgspec.Struct, frozen=True):
    """An answer as it was given, and the hash of the request it was given to."""

    body_hash: bytes
    status: int
    headers: Mapping[str, str]
    body: bytes


class Held(msgspec.Struct, frozen=True):
    """What is known of a key: whether it is ours until the transaction ends, and what was answered under it before."""

    is_ours: bool
    answer: KeptAnswer | None


async def hold(session: Database, tenant: int, route: str, key: str) -> Held:
    """Take a key until the end of the transaction, if nobody has it at this moment, and read its answer."""
    row = await session.fetch_one(SQL["hold"], tenant, route, key)
    if row["body_hash"] is None:
        return Held(row["is_ours"], None)
    return Held(
        row["is_ours"],
        KeptAnswer(row["body_hash"], row["status"], msgspec.json.decode(row["headers"]), row["body"]),
    )


async def keep(session: Database, tenant: int, route: str, key: str, answer: KeptAnswer) -> bool:
    """Keep an answer for a day. False: another transaction was faster."""
    values: tuple[Any, ...] = (
        answer.body_hash,
        answer.status,
        msgspec.json.encode(dict(answer.headers)).decode(),
        answer.body,
    )
    return bool(await session.fetchval(SQL["keep"], tenant, route, key, *values))
