"""All parts of `duly up`: scheduler and maintenance on one loop, HTTP and workers as children.

It starts in the order in which the parts need each other, and stops the other way round: workers first, so that their
runs are settled or handed back; then the loops; PostgreSQL, which is the caller's, last.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Coroutine, Sequence
from functools import partial
from typing import Any

from duly.api.server.listen import address_of, refuse_without_keys
from duly.cli.render.screen import Screen
from duly.cli.up import demo, scheduler
from duly.cli.up.egress import keep_egress, may_call_loopback
from duly.cli.up.figures import SchedulerFigures
from duly.cli.up.first_key import FirstKey, first_key, print_key
from duly.cli.up.http_part import HttpPart, PartReport, Start
from duly.cli.up.local_socket import close_locally, listen_locally
from duly.cli.up.plan import Plan
from duly.cli.up.postgres import Postgres
from duly.cli.up.role_metrics import listen_for_metrics
from duly.cli.up.workforce import Workforce
from duly.clock import Rng, SystemClock
from duly.domain.counting import some
from duly.domain.errors import DatabaseUnusable, Refused
from duly.domain.runs.run import NOTIFICATIONS
from duly.log import Log
from duly.outbound.shapes import egress_of
from duly.settings import Settings
from duly.store.connection.database import Database
from duly.store.reads.overview import NamedJob
from duly.store.schema import migrate
from duly.store.tables import clocks
from duly.store.tables.shards import SHARDS
from duly.store.tables.workers import WorkerRow
from duly.store.tenancy import api_keys
from duly.store.tenancy.keyring import first_keyring

_START_SECONDS = 20.0
_LOOK_SECONDS = 0.02
_WATCH_SECONDS = 0.5
_LOOPS_STOP_SECONDS = 1.0
_CONNECTIONS_MAX = 8


class House:
    """One `duly up`."""

    def __init__(self, plan: Plan, postgres: Postgres, listener: socket.socket, screen: Screen) -> None:
        self._plan = plan
        self._settings = plan.settings
        self._postgres = postgres
        self._listener = listener
        self._screen = screen
        self._clock = SystemClock()
        self._log = Log("up")
        self._name = scheduler.process_name()
        self._workforce = Workforce(plan, postgres.data, self._name, on_death=partial(self._child_died, "a worker"))
        is_isolated = self._settings.metrics_port is not None
        self._metrics_listener = listen_for_metrics(self._settings, "duly up") if is_isolated else None
        self._local_listener = listen_locally(postgres.data)
        listeners = {"http": listener, "metrics": self._metrics_listener, "local": self._local_listener}
        died = partial(self._child_died, "HTTP")
        self._http = HttpPart(listeners, clock=self._clock, log=self._log, on_death=died)
        self._stopping = asyncio.Event()
        self._failure: BaseException | None = None
        self._tasks: list[asyncio.Task[Any]] = []
        self._is_ready = False

    async def run(self) -> None:
        """Start everything, run until asked to stop, stop everything. Raises the error that made it fail."""
        pooler = self._settings.pooler
        async with Database(self._postgres.url, size_max=_CONNECTIONS_MAX, pooler=pooler) as database:
            try:
                egress_of(self._settings)  # errors of settings come before anything is created
                await self._http.start()  # it loads while the schema is created
                await self._migrate(database)
                self._key = await self._admit(database)
                keep_egress(self._settings, self._postgres.data)
                first_keyring(self._settings, self._postgres.data, Rng())
                await self._live(database)
            finally:
                await self._end()
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """Ask for the end, on the loop."""
        self._stopping.set()

    async def _migrate(self, database: Database) -> None:
        began = self._clock.monotonic()
        await migrate.migrate(database)
        self._screen.fact("schema", "ready", self._clock.monotonic() - began)

    async def _admit(self, database: Database) -> FirstKey | None:
        """Return the key of this data folder; refuse to be reachable by others without any key."""
        key = await first_key(database, self._postgres.data, Rng())
        refuse_without_keys(self._settings.host, has_keys=await api_keys.any_usable(database))
        return key

    async def _live(self, database: Database) -> None:
        self._http.serve(Start(self._settings, self._postgres.url, self._postgres.data, len(self._workforce)))
        await self._workforce.start()
        self._stager, self._maintenance = scheduler.build(self._settings, database, self._name)
        self._figures = SchedulerFigures(self._stager, self._maintenance)
        for name, part in self._parts():
            self._spawn(name, part)
        self._spawn("host clock", clocks.keep_recording(database, ["scheduler"], self._name, Log("up")))
        job = await self._demo(database)
        await self._wait_until_ready(database, job)
        if job is not None and self._is_ready:
            self._spawn("demo", self._show_endings(database, job))
        await self._stopping.wait()

    def _parts(self) -> list[tuple[str, Coroutine[Any, Any, None]]]:
        return [
            ("scheduler", self._stager.run()),
            ("maintenance", self._maintenance.run()),
            ("reporting", self._http.keep_delivering(self._report)),
            ("watch", self._watch()),
            ("figures", self._workforce.keep_reading()),
        ]

    def _spawn(self, name: str, part: Coroutine[Any, Any, None]) -> None:
        """Run a part; should it fail, everything stops, and the failure is raised."""
        task = asyncio.create_task(part, name=name)
        task.add_done_callback(self._part_ended)
        self._tasks.append(task)

    def _part_ended(self, task: asyncio.Task[Any]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        self._failure = self._failure or error
        self._stopping.set()

    def _report(self) -> PartReport:
        health, now = self._stager.health, self._clock.monotonic()
        return PartReport(
            reported_at=now,
            started=self._is_ready,
            shards=health.shards,
            lag_seconds=health.lag_seconds,
            stepped_at=health.stepped_at,
            reaped_at=self._maintenance.reaped_at,
            rounds=self._maintenance.rounds.ages(now),
            families=[*self._figures.collect(), *self._workforce.families()],
        )

    def _child_died(self, what: str, status: int) -> None:
        if not self._is_ready:
            self._fail(Refused(f"{what} ended with status {status} before it was ready; it said why above"))

    # -------------------------------------------------------------------------------------------------------- the start

    async def _demo(self, database: Database) -> NamedJob | None:
        if not self._plan.demo:
            await demo.end_demo(database)
            return None
        return await demo.schedule_demo(database, Rng())

    async def _wait_until_ready(self, database: Database, job: NamedJob | None) -> None:
        """Wait until shards are held, HTTP answers and every worker is registered; then print it."""
        deadline = self._clock.monotonic() + _START_SECONDS
        while not self._stopping.is_set():
            serving = await self._workforce.registered(database)
            if self._stager.health.shards and self._http.is_ready and len(serving) >= len(self._workforce):
                self._is_ready = True
                self._print_start(serving, job)
                return
            if self._clock.monotonic() > deadline:
                raise DatabaseUnusable(f"not ready after {_START_SECONDS:g} s; DULY_LOG_LEVEL=info shows what happens")
            await self._clock.sleep(_LOOK_SECONDS)

    def _print_start(self, serving: Sequence[WorkerRow], job: NamedJob | None) -> None:
        screen, address = self._screen, address_of(self._listener, self._plan.tls)
        shards = f"{self._stager.health.shards} of {SHARDS} shards"
        screen.fact("scheduler", f"{shards}       worker   {_work(serving)}")
        if job is not None:
            state = "every 10 seconds   (off with --no-demo)" if job.state == "active" else f"is {job.state}"
            screen.fact("demo", f'job "{job.name}" {state}')
        shown = "dashboard" if self._settings.dashboard else "http"
        screen.fact(shown, f"{address}    API /v1    docs /docs    health /readyz    metrics /metrics (with the key)")
        if self._metrics_listener is not None:
            metrics_address = address_of(self._metrics_listener)
            screen.fact("metrics", f"{metrics_address}/metrics    health /readyz?verbose    (both without a key)")
        screen.fact("database", f"{self._postgres.way_in(self._settings)}   opens it in psql")
        if may_call_loopback(self._settings):
            screen.fact(
                "webhooks", "may be sent to this machine, too: development mode   (--no-egress-loopback forbids it)"
            )
        for line in _allowed(self._settings):
            screen.line(f"  {line}")
        print_key(screen, self._key, address)
        fate = "the data goes with it" if self._plan.ephemeral else "the data stays (--ephemeral throws it away)"
        screen.line(f"ready in {self._clock.monotonic() - self._plan.began:.1f} s. Ctrl-C stops everything; {fate}.")

    async def _show_endings(self, database: Database, job: NamedJob) -> None:
        async for line in demo.endings(database, job):
            self._screen.line(line)

    async def _watch(self) -> None:
        """Restart PostgreSQL if it dies. Its start takes the main thread, which is this one: without it nothing runs anyway."""
        while True:
            self._postgres.revive(self._log)
            await self._clock.sleep(_WATCH_SECONDS)

    # ---------------------------------------------------------------------------------------------------------- the end

    async def _end(self) -> None:
        began = self._clock.monotonic()
        if self._is_ready:
            self._screen.line("stopping: workers, scheduler, PostgreSQL")
        await self._workforce.stop()
        if self._tasks:
            self._stager.stop()
            self._maintenance.stop()
        await asyncio.gather(self._http.stop(), self._let_loops_end())
        if self._metrics_listener is not None:
            self._metrics_listener.close()
        close_locally(self._local_listener)
        self._log.info("stopped", seconds=self._clock.monotonic() - began)

    async def _let_loops_end(self) -> None:
        endless = [task for task in self._tasks if task.get_name() in ("reporting", "watch", "figures", "demo")]
        for task in endless:
            task.cancel()
        if not self._tasks:
            return
        _, unfinished = await asyncio.wait(self._tasks, timeout=_LOOPS_STOP_SECONDS)
        for task in unfinished:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _allowed(settings: Settings) -> list[str]:
    """Describe the commands and containers that its workers may run."""
    if not settings.commands and not settings.containers:
        return []
    from duly.cli.up import programs  # it loads most of a worker, which nothing else here needs

    return list(programs.words(settings))


def _work(serving: Sequence[WorkerRow]) -> str:
    """Describe how many workers serve what, but for the queue of notifications, which nobody asked for."""
    if not serving:
        return "none; name an app for one: duly up --app module:app"
    queues = list(dict.fromkeys(queue for row in serving for queue in row.queues if queue != NOTIFICATIONS))
    return (
        f"{some(len(serving), 'process', 'processes')}, {'queue' if len(queues) == 1 else 'queues'} {', '.join(queues)}"
    )
