"""`duly up`: everything, here, with one command."""

from __future__ import annotations

import asyncio
import importlib
import socket
import threading

import click

from duly import __version__
from duly.api.listening import PortTaken, listen
from duly.cli import postgres
from duly.cli.connect import run_loop
from duly.cli.options import span, with_settings
from duly.cli.postgres import Postgres
from duly.cli.screen import Screen
from duly.cli.stopping import stop_on_signals
from duly.clock import SystemClock
from duly.settings import Settings


@click.command
@click.option("--ephemeral", is_flag=True, help="Keep the data in a temporary folder, and remove it at the end.")
@click.option("--reset", is_flag=True, help="Remove the data of this folder first; asks.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--demo/--no-demo", default=True, help="The schedule that shows that it works.")
@click.option("--workers", default=1, show_default=True, type=click.IntRange(0, 64), help="How many worker processes.")
@with_settings("host", "port", "app")
def up(settings: Settings, ephemeral: bool, reset: bool, yes: bool, demo: bool, workers: int) -> None:
    """Start everything here: an embedded PostgreSQL (or DULY_DATABASE_URL), the scheduler, workers, health and metrics.

    For development, on this machine only. Ctrl-C stops all of it; the data stays in .duly.
    """
    began = SystemClock().monotonic()
    for name in ("lease", "grace", "retention_succeeded", "retention_failed"):
        span(settings, name)
    listener = _listen(settings, ephemeral=ephemeral)
    try:
        if reset:
            postgres.reset(settings, is_sure=yes)
        _up(settings, listener, ephemeral=ephemeral, demo=demo, workers=workers, began=began)
    finally:
        listener.close()


def _listen(settings: Settings, *, ephemeral: bool) -> socket.socket:
    """Bind the port; if it is taken, by the `duly up` of this very folder perhaps, say that instead."""
    try:
        return listen(settings.host, settings.port)
    except PortTaken:
        if not ephemeral:
            postgres.refuse_if_held(settings)
        raise


def _up(
    settings: Settings, listener: socket.socket, *, ephemeral: bool, demo: bool, workers: int, began: float
) -> None:
    screen, clock = Screen(), SystemClock()
    screen.title(__version__)
    # The imports take as long as PostgreSQL's start: let both happen at once.
    importing = threading.Thread(target=importlib.import_module, args=("duly.cli.house",), daemon=True)
    importing.start()
    starting = clock.monotonic()
    with postgres.running(settings, ephemeral=ephemeral) as server:
        screen.fact("postgres", server.words, clock.monotonic() - starting)
        importing.join()
        run_loop(
            _live(settings, server, listener, screen, ephemeral=ephemeral, demo=demo, workers=workers, began=began)
        )
    if not settings.database_url:
        screen.line("stopped")


async def _live(
    settings: Settings,
    server: Postgres,
    listener: socket.socket,
    screen: Screen,
    *,
    ephemeral: bool,
    demo: bool,
    workers: int,
    began: float,
) -> None:
    from duly.cli.house import House, Plan

    house = House(Plan(settings, workers, demo, ephemeral), server, listener, screen, began)
    loop = asyncio.get_running_loop()
    stop_on_signals(lambda: loop.call_soon_threadsafe(house.stop))
    await house.run()
