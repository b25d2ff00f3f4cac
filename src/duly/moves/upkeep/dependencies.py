"""Follow: let runs go whose jobs before them had ended when they were submitted, and see to what no end could see to."""

from __future__ import annotations

from duly.store.connection.database import Database
from duly.store.tables import dependencies

BATCH_MAX = 100


async def check_followers(database: Database) -> int:
    """Look at those that are due to be looked at, each batch in a transaction of its own. Returns how many."""
    looked = total = await dependencies.check(database, BATCH_MAX)
    while looked == BATCH_MAX:
        total += (looked := await dependencies.check(database, BATCH_MAX))
    return total
