"""`duly bench SCENARIO`: measure Duly on this machine, on a scratch database.

A scenario is a module below `scenarios/`: the fields of its `Options` are the flags, the docstring of its `measure` the help.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, get_type_hints

import click
import msgspec
from click.core import ParameterSource

from duly.bench import pairs, scratch
from duly.bench.bench import Bench
from duly.bench.progress import Steps
from duly.bench.report import Result, print_json, print_table
from duly.bench.scenarios import (
    burst,
    concurrency,
    drain,
    fair,
    herd,
    http,
    idle,
    latency,
    lists,
    moves,
    outage,
    recurring,
    submit,
    tick,
    triggers,
    unroutable,
    webhooks,
    wheel,
    workflows,
)
from duly.bench.scratch import Scratch
from duly.worker import loop

WORKERS, SLOTS = 2, 100
ON_A_DATABASE = (
    *(submit, drain, concurrency, latency, burst, recurring, fair, herd, outage),
    *(tick, moves, unroutable, lists, http, webhooks, idle, workflows),
)
IN_MEMORY = (wheel, triggers)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
def bench() -> None:
    """Measure this machine: each scenario with a baseline of bare SQL beside it, so that the result is also a ratio.

    A scenario runs on a temporary PostgreSQL of its own, as durable as the real one, and removes it at the end.
    Without options it is the scenario of the published figures.
    """


_JSON = click.Option(["--json", "as_json"], is_flag=True, help="Write one JSON object to standard output.")
_SURROUNDINGS = (
    click.Option(["--database-url"], metavar="URL", help="Use this scratch database; its schema `duly` is made anew."),
    click.Option(
        ["--folder"],
        type=click.Path(path_type=Path, file_okay=False, exists=True),
        help="Make the temporary database in this folder; it should be on a disk.",
    ),
    click.Option(["--workers"], type=click.IntRange(1), default=WORKERS, show_default=True, help="Worker processes."),
    click.Option(["--slots"], type=click.IntRange(1), default=SLOTS, show_default=True, help="Slots of each worker."),
)
_PAIRS = (
    click.Option(
        ["--pairs", "checkout"],
        type=click.Path(path_type=Path, file_okay=False, exists=True),
        metavar="CHECKOUT",
        help="Compare this version with the one in another checkout of Duly, in turns.",
    ),
    click.Option(["--rounds"], type=click.IntRange(1), default=4, show_default=True, help="With --pairs: how many."),
)
_NOT_OF_A_SCENARIO = ("as_json", "checkout", "rounds")


def _command(scenario: ModuleType) -> click.Command:
    surroundings = () if scenario in IN_MEMORY else _SURROUNDINGS
    flags = [_JSON, *surroundings, *_PAIRS, *_flags(scenario.Options)]
    return click.Command(
        _name_of(scenario), callback=partial(_run, scenario), params=flags, help=scenario.measure.__doc__
    )


def _name_of(scenario: ModuleType) -> str:
    return scenario.__name__.rpartition(".")[2]


def _flags(options: type[msgspec.Struct]) -> Iterator[click.Option]:
    """Make a flag of each of a scenario's options, with its default; its annotation holds the help."""
    hints = get_type_hints(options, include_extras=True)
    for field in msgspec.structs.fields(options):
        default: Any = field.default
        kind = click.FloatRange(0) if isinstance(default, float) else click.IntRange(min(1, default))
        [text] = hints[field.name].__metadata__
        flag = f"--{field.name.replace('_', '-')}"
        yield click.Option([flag, field.name], type=kind, default=default, show_default=True, help=text)


def _run(scenario: ModuleType, *, as_json: bool, checkout: Path | None, rounds: int, **flags: Any) -> None:
    context = click.get_current_context()
    if checkout is None:
        if context.get_parameter_source("rounds") is ParameterSource.COMMANDLINE:
            raise click.UsageError("--rounds counts the turns of a comparison: give --pairs CHECKOUT, too")
        _measure(scenario, as_json=as_json, **flags)
        return
    steps, given = Steps(), list(_given(context))
    with steps.shown():
        compared = pairs.compare(_name_of(scenario), given, checkout, rounds, list(flags), steps)
    (print_json if as_json else pairs.print_comparison)(compared)


def _given(context: click.Context) -> Iterator[str]:
    """Give the options of the scenario that stand on the command line, as they would be typed."""
    for parameter in context.command.params:
        name = parameter.name or ""
        is_given = context.get_parameter_source(name) is ParameterSource.COMMANDLINE
        if is_given and name not in _NOT_OF_A_SCENARIO:
            yield from (parameter.opts[0], str(context.params[name]))


def _measure(
    scenario: ModuleType,
    *,
    as_json: bool,
    database_url: str | None = None,
    folder: Path | None = None,
    workers: int = 0,
    slots: int = 0,
    **flags: Any,
) -> None:
    steps, options = Steps(), scenario.Options(**flags)
    files = Path(tempfile.mkdtemp(prefix="duly-bench-"))
    try:
        with steps.shown(), _scratch_for(scenario, database_url, folder, steps) as found:
            surroundings = Bench(found, steps, files, workers, slots)
            result = loop.run(_measured(scenario, surroundings, options))
    finally:
        shutil.rmtree(files, ignore_errors=True)
    named = {"scenario": _name_of(scenario), "config": surroundings.config(options, result.config)}
    (print_json if as_json else print_table)(named | result.as_dict())


def _scratch_for(
    scenario: ModuleType, database_url: str | None, folder: Path | None, steps: Steps
) -> AbstractContextManager[Scratch]:
    if scenario in IN_MEMORY:
        return scratch.nowhere()
    return scratch.given(database_url, steps) if database_url else scratch.temporary(folder, steps)


async def _measured(scenario: ModuleType, surroundings: Bench, options: msgspec.Struct) -> Result:
    try:
        measured: Result = await scenario.measure(surroundings, options)
        return measured
    finally:
        await surroundings.scratch.clear()


for _scenario in ON_A_DATABASE + IN_MEMORY:
    bench.add_command(_command(_scenario))
