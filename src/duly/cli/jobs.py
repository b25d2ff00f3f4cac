"""`duly jobs`: schedules, and one-shots by their id."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import click
import msgspec

from duly.cli.connect import opened
from duly.cli.fires import fire_lines, sentence
from duly.cli.lazy import ListingGroup
from duly.cli.options import with_settings
from duly.cli.output import Listing, Row, json_option, listing_options, plain, print_json, print_rows, show_list
from duly.cli.runs import RUN_COLUMNS, print_run
from duly.domain.declaration import REMOVED
from duly.domain.errors import NotFound
from duly.domain.run import TENANT_DEFAULT
from duly.domain.triggers.timing import schedule_of
from duly.moves.cancel import cancel_job
from duly.settings import Settings
from duly.store import jobs as store
from duly.store import overview, runs
from duly.store.database import Database

_RUNS_SHOWN = 10


def _sentence(row: Row) -> str:
    """Say when a job fires; calendars do not change the words."""
    stored = None if row["schedule"] is None else msgspec.json.decode(row["schedule"])
    plain_shape = None if stored is None else msgspec.json.encode({**stored, "calendars": None}).decode()
    return sentence(schedule_of(plain_shape, row["every_seconds"], row["anchor_at"], {}))


def _state(row: Row) -> str:
    """Say how a job stands; what is no longer declared is marked, because nobody took leave of it."""
    return f"{row['state']}, {REMOVED}" if row["removed_at"] else str(row["state"])


COLUMNS = {
    "id": lambda row: row["job_id"],
    "name": lambda row: row["name"],
    "state": _state,
    "handler": lambda row: row["handler"],
    "queue": lambda row: row["queue"],
    "schedule": _sentence,
    "next": lambda row: row["next_run_at"],
}


@click.group(cls=ListingGroup)
def jobs() -> None:
    """List, show and cancel schedules; a one-shot is found by its id. Without a command: list."""


@jobs.command("list")
@click.option("--state", type=click.Choice(["active", "paused", "completed", "cancelled"]))
@click.option("--limit", default=50, show_default=True, type=click.IntRange(1, 1000))
@listing_options
@with_settings()
def list_jobs(settings: Settings, listing: Listing, state: str | None, limit: int) -> None:
    """List schedules, the newest first."""

    async def read(database: Database) -> Sequence[Row]:
        return await store.page(database, TENANT_DEFAULT, None, state, limit)

    empty = "no schedules yet; make one: duly submit HANDLER --every PT1M --name NAME"
    show_list(settings, listing, read, COLUMNS, empty)


@jobs.command("show")
@click.argument("job", metavar="JOB")
@json_option
@with_settings()
def show_job(settings: Settings, job: str, as_json: bool) -> None:
    """Show JOB, given by its id or its name: its schedule, its next fires and its last runs."""
    asyncio.run(_show(settings, job, as_json))


@jobs.command("cancel")
@click.argument("job", metavar="JOB")
@with_settings()
def cancel(settings: Settings, job: str) -> None:
    """Cancel JOB, given by its id or its name, and its runs that have not started."""
    asyncio.run(_cancel(settings, job))


async def _cancel(settings: Settings, job: str) -> None:
    async with opened(settings) as database:
        job_id = await find_id(database, job)
        click.echo(f"job {job_id}: {(await cancel_job(database, job_id)).replace('_', ' ')}")


async def _show(settings: Settings, job: str, as_json: bool) -> None:
    async with opened(settings) as database:
        job_id = await find_id(database, job)
        found = await store.find(database, job_id)
        if found is None:
            await print_run(database, job_id, as_json=as_json)
            return
        last = await runs.page(database, TENANT_DEFAULT, None, job_id, _RUNS_SHOWN)
        fires = fire_lines(await store.schedule_of_job(database, found), found)
    if as_json:
        print_json({**plain(found), "runs": last})
    else:
        _print_job(found, fires, last)


def _print_job(found: dict[str, Any], fires: Sequence[str], last: Sequence[Row]) -> None:
    name = f" {found['name']!r}" if found["name"] else ""
    click.echo(f"job {found['job_id']}{name} is {found['state']}")
    click.echo(f"{_sentence(found)}: {found['handler']} on queue {found['queue']}, priority {found['priority']}")
    if found["source"]:
        click.echo(f"declared in {found['source']}: change it there")
    if found["removed_at"]:
        click.echo(
            f"{REMOVED} at {found['removed_at']:%Y-%m-%d %H:%M:%S} UTC: no worker declares it; cancel it, or declare it again"
        )
    if found["pause_reason"]:
        click.echo(f"paused at {found['paused_at']:%Y-%m-%d %H:%M:%S} UTC: {found['pause_reason']}")
    for line in fires:
        click.echo(line)
    click.echo(f"payload {found['payload'] or '{}'}" + (f"   options {found['options']}" if found["options"] else ""))
    print_rows(last, RUN_COLUMNS, "no runs yet")


async def find_id(database: Database, job: str) -> UUID:
    """Read a job's id, or look its name up. Raises NotFound."""
    try:
        return UUID(job)
    except ValueError:
        found = await overview.job_by_name(database, job)
    if found is None:
        raise NotFound(f"no schedule is named {job!r}; `duly jobs` lists them, and those that are over by their id")
    return found.job_id
