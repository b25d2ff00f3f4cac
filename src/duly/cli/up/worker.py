"""`duly worker`: run an app's handlers."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import click

from duly.cli.connect import database_url, opened
from duly.cli.flags import apps
from duly.cli.flags.settings import span, with_settings
from duly.cli.render.say import say
from duly.cli.up import programs
from duly.cli.up.egress import as_up_does, is_as_up_does
from duly.cli.up.figures import WorkerFigures, report_for_ever
from duly.cli.up.scheduler import process_name
from duly.cli.up.serving import targets_of
from duly.cli.up.stopping import end_now, end_within, stop_on_signals, stop_with_parent
from duly.clock import Rng
from duly.domain.errors import Refused
from duly.domain.jobs.declaration import Declarations
from duly.domain.limits.queue_weight import read_queues
from duly.domain.runs.run import QUEUE_DEFAULT
from duly.domain.targets.target import NOTIFICATION, WEBHOOK, WORKFLOW
from duly.domain.triggers.schedule.options import check
from duly.domain.triggers.schedule.summary import sentence
from duly.log import Log
from duly.settings import Settings, hand_on
from duly.store.tenancy.keyring import MISSING, keyring_of
from duly.worker import loop
from duly.worker.handlers import Registry
from duly.worker.service import Worker, WorkerOptions, collect_less_often
from duly.worker.targets import Targets

_TIDY_SECONDS = 5.0  # So long the interpreter has for its own end, when all our runs have ended.


@click.command
@click.argument("app", required=False, metavar="[MODULE:APP]")
@click.option("--reload", is_flag=True, help="Start again when a Python file below this folder changes.")
@click.option("--name", help="Name shown to others; default: host and process.")
@click.option("--tied", is_flag=True, hidden=True, help="End when standard input ends.")
@click.option("--quiet", is_flag=True, hidden=True, help="Print no start message.")
@click.option("--figures", type=int, hidden=True, help="Descriptor on which to report metrics.")
@with_settings(
    "queues",
    "slots",
    "threads",
    "processes",
    "lease",
    "grace",
    "pooler",
    "egress_loopback",
    "webhooks",
    "secrets_key",
    "metrics_host",
    "metrics_port",
)
def worker(
    settings: Settings,
    app: str | None,
    reload: bool,
    name: str | None,
    tied: bool,
    quiet: bool,
    figures: int | None,
) -> int:
    """Run a worker for MODULE:APP, by default the `app` of the settings.

    It finds the `duly up` of this folder, or uses DULY_DATABASE_URL. It serves the queues of the app's handlers and
    `default`, unless --queue names others. Ctrl-C lets runs finish and hands back what has not started.
    """
    path = app or settings.app
    name = name or process_name()
    settings = as_up_does(settings)
    targets = targets_of(settings, name)
    # `duly up` has a worker in any case: workflows need one.
    if path is None and not tied and not _has_chosen_targets(settings, targets):
        raise click.UsageError(
            "name the app, as in `duly worker app:app`, or set `app` in duly.toml; one for webhooks alone: --webhooks 500"
        )
    if reload:
        from duly.cli.up.reload import reload_for_ever

        return loop.run(reload_for_ever([argument for argument in sys.argv[1:] if argument != "--reload"]))
    loop.run(_run(settings, path, targets, name, tied=tied, quiet=quiet, figures=figures))
    return 0


def _has_chosen_targets(settings: Settings, targets: Targets) -> bool:
    """Return whether targets were chosen explicitly: webhooks are sent by default, so a forgotten app does not count."""
    chosen = {name for name in targets.names() if name not in (WORKFLOW, NOTIFICATION)}
    return any(name != WEBHOOK or settings.is_given("webhooks") for name in chosen)


async def _run(
    settings: Settings,
    path: str | None,
    targets: Targets,
    name: str,
    *,
    tied: bool,
    quiet: bool,
    figures: int | None,
) -> None:
    hand_on(settings, "database_url", "data", "pooler", "secrets_key")  # handlers submit where they run
    app = None if path is None else apps.load(path)
    async with opened(settings):
        pass
    options = _options(settings, app, path, name)
    registry = Registry() if app is None else app.registry
    if app is not None and not registry.names():  # Though it could send webhooks: an app is there to be run.
        raise Refused("the app has no handler; decorate a function with @app.handler")
    declared = None if app is None else app.declarations(path)
    service = Worker(
        database_url(settings),
        registry,
        options,
        rng=Rng(),
        log=Log("worker"),
        declarations=declared,
        targets=targets,
        keyring=partial(keyring_of, settings),
        on_left_running=end_now,
    )
    stop_on_signals(service.stop)
    if tied:
        stop_with_parent(service.stop)
    if figures is not None:
        report_for_ever(WorkerFigures(service), figures)
    collect_less_often()
    # `duly up` reports its own workers, which would all want one port.
    with nullcontext() if settings.metrics_port is None or tied else _served(settings, service):
        if not quiet:
            _print_start(settings, options, registry, targets, declared)
        await service.run()
    end_within(_TIDY_SECONDS)


def _served(settings: Settings, service: Worker) -> AbstractContextManager[None]:
    from duly.cli.up.role_metrics import worker_served  # It loads a server, which few workers need.

    return worker_served(settings, service)


def _print_start(
    settings: Settings, options: WorkerOptions, registry: Registry, targets: Targets, declared: Declarations | None
) -> None:
    _print_served(options, [*sorted(registry.names()), *sorted(targets.names())], declared)
    for line in programs.words(settings):
        say(line)
    if settings.webhooks and WEBHOOK not in targets.names():
        say(f"it sends no webhooks: {MISSING}")
    elif settings.webhooks and is_as_up_does(settings):
        say(
            "it sends webhooks to this machine, too, as the `duly up` of this folder does; --no-egress-loopback forbids it"
        )
    elif settings.webhooks and settings.database_url is None and not settings.egress_loopback:
        say("it sends no webhooks to this machine itself, as `duly up` may; --egress-loopback allows it")


def _print_served(options: WorkerOptions, handlers: Sequence[str], declared: Declarations | None) -> None:
    weighed = zip(options.queues, options.weights, strict=True)
    served = ", ".join(queue if weight == 1 else f"{queue} (weight {weight})" for queue, weight in weighed)
    known = ", ".join(handlers)
    say(f"worker {options.name} serves {served} with {known}. Ctrl-C hands back what has not started.")
    for job in declared.jobs if declared else ():
        # Its start is known when it is registered.
        when = sentence(check(job.schedule)).partition(", the first at")[0]
        say(f"schedule {job.name}: {when}")


def _options(settings: Settings, app: Any | None, path: str | None, name: str) -> WorkerOptions:
    queues = read_queues(settings.queues) if app is None else queues_of(settings, app)
    return WorkerOptions(
        name=name,
        queues=tuple(queues),
        weights=tuple(queues.values()),
        slots=settings.slots,
        threads=settings.threads,
        processes=settings.processes,
        ray_tasks=settings.ray_tasks,
        ray_address=settings.ray_address,
        webhooks=settings.webhooks,
        lease=span(settings, "lease"),
        grace_seconds=span(settings, "grace").total_seconds(),
        pooler=settings.pooler,
        app_path=path,
        app_name=None if app is None else app.name,
    )


def queues_of(settings: Settings, app: Any) -> dict[str, int]:
    """Return the queues to serve, with their weights: the requested ones, else those of the app's handlers and the
    default one.
    """
    if settings.is_given("queues"):
        return read_queues(settings.queues)
    return dict.fromkeys([QUEUE_DEFAULT, *sorted(handler.queue for handler in app.registry)], 1)
