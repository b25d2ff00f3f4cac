"""`duly bench SCENARIO`: measure Duly on this machine, on a scratch database."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Awaitable, Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click

from duly.bench import loop, place
from duly.bench.bench import Bench
from duly.bench.progress import Steps
from duly.bench.report import Result, print_json, print_table
from duly.bench.scenarios import drain as drain_scenario

Measure = Callable[[Bench], Awaitable[Result]]
WORKERS, SLOTS = 2, 100


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
def bench() -> None:
    """Measure this machine: each scenario with a baseline of bare SQL beside it, so that the result is also a ratio.

    A scenario runs on a temporary PostgreSQL of its own, as durable as the real one, and removes it at the end.
    Without options it is the scenario of the published figures.
    """


def scenario(function: Callable[..., Measure]) -> click.Command:
    """Make a command of a function that takes a scenario's options and says what to measure."""

    @wraps(function)
    def call(
        *, as_json: bool, database_url: str | None, folder: Path | None, workers: int, slots: int, **options: Any
    ) -> None:
        result = _run(function(**options), database_url, folder, workers, slots)
        (print_json if as_json else print_table)(result)

    for option in reversed(_COMMON):
        call = option(call)
    return click.command(call)


_COMMON: tuple[Callable[[Callable[..., Any]], Callable[..., Any]], ...] = (
    click.option("--json", "as_json", is_flag=True, help="Write one JSON object to standard output."),
    click.option("--database-url", metavar="URL", help="Use this scratch database; what is in its schema `duly` is lost."),
    click.option(
        "--folder",
        type=click.Path(path_type=Path, file_okay=False, exists=True),
        help="Make the temporary database in this folder; it should be on a disk.",
    ),
    click.option("--workers", type=click.IntRange(1), default=WORKERS, show_default=True, help="Worker processes."),
    click.option("--slots", type=click.IntRange(1), default=SLOTS, show_default=True, help="Slots of each worker."),
)


def _run(measure: Measure, database_url: str | None, folder: Path | None, workers: int, slots: int) -> Result:
    files = Path(tempfile.mkdtemp(prefix="duly-bench-"))
    try:
        with Steps().shown() as steps:
            where = place.given(database_url, steps) if database_url else place.temporary(folder, steps)
            with where as found:
                return loop.run(_measured(measure, Bench(found, steps, files, workers, slots)))
    finally:
        shutil.rmtree(files, ignore_errors=True)


async def _measured(measure: Measure, surroundings: Bench) -> Result:
    try:
        return await measure(surroundings)
    finally:
        await surroundings.place.clear()


def _positive(name: str, default: int, text: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return click.option(f"--{name}", type=click.IntRange(1), default=default, show_default=True, help=text)


@_positive("runs", drain_scenario.Options().runs, "How many runs.")
@_positive("batch", drain_scenario.Options().batch, "How many are submitted at once.")
def drain(**options: Any) -> Measure:
    """Claim, run and settle no-op runs that are all ready at once."""
    return lambda bench: drain_scenario.measure(bench, drain_scenario.Options(**options))


bench.add_command(scenario(drain))
