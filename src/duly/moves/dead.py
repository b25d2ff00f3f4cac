"""Dead letters: replay, discard or edit named runs, or all that a filter matches.

With a filter they are moved up to a cap, in statements of bounded size. They are taken in the order of their list, from
a position on, and each is visited once: a run that dies again meanwhile is buried behind the position, and left there.
A dry run counts and shows a few, and changes nothing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import timedelta
from math import inf
from typing import Any, TypedDict, Unpack
from uuid import UUID

import msgspec

from duly.domain.errors import InvalidOption
from duly.domain.jobs.filter import Filter
from duly.domain.jobs.unmasked import unmasked_payload
from duly.domain.redaction import has_mark
from duly.domain.runs import payload as payloads
from duly.domain.runs.options import NO_OPTIONS
from duly.domain.tenancy.audit import Action, Subject
from duly.moves.admin.audit import audited, record, record_runs
from duly.store.boxes import runs
from duly.store.connection.database import Database
from duly.store.reads import lists, overview
from duly.store.reads.lists import DeadAt

LIMIT_DEFAULT = 1_000
LIMIT_MAX = 10_000
_STATEMENT_MAX = 500  # runs moved by one statement
_COUNTED = 2_000  # a page of a count
_COUNT_SECONDS = 5.0  # after this a dry run reports how far it came
_LOOKS = 10_000
_SAMPLE_MAX = 10

RATE_MAX = 100_000.0

Move = Callable[[Database, Sequence[UUID], int], Awaitable[list[UUID]]]
"""A batch of the operation, after so many were taken before."""


class Bulk(msgspec.Struct, frozen=True):
    """The result: how many a filter matched, up to the cap, and how many were moved: none by a dry run, nor those that
    others took first.

    `after` is where to go on when more than the cap match; None: these were all. `is_partial`: the time was over before
    all were counted.
    """

    matched: int
    moved: int
    sample: list[UUID]
    after: DeadAt | None
    is_partial: bool = False


@audited
async def replay(
    database: Database, run_ids: Sequence[UUID], *, rate: float | None = None, first: int = 0
) -> list[UUID]:
    """Replay dead runs with a new set of attempts, at once or so many a second, when `first` went before them.

    They keep their ids, and attempt numbers go on. Returns those that were dead.
    """
    delays = [timedelta(seconds=(first + number) / rate if rate else 0) for number in range(len(run_ids))]
    replayed = await runs.replay(database, run_ids, delays)
    await record_runs(database, Action.DEAD_REPLAYED, replayed)
    return replayed


@audited
async def discard(database: Database, run_ids: Sequence[UUID]) -> list[UUID]:
    """Discard dead runs for good, with a record. Returns those that were dead."""
    discarded = await runs.discard(database, run_ids)
    await record_runs(database, Action.DEAD_DISCARDED, discarded)
    return discarded


@audited
async def edit(database: Database, tenant: int, run_ids: Sequence[UUID], payload: Any) -> list[UUID]:
    """Change the payload of dead runs, for their replay; of a single one, `*** (rule)` stands for the stored value.

    Returns those that were dead. Raises InvalidPayload.
    """
    text = payloads.encode(payload, "the payload")
    if has_mark(text):
        text = await _unmasked(database, run_ids, text)
    edited = await runs.edit_dead(database, tenant, run_ids, text)
    await record_runs(database, Action.DEAD_EDITED, edited)
    return edited


async def _unmasked(database: Database, run_ids: Sequence[UUID], text: str) -> str:
    """Return a payload with stored values in the place of marks, which for several runs stand for nothing."""
    for run_id in run_ids:
        carried = await overview.arguments(database, run_id)
        stored = carried.get("payload") if len(run_ids) == 1 else None
        text = unmasked_payload(text, stored, carried.get("options", NO_OPTIONS).rules(carried.get("redact_above")))
    return text


class BulkOptions(TypedDict, total=False):
    """Options of all bulk moves: a limit, a position to go on from, and whether the runs are only counted."""

    limit: int | None
    dry_run: bool
    after: DeadAt | None


async def replay_matching(
    database: Database, tenant: int, chosen: Filter, *, rate: float | None = None, **options: Unpack[BulkOptions]
) -> Bulk:
    """Replay the dead runs that match, at once or so many a second. Raises InvalidOption."""
    check_rate(rate)
    return await _move_audited(
        database,
        tenant,
        Action.DEAD_REPLAYED,
        chosen,
        lambda inside, ids, passed: replay(inside, ids, rate=rate, first=passed),
        rate=rate,
        **options,
    )


async def discard_matching(database: Database, tenant: int, chosen: Filter, **options: Unpack[BulkOptions]) -> Bulk:
    """Discard the dead runs that match, with a record. Raises InvalidOption."""
    action = Action.DEAD_DISCARDED
    return await _move_audited(
        database, tenant, action, chosen, lambda inside, ids, _: runs.discard(inside, ids), **options
    )


async def edit_matching(
    database: Database, tenant: int, chosen: Filter, payload: Any, **options: Unpack[BulkOptions]
) -> Bulk:
    """Change the payload of the dead runs that match, the same for all. Raises InvalidOption, InvalidPayload."""
    text, action = payloads.encode(payload, "the payload"), Action.DEAD_EDITED
    return await _move_audited(
        database, tenant, action, chosen, lambda inside, ids, _: runs.edit_dead(inside, tenant, ids, text), **options
    )


@audited
async def _move_audited(
    database: Database,
    tenant: int,
    action: Action,
    chosen: Filter,
    move: Move,
    *,
    rate: float | None = None,
    limit: int | None = None,
    dry_run: bool = False,
    after: DeadAt | None = None,
) -> Bulk:
    done = await _move_matching(database, tenant, chosen, limit, after, None if dry_run else move)
    reported = {name: value for name, value in msgspec.to_builtins(chosen).items() if value}
    await record(database, tenant, action, Subject("run"), done.moved, filter=reported or None, rate=rate)
    return done


async def _move_matching(
    database: Database, tenant: int, chosen: Filter, limit: int | None, after: DeadAt | None, move: Move | None
) -> Bulk:
    """Move the matches, up to the limit; without a move they are counted, all of them where there is no limit."""
    most = inf if limit is None and move is None else _check_limit(LIMIT_DEFAULT if limit is None else limit)
    database = database.acting_as(None)  # all of them are recorded once
    matched = moved = 0
    sample: list[UUID] = []
    last, before = after, 0 if after is None else after.passed
    ends_at = database.clock.monotonic() + _COUNT_SECONDS
    async for run_ids, last in _matching(database, tenant, chosen, most, after, _STATEMENT_MAX if move else _COUNTED):
        sample += run_ids[: _SAMPLE_MAX - len(sample)]
        moved += len(await move(database, run_ids, before + matched)) if move and run_ids else 0
        matched += len(run_ids)
        if move is None and last is not None and database.clock.monotonic() >= ends_at:
            passed = msgspec.structs.replace(last, passed=before + matched)
            return Bulk(matched, moved, sample, passed, is_partial=True)
    following = last and await _next(database, tenant, chosen, last)
    return Bulk(matched, moved, sample, following and msgspec.structs.replace(following, passed=before + matched))


async def _matching(
    database: Database, tenant: int, chosen: Filter, limit: float, after: DeadAt | None, size: int
) -> AsyncIterator[tuple[list[UUID], DeadAt | None]]:
    """Return the matches, up to the limit, page by page, each with the position after it."""
    while limit > 0:
        page = await lists.dead(database, tenant, chosen, int(min(limit, size)), after, _LOOKS)
        limit -= len(page.rows)
        after = page.after
        yield [row["run_id"] for row in page.rows], after
        if after is None:
            return


async def _next(database: Database, tenant: int, chosen: Filter, after: DeadAt) -> DeadAt | None:
    """Return where to go on: None, when nothing after a position matches."""
    at: DeadAt | None = after
    while at is not None:
        page = await lists.dead(database, tenant, chosen, 1, at, _LOOKS)
        if page.rows:
            return at
        at = page.after
    return None


def check_rate(rate: float | None) -> float | None:
    """Check how many runs a second are to be due. Raises InvalidOption."""
    if rate is not None and not 0 < rate <= RATE_MAX:
        raise InvalidOption(
            f"rate {rate:g} is not above 0 and up to {RATE_MAX:,.0f} runs a second; leave it out for all at once"
        )
    return rate


def _check_limit(limit: int) -> int:
    if isinstance(limit, bool) or not 1 <= limit <= LIMIT_MAX:
        raise InvalidOption(f"limit {limit!r} is outside 1 to {LIMIT_MAX} runs a call; ask again for the rest")
    return limit
