"""`duly up`: everything, here, with one command."""

from __future__ import annotations

import asyncio
import importlib
import socket
import threading

import click

from duly import __version__
from duly.api.server.listen import PortTaken, listen, reach_of, read_tls
from duly.cli.flags.settings import span, with_settings
from duly.cli.render.screen import Screen
from duly.cli.up import postgres
from duly.cli.up.archive import archive_of
from duly.cli.up.plan import Plan
from duly.cli.up.postgres import Postgres
from duly.cli.up.stopping import stop_on_signals
from duly.clock import SystemClock
from duly.domain.tenancy.audit import check_retention
from duly.settings import Settings
from duly.worker import loop


@click.command
@click.option("--ephemeral", is_flag=True, help="Keep the data in a temporary folder, and remove it at the end.")
@click.option("--reset", is_flag=True, help="Remove the data of this folder first; asks.")
@click.option("--yes", is_flag=True, help="Skip the confirmation.")
@click.option("--demo/--no-demo", default=True, help="Run a demo schedule.")
@click.option("--workers", default=1, show_default=True, type=click.IntRange(0, 64), help="How many worker processes.")
@with_settings(
    "host",
    "port",
    "tls_certificate",
    "tls_key",
    "plain_http",
    "metrics_host",
    "metrics_port",
    "app",
    "egress_loopback",
    "secrets_key",
    "dashboard",
)
def up(settings: Settings, ephemeral: bool, reset: bool, yes: bool, demo: bool, workers: int) -> None:
    """Start everything here: an embedded PostgreSQL (or DULY_DATABASE_URL), the scheduler, workers, health and metrics.

    For development, on this machine only. Ctrl-C stops all of it; the data stays in .duly.
    """
    for name in ("lease", "grace", "retention_succeeded", "retention_failed", "queue_age_limit"):
        span(settings, name)
    check_retention(span(settings, "retention_audit"))
    archive_of(settings)
    if settings.commands or settings.containers:
        from duly.cli.up import programs  # It loads most of a worker, which nothing else here needs.

        programs.check(settings)
    tls = read_tls(settings.tls_certificate, settings.tls_key)
    plan = Plan(settings, workers, demo, ephemeral, began=SystemClock().monotonic(), tls=tls)
    with _listen(plan) as listener:
        if reset:
            postgres.reset(settings, is_sure=yes)
        _run(plan, listener)


def _listen(plan: Plan) -> socket.socket:
    """Bind the port; if it is taken, by the `duly up` of this very folder perhaps, say that instead."""
    try:
        return listen(plan.settings.host, plan.settings.port, tls=plan.tls, plain_http=plan.settings.plain_http)
    except PortTaken:
        if not plan.ephemeral:
            postgres.refuse_if_held(plan.settings)
        raise


def _run(plan: Plan, listener: socket.socket) -> None:
    screen, clock = Screen(), SystemClock()
    screen.title(__version__, reach_of(plan.settings.host, plan.tls))
    # The imports take as long as PostgreSQL's start: let both happen at once.
    importing = threading.Thread(target=importlib.import_module, args=("duly.cli.up.house",), daemon=True)
    importing.start()
    starting = clock.monotonic()
    with postgres.running(plan.settings, ephemeral=plan.ephemeral) as server:
        screen.fact("postgres", server.words, clock.monotonic() - starting)
        if server.shared_account is not None:
            screen.fact("account", server.shared_account)
        importing.join()
        loop.run(_live(plan, server, listener, screen))
    screen.line("stopped")


async def _live(plan: Plan, server: Postgres, listener: socket.socket, screen: Screen) -> None:
    from duly.cli.up.house import House

    house = House(plan, server, listener, screen)
    loop = asyncio.get_running_loop()
    stop_on_signals(lambda: loop.call_soon_threadsafe(house.stop))
    await house.run()
