"""Transactions of several statements: how one begins and ends, and how a part of it is undone.

Most moves are one statement. Whoever is frozen between two would hold its locks for as long as its connection is kept, which may
be for ever; so the same round trip that begins a transaction says for how long it may lie idle. The server ends what lies longer,
and undoes it. Nothing is set beyond the transaction, so it works through a pooler. In a caller's own transaction we set nothing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING

import asyncpg

if TYPE_CHECKING:
    from duly.store.connection.pool import Lent

IDLE_MAX = timedelta(seconds=10)  # between two statements: of ours, a thousandth of it is long


def begin(mode: str = "") -> str:
    """Give the statements that begin a transaction: without arguments, so they are one round trip."""
    return f"begin {mode}; set local idle_in_transaction_session_timeout = {round(IDLE_MAX.total_seconds() * 1000)}"


async def commit(connection: Lent) -> bool:
    """Commit. False: a statement had failed, and the server has rolled back; it says so with no error."""
    return await connection.execute("commit") == "COMMIT"


@asynccontextmanager
async def transaction(connection: Lent) -> AsyncIterator[None]:
    """Keep what is done in the block, or nothing of it when it raises.

    Who is interrupted leaves it open: then nobody knows what state the connection is in, and it is closed.
    """
    await connection.execute(begin("isolation level read committed"))
    try:
        yield
    except Exception:
        with suppress(Exception):  # Why it failed is told; a connection that is not rolled back is not kept.
            await connection.execute("rollback")
        raise
    if not await commit(connection):
        raise asyncpg.InFailedSQLTransactionError("a statement failed, so the transaction was rolled back")


@asynccontextmanager
async def savepoint(connection: Lent) -> AsyncIterator[None]:
    """Undo what was done in the block, and nothing before it, when it raises. One within another has the same name."""
    await connection.execute("savepoint duly")
    try:
        yield
    except Exception:
        if not connection.is_closed():
            await connection.execute("rollback to duly; release duly")
        raise
    await connection.execute("release duly")
