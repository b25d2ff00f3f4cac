"""`duly jobs`: schedules, and one-shots by their id."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import click
import msgspec

from duly.cli.client import with_client
from duly.cli.commands.jobs import actions as job_verbs
from duly.cli.commands.jobs import backfills, versions
from duly.cli.commands.jobs import edit as job_edit
from duly.cli.commands.runs.runs import RUN_COLUMNS, print_run
from duly.cli.flags.filters import chosen, filter_option, first, limit_option, none_of
from duly.cli.flags.names import job_id_of
from duly.cli.lazy import ListingGroup
from duly.cli.render.job import fire_lines, is_one_shot, job_row, policies, target_text
from duly.cli.render.output import (
    Columns,
    Listing,
    Row,
    json_text,
    listing_options,
    moment,
    print_json,
    print_rows,
    show_list,
)
from duly.cli.render.say import say
from duly.client.asynchronous.client import AsyncClient
from duly.domain.jobs.declaration import REMOVED
from duly.domain.jobs.filter import JOB_STATES, JOBS
from duly.domain.jobs.spec import PolicySpec
from duly.domain.targets.target import FUNCTION
from duly.wire.jobs.jobs import Job, JobSummary
from duly.wire.pages import PAGE_SIZE_MAX
from duly.wire.runs import RunSummary

_RUNS_SHOWN = 10


def _state(job: Job | JobSummary) -> str:
    """Return the status of a job; one that is no longer declared is marked."""
    return f"{job.status}, {REMOVED}" if job.removed_at else job.status


COLUMNS: Columns = {
    "id": "job_id",
    "name": "name",
    "state": _state,
    "handler": "target.handler",
    "queue": "queue",
    "schedule": "description",
    "next": "next_run_at",
    "tags": "tags",
    "note": "pause_reason",
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
@with_client(options=listing_options)
async def list_jobs(
    client: AsyncClient,
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

    async def read() -> list[Row]:
        found = client.jobs.list(
            wanted or None,
            sort=None if sort == "created" else sort,
            include="one_shots" if one_shots else None,
            page_size=min(limit, PAGE_SIZE_MAX),
        )
        listed = await first(found, limit)
        return [job_row(job) for job in listed] if listing.as_json else listed

    await show_list(listing, read, COLUMNS, empty)


@jobs.command("show")
@click.argument("job", metavar="JOB")
@with_client()
async def show_job(client: AsyncClient, job: str, as_json: bool) -> None:
    """Show JOB, given by its id or its name: its schedule, its next fires and its last runs."""
    job_id = await job_id_of(client, job)
    found = await client.jobs.get(job_id)
    if is_one_shot(found):
        await print_run(client, job_id, as_json=as_json)
        return
    last = await first(client.runs.list(f"job_id:{job_id}", page_size=_RUNS_SHOWN), _RUNS_SHOWN)
    if as_json:
        print_json({**job_row(found), "runs": last})
    else:
        _print_job(found, last)


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
    versions.list_moved,
    versions.list_versions,
):
    jobs.add_command(_verb)


def _print_job(found: Job, last: Sequence[RunSummary]) -> None:
    name = f" {found.name!r}" if found.name else ""
    say(f"job {found.job_id}{name} is {found.status}")
    say(f"{found.description}: {target_text(found)} on queue {found.queue}, priority {found.priority}")
    if found.target.type != FUNCTION:
        say(f"target {_json(found.target)}")
    if said := policies(found):
        say(said)
    if found.tags:
        say(f"tags  {', '.join(found.tags)}")
    _print_callbacks(found)
    if found.source:
        say(f"declared in {found.source}: change it there")
    if found.removed_at:
        since = f"{found.removed_at:%Y-%m-%d %H:%M:%S}"
        say(f"{REMOVED} at {since} UTC: no worker declares it; cancel it, or declare it again")
    if found.pause_reason:
        at = f" at {moment(found.paused_at)}" if found.paused_at else ""
        say(f"paused{at}: {found.pause_reason}")
    for line in fire_lines(found):
        say(line)
    if found.status == "active" and found.next_run_at is None:
        say("next  after the run that is active has ended")
    say("   ".join([f"payload {json_text(found.payload or {})}", *_chosen(found)]))
    print_rows(last, RUN_COLUMNS, "no runs yet")


def _print_callbacks(found: Job) -> None:
    """Print the completion callbacks."""
    for word, callback in (("on_end", found.on_end), ("on_failure", found.on_failure)):
        if callback is not None:
            say(f"{word}  {callback.url or f'job {callback.job}'}")


def _chosen(found: Job) -> list[str]:
    """Write the chosen options of a job."""
    values = {name: getattr(found, name) for name in PolicySpec.__struct_fields__}
    return [f"{name} {value if isinstance(value, str) else _json(value)}" for name, value in values.items() if value]


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
