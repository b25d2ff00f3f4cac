"""Reseal: seal with the first key of the keyring all that is sealed with another, so that the others can be dropped.

It goes through the tables by blocks, so many at a time, and holds nothing between two statements: beside it runs are staged,
claimed and edited as ever, and stopped at any place it is begun again from the start, which finds what is left. A row that moves
meanwhile is found in the next round. A run in a worker's hands stays as it is until it ends.
"""

from __future__ import annotations

import msgspec

from duly.clock import Rng
from duly.domain.destination import about_secret
from duly.domain.sealed_options import reseal_options
from duly.domain.sealing import Keyring
from duly.store import sealed as store
from duly.store.database import Database
from duly.store.sealed import Held

BLOCKS = 64  # read by one statement
ROWS = 200  # written by one
_ROUNDS_MAX = 5
_PAUSE_SECONDS = 0.5


class Resealed(msgspec.Struct, frozen=True):
    """How many rows were sealed anew, and how many could not be yet, because a worker holds their runs."""

    rows: int
    left: int


async def reseal(database: Database, keyring: Keyring, rng: Rng) -> Resealed:
    """Seal all anew that is not sealed with the first key. Raises CannotOpen when the key of something is missing."""
    rows, left = await _signing_secrets(database, keyring, rng), 0
    for again in reversed(range(_ROUNDS_MAX)):
        for table, column in store.MOVING:
            rows += await _table(database, keyring, table, column)
        left = await store.left(database, keyring.key_id)
        if not left:
            break
        if again:
            await database.clock.sleep(_PAUSE_SECONDS)
    # Last, because what was under way until now is here.
    for table, column in store.HISTORY:
        rows += await _table(database, keyring, table, column)
    return Resealed(rows, left)


async def _signing_secrets(database: Database, keyring: Keyring, rng: Rng) -> int:
    rows = 0
    while held := await store.signing_before(database, keyring.key_id, ROWS):
        for one in held:
            about = about_secret(one.tenant, one.destination_id, one.number)
            anew = keyring.seal(keyring.open(one.sealed, about), about, rng.secret)
            rows += await store.reseal_signing(database, one, anew)
    return rows


async def _table(database: Database, keyring: Keyring, table: str, column: str) -> int:
    rows = 0
    for part, blocks in await store.blocks(database, table):
        for begin in range(0, blocks, BLOCKS):
            held = await store.before(database, part, column, keyring.key_id, begin, begin + BLOCKS)
            for first in range(0, len(held), ROWS):
                some = held[first : first + ROWS]
                anew = [_resealed(one, column, keyring) for one in some]
                rows += await store.reseal(database, part, column, some, anew)
    return rows


def _resealed(held: Held, column: str, keyring: Keyring) -> str:
    read = msgspec.json.decode(held.options)
    reseal_options({"then": read} if column == store.THEN else read, held.tenant, keyring)
    return msgspec.json.encode(read).decode()
