"""Dead letters in bulk: replay, discard or edit those that a filter chooses, up to a cap, in statements of bounded size.

They are taken in the order of their list, from a position on, and each is looked at once: what dies again meanwhile is buried
behind us, and left where it is. A dry run counts and shows a few, and changes nothing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from typing import Any
from uuid import UUID

import msgspec

from duly.domain import payload as payloads
from duly.domain.errors import InvalidOption
from duly.domain.filter import Filter
from duly.store import lists, runs
from duly.store.database import Database
from duly.store.lists import DeadAt

LIMIT_DEFAULT = 1_000
LIMIT_MAX = 10_000
_STATEMENT_MAX = 500  # runs moved by one statement
_LOOKS = 10_000
_SAMPLE_MAX = 10

Move = Callable[[Database, Sequence[UUID]], Awaitable[list[UUID]]]


class Bulk(msgspec.Struct, frozen=True):
    """What a filter chose, up to the cap, and how many of them were moved: none by a dry run, and not what others took first.

    `after` is where to go on when more than the cap fit; none: these were all.
    """

    matched: int
    moved: int
    sample: list[UUID]
    after: DeadAt | None


async def edit(database: Database, tenant: int, run_ids: Sequence[UUID], payload: Any) -> list[UUID]:
    """Give dead runs another payload, for their replay. Returns those that were dead. Raises InvalidPayload."""
    return await runs.edit_dead(database, tenant, run_ids, payloads.encode(payload, "the payload"))


async def replay_matching(
    database: Database,
    tenant: int,
    chosen: Filter,
    *,
    limit: int = LIMIT_DEFAULT,
    dry_run: bool = False,
    after: DeadAt | None = None,
) -> Bulk:
    """Give the dead runs that fit another set of attempts. Raises InvalidOption."""
    return await _move_matching(database, tenant, chosen, limit, after, None if dry_run else runs.replay)


async def discard_matching(
    database: Database,
    tenant: int,
    chosen: Filter,
    *,
    limit: int = LIMIT_DEFAULT,
    dry_run: bool = False,
    after: DeadAt | None = None,
) -> Bulk:
    """Give the dead runs that fit up for good, with a record. Raises InvalidOption."""
    return await _move_matching(database, tenant, chosen, limit, after, None if dry_run else runs.discard)


async def edit_matching(
    database: Database,
    tenant: int,
    chosen: Filter,
    payload: Any,
    *,
    limit: int = LIMIT_DEFAULT,
    dry_run: bool = False,
    after: DeadAt | None = None,
) -> Bulk:
    """Give the dead runs that fit another payload, the same for all. Raises InvalidOption, InvalidPayload."""
    text = payloads.encode(payload, "the payload")
    move = partial(_edit, tenant=tenant, payload=text)
    return await _move_matching(database, tenant, chosen, limit, after, None if dry_run else move)


async def _edit(database: Database, run_ids: Sequence[UUID], *, tenant: int, payload: str) -> list[UUID]:
    return await runs.edit_dead(database, tenant, run_ids, payload)


async def _move_matching(
    database: Database, tenant: int, chosen: Filter, limit: int, after: DeadAt | None, move: Move | None
) -> Bulk:
    _check_limit(limit)
    matched = moved = 0
    sample: list[UUID] = []
    last = after
    async for run_ids, last in _matching(database, tenant, chosen, limit, after):  # noqa: B007 - used behind the loop
        matched += len(run_ids)
        sample += run_ids[: _SAMPLE_MAX - len(sample)]
        moved += len(await move(database, run_ids)) if move and run_ids else 0
    return Bulk(matched, moved, sample, last and await _next(database, tenant, chosen, last))


async def _matching(
    database: Database, tenant: int, chosen: Filter, limit: int, after: DeadAt | None
) -> AsyncIterator[tuple[list[UUID], DeadAt | None]]:
    """Give what fits, up to the limit, batch by batch, each with the position behind it."""
    while limit > 0:
        page = await lists.dead(database, tenant, chosen, min(limit, _STATEMENT_MAX), after, _LOOKS)
        limit -= len(page.rows)
        after = page.after
        yield [row["run_id"] for row in page.rows], after
        if after is None:
            return


async def _next(database: Database, tenant: int, chosen: Filter, after: DeadAt) -> DeadAt | None:
    """Say where to go on: nowhere, when nothing behind a position fits."""
    at: DeadAt | None = after
    while at is not None:
        page = await lists.dead(database, tenant, chosen, 1, at, _LOOKS)
        if page.rows:
            return at
        at = page.after
    return None


def _check_limit(limit: int) -> None:
    if isinstance(limit, bool) or not 1 <= limit <= LIMIT_MAX:
        raise InvalidOption(f"limit {limit!r} is outside 1 to {LIMIT_MAX} runs a call; ask again for the rest")
