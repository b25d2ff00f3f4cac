"""Transactions of several statements: how one begins and ends, and how a part of it is undone.

Most moves are one statement. A process frozen between two would hold its locks for as long as its connection lives,
which may be for ever; so the round trip that begins a transaction also limits its idle time. The server ends a longer
one, and undoes it. Nothing is set beyond the transaction, so it works through a pooler. In a caller's own transaction
we set nothing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING

import asyncpg

if TYPE_CHECKING:
    from duly.store.connection.pool import Lent

IDLE_MAX = timedelta(seconds=10)  # between two statements; ours take a thousandth of it


def begin(mode: str = "") -> str:
    """Return the statements that begin a transaction: without arguments, so they are one round trip."""
    return f"begin {mode}; set local idle_in_transaction_session_timeout = {round(IDLE_MAX.total_seconds() * 1000)}"


async def commit(connection: Lent) -> bool:
    """Commit. False: a statement had failed, and the server rolled back; it reports no error."""
    return await connection.execute("commit") == "COMMIT"


@asynccontextmanager
async def transaction(connection: Lent) -> AsyncIterator[None]:
    """Commit the block, or roll it back when it raises.

    An interrupted block leaves the transaction open: the connection's state is then unknown, and it is closed.
    """
    await connection.execute(begin("isolation level read committed"))
    try:
        yield
    except Exception:
        with suppress(Exception):  # the original error is raised; a connection that is not rolled back is not kept
            await connection.execute("rollback")
        raise
    if not await commit(connection):
        raise asyncpg.InFailedSQLTransactionError("a statement failed, so the transaction was rolled back")


@asynccontextmanager
async def savepoint(connection: Lent) -> AsyncIterator[None]:
    """Undo only the block when it raises. Nested savepoints have the same name."""
    await connection.execute("savepoint duly")
    try:
        yield
    except Exception:
        if not connection.is_closed():
            await connection.execute("rollback to duly; release duly")
        raise
    await connection.execute("release duly")
