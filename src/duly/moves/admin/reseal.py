"""Resealing: seal with the first key of the keyring everything that is sealed with another, so that the others can be
dropped.

It reads the tables by blocks, so many at a time, and locks nothing between two statements: meanwhile runs are staged,
claimed and edited as usual. After an interruption it starts from the beginning, and finds what is left. A row that
moves meanwhile is found in the next round. A leased run stays as it is until it ends.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from duly.clock import Rng
from duly.domain.notifications.channel import about_channel
from duly.domain.targets.destination import about_secret
from duly.domain.tenancy.cells import about_cell
from duly.domain.tenancy.sealed_options import reseal_options
from duly.domain.tenancy.sealing import CannotOpen, Keyring
from duly.store.connection.database import Database
from duly.store.tables import notifications
from duly.store.tenancy import cells
from duly.store.tenancy import sealed as store
from duly.store.tenancy.sealed import SealedRow

BLOCKS = 64  # read by one statement
ROWS = 200  # written by one
_ROUNDS_MAX = 5
_PAUSE_SECONDS = 0.5


class Resealed(msgspec.Struct):
    """The number of rows resealed, and of those left that can still move, because a worker holds their runs or they do
    not open.

    `unopened` are those that do not open in the end, and `why` is the error of the first.
    """

    rows: int = 0
    left: int = 0
    unopened: int = 0
    why: str | None = None


async def reseal(database: Database, keyring: Keyring, rng: Rng) -> Resealed:
    """Reseal everything that is not sealed with the first key; values that do not open are left as they are."""
    done = Resealed()
    await _signing_secrets(database, keyring, rng, done)
    await _channels(database, keyring, rng, done)
    await _cells(database, keyring, rng, done)
    before = done.unopened
    for rounds_left in reversed(range(_ROUNDS_MAX)):
        done.unopened = before
        for table, column in store.MOVING:
            await _table(database, keyring, table, column, done)
        done.left = await store.left(database, keyring.key_id)
        if done.left <= done.unopened - before:
            break
        if rounds_left:
            await database.clock.sleep(_PAUSE_SECONDS)
    # Last, because runs that were active until now are here.
    for table, column in store.HISTORY:
        await _table(database, keyring, table, column, done)
    return done


async def _signing_secrets(database: Database, keyring: Keyring, rng: Rng, done: Resealed) -> None:
    after = store.FIRST
    while held := await store.signing_before(database, keyring.key_id, after, ROWS):
        for one in held:
            about = about_secret(one.tenant, one.destination_id, one.number)
            try:
                anew = keyring.seal(keyring.open(one.sealed, about), about, rng.secret)
            except CannotOpen as error:
                _leave(done, error)
                continue
            done.rows += await store.reseal_signing(database, one, anew)
        after = (held[-1].destination_id, held[-1].number)


async def _channels(database: Database, keyring: Keyring, rng: Rng, done: Resealed) -> None:
    after = (0, "")
    while held := await notifications.sealed_before(database, keyring.key_id, after, ROWS):
        for one in held:
            about = about_channel(one.tenant, one.name)
            try:
                anew = keyring.seal(keyring.open(one.sealed, about), about, rng.secret)
            except CannotOpen as error:
                _leave(done, error)
                continue
            done.rows += await notifications.reseal(database, one, anew)
        after = (held[-1].tenant, held[-1].name)


async def _cells(database: Database, keyring: Keyring, rng: Rng, done: Resealed) -> None:
    for name, sealed in await cells.sealed_before(database, keyring.key_id):
        try:
            anew = keyring.seal(keyring.open(sealed, about_cell(name)), about_cell(name), rng.secret)
        except CannotOpen as error:
            _leave(done, error)
            continue
        done.rows += await cells.reseal(database, name, sealed, anew)


async def _table(database: Database, keyring: Keyring, table: str, column: str, done: Resealed) -> None:
    for part, blocks in await store.blocks(database, table):
        for begin in range(0, blocks, BLOCKS):
            held = await store.before(database, part, column, keyring.key_id, begin, begin + BLOCKS)
            for first in range(0, len(held), ROWS):
                await _rows(database, keyring, part, column, held[first : first + ROWS], done)


async def _rows(
    database: Database, keyring: Keyring, part: str, column: str, held: Sequence[SealedRow], done: Resealed
) -> None:
    opened = list[SealedRow]()
    for one in held:
        try:
            reseal_options(one.options, one.tenant, keyring)
        except CannotOpen as error:
            _leave(done, error)
        else:
            opened.append(one)
    if opened:
        done.rows += await store.reseal(database, part, column, opened)


def _leave(done: Resealed, error: CannotOpen) -> None:
    done.unopened += 1
    done.why = done.why or str(error)
