"""`duly scheduler`: the scheduler and the maintenance loop."""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import AbstractContextManager, nullcontext

import click

from duly.cli.connect import opened, run_loop
from duly.cli.flags.settings import span, with_settings
from duly.cli.render.say import say
from duly.cli.up.stopping import stop_on_signals
from duly.clock import Rng
from duly.domain.diagnosis.loops import Rounds
from duly.domain.tenancy.audit import check_retention
from duly.log import Log
from duly.maintenance.service import Maintenance, Retention
from duly.scheduler.service import Scheduler
from duly.settings import Settings
from duly.store.connection.database import Database
from duly.store.tables import clocks

CONNECTIONS_MAX = 8  # staging and maintenance tasks run side by side, and none should wait for another


@click.command
@click.option("--name", help="Name shown to others; default: host and process.")
@with_settings(
    "pooler",
    "retention_succeeded",
    "retention_failed",
    "retention_audit",
    "retention_jobs",
    "history_payload_bytes",
    "queue_age_limit",
    "recovery_after",
    "metrics_host",
    "metrics_port",
)
def scheduler(settings: Settings, name: str | None) -> None:
    """Run a scheduler: it fires its share of the shards, and keeps history, leases and tables in order."""
    run_loop(_run(settings, name or process_name()))


def process_name() -> str:
    """Name this process for people; it is no identity."""
    return f"{socket.gethostname()}:{os.getpid()}"


def build(settings: Settings, database: Database, name: str) -> tuple[Scheduler, Maintenance]:
    """Build the two loops on one database."""
    retention = Retention(
        span(settings, "retention_succeeded"),
        span(settings, "retention_failed"),
        audit=check_retention(span(settings, "retention_audit")),
        jobs=None if settings.retention_jobs is None else span(settings, "retention_jobs"),
        payload_bytes=settings.history_payload_bytes,
    )
    age_limit = span(settings, "queue_age_limit")
    recovery_after = None if settings.recovery_after is None else span(settings, "recovery_after")
    rounds = Rounds()  # of both: maintenance reports them
    return (
        Scheduler(database, name=name, rng=Rng(), log=Log("scheduler"), recovery_after=recovery_after, rounds=rounds),
        Maintenance(
            database, rng=Rng(), log=Log("maintenance"), retention=retention, age_limit=age_limit, rounds=rounds
        ),
    )


async def _run(settings: Settings, name: str) -> None:
    async with opened(settings, size_max=CONNECTIONS_MAX) as database:
        stager, maintenance = build(settings, database, name)

        def stop() -> None:
            stager.stop()
            maintenance.stop()

        loop = asyncio.get_running_loop()
        stop_on_signals(lambda: loop.call_soon_threadsafe(stop))
        say(f"scheduler {name} runs. Ctrl-C hands its shards over.")
        noting = asyncio.create_task(clocks.keep_recording(database, ["scheduler"], name, Log("scheduler")))
        try:
            with nullcontext() if settings.metrics_port is None else _served(settings, stager, maintenance):
                await asyncio.gather(stager.run(), maintenance.run())
        finally:
            noting.cancel()


def _served(settings: Settings, stager: Scheduler, maintenance: Maintenance) -> AbstractContextManager[None]:
    from duly.cli.up.role_metrics import SchedulerFigures, served  # It loads a server, which `duly up` has its own of.

    return served(settings, "duly scheduler", SchedulerFigures(stager, maintenance))
