"""`duly bench SCENARIO`: measure Duly on this machine, on a scratch database."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from functools import wraps
from pathlib import Path
from typing import Any

import click
import msgspec

from duly.bench import loop, place
from duly.bench.bench import Bench
from duly.bench.place import Place
from duly.bench.progress import Steps
from duly.bench.report import Result, print_json, print_table
from duly.bench.scenarios import burst as burst_scenario
from duly.bench.scenarios import drain as drain_scenario
from duly.bench.scenarios import fair as fair_scenario
from duly.bench.scenarios import gates as gates_scenario
from duly.bench.scenarios import herd as herd_scenario
from duly.bench.scenarios import http as http_scenario
from duly.bench.scenarios import idle as idle_scenario
from duly.bench.scenarios import latency as latency_scenario
from duly.bench.scenarios import lists as lists_scenario
from duly.bench.scenarios import moves as moves_scenario
from duly.bench.scenarios import outage as outage_scenario
from duly.bench.scenarios import recurring as recurring_scenario
from duly.bench.scenarios import strangers as strangers_scenario
from duly.bench.scenarios import submit as submit_scenario
from duly.bench.scenarios import tick as tick_scenario
from duly.bench.scenarios import triggers as triggers_scenario
from duly.bench.scenarios import webhooks as webhooks_scenario
from duly.bench.scenarios import wheel as wheel_scenario
from duly.bench.scenarios import workflows as workflows_scenario

Measure = Callable[[Bench], Awaitable[Result]]
WORKERS, SLOTS = 2, 100


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
def bench() -> None:
    """Measure this machine: each scenario with a baseline of bare SQL beside it, so that the result is also a ratio.

    A scenario runs on a temporary PostgreSQL of its own, as durable as the real one, and removes it at the end.
    Without options it is the scenario of the published figures.
    """


Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

_JSON: Decorator = click.option("--json", "as_json", is_flag=True, help="Write one JSON object to standard output.")
_SURROUNDINGS: tuple[Decorator, ...] = (
    click.option("--database-url", metavar="URL", help="Use this scratch database; its schema `duly` is made anew."),
    click.option(
        "--folder",
        type=click.Path(path_type=Path, file_okay=False, exists=True),
        help="Make the temporary database in this folder; it should be on a disk.",
    ),
    click.option("--workers", type=click.IntRange(1), default=WORKERS, show_default=True, help="Worker processes."),
    click.option("--slots", type=click.IntRange(1), default=SLOTS, show_default=True, help="Slots of each worker."),
)


def scenario(function: Callable[..., Measure]) -> click.Command:
    """Make a command of a function that takes a scenario's options and says what to measure, on a database."""

    @wraps(function)
    def call(
        *, as_json: bool, database_url: str | None, folder: Path | None, workers: int, slots: int, **options: Any
    ) -> None:
        steps = Steps()
        where = place.given(database_url, steps) if database_url else place.temporary(folder, steps)
        _show(_run(function(**options), where, steps, workers, slots), as_json=as_json)

    command: Callable[..., Any] = call
    for option in reversed((_JSON, *_SURROUNDINGS)):
        command = option(command)
    return click.command(command)


def scenario_in_memory(function: Callable[..., Measure]) -> click.Command:
    """Make a command of a scenario that needs no database and no process but this one."""

    @wraps(function)
    def call(*, as_json: bool, **options: Any) -> None:
        _show(_run(function(**options), place.nowhere(), Steps(), 0, 0), as_json=as_json)

    return click.command(_JSON(call))


def _show(result: Result, *, as_json: bool) -> None:
    (print_json if as_json else print_table)(result)


def _run(measure: Measure, where: AbstractContextManager[Place], steps: Steps, workers: int, slots: int) -> Result:
    files = Path(tempfile.mkdtemp(prefix="duly-bench-"))
    try:
        with steps.shown(), where as found:
            return loop.run(_measured(measure, Bench(found, steps, files, workers, slots)))
    finally:
        shutil.rmtree(files, ignore_errors=True)


async def _measured(measure: Measure, surroundings: Bench) -> Result:
    try:
        return await measure(surroundings)
    finally:
        await surroundings.place.clear()


def _flags(options: msgspec.Struct, **texts: str) -> Decorator:
    """Make a flag of each of a scenario's options, with its default."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        for name, text in reversed(texts.items()):
            default = getattr(options, name)
            kind = click.FloatRange(0) if isinstance(default, float) else click.IntRange(min(1, default))
            flag = f"--{name.replace('_', '-')}"
            function = click.option(flag, name, type=kind, default=default, show_default=True, help=text)(function)
        return function

    return decorate


@_flags(submit_scenario.Options(), runs="In batches.", batch="Size of a batch.", singles="One by one.")
def submit(**options: Any) -> Measure:
    """Make jobs durable: in batches, and one by one."""
    return lambda bench: submit_scenario.measure(bench, submit_scenario.Options(**options))


@_flags(
    drain_scenario.Options(),
    runs="How many runs.",
    batch="How many are submitted at once.",
    gated="How many others stand beside them, two for each key of one place.",
)
def drain(**options: Any) -> Measure:
    """Claim, run and settle no-op runs that are all ready at once."""
    return lambda bench: drain_scenario.measure(bench, drain_scenario.Options(**options))


@_flags(
    gates_scenario.Options(),
    runs="How many runs.",
    keys="How many concurrency keys of one place.",
    batch="How many are submitted at once.",
)
def gates(**options: Any) -> Measure:
    """Let runs through many concurrency keys with one place each."""
    return lambda bench: gates_scenario.measure(bench, gates_scenario.Options(**options))


@_flags(latency_scenario.Options(), samples="How many.", pause_ms="Mean pause between two samples.")
def latency(**options: Any) -> Measure:
    """From submit to start, one at a time, on an idle system."""
    return lambda bench: latency_scenario.measure(bench, latency_scenario.Options(**options))


@_flags(burst_scenario.Options(), runs="How many runs.", ahead_seconds="Submitted so long before, at least.")
def burst(**options: Any) -> Measure:
    """Start many runs that are due at one instant."""
    return lambda bench: burst_scenario.measure(bench, burst_scenario.Options(**options))


@_flags(
    recurring_scenario.Options(),
    jobs="Stored schedules.",
    rate="Fires offered each second.",
    seconds="How long.",
    ahead_seconds="The processes start so long before the first fire, at least.",
    zones="Cron schedules in so many time zones, each once a minute, instead of intervals.",
)
def recurring(**options: Any) -> Measure:
    """Fire many schedules evenly, in an order unrelated to their ids."""
    return lambda bench: recurring_scenario.measure(bench, recurring_scenario.Options(**options))


@_flags(
    outage_scenario.Options(),
    schedules="One-minute schedules.",
    hours="How long they were not fired.",
    seconds="How long the lane is watched.",
    new_per_second="One-shots submitted beside it.",
)
def outage(**options: Any) -> Measure:
    """Start after hours without a scheduler: what was missed, and how late new work is beside it."""
    return lambda bench: outage_scenario.measure(bench, outage_scenario.Options(**options))


@_flags(
    fair_scenario.Options(),
    flood="Ready runs of one tenant.",
    samples="Runs of another, one at a time.",
    pause_ms="Pause between two of them.",
)
def fair(**options: Any) -> Measure:
    """Submit single runs of a tenant, alone and beside another's flood."""
    return lambda bench: fair_scenario.measure(bench, fair_scenario.Options(**options))


@_flags(
    herd_scenario.Options(),
    jobs="Cron jobs at one instant.",
    jitter_seconds="Over so long they are spread.",
    steady_per_second="Runs of another tenant beside them.",
    ahead_seconds="The processes start so long before the instant, at least.",
)
def herd(**options: Any) -> Measure:
    """Fire many cron jobs of one instant, spread by jitter, beside another tenant's steady runs."""
    return lambda bench: herd_scenario.measure(bench, herd_scenario.Options(**options))


@_flags(
    tick_scenario.Options(),
    few="Stored timers.",
    many="Stored timers.",
    due="Due at each call.",
    calls="How many calls.",
)
def tick(**options: Any) -> Measure:
    """Stage the same number of due timers among few stored ones and among many."""
    return lambda bench: tick_scenario.measure(bench, tick_scenario.Options(**options))


@_flags(
    moves_scenario.Options(), jobs="Stored schedules.", runs="How many go through each move.", batch="Size of a batch."
)
def moves(**options: Any) -> Measure:
    """What each move costs PostgreSQL in CPU, with nobody else at work."""
    return lambda bench: moves_scenario.measure(bench, moves_scenario.Options(**options))


@_flags(
    strangers_scenario.Options(),
    strangers="Runs that nobody knows.",
    limit="Size of a claim.",
    claims="How many claims.",
)
def strangers(**options: Any) -> Measure:
    """Claim behind runs that no worker knows, while they are in line and when they stand aside."""
    return lambda bench: strangers_scenario.measure(bench, strangers_scenario.Options(**options))


@_flags(
    lists_scenario.Options(),
    jobs="Stored schedules.",
    attempts="Stored attempts.",
    waiting="Stored in each box.",
    pages="How many pages of each list are read.",
)
def lists(**options: Any) -> Measure:
    """Read pages of every list, at any depth, with each filter."""
    return lambda bench: lists_scenario.measure(bench, lists_scenario.Options(**options))


@_flags(
    http_scenario.Options(),
    creates="Requests that create one job each.",
    connections="Over so many connections.",
    batches="Requests that create 50,000 jobs each.",
    jobs="Stored schedules while reading.",
    reads="How many jobs, and how many pages, are read.",
    readers="Over so many connections.",
)
def http(**options: Any) -> Measure:
    """Create, read and list jobs over HTTP."""
    return lambda bench: http_scenario.measure(bench, http_scenario.Options(**options))


@_flags(
    idle_scenario.Options(),
    seconds="How long the idle system is watched.",
    few="Stored jobs.",
    many="Stored jobs.",
    firing="How many of them fire every ten seconds.",
    firing_seconds="How long those are let fire.",
)
def idle(**options: Any) -> Measure:
    """Watch a `duly up` with nothing to do, and memory with few and many stored jobs."""
    return lambda bench: idle_scenario.measure(bench, idle_scenario.Options(**options))


@_flags(
    webhooks_scenario.Options(),
    requests="How many webhooks.",
    concurrency="So many at once.",
    slow="Receivers that answer a byte a second.",
    steady_per_second="Webhooks beside them.",
    steady_seconds="How long.",
)
def webhooks(**options: Any) -> Measure:
    """Send signed webhooks to a local sink, and beside slow receivers."""
    return lambda bench: webhooks_scenario.measure(bench, webhooks_scenario.Options(**options))


@_flags(
    workflows_scenario.Options(),
    workflows="How many, each a → width → z.",
    width="Nodes between the first and the last.",
    chains="Chains of three nodes, one at a time.",
    pause_ms="Between two chains, about.",
)
def workflows(**options: Any) -> Measure:
    """Follow chains of nodes at idle, and run many wide workflows."""
    return lambda bench: workflows_scenario.measure(bench, workflows_scenario.Options(**options))


@_flags(wheel_scenario.Options(), few="Timers.", many="Timers.", repeats="How often.")
def wheel(**options: Any) -> Measure:
    """Insert and fire timers in a worker's memory, among few and among many."""
    return lambda bench: wheel_scenario.measure(bench, wheel_scenario.Options(**options))


@_flags(triggers_scenario.Options())
def triggers(**options: Any) -> Measure:
    """Compile schedules and ask for their next moments."""
    return lambda bench: triggers_scenario.measure(bench, triggers_scenario.Options(**options))


for _function in (
    submit,
    drain,
    gates,
    latency,
    burst,
    recurring,
    fair,
    herd,
    outage,
    tick,
    moves,
    strangers,
    lists,
    http,
    webhooks,
    idle,
    workflows,
):
    bench.add_command(scenario(_function))
bench.add_command(scenario_in_memory(wheel))
bench.add_command(scenario_in_memory(triggers))
