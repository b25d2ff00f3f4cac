"""Sealed values, in every table: found by the key that they are sealed with, and resealed with another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import msgspec

from duly.domain.diagnosis.doctor import UnopenedSecrets
from duly.domain.tenancy.sealing import Keyring, Sealed
from duly.store.connection.database import Database
from duly.store.connection.statements import load

SQL = load("tenancy/sealed")
OPTIONS, CALLBACKS = "options", "callbacks"
# Tables whose runs can still move, in the order in which they mostly do. A leased row is its holder's and never
# updated.
MOVING = (
    *(
        ("jobs", OPTIONS),
        ("workflows", CALLBACKS),
        ("workflow_nodes", OPTIONS),
        ("timers", OPTIONS),
        ("blocked", OPTIONS),
    ),
    *(("ready", OPTIONS), ("dead", OPTIONS)),
)
HISTORY = (("job_versions", OPTIONS), ("attempts", OPTIONS))
FIRST = (UUID(int=0), 0)
Tid = tuple[int, int]


class SealedRow(msgspec.Struct, frozen=True):
    """Options with sealed values, as in the row at a tid; a callback's under `callbacks`."""

    tid: Tid
    tenant: int
    text: str
    options: dict[str, Any]


class StoredSecret(msgspec.Struct, frozen=True):
    """A signing secret as stored."""

    destination_id: UUID
    number: int
    tenant: int
    sealed: Sealed


async def blocks(database: Database, table: str) -> list[tuple[str, int]]:
    """Return the parts of a table, and their sizes in blocks."""
    return [(row[0], row[1]) for row in await database.fetch(SQL["blocks"], table)]


async def before(
    database: Database, part: str, column: str, key_id: str, from_block: int, until_block: int
) -> list[SealedRow]:
    """Read the rows between two blocks with values sealed with another key than this one."""
    rows = await database.fetch(SQL["before"], part, column, key_id, from_block, until_block)
    read = [msgspec.json.decode(row[2]) for row in rows]
    return [
        SealedRow(row[0], row[1], row[2], {"callbacks": one} if column == CALLBACKS else one)
        for row, one in zip(rows, read, strict=True)
    ]


async def reseal(database: Database, part: str, column: str, held: Sequence[SealedRow]) -> int:
    """Store resealed options in their tid. Returns how many; the others have changed since."""
    tids: list[Any] = [one.tid for one in held]
    after = [
        msgspec.json.encode(one.options["callbacks"] if column == CALLBACKS else one.options).decode() for one in held
    ]
    return int(await database.fetchval(SQL["reseal"], part, column, tids, [one.text for one in held], after))


async def left(database: Database, key_id: str) -> int:
    """Count the values that can still move and are sealed with another key than this one."""
    return int(await database.fetchval(SQL["left"], key_id))


async def unopened(database: Database, keyring: Keyring | None, rows_max: int) -> UnopenedSecrets | None:
    """Return the sealed values whose key a keyring lacks; of jobs and runs so many rows are read. None: it has every key."""
    rows = [] if keyring is None else await database.fetch(SQL["unopened"], keyring.key_ids, rows_max)
    if keyring is None or not rows:
        return None
    counts = [sum(row[number] for row in rows) for number in (1, 2, 3)]
    return UnopenedSecrets(keyring.file, [row[0] for row in rows], *counts)


async def signing_before(database: Database, key_id: str, after: tuple[UUID, int], limit: int) -> list[StoredSecret]:
    """Read signing secrets after a position that are sealed with another key than this one."""
    rows = await database.fetch(SQL["signing_before"], key_id, *after, limit)
    return [StoredSecret(row[0], row[1], row[2], Sealed(row[4], row[3])) for row in rows]


async def reseal_signing(database: Database, held: StoredSecret, sealed: Sealed) -> bool:
    """Store a resealed signing secret. False: it no longer exists."""
    values = (held.destination_id, held.number, held.sealed.body, sealed.body, sealed.key_id)
    return bool(await database.fetchval(SQL["reseal_signing"], *values))
