"""The process that serves HTTP for a `duly up`; `http_part` starts it and sends it what it has to know."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import Callable, Mapping

import msgspec

from duly.api.app import create
from duly.api.auth.local import for_local
from duly.api.health import Vitals
from duly.api.metrics.collector import Metrics
from duly.api.metrics.definitions import Family
from duly.api.metrics.server import metrics_server
from duly.api.server.file_descriptors import raise_limit
from duly.api.server.listen import read_tls
from duly.cli.failures import explain
from duly.cli.flags.settings import report, span
from duly.cli.render.say import say
from duly.cli.up.api import serve, server_of
from duly.cli.up.dispatcher import opened_at, pages_of
from duly.cli.up.egress import may_call_loopback
from duly.cli.up.http_part import READY, PartReport, Start
from duly.cli.up.stopping import end_within
from duly.clock import Rng
from duly.domain.runs.run import HORIZON
from duly.log import Log
from duly.scheduler.service import TICK_SECONDS
from duly.store.connection.database import Database
from duly.store.connection.local import this_account
from duly.store.tenancy.keyring import first_keyring
from duly.worker import loop

_TIDY_SECONDS = 2.0


class _Parent:
    """The process that started us, as it reports itself."""

    def __init__(self) -> None:
        self.reported = PartReport(0.0, False, 0, 0.0, None, None, {}, [])

    def vitals(self, database: Database, workers_expected: int) -> Vitals:
        """Return the sources of health."""
        return Vitals(
            database=database,
            scheduler=self.reported,
            reaped_at=lambda: self.reported.reaped_at,
            tick_seconds=TICK_SECONDS,
            horizon_seconds=HORIZON.total_seconds(),
            workers_expected=workers_expected,
            rounds=self._rounds,
        )

    def hear(self, vitals: Vitals, line: bytes) -> None:
        """Take a report."""
        self.reported = msgspec.json.decode(line, type=PartReport)
        vitals.scheduler, vitals.started = self.reported, self.reported.started

    def collect(self) -> list[Family]:
        """Return the metrics of the scheduler and the workers."""
        return self.reported.families

    def _rounds(self, now: float) -> dict[str, float]:
        return {name: age + max(0.0, now - self.reported.reported_at) for name, age in self.reported.rounds.items()}


async def _run(listeners: Mapping[str, socket.socket]) -> None:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    if line := await reader.readline():
        start = msgspec.json.decode(line, type=Start, dec_hook=lambda kind, value: kind(value))
        report(start.settings)
        await _serve(start, listeners, reader)


async def _serve(start: Start, listeners: Mapping[str, socket.socket], reader: asyncio.StreamReader) -> None:
    settings = start.settings
    tls = read_tls(settings.tls_certificate, settings.tls_key)
    keyring = first_keyring(settings, start.data, Rng())
    opening = opened_at(start.url, settings, keyring, tls, loopback=may_call_loopback(settings))
    async with opening as (database, dispatcher):
        parent = _Parent()
        vitals = parent.vitals(database, start.workers_expected)
        metrics = Metrics(database, Log("metrics"), span(settings, "queue_age_limit"), dispatcher.services.replica)
        metrics.add(parent)
        app = create(vitals, metrics, Log("api"), dispatcher, pages_of(settings))
        servers = [server_of(settings, app, listeners["http"], tls)]
        if "metrics" in listeners:
            servers.append(metrics_server(create(vitals, metrics, Log("api")), listeners["metrics"]))
        if "local" in listeners:
            servers.append(server_of(settings, for_local(app, this_account()), listeners["local"], None))

        async def watch(stop: Callable[[], None]) -> None:
            async for line in reader:
                parent.hear(vitals, line)
            stop()  # our parent has ended

        await serve(database, dispatcher, metrics, servers, watch=watch, on_start=_report_ready)
    end_within(_TIDY_SECONDS)


def _report_ready() -> None:
    os.write(sys.stdout.fileno(), READY)


def main() -> None:
    """Serve on the descriptors that are named, as the first line of standard input says."""
    raise_limit()
    try:
        named = [argument.split("=") for argument in sys.argv[1:]]
        loop.run(_run({name: socket.socket(fileno=int(descriptor)) for name, descriptor in named}))
    except Exception as error:  # noqa: BLE001 - as for every command: a person gets a sentence, never a trace
        text, code = explain(error)
        say(f"duly: {text}", err=True)
        sys.exit(code)


if __name__ == "__main__":
    main()
