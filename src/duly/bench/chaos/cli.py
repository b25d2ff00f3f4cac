"""`duly chaos`: strike an installation of our own at random, and print a verdict."""

from __future__ import annotations

import secrets
import shutil
import tempfile
from pathlib import Path

import click

from duly.bench import scratch
from duly.bench.chaos.storm import Plan, Verdict, weather
from duly.bench.processes import check_can_look
from duly.bench.progress import Steps
from duly.bench.report import print_json
from duly.worker import loop

_SHOWN_MAX = 20
_BROKEN = 1


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.option("--minutes", type=click.FloatRange(0.05, 60), default=1.0, show_default=True, help="Length of the storm.")
@click.option("--seed", type=int, help="Repeats the strikes and the load of an earlier storm; default: a new one.")
@click.option(
    "--rate", type=click.IntRange(1, 1_000), default=100, show_default=True, help="Runs submitted per second."
)
@click.option(
    "--schedules", type=click.IntRange(0, 1_000), default=20, show_default=True, help="Schedules, each second."
)
@click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="Make the temporary installation in this folder.",
)
@click.option("--json", "as_json", is_flag=True, help="Write one JSON object to standard output.")
def chaos(minutes: float, seed: int | None, rate: int, schedules: int, folder: Path | None, as_json: bool) -> int:
    """Kill schedulers, workers and connections of a temporary installation at random, and print a verdict.

    It makes its own PostgreSQL, takes no other database, and removes everything at the end, also on Ctrl-C and SIGTERM.
    The verdict combines `duly verify` with the calls that handlers recorded in a file of their own: it names runs that were
    lost, early, or called twice without need. Exits with 1 when a promise was broken.
    """
    check_can_look("chaos")
    plan = Plan(minutes * 60, secrets.randbelow(2**32) if seed is None else seed, rate, schedules)
    steps, files = Steps(), Path(tempfile.mkdtemp(prefix="duly-chaos-", dir=folder))
    try:
        with steps.shown(), scratch.temporary(files, steps) as found:
            steps.say(f"seed {plan.seed}: --seed {plan.seed} repeats these strikes")
            verdict = loop.run(weather(found, files, plan, steps))
    finally:
        shutil.rmtree(files, ignore_errors=True)
    if as_json:
        print_json({"is_good": verdict.is_good, **{name: getattr(verdict, name) for name in verdict.__struct_fields__}})
    else:
        _print(verdict)
    return 0 if verdict.is_good else _BROKEN


def _print(verdict: Verdict) -> None:
    strikes = ", ".join(f"{count} {what}" for what, count in sorted(verdict.strikes.items())) or "none"
    outcomes = ", ".join(f"{count:,} {outcome}" for outcome, count in sorted(verdict.outcomes.items()))
    click.echo(f"seed {verdict.seed}, {verdict.seconds:g} s; struck: {strikes}")
    click.echo(
        f"acknowledged {verdict.acknowledged:,}, of them {verdict.repeated_requests:,} after repeated requests;"
        f" attempts: {outcomes}"
    )
    click.echo(
        f"handlers were called {verdict.calls:,} times, {verdict.repeated_calls:,} of them again after a lost attempt"
    )
    faults = [f"verify: {one}" for one in verdict.broken] + verdict.findings
    for one in faults[:_SHOWN_MAX]:
        click.echo(one)
    if len(faults) > _SHOWN_MAX:
        click.echo(f"and {len(faults) - _SHOWN_MAX} more")
    verdicts = "every promise held: nothing lost, nothing early, nothing doubled"
    click.echo(verdicts if verdict.is_good else f"{len(faults)} promises were broken; --seed {verdict.seed} repeats it")
