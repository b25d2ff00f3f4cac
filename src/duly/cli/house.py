"""Everything `duly up` runs: scheduler, maintenance and HTTP on one loop, workers as children.

It starts in the order in which the parts need each other, and stops the other way round: workers first, so that their runs
are settled or handed back; then the loops; PostgreSQL, which is the caller's, last.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Coroutine, Sequence
from typing import Any

import msgspec

from duly.api.app import create
from duly.api.health import Vitals
from duly.api.listening import address_of
from duly.api.metrics import Metrics
from duly.api.queries import NamedJob
from duly.api.server import Server
from duly.cli import demo, scheduler
from duly.cli.children import Child, Keeper, duly_command
from duly.cli.options import span
from duly.cli.postgres import Postgres
from duly.cli.screen import Screen, some
from duly.clock import Rng, SystemClock
from duly.domain.errors import DatabaseUnusable, Refused
from duly.log import Log
from duly.moves.stage import HORIZON
from duly.scheduler.service import TICK_SECONDS
from duly.settings import Settings
from duly.store import migrate, workers
from duly.store.database import Database
from duly.store.shards import SHARDS

_START_SECONDS = 20.0
_LOOK_SECONDS = 0.02
_WATCH_SECONDS = 0.5
# The whole ends within ten seconds of Ctrl-C: a worker's runs have at most so long to finish, the worker a moment more to
# settle and say good-bye, the loops another; the rest is PostgreSQL's.
_GRACE_SECONDS_MAX = 5.5
_GOODBYE_SECONDS = 1.0
_LOOPS_STOP_SECONDS = 1.0
_CONNECTIONS_MAX, _API_CONNECTIONS_MAX = 4, 2


class Plan(msgspec.Struct, frozen=True):
    """What to run."""

    settings: Settings
    workers: int
    demo: bool
    ephemeral: bool


class House:
    """One `duly up`."""

    def __init__(self, plan: Plan, postgres: Postgres, listener: socket.socket, screen: Screen, began: float) -> None:
        self._plan = plan
        self._settings = plan.settings
        self._postgres = postgres
        self._listener = listener
        self._screen = screen
        self._began = began
        self._clock = SystemClock()
        self._log = Log("up")
        self._name = scheduler.process_name()
        self._grace = min(span(plan.settings, "grace").total_seconds(), _GRACE_SECONDS_MAX)
        self._stopping = asyncio.Event()
        self._failure: BaseException | None = None
        self._tasks: list[asyncio.Task[Any]] = []
        self._keepers: list[Keeper] = []
        self._deaths = 0
        self._is_ready = False

    async def run(self) -> None:
        """Start everything, run until asked to stop, stop everything. Raises what made it fail."""
        pooler = self._settings.pooler
        async with Database(self._postgres.url, size_max=_CONNECTIONS_MAX, pooler=pooler) as database:
            await self._migrate(database)
            api = Database(self._postgres.url, size_max=_API_CONNECTIONS_MAX, pooler=pooler, command_timeout=2.0)
            async with api:
                try:
                    await self._live(database, api)
                finally:
                    await self._end()
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """Ask for the end, on the loop."""
        self._stopping.set()

    async def _migrate(self, database: Database) -> None:
        began = self._clock.monotonic()
        applied = await migrate.migrate(database)
        text = f"{some(len(applied), 'migration')} applied" if applied else f"up to date at {len(migrate.known()):04d}"
        self._screen.fact("schema", text, self._clock.monotonic() - began)

    async def _live(self, database: Database, api: Database) -> None:
        await self._start_workers()
        self._stager, self._maintenance = scheduler.build(self._settings, database, self._name)
        vitals = self._vitals(api)
        metrics = Metrics(vitals, Log("metrics"))
        self._server = Server(create(vitals, metrics, Log("api")), self._listener)
        for name, part in self._parts(metrics):
            self._spawn(name, part)
        job = await self._demo(database)
        await self._wait_until_ready(database, job)
        vitals.started = self._is_ready
        if job is not None and self._is_ready:
            self._spawn("demo", self._show_endings(api, job))
        await self._stopping.wait()

    def _parts(self, metrics: Metrics) -> list[tuple[str, Coroutine[Any, Any, None]]]:
        return [
            ("scheduler", self._stager.run()),
            ("maintenance", self._maintenance.run()),
            ("http", self._server.run()),
            ("metrics", metrics.run()),
            ("watch", self._watch()),
        ]

    def _spawn(self, name: str, part: Coroutine[Any, Any, None]) -> None:
        """Run a part; should it fail, everything stops, and the failure is told."""
        task = asyncio.create_task(part, name=name)
        task.add_done_callback(self._part_ended)
        self._tasks.append(task)

    def _part_ended(self, task: asyncio.Task[Any]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        self._failure = self._failure or error
        self._stopping.set()

    def _vitals(self, api: Database) -> Vitals:
        return Vitals(
            database=api,
            scheduler=self._stager.health,
            reaped_at=lambda: self._maintenance.reaped_at,
            lease_expiries=lambda: self._maintenance.reaper.reaped,
            tick_seconds=TICK_SECONDS,
            horizon_seconds=HORIZON.total_seconds(),
            workers_expected=len(self._keepers),
        )

    # ------------------------------------------------------------------------------------------------------- the workers

    async def _start_workers(self) -> None:
        for number, path in enumerate(self._apps(), 1):
            child = Child(duly_command("worker", path, *self._worker_flags(number)))
            keeper = Keeper(child, "worker", clock=self._clock, log=self._log, on_death=self._worker_died)
            self._keepers.append(keeper)
            await keeper.start()

    def _apps(self) -> list[str]:
        """Name the app of each worker process; the demo shares none with a user's app."""
        mine, theirs = [demo.PATH] if self._plan.demo else [], self._settings.app
        return [*([theirs] * self._plan.workers), *mine] if theirs else mine * self._plan.workers

    def _worker_flags(self, number: int) -> Sequence[str]:
        """Hand on what was given to us as a flag; variables and files it reads by itself."""
        given = [
            name
            for name in ("database_url", "log_level", "log_format")
            if self._settings.sources[name].startswith("--")
        ]
        flags = [part for name in given for part in (f"--{name.replace('_', '-')}", str(getattr(self._settings, name)))]
        data = self._postgres.data or self._settings.data
        fixed = {"--name": f"{self._name}.{number}", "--data": str(data), "--grace": str(self._grace)}
        return ["--tied", "--quiet", *(part for pair in fixed.items() for part in pair), *flags]

    def _worker_died(self, status: int) -> None:
        self._deaths += 1
        if not self._is_ready:
            self._fail(Refused(f"a worker ended with status {status} before it was ready; it said why above"))

    # -------------------------------------------------------------------------------------------------------- the start

    async def _demo(self, database: Database) -> NamedJob | None:
        if not self._plan.demo:
            await demo.end_demo(database)
            return None
        return await demo.schedule_demo(database, Rng())

    async def _wait_until_ready(self, database: Database, job: NamedJob | None) -> None:
        """Wait until shards are held, HTTP answers and every worker is registered; then tell."""
        deadline = self._clock.monotonic() + _START_SECONDS
        while not self._stopping.is_set():
            serving = await self._serving(database)
            if self._stager.health.shards and self._server.started and len(serving) >= len(self._keepers):
                self._is_ready = True
                self._tell(serving, job)
                return
            if self._clock.monotonic() > deadline:
                raise DatabaseUnusable(f"not ready after {_START_SECONDS:g} s; DULY_LOG_LEVEL=info shows what happens")
            await self._clock.sleep(_LOOK_SECONDS)

    async def _serving(self, database: Database) -> list[workers.WorkerRow]:
        return [row for row in await workers.live(database) if row.name.startswith(f"{self._name}.")]

    def _tell(self, serving: Sequence[workers.WorkerRow], job: NamedJob | None) -> None:
        screen, address = self._screen, address_of(self._listener)
        queues = list(dict.fromkeys(queue for row in serving for queue in row.queues))
        work = f"{some(len(serving), 'process', 'processes')}, {'queue' if len(queues) == 1 else 'queues'} {', '.join(queues)}"
        screen.fact(
            "scheduler", f"{self._stager.health.shards} of {SHARDS} shards       worker   {work if serving else 'none'}"
        )
        if job is not None:
            state = "every 10 seconds   (off with --no-demo)" if job.state == "active" else f"is {job.state}"
            screen.fact("demo", f'job "{job.name}" {state}')
        screen.fact("health", f"{address}/readyz?verbose    metrics {address}/metrics")
        fate = "the data goes with it" if self._plan.ephemeral else "the data stays (--ephemeral throws it away)"
        screen.line(f"ready in {self._clock.monotonic() - self._began:.1f} s. Ctrl-C stops everything; {fate}.")

    async def _show_endings(self, database: Database, job: NamedJob) -> None:
        async for line in demo.endings(database, job):
            self._screen.line(line)

    async def _watch(self) -> None:
        """See that PostgreSQL lives. Its start takes the main thread, which is this one: without it nothing runs anyway."""
        while True:
            self._postgres.revive(self._log)
            await self._clock.sleep(_WATCH_SECONDS)

    # ---------------------------------------------------------------------------------------------------------- the end

    async def _end(self) -> None:
        began = self._clock.monotonic()
        if self._is_ready:
            self._screen.line("stopping: workers, scheduler, PostgreSQL")
        await asyncio.gather(*(keeper.stop(self._grace + _GOODBYE_SECONDS) for keeper in self._keepers))
        if self._tasks:
            self._stager.stop()
            self._maintenance.stop()
            self._server.stop()
            await self._let_loops_end()
        self._log.info("stopped", seconds=self._clock.monotonic() - began)

    async def _let_loops_end(self) -> None:
        endless = [task for task in self._tasks if task.get_name() in ("metrics", "watch", "demo")]
        for task in endless:
            task.cancel()
        _, late = await asyncio.wait(self._tasks, timeout=_LOOPS_STOP_SECONDS)
        for task in late:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
