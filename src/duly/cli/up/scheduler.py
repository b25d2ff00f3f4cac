"""`duly scheduler`: the scheduler and the maintenance loop."""

from __future__ import annotations

import asyncio
import os
import re
import socket
from contextlib import AbstractContextManager, nullcontext

import click

from duly.cli.connect import opened
from duly.cli.flags.settings import span, with_settings
from duly.cli.render.say import say
from duly.cli.up.archive import archive_of, archives_kept
from duly.cli.up.stopping import stop_on_signals
from duly.clock import Rng
from duly.domain.counting import some
from duly.domain.diagnosis.doctor import SHARDS
from duly.domain.diagnosis.loops import Rounds
from duly.domain.redaction import check_rules
from duly.domain.tenancy.audit import check_retention
from duly.log import Log
from duly.maintenance.service import Maintenance, Retention
from duly.moves.archive.export import Exporter
from duly.scheduler.service import Scheduler
from duly.settings import Settings
from duly.store.connection.database import Database
from duly.store.tables import clocks
from duly.worker import loop


class Shards(click.ParamType[frozenset[int]]):
    """Shards as people write them: 0-3 or 0-3,60."""

    name = "SHARDS"

    def convert(
        self, value: str | frozenset[int], param: click.Parameter | None, ctx: click.Context | None
    ) -> frozenset[int]:
        """Read them."""
        if isinstance(value, frozenset):
            return value
        found: set[int] = set()
        for part in value.split(","):
            match = re.fullmatch(r"(\d{1,2})(?:-(\d{1,2}))?", part.strip())
            first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
            if not first <= last < SHARDS:
                self.fail(
                    f"{part.strip()!r} names no shards; they are 0 to {SHARDS - 1}: write 0-3 or 0-3,60", param, ctx
                )
            found.update(range(first, last + 1))
        return frozenset(found)


CONNECTIONS_MAX = 8  # staging and maintenance tasks run side by side, and none should wait for another


@click.command
@click.option("--name", help="Name shown to others; default: host and process.")
@click.option("--shards", type=Shards(), help="Take these shards and no others, such as 0-3: a canary.")
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
def scheduler(settings: Settings, name: str | None, shards: frozenset[int] | None) -> None:
    """Run a scheduler: it fires its share of the shards, and keeps history, leases and tables in order."""
    archive_of(settings)  # errors of settings come before anything is opened
    loop.run(_run(settings, name or process_name(), shards))


def process_name() -> str:
    """Name this process for people; it is no identity."""
    return f"{socket.gethostname()}:{os.getpid()}"


def build(
    settings: Settings, database: Database, name: str, shards: frozenset[int] | None = None
) -> tuple[Scheduler, Maintenance]:
    """Build the two loops on one database; the scheduler takes its share, or those shards."""
    retention = Retention(
        span(settings, "retention_succeeded"),
        span(settings, "retention_failed"),
        audit=check_retention(span(settings, "retention_audit")),
        jobs=None if settings.retention_jobs is None else span(settings, "retention_jobs"),
        payload_bytes=settings.history_payload_bytes,
        redact=None if settings.redact is None else check_rules(settings.redact, "redact of the settings"),
        archives=archives_kept(settings),
    )
    files, log = archive_of(settings), Log("maintenance")
    sample = settings.archive_sample_successes / 100
    exporter = None if files is None else Exporter(database, files, rng=Rng(), log=log, sample=sample)
    age_limit = span(settings, "queue_age_limit")
    recovery_after = None if settings.recovery_after is None else span(settings, "recovery_after")
    rounds = Rounds()  # of both: maintenance reports them
    return (
        Scheduler(
            database,
            name=name,
            rng=Rng(),
            log=Log("scheduler"),
            recovery_after=recovery_after,
            rounds=rounds,
            named=shards,
        ),
        Maintenance(
            database,
            rng=Rng(),
            log=log,
            retention=retention,
            age_limit=age_limit,
            rounds=rounds,
            exporter=exporter,
        ),
    )


async def _run(settings: Settings, name: str, shards: frozenset[int] | None) -> None:
    async with opened(settings, size_max=CONNECTIONS_MAX) as database:
        stager, maintenance = build(settings, database, name, shards)

        def stop() -> None:
            stager.stop()
            maintenance.stop()

        loop = asyncio.get_running_loop()
        stop_on_signals(lambda: loop.call_soon_threadsafe(stop))
        whose = "" if shards is None else f" for {some(len(shards), 'shard')}"
        noting = asyncio.create_task(clocks.keep_recording(database, ["scheduler"], name, Log("scheduler")))
        try:
            with nullcontext() if settings.metrics_port is None else _served(settings, stager, maintenance):
                say(f"scheduler {name} runs{whose}. Ctrl-C hands its shards over.")
                await asyncio.gather(stager.run(), maintenance.run())
        finally:
            noting.cancel()


def _served(settings: Settings, stager: Scheduler, maintenance: Maintenance) -> AbstractContextManager[None]:
    from duly.cli.up.role_metrics import scheduler_served  # It loads a server, which `duly up` has its own of.

    return scheduler_served(settings, stager, maintenance)
