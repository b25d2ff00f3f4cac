"""`duly files`: which files of schedules were applied, by whom, and what was changed by hand since."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Protocol

import click
import msgspec

from duly.cli.connect import is_remote, opened
from duly.cli.desk import Row
from duly.cli.failures import REFUSED
from duly.cli.lazy import ListingGroup
from duly.cli.options import with_settings
from duly.cli.output import Listing, json_option, listing_options, print_rows, show_list
from duly.cli.plan_text import difference_text
from duly.client.asynchronous.client import AsyncClient
from duly.domain.errors import NotFound
from duly.domain.jobs.manifest_diff import Difference, drift
from duly.domain.jobs.manifest_shapes import JOBS_MAX
from duly.domain.runs.run import TENANT_DEFAULT
from duly.settings import Settings
from duly.store.connection.database import Database
from duly.store.tables import applied

_DEADLINE_SECONDS = 20.0
_FILES_MAX = 1_000
_PAGE = 200
_EMPTY = "no file was applied; write one and apply it: duly apply -f duly.yaml"
COLUMNS = {
    "file": lambda row: row["source"],
    "jobs": lambda row: row["jobs"],
    "changed since": lambda row: row["drifted"],
    "applied at": lambda row: row["applied_at"],
    "by": lambda row: row["applied_by"],
}
JOB_COLUMNS = {
    "name": lambda row: row["name"],
    "state": lambda row: row["status"],
    "drift": lambda row: row["drift"],
    "version": lambda row: f"{row['version']}, applied {row['applied_version']}",
    "changed at": lambda row: row["changed_at"],
    "what": lambda row: "; ".join(difference_text(one) for one in row["differences"]),
}


class FileDesk(Protocol):
    """What commands ask for."""

    async def list(self) -> Sequence[Row]:
        """List files."""
        ...

    async def jobs(self, source: str, *, drifted: bool) -> Sequence[Row]:
        """List the jobs of one. Raises NotFound."""
        ...


@click.group(cls=ListingGroup)
def files() -> None:
    """Show which files of schedules were applied, by whom, and what was changed since. Without a command: list."""


@files.command("list")
@listing_options
@with_settings("url")
def list_files(settings: Settings, listing: Listing) -> None:
    """List the files that were applied, and how many jobs of each were changed by hand since."""
    show_list(settings, listing, lambda desk: desk.list(), COLUMNS, _EMPTY, at_files)


@files.command("show")
@click.argument("source", metavar="FILE")
@click.option("--drifted", is_flag=True, help="Only those that were changed or ended by hand since.")
@click.option("--check", is_flag=True, help="Exit with 1 when one was.")
@json_option
@with_settings("url")
def show(settings: Settings, source: str, drifted: bool, check: bool, as_json: bool) -> int:
    """Show the jobs of a file, named by its `source`, and in what each is no longer as it was applied."""
    rows = asyncio.run(_jobs(settings, source, drifted=drifted))
    empty = "every job is as it was applied" if drifted else "no job of it is left"
    print_rows(rows, JOB_COLUMNS, empty, as_json=as_json)
    return REFUSED if check and any(row["drift"] for row in rows) else 0


async def _jobs(settings: Settings, source: str, *, drifted: bool) -> Sequence[Row]:
    async with at_files(settings) as desk:
        return await desk.jobs(source, drifted=drifted)


@asynccontextmanager
async def at_files(settings: Settings) -> AsyncIterator[FileDesk]:
    """Go to the desk that the settings name."""
    if is_remote(settings):
        async with AsyncClient(settings.url, settings.api_key, deadline=_DEADLINE_SECONDS) as client:
            yield HttpFiles(client)
    else:
        async with opened(settings) as database:
            yield DatabaseFiles(database)


class DatabaseFiles:
    """Asks the database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def list(self) -> Sequence[Row]:
        """List files."""
        found = await applied.files(self._database, TENANT_DEFAULT, "", _FILES_MAX)
        return [msgspec.structs.asdict(one) for one in found]

    async def jobs(self, source: str, *, drifted: bool) -> Sequence[Row]:
        """List the jobs of one. Raises NotFound."""
        if await applied.file(self._database, TENANT_DEFAULT, source) is None:
            raise NotFound(f"no file {source!r} was applied; `duly files` lists them")
        found = await applied.file_jobs(self._database, TENANT_DEFAULT, source, "", 2 * JOBS_MAX, drifted=drifted)
        return [_row(one) for one in found]


class HttpFiles:
    """Asks a Duly over HTTP."""

    def __init__(self, client: AsyncClient) -> None:
        self._asked = client.files

    async def list(self) -> Sequence[Row]:
        """List files."""
        return [msgspec.structs.asdict(one) async for one in self._asked.list(page_size=_PAGE)]

    async def jobs(self, source: str, *, drifted: bool) -> Sequence[Row]:
        """List the jobs of one. Raises NotFound."""
        pages = self._asked.jobs(source, drifted=drifted, page_size=_PAGE)
        return [{**msgspec.structs.asdict(one), "differences": _differences(one.differences)} async for one in pages]


def _differences(told: Sequence[Difference] | Sequence[msgspec.Struct]) -> list[Difference]:
    return [msgspec.convert(msgspec.to_builtins(one), Difference) for one in told]


def _row(one: applied.AppliedJob) -> Row:
    now = one.now
    return {
        "job_id": now.job_id,
        "name": now.name,
        "status": now.state,
        "pause_reason": now.pause_reason,
        "version": now.version,
        "applied_version": now.applied,
        "drift": one.drift,
        "differences": [] if one.was is None else list(drift(one.was, now)),
        "changed_at": one.changed_at,
    }
