"""`duly api`: the API alone, over a database that others keep going. Any number may run."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import click

from duly.api.app import create
from duly.api.dispatch import Dispatcher
from duly.api.health import Vitals
from duly.api.metrics.collector import Metrics
from duly.api.metrics.server import metrics_server
from duly.api.server.file_descriptors import raise_limit
from duly.api.server.listen import Tls, address_of, listen, reach_of, read_tls, refuse_without_keys
from duly.api.server.server import Server
from duly.cli.connect import database_url
from duly.cli.flags.settings import span, with_settings
from duly.cli.render.say import say
from duly.cli.up.dispatcher import opened_at, pages_of
from duly.cli.up.role_metrics import listen_for_metrics, print_address
from duly.cli.up.scheduler import process_name
from duly.cli.up.stopping import stop_on_signals
from duly.domain.runs.run import HORIZON
from duly.log import Log
from duly.moves.admin.notifications import keep_watching
from duly.scheduler.service import TICK_SECONDS
from duly.settings import Settings
from duly.store.connection.database import Database
from duly.store.schema import migrate
from duly.store.tables import clocks
from duly.store.tenancy import api_keys
from duly.store.tenancy.keyring import keyring_of
from duly.worker import loop


@click.command
@with_settings(
    "host",
    "port",
    "tls_certificate",
    "tls_key",
    "plain_http",
    "pooler",
    "secrets_key",
    "queue_age_limit",
    "dashboard",
    "metrics_host",
    "metrics_port",
)
def api(settings: Settings) -> None:
    """Serve the HTTP API, health and metrics. Schedulers and workers run elsewhere, on the same database."""
    tls = read_tls(settings.tls_certificate, settings.tls_key)
    with listen(settings.host, settings.port, tls=tls, plain_http=settings.plain_http, command="duly api") as listener:
        loop.run(_run(settings, listener, tls))


async def _run(settings: Settings, listener: socket.socket, tls: Tls | None) -> None:
    raise_limit()
    opening = opened_at(database_url(settings), settings, keyring_of(settings), tls)
    async with opening as (database, dispatcher):
        await migrate.check(database)
        refuse_without_keys(settings.host, has_keys=await api_keys.any_usable(database))
        vitals = vitals_of(database)
        metrics = Metrics(database, Log("metrics"), span(settings, "queue_age_limit"), dispatcher.services.replica)
        servers = [
            server_of(settings, create(vitals, metrics, Log("api"), dispatcher, pages_of(settings)), listener, tls)
        ]
        if settings.metrics_port is not None:
            metrics_listener = listen_for_metrics(settings, "duly api")
            servers.append(metrics_server(create(vitals, metrics, Log("api")), metrics_listener))
            print_address(metrics_listener)
        say(f"api at {address_of(listener, tls)}, {reach_of(settings.host, tls)}. Ctrl-C stops it.")
        await serve(database, dispatcher, metrics, servers)


def server_of(settings: Settings, app: Any, listener: socket.socket, tls: Tls | None) -> Server:
    """Build a server with the limits of the settings."""
    return Server(
        app,
        listener,
        tls,
        connections_max=settings.http_connections,
        connections_per_address_max=settings.http_connections_per_address,
    )


async def serve(
    database: Database,
    dispatcher: Dispatcher,
    metrics: Metrics,
    servers: Sequence[Server],
    *,
    watch: Callable[[Callable[[], None]], Coroutine[Any, Any, None]] | None = None,
    on_start: Callable[[], None] | None = None,
) -> None:
    """Serve until a signal ends it, or `watch`, which runs beside it; `on_start` is called first."""

    def stop() -> None:
        dispatcher.close()
        for one in servers:
            one.stop()

    loop = asyncio.get_running_loop()
    stop_on_signals(lambda: loop.call_soon_threadsafe(stop))
    log = Log("api")
    parts = [metrics.run(), keep_watching(database, log), clocks.keep_recording(database, ["api"], process_name(), log)]
    beside = [asyncio.create_task(part) for part in (*parts, *([watch(stop)] if watch else []))]
    try:
        await asyncio.gather(*(one.run(on_start) for one in servers))
    finally:
        for task in beside:
            task.cancel()


def vitals_of(database: Database) -> Vitals:
    """Return the vitals of a process that neither stages nor reaps: from the database alone."""
    return Vitals(
        database=database,
        scheduler=None,
        reaped_at=None,
        tick_seconds=TICK_SECONDS,
        horizon_seconds=HORIZON.total_seconds(),
        started=True,
    )
