"""An environment: the app on a scratch database whose clock the test moves.

Due runs go through the real moves, in this process.

The clock goes from one due moment to the next, so each occurrence fires at its own moment, in order. `async def`
handlers run on the test's loop, plain functions in a thread. A timeout counts real seconds. It stops the former; the
latter, which a worker would kill in a child process, ends by itself here, and has timed out all the same.
"""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Any, Self
from uuid import UUID

import msgspec

from duly import __version__
from duly.clock import Rng, SystemClock
from duly.domain.duration import Duration, parse
from duly.domain.errors import InvalidSchedule
from duly.domain.jobs.job import check_moment
from duly.domain.runs.outcome import Awaited, Outcome, TimedOut, WaitForDestination
from duly.domain.runs.progress import Progress
from duly.domain.runs.run import Run
from duly.domain.targets.target import WORKFLOW
from duly.domain.tenancy.sealing import KEY_BYTES, Keyring
from duly.moves.admin.seal import sealed_declarations
from duly.moves.cancel import carry_out
from duly.moves.claim import claim
from duly.moves.defer import Deferred, defer
from duly.moves.schedules.backfill import go_on
from duly.moves.schedules.declare import declare
from duly.moves.settle import Settled, hand_back, settle
from duly.moves.stage import Cohorts, stage
from duly.moves.waiting import check_dependents, expire
from duly.moves.workflows.hand_out import hand_out
from duly.moves.workflows.runs import settle_ended
from duly.moves.workflows.workflows import run_workflow_tasks
from duly.sdk.app import App
from duly.sdk.background import sync_twin
from duly.sdk.handler import Handler
from duly.store.boxes import ready, runs
from duly.store.connection import test_clock
from duly.store.connection.database import Database
from duly.store.tables import schedules, shards, workers
from duly.testing.fires import Fire, Line, fire_of
from duly.testing.scratch import scratch
from duly.worker.context import RunContext
from duly.worker.execute.attempt import attempt_in_thread, attempt_on_loop
from duly.worker.handlers import Handler as Registered
from duly.worker.targets.workflow import start

START = datetime(2026, 1, 1, tzinfo=UTC)
FIRES_AT_ONE_MOMENT_MAX = 10_000
_LEASE = timedelta(days=1)
_CLAIM_MAX = 10_000
# Each look at the backfill lane may make what a whole second allows: its only limit in a test is its own rate.
_LANE_MAX = 500  # runs of backfills at one look
_SOURCE = "testing"
_KEYRING = Keyring({"testing": bytes(KEY_BYTES)})


def environment(app: App, *, at: datetime = START, seed: int = 0) -> Environment:
    """Put `app` on a scratch database for as long as the `with` or `async with` lasts; its time begins at `at`."""
    return Environment(app, check_moment(at, "at"), seed)


class Environment:
    """The environment of a test. `fires` are all attempts so far, in order."""

    def __init__(self, app: App, at: datetime, seed: int) -> None:
        self.fires: list[Fire] = []
        self._app = app
        self._at = at
        self._rng = Rng(seed)
        self._scheduler_id, self._worker_id = self._rng.uuid(), self._rng.uuid()
        self._renewed_at: datetime | None = None
        self._epochs: dict[int, int] = {}
        self._cohorts = Cohorts()
        self._next_due_at: datetime | None = None
        self._registered = 0
        self._open = ExitStack()

    @property
    def now(self) -> datetime:
        """Duly's current moment."""
        return self._at

    def runs(self, handler: Handler[..., ..., Any, Any] | str | None = None) -> list[Fire]:
        """Return the last attempt of each run, of one handler or of all, in the order of their first."""
        name = handler.name if isinstance(handler, Handler) else handler
        latest = {fire.run_id: fire for fire in self.fires}
        return [fire for fire in latest.values() if name is None or fire.handler == name]

    async def run_due(self) -> list[Fire]:
        """Run what is due at this moment, and what becomes due by it. Returns what fired."""
        if refused := await self._register():
            raise InvalidSchedule("; ".join(refused))
        database = await self._app.connections.database()
        await self._renew(database)
        await check_dependents(database)
        fired: list[Fire] = []
        while due := await self._take_due(database):
            for run in due:
                if run.handler == WORKFLOW:
                    await self._start(database, run)
                else:
                    fired.append(await self._fire(database, run))
            await carry_out(database)
            await run_workflow_tasks(database)
            await check_dependents(database)
            await settle_ended(database, self._rng)
            if len(fired) > FIRES_AT_ONE_MOMENT_MAX:
                raise RuntimeError(
                    f"{len(fired)} runs fired at {self._at} and there are more: does {fired[-1].handler} call itself?"
                )
        return fired

    async def advance(self, duration: Duration) -> list[Fire]:
        """Let time pass, stopping at each due moment to run what is due. Returns what fired."""
        return await self._advance_to(self._at + _span(duration, "advance"))

    async def outage(self, duration: Duration) -> None:
        """Let time pass without a scheduler or a worker: due runs start late, and may become misfires."""
        await self._move_to(self._at + _span(duration, "outage"))

    # For plain functions.
    run_due_sync = sync_twin(run_due)
    advance_sync = sync_twin(advance)
    outage_sync = sync_twin(outage)

    def __enter__(self) -> Self:
        self._use_scratch()
        self._app.background.run(self._register())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._app.background.run(self._app.close())
        finally:
            self._open.close()

    async def __aenter__(self) -> Self:
        self._use_scratch()
        await self._register()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._app.close()
        self.__exit__(kind, error, trace)

    def _use_scratch(self) -> None:
        server = scratch()
        name, url = server.create(self._at)
        self._open.callback(server.drop, name)
        self._open.enter_context(self._app.connections.elsewhere(url, _KEYRING))

    async def _register(self) -> list[str]:
        """Register the schedules that the app declares, and those declared since. Returns why some cannot be kept yet."""
        declarations = self._app.declarations(_SOURCE)
        if len(declarations.jobs) == self._registered:
            return []
        found = await declare(await self._app.connections.database(), declarations, self._rng)
        refused = [f"{one.name}: {one.reason}" for one in found if one.reason]
        self._registered = len(declarations.jobs) - len(refused)
        return refused

    async def _advance_to(self, moment: datetime) -> list[Fire]:
        fired = await self.run_due()
        while self._next_due_at is not None and self._at < self._next_due_at <= moment:
            await self._move_to(self._next_due_at)
            fired += await self.run_due()
        await self._move_to(moment)
        return fired

    async def _move_to(self, moment: datetime) -> None:
        await test_clock.move(await self._app.connections.database(), moment)
        self._at = moment

    async def _renew(self, database: Database) -> None:
        """Keep what a scheduler and a worker need to live; a lease lasts long enough to be renewed seldom."""
        if self._renewed_at is not None and self._at - self._renewed_at < _LEASE / 2:
            return
        if self._renewed_at is None:
            queues, names = self._app.queues, self._app.registry.names()
            declares = sealed_declarations(lambda: _KEYRING, self._app.declarations(_SOURCE)).entries()
            identity = workers.Identity(self._worker_id, "testing", __version__, queues, names, 1, _LEASE, declares)
            await workers.register(database, identity)
        await workers.heartbeat(database, self._worker_id)
        self._epochs = await shards.lease(database, self._scheduler_id, "testing", __version__, _LEASE)
        self._renewed_at = self._at

    async def _take_due(self, database: Database) -> list[Run]:
        """Stage, go on with backfills, and claim; hand back what is ahead of its time. Learns when there is more to do."""
        staged = await stage(database, self._scheduler_id, self._epochs, cohorts=self._cohorts, horizon=timedelta())
        await go_on(database, list(self._epochs), self._at, _LANE_MAX)
        await expire(database)
        queues = [row["queue"] for row in await ready.depth(database)]
        names = [*self._app.registry.names(), WORKFLOW]
        claimed = await claim(database, self._worker_id, queues, names, _CLAIM_MAX) if queues else []
        ahead = [run for run in claimed if run.due_at > self._at]
        await hand_back(database, self._worker_id, ahead)
        others = (staged.next_due_at, await schedules.lane_due(database, self._at))
        upcoming = [run.due_at for run in ahead] + [moment for moment in others if moment is not None]
        self._next_due_at = min(upcoming, default=None)
        return sorted((run for run in claimed if run.due_at <= self._at), key=_order)

    async def _start(self, database: Database, run: Run) -> None:
        """Start the workflow that a run is for; when that has ended, so has the run."""
        came_to = await start(database, run)
        if isinstance(came_to, WaitForDestination | Awaited):
            await defer(database, self._worker_id, [Deferred(run, self._at, came_to)])
        else:
            await settle(database, self._worker_id, [Settled(run, self._at, self._at, came_to)], self._rng)

    async def _fire(self, database: Database, run: Run) -> Fire:
        handler = self._app.registry[run.handler]
        run = msgspec.structs.replace(run, payload=await _payload_of(database, run))
        run = (await hand_out(database, [run])).get(run.run_id, run)
        payload = run.payload
        services = EnvironmentServices(self._app, self._worker_id)
        saved = (await runs.checkpoints(database, [run.run_id])).get(run.run_id) if run.attempt > 1 else None
        context = RunContext(run, services, started=self._at.timestamp(), saved=saved)
        outcome = await _attempt(handler, context, payload, run.policy.timeout_seconds)
        await services.flush(run)
        settled = Settled(run, self._at, self._at, outcome, context.left_behind)
        await settle(database, self._worker_id, [settled], self._rng)
        fire = fire_of(handler, run, payload, self._at, outcome, services.lines)
        self.fires.append(fire)
        return fire


class EnvironmentServices:
    """Serves one attempt: checkpoints and progress go to the real store, log lines to the test."""

    def __init__(self, app: App, worker_id: UUID) -> None:
        self._app = app
        self._worker_id = worker_id
        self.lines: list[Line] = []
        self._progress: Progress | None = None

    def log(self, run: Run, level: str, message: str, fields: dict[str, Any]) -> None:
        """Keep a line for the test."""
        self.lines.append(Line(level, message, fields))

    async def checkpoint(self, run: Run, body: str) -> bool:
        """Save a checkpoint. False: the lease is lost."""
        database = await self._app.connections.database()
        return await runs.save_checkpoint(database, run.run_id, run.fence, self._worker_id, body)

    def progress(self, run: Run, progress: Progress) -> None:
        """Record progress; it is written when the attempt ends."""
        self._progress = progress

    async def flush(self, run: Run) -> None:
        """Write the run's progress."""
        if self._progress is not None:
            database = await self._app.connections.database()
            await runs.save_progress(database, run.run_id, run.fence, self._worker_id, self._progress)

    def checkpoint_sync(self, run: Run, body: str) -> bool:
        """Save a checkpoint from a plain function."""
        return self._app.background.run(self.checkpoint(run, body))


def _span(duration: Duration, what: str) -> timedelta:
    span = parse(duration, what)
    if span < timedelta():
        raise InvalidSchedule(f"{what} {duration!r} is negative; time only goes on")
    return span


def _order(run: Run) -> tuple[datetime, int, int]:
    return run.due_at, run.priority, run.run_id.int


async def _payload_of(database: Database, run: Run) -> str | None:
    if not run.payload_stored:
        return run.payload
    return (await runs.payloads(database, [(run.job_id, run.generation)]))[run.job_id, run.generation]


async def _attempt(handler: Registered, context: RunContext, payload: str | None, timeout: float | None) -> Outcome:
    if handler.is_async:
        return await attempt_on_loop(handler, context, payload, timeout)
    return await asyncio.to_thread(_attempt_in_thread, handler, context, payload, timeout)


def _attempt_in_thread(handler: Registered, context: RunContext, payload: str | None, timeout: float | None) -> Outcome:
    clock = SystemClock()
    began = clock.monotonic()
    outcome = attempt_in_thread(handler, context, payload)
    return outcome if timeout is None or clock.monotonic() - began <= timeout else TimedOut(timeout)
