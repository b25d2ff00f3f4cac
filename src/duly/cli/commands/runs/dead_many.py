"""Moving dead runs on: these, or those that a filter chooses, and saying what became of them."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol
from uuid import UUID

from duly.cli.client import connected
from duly.cli.failures import NOT_FOUND
from duly.cli.render.output import print_json
from duly.cli.render.say import say, say_over
from duly.cli.render.screen import some
from duly.client.asynchronous.client import AsyncClient
from duly.client.errors import NotFound
from duly.settings import Settings
from duly.wire.runs import BULK_LIMIT_MAX, BulkAnswer

Move = Callable[[AsyncClient, UUID], Awaitable[object]]


class BulkMove(Protocol):
    """A move of all that a filter chooses."""

    def __call__(self, client: AsyncClient, **chosen: Any) -> Awaitable[BulkAnswer]:
        """Move those that fit, up to a limit, from where an earlier one ended."""
        ...


def replay_runs(settings: Settings, run_ids: Sequence[UUID], *, as_json: bool) -> int:
    """Replay these runs and give the exit code."""
    return move_these(settings, run_ids, lambda client, run_id: client.dead.replay(run_id), "replayed", as_json=as_json)


def move_these(settings: Settings, run_ids: Sequence[UUID], move: Move, done: str, *, as_json: bool) -> int:
    """Move these runs and give the exit code."""
    return asyncio.run(_these(settings, run_ids, move, done, as_json))


def move_matching(
    settings: Settings, chosen: str, move: BulkMove, done: str, *, limit: int | None, dry_run: bool, as_json: bool
) -> None:
    """Move what fits, up to the limit or without one, and say how many; a dry run says which."""
    asyncio.run(_matching(settings, chosen, move, done, limit, dry_run, as_json))


async def _these(settings: Settings, run_ids: Sequence[UUID], move: Move, done: str, as_json: bool) -> int:
    async with connected(settings) as client:
        moved = {run_id for run_id in run_ids if await _is_moved(move(client, run_id))}
    if as_json:
        print_json([{"run_id": run_id, "answer": done if run_id in moved else "not_dead"} for run_id in run_ids])
    else:
        for run_id in run_ids:
            say(f"run {run_id}: {done if run_id in moved else 'not among the dead; `duly dead` lists them'}")
    return 0 if moved.issuperset(run_ids) else NOT_FOUND


async def _is_moved(moving: Awaitable[object]) -> bool:
    try:
        await moving
    except NotFound:
        return False
    return True


async def _matching(
    settings: Settings, chosen: str, move: BulkMove, done: str, limit: int | None, dry_run: bool, as_json: bool
) -> None:
    matched = moved = 0
    sample: Sequence[UUID] = []
    after: str | None = None
    which: dict[str, Any] = {"filter": chosen, "all": not chosen, "dry_run": dry_run}
    async with connected(settings) as client:
        while True:
            size = BULK_LIMIT_MAX if limit is None else min(limit - matched, BULK_LIMIT_MAX)
            found = await move(client, **which, limit=size, page_token=after)
            matched, moved, after = matched + found.matched, moved + found.moved, found.next_page_token
            sample = sample or found.sample
            if sys.stderr.isatty():
                say_over(f"{matched} found", nl=False)
            if after is None or (limit is not None and matched >= limit):
                break
    if as_json:
        told = {"matched": matched, "moved": moved, "dry_run": dry_run, "sample": sample, "more": after is not None}
        print_json(told)
        return
    for line in _told(matched, moved, sample, done, dry_run, more=after is not None):
        say(line)


def _told(matched: int, moved: int, sample: Sequence[UUID], done: str, dry_run: bool, *, more: bool) -> list[str]:
    rest = "; more fit than the limit, so ask again for the rest" if more else ""
    if not dry_run:
        return [f"{some(moved, 'run')} {done}{rest}"]
    shown: list[Any] = [f"  {run_id}" for run_id in sample]
    return [f"{some(matched, 'run')} would be {done}; nothing was changed{rest}", *shown]
