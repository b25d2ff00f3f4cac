"""`duly submit`: submit a job, and show when it fires."""

from __future__ import annotations

from typing import Any

import click

from duly.cli.client import run_request
from duly.cli.flags import apps, submission
from duly.cli.flags.job import job_flags
from duly.cli.flags.schedule import schedule_flags
from duly.cli.flags.settings import together, with_settings
from duly.cli.flags.target import target_flags
from duly.cli.render.output import answer
from duly.client.asynchronous.client import AsyncClient
from duly.settings import Settings

JSON = "json"
# HANDLER and its arguments, or another target.
handler_arguments = together(
    click.argument("words", nargs=-1, metavar="HANDLER [KEY=VALUE]..."),
    target_flags,
    click.option("--json", "json_text", metavar="PAYLOAD", help="The arguments as one JSON object."),
    click.option("--queue", help="The queue; default: the handler's own, or `default`."),
    click.option("--priority", type=int, help="0 (first) to 9 (last)."),
    click.option("--key", help="Idempotency key: repeated requests submit one job."),
    job_flags,
)
# For a command whose --json is the payload.
output_option = click.option(
    "--output", type=click.Choice(["text", JSON]), default="text", show_default=True, help="json: for programs."
)


@click.command
@handler_arguments
@click.option("--at", metavar="MOMENT", help="Run once at this time, with an offset; with --every, the first.")
@click.option("--delay", metavar="DURATION", help="Run once after this delay, such as PT10M or seconds.")
@schedule_flags
@click.option("--name", help="The schedule's name.")
@click.option(
    "--depends-on",
    multiple=True,
    metavar="JOB[:ON]",
    help="Run after this one-shot has succeeded; add :failure or :always for other ends; repeatable.",
)
@click.option("-q", "--quiet", is_flag=True, help="Print only the job's id.")
@output_option
@with_settings("app", "url")
def submit(settings: Settings, quiet: bool, output: str, **typed: Any) -> None:
    """Submit a job: HANDLER with its arguments, now, later or again and again.

    A value is JSON if it reads as JSON, and text if not: customer=7 to=a@b.example tags='["new"]'. If the app is known
    (--app, or `app` in duly.toml), arguments are checked against the handler before anything is written. The answer to a
    schedule says in words what it means, and when it fires next.

    Instead of HANDLER: --webhook URL sends the arguments there; --command -- PROGRAM ARGUMENT... runs a program, and
    --image IMAGE -- ARGUMENT... a container, if the operator of a worker allows it by name.
    """
    if quiet and output == JSON:
        raise click.UsageError("give --quiet or --output json, not both")
    job = submission.read(typed, apps.load(settings.app) if settings.app else None)

    async def send(client: AsyncClient) -> None:
        sent = await submission.send(client, job, typed["key"])
        lines = [str(sent.job_id)] if quiet else await submission.answer(client, job, sent, settings.app)
        answer(output == JSON, submission.document(job, sent, lines), *lines)

    run_request(settings, send)
