"""Moving dead runs on, some or all of them, and saying what became of each."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence
from uuid import UUID

import click

from duly.cli.connect import opened
from duly.cli.failures import NOT_FOUND
from duly.domain.run import TENANT_DEFAULT
from duly.moves import replay as moves
from duly.settings import Settings
from duly.store import runs
from duly.store.database import Database

_BATCH_MAX = 500
Move = Callable[[Database, Sequence[UUID]], Awaitable[list[UUID]]]


def replay_runs(settings: Settings, run_ids: Sequence[UUID]) -> int:
    """Replay these runs and give the exit code."""
    return asyncio.run(_these(settings, run_ids, moves.replay, "replayed"))


def discard_runs(settings: Settings, run_ids: Sequence[UUID]) -> int:
    """Discard these runs and give the exit code."""
    return asyncio.run(_these(settings, run_ids, moves.discard, "discarded"))


def replay_all(settings: Settings, queue: str | None) -> None:
    """Replay every dead run, or every one of a queue."""
    asyncio.run(_all(settings, queue, moves.replay, "replayed"))


def discard_all(settings: Settings, queue: str | None) -> None:
    """Discard every dead run, or every one of a queue."""
    asyncio.run(_all(settings, queue, moves.discard, "discarded"))


async def _these(settings: Settings, run_ids: Sequence[UUID], move: Move, done: str) -> int:
    async with opened(settings) as database:
        moved = set(await move(database, run_ids))
    for run_id in run_ids:
        click.echo(f"run {run_id}: {done if run_id in moved else 'not among the dead; `duly dead` lists them'}")
    return 0 if moved.issuperset(run_ids) else NOT_FOUND


async def _all(settings: Settings, queue: str | None, move: Move, done: str) -> None:
    """Move in batches the runs that are dead now; one that dies again meanwhile is left where it is."""
    moved: set[UUID] = set()
    async with opened(settings) as database:
        while True:
            page = await runs.page_dead(database, TENANT_DEFAULT, queue, _BATCH_MAX)
            fresh = [row["run_id"] for row in page if row["run_id"] not in moved]
            if not fresh:
                break
            moved.update(await move(database, fresh))
            if sys.stderr.isatty():
                click.echo(f"\r{len(moved)} {done}", err=True, nl=False)
    click.echo(f"{len(moved)} runs {done}")
