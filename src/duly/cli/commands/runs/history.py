"""`duly history`: runs that have ended, also those that only the archive has."""

from __future__ import annotations

from collections.abc import Sequence

import click

from duly.cli.client import with_client
from duly.cli.commands.runs.runs import RUN_COLUMNS
from duly.cli.flags.arguments import read_moment
from duly.cli.flags.filters import chosen, filter_option, first, limit_option, none_of
from duly.cli.flags.names import job_id_of
from duly.cli.render.output import Columns, Listing, listing_options, show_list
from duly.client.asynchronous.client import AsyncClient
from duly.domain.errors import InvalidOption
from duly.domain.jobs.filter import RUNS
from duly.domain.runs.run import FINAL_STATES
from duly.wire.pages import PAGE_SIZE_MAX
from duly.wire.runs import RunSummary

_EVER = "0001-01-02"
COLUMNS: Columns = {
    **{name: RUN_COLUMNS[name] for name in ("id", "state", "handler", "queue")},
    "job": lambda run: run.job_name,
    "ended": "finished_at",
    "from": lambda run: "archive" if run.is_archived else "database",
    "reason": RUN_COLUMNS["reason"],
}


@click.command
@click.option("--since", metavar="MOMENT", default=_EVER, help="That ended from this time on; default: ever.")
@click.option("--until", metavar="MOMENT", help="That ended before this time.")
@click.option("--state", type=click.Choice(FINAL_STATES))
@click.option("--job", metavar="JOB", help="Only the runs of this job, given by its id or its name.")
@filter_option
@limit_option
@with_client(options=listing_options)
async def history(
    client: AsyncClient,
    listing: Listing,
    since: str,
    until: str | None,
    state: str | None,
    job: str | None,
    filter_text: str,
    limit: int,
) -> None:
    """Show runs that have ended, the last scheduled first: those in the database, and those in the archive alone."""
    wanted = _between(chosen(filter_text, RUNS, state=state), since, until)

    async def read() -> Sequence[RunSummary]:
        of_job = wanted if job is None else chosen(wanted, RUNS, job_id=str(await job_id_of(client, job)))
        return await first(client.runs.list(of_job, page_size=min(limit, PAGE_SIZE_MAX)), limit)

    is_all = wanted == _between("", _EVER, None)
    await show_list(listing, read, COLUMNS, none_of("runs", "" if is_all else wanted, "no run has ended"))


def _between(wanted: str, since: str, until: str | None) -> str:
    """Add to a filter when a run ended. Raises InvalidFilter, InvalidOption."""
    terms = [wanted] if wanted else []
    for name, sign, text in (("since", ">=", since), ("until", "<", until)):
        if text is not None:
            terms.append(f'finished_at{sign}"{_moment(text, name)}"')
    joined = " AND ".join(terms)
    chosen(joined, RUNS)
    return joined


def _moment(text: str, name: str) -> str:
    """Return a day as it is written, and a moment with its offset. Raises InvalidOption."""
    if len(text) <= len(_EVER):
        return text
    moment = read_moment(text, name)
    if moment is None or moment.tzinfo is None:
        raise InvalidOption(f"{name} {text!r} has no offset; write it as 2026-11-16T09:00:00Z, or a day as 2026-11-16")
    return moment.isoformat()
