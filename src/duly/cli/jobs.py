"""`duly jobs`: schedules, and one-shots by their id."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Literal

import click
import msgspec

from duly.cli import backfills, job_edit, job_verbs, moved, versions
from duly.cli.desk import JobSeen, at_desk
from duly.cli.lazy import ListingGroup
from duly.cli.options import with_settings
from duly.cli.output import Listing, Row, json_option, listing_options, moment, plain, print_json, print_rows, show_list
from duly.cli.paging import chosen, filter_option, limit_option, none_of
from duly.cli.runs import RUN_COLUMNS, print_run
from duly.cli.say import say
from duly.cli.target_rows import what_runs
from duly.domain.jobs.declaration import REMOVED
from duly.domain.jobs.filter import JOB_STATES, JOBS
from duly.domain.targets.target import FUNCTION
from duly.domain.triggers.schedule.summary import sentence
from duly.domain.triggers.schedule.timing import schedule_of
from duly.settings import Settings

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
    "schedule": lambda row: row["description"] if "description" in row else _sentence(row),
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
@click.option(
    "--sort",
    type=click.Choice(["created", "name", "next_run_at"]),
    default="created",
    show_default=True,
    help="The newest first, by name, or the next to fire first; those without one are left out then.",
)
@click.option("--one-shots", is_flag=True, help="Also one-shots without a name, each by the moment it is for.")
@filter_option
@limit_option
@listing_options
@with_settings("url")
def list_jobs(
    settings: Settings,
    listing: Listing,
    state: str | None,
    queue: str | None,
    tag: str | None,
    sort: Literal["created", "name", "next_run_at"],
    one_shots: bool,
    filter_text: str,
    limit: int,
) -> None:
    """List schedules, the newest first, by name or by next fire."""
    if one_shots and sort != "created":
        raise click.UsageError(f"--one-shots does not go with --sort {sort}; leave one of them out")
    wanted = chosen(filter_text, JOBS, state=state, queue=queue, tag=tag)

    hint = 'no schedules yet; make one: duly submit HANDLER --when "every day at 9am" --name NAME'
    empty = none_of("schedules", wanted, hint)
    show_list(
        settings, listing, lambda desk: desk.jobs(wanted, limit, sort, one_shots=one_shots), COLUMNS, empty, at_desk
    )


@jobs.command("show")
@click.argument("job", metavar="JOB")
@json_option
@with_settings("url")
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
    job_verbs.delete,
    backfills.backfill_job,
    backfills.list_backfills,
    backfills.cancel,
    moved.list_moved,
    versions.list_versions,
):
    jobs.add_command(_verb)


async def _show(settings: Settings, job: str, as_json: bool) -> None:
    async with at_desk(settings) as desk:
        job_id = await desk.job_id(job)
        seen = await desk.job(job_id)
        if seen is None:
            await print_run(desk, job_id, as_json=as_json)
            return
        last = await desk.runs(f"job_id:{job_id}", _RUNS_SHOWN)
    if as_json:
        told = {"description": seen.description, "next_fires": seen.next_fires}
        print_json({**plain(seen.row), **told, "runs": [plain(run) for run in last]})
    else:
        _print_job(seen, last)


def _print_told(found: Row) -> None:
    """Say who is told of its runs' ends."""
    for word in ("on_done", "on_dead"):
        if found[word]:
            say(f"{word}  {found[word].get('url') or 'job ' + found[word]['job']}")


def _print_job(seen: JobSeen, last: Sequence[Row]) -> None:
    found = seen.row
    name = f" {found['name']!r}" if found["name"] else ""
    say(f"job {found['job_id']}{name} is {found['state']}")
    say(f"{seen.description}: {what_runs(found)} on queue {found['queue']}, priority {found['priority']}")
    if found["target"]["type"] != FUNCTION:
        say(f"target {msgspec.json.encode(found['target']).decode()}")
    if seen.policies:
        say(seen.policies)
    if found["tags"]:
        say(f"tags  {', '.join(found['tags'])}")
    _print_told(found)
    if found["source"]:
        say(f"declared in {found['source']}: change it there")
    if found["removed_at"]:
        say(
            f"{REMOVED} at {found['removed_at']:%Y-%m-%d %H:%M:%S} UTC: no worker declares it; cancel it, or declare it again"
        )
    if found["pause_reason"]:
        since = f" at {moment(found['paused_at'])}" if found["paused_at"] else ""
        say(f"paused{since}: {found['pause_reason']}")
    for line in seen.fires:
        say(line)
    if found["state"] == "active" and found["next_run_at"] is None:
        say("next  after the run that is active has ended")
    say(f"payload {found['payload'] or '{}'}" + (f"   options {found['options']}" if found["options"] else ""))
    print_rows(last, RUN_COLUMNS, "no runs yet")
