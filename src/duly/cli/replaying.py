"""Moving dead runs on: these, or those that a filter chooses, and saying what became of them."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol
from uuid import UUID

import click

from duly.cli.connect import opened
from duly.cli.failures import NOT_FOUND
from duly.cli.screen import some
from duly.domain.filter import Filter
from duly.domain.run import TENANT_DEFAULT
from duly.moves import dead, replay
from duly.moves.dead import Bulk
from duly.settings import Settings
from duly.store.database import Database
from duly.store.lists import DeadAt

Move = Callable[[Database, Sequence[UUID]], Awaitable[list[UUID]]]


class BulkMove(Protocol):
    """A move of all that a filter chooses."""

    def __call__(
        self, database: Database, tenant: int, chosen: Filter, *, limit: int, dry_run: bool, after: DeadAt | None
    ) -> Awaitable[Bulk]:
        """Move those that fit, up to a limit."""
        ...


def replay_runs(settings: Settings, run_ids: Sequence[UUID]) -> int:
    """Replay these runs and give the exit code."""
    return move_these(settings, run_ids, replay.replay, "replayed")


def move_these(settings: Settings, run_ids: Sequence[UUID], move: Move, done: str) -> int:
    """Move these runs and give the exit code."""
    return asyncio.run(_these(settings, run_ids, move, done))


def move_matching(
    settings: Settings, chosen: Filter, move: BulkMove, done: str, *, limit: int | None, dry_run: bool
) -> None:
    """Move what fits, up to the limit or without one, and say how many; a dry run says which."""
    asyncio.run(_matching(settings, chosen, move, done, limit, dry_run))


async def _these(settings: Settings, run_ids: Sequence[UUID], move: Move, done: str) -> int:
    async with opened(settings) as database:
        moved = set(await move(database, run_ids))
    for run_id in run_ids:
        click.echo(f"run {run_id}: {done if run_id in moved else 'not among the dead; `duly dead` lists them'}")
    return 0 if moved.issuperset(run_ids) else NOT_FOUND


async def _matching(
    settings: Settings, chosen: Filter, move: BulkMove, done: str, limit: int | None, dry_run: bool
) -> None:
    matched = moved = 0
    sample: list[UUID] = []
    after: DeadAt | None = None
    async with opened(settings) as database:
        while True:
            size = dead.LIMIT_MAX if limit is None else min(limit - matched, dead.LIMIT_MAX)
            found = await move(database, TENANT_DEFAULT, chosen, limit=size, dry_run=dry_run, after=after)
            matched, moved, after = matched + found.matched, moved + found.moved, found.after
            sample = sample or found.sample
            if sys.stderr.isatty():
                click.echo(f"\r{matched} found", err=True, nl=False)
            if after is None or (limit is not None and matched >= limit):
                break
    for line in _told(matched, moved, sample, done, dry_run, more=after is not None):
        click.echo(line)


def _told(matched: int, moved: int, sample: Sequence[UUID], done: str, dry_run: bool, *, more: bool) -> list[str]:
    rest = "; more fit than the limit, so ask again for the rest" if more else ""
    if not dry_run:
        return [f"{some(moved, 'run')} {done}{rest}"]
    shown: list[Any] = [f"  {run_id}" for run_id in sample]
    return [f"{some(matched, 'run')} would be {done}; nothing was changed{rest}", *shown]
