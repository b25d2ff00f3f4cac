"""`duly jobs`: schedules, and one-shots by their id."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

import click
import msgspec

from duly.cli import backfills, job_edit, job_verbs
from duly.cli.connect import opened
from duly.cli.fires import fire_lines
from duly.cli.lazy import ListingGroup
from duly.cli.options import with_settings
from duly.cli.output import Listing, Row, json_option, listing_options, moment, plain, print_json, print_rows, show_list
from duly.cli.paging import chosen, filter_option, gather, limit_option
from duly.cli.policies import policy_line
from duly.cli.runs import RUN_COLUMNS, print_run
from duly.domain.declaration import REMOVED
from duly.domain.filter import JOB_STATES, JOBS, Filter
from duly.domain.run import TENANT_DEFAULT, read_options
from duly.domain.triggers.schedules import Schedule
from duly.domain.triggers.summary import sentence
from duly.domain.triggers.timing import schedule_of
from duly.moves.schedule import find_job_id
from duly.settings import Settings
from duly.store import jobs as store
from duly.store import lists
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
    "tags": lambda row: row["tags"],
    "note": lambda row: row["pause_reason"],
}


@click.group(cls=ListingGroup)
def jobs() -> None:
    """List, show, pause, change and run schedules; a one-shot is found by its id. Without a command: list."""


@jobs.command("list")
@click.option("--state", type=click.Choice(JOB_STATES))
@click.option("--queue", help="Only those of this queue.")
@click.option("--tag", help="Only those with this tag.")
@filter_option
@limit_option
@listing_options
@with_settings()
def list_jobs(
    settings: Settings,
    listing: Listing,
    state: str | None,
    queue: str | None,
    tag: str | None,
    filter_text: str,
    limit: int,
) -> None:
    """List schedules, the newest first."""
    wanted = chosen(filter_text, JOBS, state=state, queue=queue, tag=tag)

    async def read(database: Database) -> Sequence[Row]:
        return await gather(partial(lists.jobs, database, TENANT_DEFAULT, wanted), limit)

    empty = 'no schedules yet; make one: duly submit HANDLER --when "every day at 9am" --name NAME'
    show_list(settings, listing, read, COLUMNS, empty)


@jobs.command("show")
@click.argument("job", metavar="JOB")
@json_option
@with_settings()
def show_job(settings: Settings, job: str, as_json: bool) -> None:
    """Show JOB, given by its id or its name: its schedule, its next fires and its last runs."""
    asyncio.run(_show(settings, job, as_json))


for _verb in (
    job_verbs.pause_job,
    job_verbs.resume_job,
    job_verbs.skip_next_of_job,
    job_verbs.trigger_job,
    job_edit.edit_job,
    job_verbs.cancel,
    backfills.backfill_job,
    backfills.list_backfills,
    backfills.cancel,
):
    jobs.add_command(_verb)


async def _show(settings: Settings, job: str, as_json: bool) -> None:
    async with opened(settings) as database:
        job_id = await find_job_id(database, job)
        found = await store.find(database, job_id)
        if found is None:
            await print_run(database, job_id, as_json=as_json)
            return
        of_job = Filter().only("job_id", str(job_id))
        last = (await lists.runs(database, found["tenant"], of_job, _RUNS_SHOWN)).rows
        schedule = await store.schedule_of_job(database, found)
    if as_json:
        print_json({**plain(found), "description": sentence(schedule), "runs": [plain(run) for run in last]})
    else:
        _print_job(found, schedule, last)


def _print_job(found: dict[str, Any], schedule: Schedule, last: Sequence[Row]) -> None:
    name = f" {found['name']!r}" if found["name"] else ""
    click.echo(f"job {found['job_id']}{name} is {found['state']}")
    click.echo(f"{sentence(schedule)}: {found['handler']} on queue {found['queue']}, priority {found['priority']}")
    if policies := policy_line(schedule, found):
        click.echo(policies)
    if tags := read_options(found["options"], None).tags:
        click.echo(f"tags  {', '.join(tags)}")
    if found["source"]:
        click.echo(f"declared in {found['source']}: change it there")
    if found["removed_at"]:
        click.echo(
            f"{REMOVED} at {found['removed_at']:%Y-%m-%d %H:%M:%S} UTC: no worker declares it; cancel it, or declare it again"
        )
    if found["pause_reason"]:
        click.echo(f"paused at {moment(found['paused_at'])}: {found['pause_reason']}")
    for line in fire_lines(schedule, found):
        click.echo(line)
    if found["state"] == "active" and found["next_run_at"] is None:
        click.echo("next  after the run that is active has ended")
    click.echo(f"payload {found['payload'] or '{}'}" + (f"   options {found['options']}" if found["options"] else ""))
    print_rows(last, RUN_COLUMNS, "no runs yet")
