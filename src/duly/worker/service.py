"""The worker process: starts the parts and nothing else.

The engine has a thread and a loop of its own, so that a handler that blocks the handlers' loop delays no other run. A
worker that has lost its lease ends that life and begins another under a new id: the process does not exit.
"""

from __future__ import annotations

import asyncio
import gc
import importlib.util
import sys
import threading
from collections.abc import Callable, Mapping, Sequence, Set
from datetime import timedelta
from functools import partial
from uuid import UUID

import msgspec

from duly import __version__
from duly.clock import Rng
from duly.domain.diagnosis.apps import clashes
from duly.domain.diagnosis.figures import Histogram
from duly.domain.errors import DatabaseUnusable, DulyError, Refused
from duly.domain.jobs.declaration import Declarations
from duly.domain.limits.scaling import FUNCTIONS
from duly.domain.runs.run import NOTIFICATIONS
from duly.domain.targets.target import NOTIFICATION, WEBHOOK
from duly.domain.tenancy.sealing import FindKeyring, no_keyring
from duly.log import Log
from duly.moves.admin.notifications import keep_watching
from duly.moves.admin.seal import sealed_declarations
from duly.moves.defer import Deferred
from duly.moves.settle import End
from duly.moves.workers.retire import retire
from duly.store.connection.database import Database, Unavailable
from duly.store.connection.local import this_account, this_host
from duly.store.tables import clocks, workers
from duly.store.tables.workers import Identity
from duly.worker.claim import kind_of
from duly.worker.engine import Engine
from duly.worker.execute.child_processes import ChildProcesses
from duly.worker.execute.executor import Ended, Executor
from duly.worker.execute.loop_watch import LoopWatch
from duly.worker.execute.process_pool import ProcessPool
from duly.worker.execute.ray_tasks import RayTasks
from duly.worker.figures import Figures
from duly.worker.handlers import RAY, Handler, Registry
from duly.worker.heartbeat.lease import WorkerLease
from duly.worker.loop import new_loop
from duly.worker.outbox import Outbox
from duly.worker.pacing import retry_delay
from duly.worker.registrar import Registrar
from duly.worker.slots import POOL_OF, Kind, Pool, Slots
from duly.worker.targets import Targets

CONNECTIONS_MAX = 5
SETTLING_CONNECTIONS_MAX = 2  # one, and another while outcomes of an earlier life are still to be settled
_SWITCH_SECONDS = 0.0005  # the longest wait of the engine's thread for the interpreter while handlers compute
_REBIRTH_SECONDS_MAX = 1.0
_COLLECTION_THRESHOLD = 10_000  # objects made and not yet freed


class WorkerOptions(msgspec.Struct, frozen=True):
    """The configuration of a worker process."""

    name: str
    queues: tuple[str, ...] = ("default",)
    weights: tuple[int, ...] = ()  # of the queues, in their order; empty: all alike
    slots: int = 100
    threads: int = 10
    webhooks: int = 500
    processes: int = 4
    ray_tasks: int = 16
    ray_address: str = "auto"
    lease: timedelta = timedelta(seconds=15)
    grace_seconds: float = 8.0
    pooler: bool = False
    app_path: str | None = None  # "module:app", for child processes
    app_name: str | None = None  # its own name, or else its path


class WorkerHealth(msgspec.Struct):
    """The state of a worker."""

    running: int = 0
    waiting: int = 0
    held: int = 0
    settled: int = 0
    fenced: int = 0
    lives: int = 0
    registered: bool = False
    safe: bool = False


class Worker:
    """One worker process; handlers run on the loop that awaits `run`.

    `on_left_running` is called, on the engine's thread, when a worker was stopped and a handler has not ended by then.
    """

    def __init__(
        self,
        url: str,
        registry: Registry,
        options: WorkerOptions,
        *,
        rng: Rng,
        log: Log,
        declarations: Declarations | None = None,
        targets: Targets | None = None,
        keyring: FindKeyring = no_keyring,
        on_left_running: Callable[[], None] | None = None,
    ) -> None:
        self._targets = targets or Targets()
        if not registry.names() and not self._targets:
            raise Refused("the app has no handler; decorate a function with @app.handler")
        if on_ray := [handler for handler in registry if handler.executor == RAY]:
            _check_ray(on_ray[0], options)
        self._url = url
        self._registry = registry
        self._options = options
        self._declarations = None if declarations is None else sealed_declarations(keyring, declarations)
        self._keyring = keyring
        self._rng = rng
        self._log = log
        self._on_left_running = on_left_running
        self._executors: list[Executor] = []  # of this life, and of earlier ones whose handlers have not ended
        self._stopping = threading.Event()
        self._engine: Engine | None = None
        self._engine_loop: asyncio.AbstractEventLoop | None = None
        self._worker_lease: WorkerLease | None = None
        self._settling_late: set[asyncio.Task[None]] = set()
        self._outboxes: list[Outbox] = []
        self._past_settled = 0
        self._past_fenced = 0
        self._lives = 0
        self.figures = Figures()

    async def run(self) -> None:
        """Work until stopped. Raises DatabaseUnusable when the database cannot be used at the start."""
        sys.setswitchinterval(_SWITCH_SECONDS)
        handlers_loop = asyncio.get_running_loop()
        ended = handlers_loop.create_future()
        thread = threading.Thread(target=self._run_engine, args=(handlers_loop, ended), name="engine", daemon=True)
        thread.start()
        try:
            await ended
        finally:
            await self._targets.close()

    def stop(self) -> None:
        """Ask for a graceful end, from any thread."""
        self._stopping.set()
        if self._engine_loop is not None and not self._engine_loop.is_closed():
            self._engine_loop.call_soon_threadsafe(self._stop_engine)

    @property
    def health(self) -> WorkerHealth:
        """A snapshot of this worker."""
        engine, worker_lease = self._engine, self._worker_lease
        settled, fenced = self._outcomes()
        if engine is None or worker_lease is None:
            return WorkerHealth(settled=settled, fenced=fenced, lives=self._lives)
        running, waiting, held = engine.counts
        return WorkerHealth(
            running, waiting, held, settled, fenced, self._lives, registered=True, safe=worker_lease.is_safe
        )

    # -------------------------------------------------------------------------------------------- on the engine's thread

    def _run_engine(self, handlers_loop: asyncio.AbstractEventLoop, ended: asyncio.Future[None]) -> None:
        error: BaseException | None = None
        try:
            with asyncio.Runner(loop_factory=new_loop) as runner:
                runner.run(self._run_lives(handlers_loop))
        except BaseException as raised:  # noqa: BLE001 - carried over to the loop that awaits us
            error = raised
        self._report_left_running()
        handlers_loop.call_soon_threadsafe(_resolve, ended, error)

    async def _run_lives(self, handlers_loop: asyncio.AbstractEventLoop) -> None:
        self._engine_loop = asyncio.get_running_loop()
        database = Database(
            self._url,
            size_max=CONNECTIONS_MAX,
            pooler=self._options.pooler,
            application="duly worker",
            keyring=self._keyring,
        )
        await database.open()
        settling = database.beside(SETTLING_CONNECTIONS_MAX)
        try:
            while not self._stopping.is_set():
                try:
                    await self._live_once(database, settling, handlers_loop)
                except (Unavailable, DatabaseUnusable) as error:
                    self._log.warning("worker_waits", error=str(error))
                except Exception as error:  # noqa: BLE001 - a fault of a life must not end the process: it says so and waits
                    self._log.error("worker_life_failed", error=repr(error))
                if not self._stopping.is_set():
                    await database.clock.sleep(retry_delay(self._rng, _REBIRTH_SECONDS_MAX))
        finally:
            await settling.close()
            await database.close()

    async def _live_once(
        self, database: Database, settling: Database, handlers_loop: asyncio.AbstractEventLoop
    ) -> None:
        """Register, live, retire. Outcomes go over `settling`, so that nothing delays them."""
        identity = self._identity()
        await workers.register(database, identity)
        await database.read_clock()
        await self._warn_of_clashes(database, identity)
        self._lives += 1
        lease_seconds = self._options.lease.total_seconds()
        worker_lease = WorkerLease(
            self._url,
            identity.worker_id,
            lease_seconds,
            pooler=self._options.pooler,
            clock=database.clock,
            rng=self._rng,
            log=self._log,
            on_lost=self._lease_lost,
            on_returned=self._runs_returned,
        )
        pools = await self._isolating(settling, worker_lease)
        executor = self._executor_on(handlers_loop, settling, identity, worker_lease)
        self._executors = [executor, *(one for one in self._executors if one.is_busy)]
        try:
            await worker_lease.start(give_up=self._stopping.is_set)
            self._worker_lease = worker_lease
            engine = self._engine = Engine(
                database,
                identity,
                self._registry,
                self._targets,
                executor,
                worker_lease,
                settling=settling,
                slots=Slots(self._capacity()),
                pools=pools,
                on_late=partial(self._settle_late, settling, identity.worker_id),
                figures=self.figures,
                rng=self._rng,
                log=self._log,
            )
            await self._targets.begin(database, identity.worker_id)
            if self._stopping.is_set():
                engine.stop()
            watch = self._watch_over(handlers_loop, executor, engine, database)
            await self._live_out(engine, database, watch)
            await self._retire(database, engine)
        finally:
            executor.close()
            for pool in pools.values():
                pool.close()
            try:
                await self._targets.end()
                self._report_left_running()  # while the lease is valid: after its end another worker may run it
            finally:
                await worker_lease.stop()

    async def _isolating(self, database: Database, worker_lease: WorkerLease) -> dict[Kind, ProcessPool]:
        """Return the pools of isolated runs, by their kind."""
        if (app_path := self._options.app_path) is None:
            return {}
        children = ProcessPool(ChildProcesses(app_path))
        pools = {Kind.CHILD: children, Kind.ALONE: children}
        resources = {name: self._registry[name].resources for name in self._registry.names()}
        if self._capacity()[Pool.RAY]:
            tasks = RayTasks(
                resources,
                address=self._options.ray_address,
                # A schedule's runs have computed ids, which installations that share a cluster may have in common.
                namespace=f"duly-{await workers.installation(database)}",
                app_path=app_path,
                safe_until=lambda: worker_lease.safe_until,
                log=self._log,
            )
            pools[Kind.RAY] = ProcessPool(tasks)
        return pools

    async def _warn_of_clashes(self, database: Database, identity: Identity) -> None:
        """Log the handlers that another app offers on our queues as well: their runs go to either."""
        if self._lives:
            return  # it was logged at the start
        for clash in clashes(await workers.offers(database)):
            if identity.app in clash.apps and clash.queue in identity.queues:
                self._log.warning("handler_clash", says=clash.text, remedy=clash.remedy)

    def _report_left_running(self) -> None:
        """Report handlers that run on after we have stopped to the owner of the process, who can end it: a thread
        cannot be stopped.
        """
        if self._stopping.is_set() and any(executor.is_busy for executor in self._executors):
            self._log.warning("handlers_left_running")
            if self._on_left_running is not None:
                self._on_left_running()

    def _watch_over(
        self, handlers_loop: asyncio.AbstractEventLoop, executor: Executor, engine: Engine, database: Database
    ) -> LoopWatch:
        return LoopWatch(
            handlers_loop,
            executor,
            self._options.lease.total_seconds(),
            clock=database.clock,
            log=self._log,
            on_blocked=engine.give_up_loop_bound,
        )

    async def _live_out(self, engine: Engine, database: Database, watch: LoopWatch) -> None:
        self._outboxes.append(engine.outbox)
        beside = [
            asyncio.create_task(self._keep_registered(database), name="registrar"),
            asyncio.create_task(keep_watching(database, self._log), name="notifications"),
        ]
        if not watch.is_on_this_loop:  # if both are one, whatever blocks it keeps us from noticing
            beside.append(asyncio.create_task(watch.run(), name="loop watch"))
            noting = clocks.keep_recording(database, ["worker"], self._options.name, self._log)
            beside.append(asyncio.create_task(noting, name="host clock"))
        try:
            await engine.live(self._options.grace_seconds)
        finally:
            self._engine = None
            for task in beside:
                task.cancel()
            await asyncio.gather(*beside, return_exceptions=True)

    async def _keep_registered(self, database: Database) -> None:
        if self._declarations is not None:
            await Registrar(database.acting_as(this_account()), self._declarations, rng=self._rng, log=self._log).run()

    def _outcomes(self) -> tuple[int, int]:
        """Count settled and refused outcomes, in all lives; an outbox may outlive its life."""
        for outbox in [outbox for outbox in self._outboxes if outbox.is_done]:
            self._outboxes.remove(outbox)
            self._past_settled += outbox.settled
            self._past_fenced += outbox.fenced
        settled = self._past_settled + sum(outbox.settled for outbox in self._outboxes)
        return settled, self._past_fenced + sum(outbox.fenced for outbox in self._outboxes)

    def _identity(self) -> Identity:
        """A random id for each life: a host name may come back, and with it a stale claim to its leases."""
        options = self._options
        return Identity(
            self._rng.uuid(),
            options.name,
            __version__,
            [*options.queues, *([NOTIFICATIONS] if self._targets.get(NOTIFICATION) else [])],
            [*self._registry.names(), *self._targets.names()],
            sum(number for pool, number in self._capacity().items() if pool is not Pool.ALONE),
            options.lease,
            self._declarations.entries() if self._declarations else [],
            [*options.weights, *([1] if options.weights and self._targets.get(NOTIFICATION) else [])],
            self._pools(),
            options.app_name or options.app_path,
            this_host(),
        )

    def _pools(self) -> dict[str, int]:
        """Return the slots by use: functions, and each target, of which some share a pool."""
        capacity = self._capacity()
        targets = {target.name: capacity[POOL_OF[target.kind]] for target in self._targets}
        return {FUNCTIONS: capacity[Pool.LOOP] + capacity[Pool.PLAIN] + capacity[Pool.RAY], **targets}

    @property
    def webhook_durations(self) -> Mapping[str, Histogram]:
        """The durations of webhooks, by class of the response."""
        webhook = self._targets.get(WEBHOOK)
        return {} if webhook is None else webhook.durations

    @property
    def slots(self) -> dict[str, int]:
        """Return how many runs it may run at once, by pool."""
        return {str(pool): number for pool, number in self._capacity().items() if number}

    def _capacity(self) -> dict[Pool, int]:
        kinds = {kind_of(handler) for handler in self._registry}
        pools = {POOL_OF[target.kind] for target in self._targets}
        return {
            Pool.LOOP: self._options.slots if Kind.LOOP in kinds else 0,
            Pool.PLAIN: self._options.threads if Kind.THREAD in kinds else 0,
            # Without child processes suspects share ours, and then only one at a time can be to blame.
            Pool.ALONE: max(1, self._options.threads) if self._options.app_path else 1,
            Pool.WEBHOOK: self._options.webhooks if Pool.WEBHOOK in pools else 0,
            Pool.PROCESS: self._options.processes if Pool.PROCESS in pools else 0,
            Pool.RAY: self._options.ray_tasks if Kind.RAY in kinds else 0,
        }

    def _executor_on(
        self,
        handlers_loop: asyncio.AbstractEventLoop,
        settling: Database,
        identity: Identity,
        worker_lease: WorkerLease,
    ) -> Executor:
        """Build an executor, without using the handlers' loop: a handler of an earlier life may block it."""
        engine_loop = asyncio.get_running_loop()

        def carry(ended: list[Ended]) -> None:
            if not engine_loop.is_closed():
                engine_loop.call_soon_threadsafe(self._ended, settling, identity.worker_id, ended)

        return Executor(
            self._registry,
            self._targets,
            loop=handlers_loop,
            threads=self._options.threads + 1,
            clock=settling.clock,
            is_safe=lambda: worker_lease.is_safe,
            on_ended=carry,
            shared_state=worker_lease.shared_state,
        )

    def _ended(self, settling: Database, worker_id: UUID, ended: list[Ended]) -> None:
        if self._engine is not None and self._engine.worker_id == worker_id:
            self._engine.on_ended(ended)
        else:
            late = [item.settled for item in ended if item.settled is not None]
            self.figures.add(late)
            self._settle_late(settling, worker_id, late)

    def _settle_late(self, settling: Database, worker_id: UUID, late: Sequence[End | Deferred]) -> None:
        """Settle outcomes of an earlier life under its id: they count where no other worker holds the run."""
        if not late:
            return
        outbox = Outbox(
            settling,
            worker_id,
            rng=self._rng,
            log=self._log,
            on_settled=lambda _: None,
            settles=self.figures.settles,
        )
        self._outboxes.append(outbox)
        outbox.put(late)
        outbox.close()
        task = asyncio.create_task(outbox.run(), name="outbox")
        self._settling_late.add(task)
        task.add_done_callback(self._settling_late.discard)

    def _lease_lost(self) -> None:
        self._log.warning("lease_lost")
        if self._engine is not None:
            self._engine.lease_lost()

    def _runs_returned(self, kept: Set[tuple[UUID, int]]) -> None:
        self._log.warning("unstarted_runs_handed_back", reason="the engine stood still", started=len(kept))
        if self._engine is not None:
            self._engine.give_up_unstarted(kept)

    def _stop_engine(self) -> None:
        if self._engine is not None:
            self._engine.stop()

    async def _retire(self, database: Database, engine: Engine) -> None:
        try:
            await retire(database, engine.worker_id, engine.held)
        except DulyError as error:
            self._log.warning("retire_failed", error=str(error))


def collect_less_often() -> None:
    """Tune the garbage collector for processes that are only a worker."""
    # Each batch of runs makes enough objects to start a collection. It would scan everything that was ever imported: a
    # twelfth of a worker's CPU; and then the runs under way, which end soon without it: a twenty-fifth.
    gc.collect()
    gc.freeze()
    gc.set_threshold(_COLLECTION_THRESHOLD)


def _check_ray(handler: Handler, options: WorkerOptions) -> None:
    """Refuse to start a worker that could not run this handler on a Ray cluster. Raises Refused, naming the remedy."""
    what = f'handler {handler.name} has executor="ray"'
    if importlib.util.find_spec("ray") is None:
        raise Refused(f"{what}, but Ray is not installed: pip install 'duly[ray]'")
    if options.app_path is None:
        raise Refused(f"{what}: Ray loads the app by its name, so start the worker as `duly worker module:app`")
    if "://" in options.ray_address:
        raise Refused(
            f"ray_address {options.ray_address} is of Ray's client, which cannot do this; run the worker on a node of the"
            " cluster, and give host:port, such as 10.1.2.3:6379, or leave it out"
        )


def _resolve(ended: asyncio.Future[None], error: BaseException | None) -> None:
    if ended.done():
        return
    if error is None:
        ended.set_result(None)
    else:
        ended.set_exception(error)
