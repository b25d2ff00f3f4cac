"""One life of a worker: a lease, the runs under it, and the loops that move them.

intake  ── claim ──►  wheel (not yet due)  ──►  slots (due)  ──►  executor  ──►  outbox  ── settle

It ends when it is asked to stop (unstarted runs go back, active ones may end), or at once when the lease is lost: then
nothing more is started, and the store refuses every later outcome.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence, Set
from typing import Any
from uuid import UUID

from duly.clock import Rng
from duly.domain.limits.pause import Pauses
from duly.domain.runs.outcome import Cancelled, Succeeded
from duly.domain.runs.run import Run
from duly.log import Log
from duly.moves.defer import Deferred
from duly.moves.settle import End, Settled, hand_back
from duly.store.boxes import runs
from duly.store.boxes.leased import Finished
from duly.store.connection import hints
from duly.store.connection.database import Database, Unavailable
from duly.store.tables import workers
from duly.store.tables.workers import Identity
from duly.worker.claim import Claiming
from duly.worker.execute.executor import Ended, Executor
from duly.worker.execute.isolated import IsolatedRuns
from duly.worker.execute.process_pool import ProcessPool
from duly.worker.figures import Figures
from duly.worker.handlers import Registry
from duly.worker.heartbeat.lease import WorkerLease
from duly.worker.held_runs import HeldRun, HeldRuns
from duly.worker.outbox import Outbox
from duly.worker.pacing import REST_SECONDS, Setback, pause, retry_delay
from duly.worker.run_records import WorkerServices
from duly.worker.slots import POOL_OF, POOLS_ON_LOOP, Kind, Pool, Slots
from duly.worker.targets import Targets
from duly.worker.watch import Watch
from duly.worker.wheel import Wheel

LOOK_SECONDS = 0.25
LOOK_IDLE_SECONDS = 0.5
STUCK_SECONDS = dict.fromkeys(Pool, 0.25) | {Pool.ALONE: 0.5}
PATIENCE_SECONDS = 1.0  # runs that will start so soon are not worth handing back
NAMED_MAX = 2_000  # runs that are due and have not started
STALE_NEWS_SECONDS = 0.05
LAST_WORDS_SECONDS = 2.0
RETURN_SECONDS = 0.2
RETURN_SECONDS_MAX = 5.0
HINT_SECONDS = 0.01  # minimum time between hints at released nodes
# reservations are granted a second ahead: a later one is of a clock that was set back since
RESERVATION_AHEAD_SECONDS_MAX = 2.0
_QUIET = (Succeeded, Cancelled)  # outcomes that make nothing ready by themselves
PROGRESS_SECONDS = 0.25  # how often progress is written, however often handlers report it


class Engine:
    """The loops of one life, on the engine's own event loop."""

    def __init__(
        self,
        database: Database,
        identity: Identity,
        registry: Registry,
        targets: Targets,
        executor: Executor,
        worker_lease: WorkerLease,
        *,
        settling: Database,
        slots: Slots,
        pools: Mapping[Kind, ProcessPool],
        on_late: Callable[[Sequence[End | Deferred]], None],
        figures: Figures,
        rng: Rng,
        log: Log,
    ) -> None:
        self.identity = identity
        self._figures = figures
        self._database = database
        self._clock = database.clock
        self._executor = executor
        self._worker_lease = worker_lease
        self._pools = pools  # of the kinds of runs that are isolated
        self._on_late = on_late  # called with an outcome that comes after this life
        self._rng = rng
        self._log = log
        self._slots = slots
        self._wheel: Wheel[HeldRun] = Wheel()
        self._held_runs = HeldRuns(executor.shared_state)
        self._watch = Watch(database, identity.worker_id)
        self._services = WorkerServices(database, identity.worker_id, lambda: worker_lease.is_safe, settling=settling)
        self.outbox = Outbox(
            settling,
            identity.worker_id,
            rng=rng,
            log=log,
            on_settled=self._on_settled,
            write_lines=self._services.flush_ended,
            do_starts_wait=lambda: slots.waiting > 0,
            settles=figures.settles,
        )
        self._wake_starts = asyncio.Event()
        self._hinted_at = float("-inf")
        self._stopping = False
        self._ended = asyncio.Event()
        self._background: set[asyncio.Task[None]] = set()
        self._giving_up: asyncio.Task[None] | None = None
        self._setback = Setback()
        self._finished = dict.fromkeys(Pool, 0)
        self._signalled: dict[tuple[UUID, int], runs.Signal] = {}  # cancels, as of the last look
        self._recalled: dict[tuple[UUID, int], runs.Signal] = {}  # likewise
        self._waiting: set[tuple[UUID, int]] = set()  # runs that were due and had not started at the last look
        self._are_named = False  # some of them are recorded in the database
        self._claiming = self._claiming_for(registry, targets)
        self._isolated = IsolatedRuns(
            database,
            identity.worker_id,
            worker_lease,
            pools,
            executor,
            self._services,
            on_ended=self.on_ended,
            on_unable=self._put_off,
            is_recalled=self._is_recalled,
            log=log,
        )

    def _claiming_for(self, registry: Registry, targets: Targets) -> Claiming:
        """Return the claiming of runs that these handlers can run, into our held runs and our wheel."""
        return Claiming(
            self._database,
            self.identity,
            registry,
            targets,
            self._worker_lease,
            held_runs=self._held_runs,
            wheel=self._wheel,
            slots=self._slots,
            watch=self._watch,
            look_again=self._look_once,
            can_kill=Kind.CHILD in self._pools,
            ended=self._ended,
            is_closed=lambda: self.outbox.is_full or self._watch.is_draining,
            on_received=self._wake_starts.set,
            on_spent=self._settle,
            on_expired=self.lease_lost,
            figures=self._figures,
            log=self._log,
        )

    @property
    def worker_id(self) -> UUID:
        """The id of this life."""
        return self.identity.worker_id

    @property
    def counts(self) -> tuple[int, int, int]:
        """Return how many runs are running, waiting for a slot, and held in all."""
        return self._slots.running, self._slots.waiting, len(self._held_runs)

    @property
    def held(self) -> list[Run]:
        """The held runs: waiting, running, or with an outcome that is not written yet."""
        return [held.run for held in self._held_runs]

    async def live(self, grace_seconds: float) -> None:
        """Claim, run and settle until asked to stop or until the lease is lost; then end in order."""
        claiming = self._claiming
        loops = [
            self._start_due,
            self._look,
            self._guard,
            self._keep_logs,
            claiming.return_unknown_leases,
            claiming.listen,
        ]
        tasks = [asyncio.create_task(self._survive(loop), name=loop.__name__) for loop in loops]
        taking_in = [asyncio.create_task(self._survive(claiming.take_in, intake)) for intake in claiming.intakes]
        settling = asyncio.create_task(self._survive(self.outbox.run), name="outbox")
        try:
            await self._ended.wait()
            if not self._stopping:
                self._interrupt()  # first of all: after the end of the lease, another worker may run what we run
            # A claim under way is answered first, or its leases would be unknown.
            await asyncio.wait(taking_in, timeout=LAST_WORDS_SECONDS)
            for task in taking_in:
                task.cancel()
            await self._wind_down(grace_seconds)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._write_last_lines(grace_seconds if self._stopping else LAST_WORDS_SECONDS)
            self.outbox.close()
            if self._stopping:
                await asyncio.wait({settling}, timeout=grace_seconds)
                settling.cancel()
            # Otherwise it goes on beside the next life: when the database is back, outcomes still count where no other
            # worker has the run.

    def stop(self) -> None:
        """Ask for a graceful end."""
        self._stopping = True
        self.lease_lost()

    def lease_lost(self) -> None:
        """End at once: the lease is lost."""
        self._ended.set()
        self._claiming.wake()

    def give_up_unstarted(self, kept: Set[tuple[UUID, int]]) -> None:
        """Drop all runs that have not started: the heartbeat handed them back while we were stalled, except these."""
        self._executor.revoke({(run.run_id, run.fence) for run in self.held} - kept)
        self._hand_back(self._wheel.drain(), self._slots.drain())  # what was not handed back then is now

    def give_up_loop_bound(self, is_blocked: Callable[[], bool]) -> None:
        """Hand back runs that wait for the handlers' loop.

        Their slots are freed, and more is claimed, when the loop turns again.
        """
        queued = [run for pool in POOLS_ON_LOOP for run in self._slots.give_up(pool, 0)]
        self._hand_back(self._wheel.take_out(lambda held: POOL_OF[held.kind] in POOLS_ON_LOOP), queued)
        unstarted = self._executor.take_back()
        self._take_back(unstarted)
        if unstarted or not self._claiming.closed_pools:
            self._claiming.closed_pools = POOLS_ON_LOOP
            self._spawn(self._release_after_block([item.kind for item in unstarted], is_blocked))

    async def _release_after_block(self, kinds: list[Kind], is_blocked: Callable[[], bool]) -> None:
        while is_blocked() and not self._ended.is_set():
            await self._clock.sleep(REST_SECONDS)
        self._claiming.closed_pools = frozenset()
        self._release(kinds)
        self._claiming.wake()

    # ------------------------------------------------------------------------------------------------------- the loops

    async def _start_due(self) -> None:
        """Move due runs from the wheel to the slots, and start those that have one."""
        measured = self._clock.monotonic()
        while not self._ended.is_set():
            now = self._worker_lease.now()
            for held in self._wheel.advance(now):
                held.intake.leased_ahead -= 1
                if not held.cancelled:
                    self._slots.queue(held.kind, held.run, now)
            if self._slots.waiting and not self._watch.is_fresh:
                await self._watch.catch_up()
                continue
            starting = self._slots.take()
            self._start(starting)
            self._figures.ticked_at = self._clock.monotonic()
            measured = self._measure(measured)
            await self._clock.wait(self._wake_starts, self._pause(len(starting)))
            if self._slots.waiting:
                self._give_up_stuck()

    def _pause(self, started: int) -> float:
        next_due = self._wheel.next_due()
        left = None if next_due is None else next_due - self._worker_lease.now()
        return pause(held=len(self._held_runs), started=started, waiting=self._slots.waiting, left_seconds=left)

    def _measure(self, since: float) -> float:
        now = self._clock.monotonic()
        if now - since < 0.05:
            return since
        for pool, room in self._claiming.rooms.items():
            room.observe(self._finished[pool], now - since)
            self._finished[pool] = 0
        return now

    def _start(self, starting: list[tuple[Kind, Run]]) -> None:
        """Pass runs to their executor. A run that was cancelled or paused meanwhile frees its slot at once."""
        batch: list[tuple[Kind, Run, str | None]] = []
        suspects: list[HeldRun] = []
        unstarted: list[Run] = []
        if self._signalled:  # the answer to a claim may have come after the look that read its cancel
            self._heed_late([run for _, run in starting])
        for kind, run in starting:
            held = self._held_runs.find(run.run_id, run.fence)
            if held is None or held.cancelled:
                self._slots.release(kind)
                continue
            if self._watch.pauses.cover(run) or self._is_recalled(run):
                self._slots.release(kind)
                unstarted.append(run)
                continue
            held.started = True
            self._figures.started += 1
            if kind is Kind.ALONE:
                suspects.append(held)
            elif kind in (Kind.CHILD, Kind.RAY):
                self._spawn(self._isolated.run(held))
            else:
                batch.append((kind, run, held.saved))
        if batch and (without_thread := self._executor.start(self._services, batch)):
            self._figures.started -= len(without_thread)
            self._put_off([Ended(kind, run, None) for kind, run in without_thread])
        if suspects:
            self._spawn(self._isolated.run_alone(suspects))
        if unstarted:
            self._return(unstarted)

    def _give_up_stuck(self) -> None:
        """Hand back runs that wait too long for a slot and will not start soon: other workers may be free."""
        if self._giving_up is not None and not self._giving_up.done():
            return  # the store has not answered for the last ones; more would take its connections from all others
        stuck: list[Run] = []
        for pool, room in self._claiming.rooms.items():
            keep = max(self._slots.free_in(pool), int(room.rate * PATIENCE_SECONDS))
            waited = self._worker_lease.now() - self._slots.waits_since(pool)
            if self._slots.waiting_for(pool) > keep and waited >= STUCK_SECONDS[pool]:
                room.shrink()
                stuck += self._slots.give_up(pool, keep)
        if stuck:
            self._giving_up = self._return(stuck)

    async def _look(self) -> None:
        """Read the database clock, our signals and the pauses, several times a second; also while stopping."""
        while True:
            await self._look_once()
            await self._name_unstarted()
            await self._watch.rest(LOOK_SECONDS if self._held_runs else LOOK_IDLE_SECONDS)

    async def _look_once(self) -> None:
        known, limits = self._watch.pauses, self._watch.limits
        signals = (await self._watch.look()).signals
        self._signalled = {(signal.run_id, signal.fence): signal for signal in signals if signal.kind == "cancel"}
        for signal in self._signalled.values():
            self._heed(signal)
        self._recalled = {(signal.run_id, signal.fence): signal for signal in signals if signal.kind == "recall"}
        if self._recalled:
            self._give_back_recalled()
        self._executor.pauses = self._watch.pauses
        if self._watch.pauses:
            self._keep_back(self._watch.pauses)
        if self._watch.pauses != known:
            self._claiming.wake()  # resumed scopes may be claimed now
        if narrowed := self._watch.limits.narrowed_since(limits):
            self._keep_back(narrowed)  # it was claimed before the limit, and is claimed again under it
        if self._claiming.last_reservation_at > (latest := self._clock.now() + RESERVATION_AHEAD_SECONDS_MAX):
            self._claiming.last_reservation_at = latest
            self._hand_back(
                self._wheel.take_out(
                    lambda held: held.run.policy.rate is not None and held.run.due_at.timestamp() > latest
                )
            )

    async def _name_unstarted(self) -> None:
        """Record the due runs that have waited for their start since the last look, so that they read as ready until then."""
        before, self._waiting = self._waiting, self._slots.queued | self._executor.queued | self._isolated.waiting
        unstarted = [run_id for run_id, _ in before & self._waiting][:NAMED_MAX]
        if unstarted or self._are_named:
            await workers.name_unstarted(self._database, self.worker_id, unstarted)
        self._are_named = bool(unstarted)

    def _keep_back(self, pauses: Pauses) -> None:
        """Hand back covered runs that have not started, wherever they wait."""
        ahead = self._wheel.take_out(lambda held: pauses.cover(held.run))
        self._hand_back(ahead, self._slots.take_out(pauses.cover))

    def _give_back_recalled(self) -> None:
        """Hand back recalled runs that have not started; for started ones, drop the signal, which is the answer."""
        ahead = self._wheel.take_out(lambda held: self._is_recalled(held.run))
        self._hand_back(ahead, self._slots.take_out(self._is_recalled))
        queued = self._executor.take_back(self._recalled)
        self._take_back(queued)
        self._release([item.kind for item in queued])
        started = [signal for signal in self._recalled.values() if self._has_started(signal)]
        if started:
            self._spawn(self._tidy_up([], started))

    def _is_recalled(self, run: Run) -> bool:
        return bool(self._recalled) and (run.run_id, run.fence) in self._recalled

    def _has_started(self, signal: runs.Signal) -> bool:
        return self._executor.shared_state.has(signal.run_id, signal.fence)

    def _hand_back(self, ahead: list[HeldRun], queued: Sequence[Run] = ()) -> None:
        """Hand back runs taken out of the wheel and the slots."""
        for held in ahead:
            held.intake.leased_ahead -= 1
        if waiting := [*queued, *(held.run for held in ahead)]:
            self._return(waiting)

    def _heed(self, signal: runs.Signal) -> None:
        """Act on a signal, once. It stays until the outcome is written: should we die before, it speaks for the run."""
        held = self._held_runs.find(signal.run_id, signal.fence)
        if held is None or held.cancelled:
            return  # we may not know the run yet: the answer to its claim is on its way
        if held.started:
            self._ask_to_stop(held)
        else:
            self._settle([held.as_cancelled()])  # wherever it waits, it will not be started
        held.cancelled = True

    def _heed_late(self, starting: list[Run]) -> None:
        for run in starting:
            if (signal := self._signalled.get((run.run_id, run.fence))) is not None:
                self._heed(signal)

    def _ask_to_stop(self, held: HeldRun) -> None:
        if (pool := self._pools.get(held.kind)) is not None:
            pool.cancel(held.run)
        else:
            self._executor.cancel(held.run)

    async def _guard(self) -> None:
        """End this life when the lease could not be renewed in time: from here on another worker may hold our runs."""
        while not self._ended.is_set():
            if not self._worker_lease.is_safe:
                # A handler that blocked the interpreter kept us from reading a renewal: read before giving up.
                await self._clock.sleep(STALE_NEWS_SECONDS)
                if self._worker_lease.is_lost:
                    self._log.error("self_fenced", worker_id=self.worker_id)
                    self.lease_lost()
            await self._clock.sleep(0.1 if self._held_runs else 0.5)

    async def _keep_logs(self) -> None:
        """Write log lines; also while stopping."""
        shown_at = self._clock.monotonic()
        while True:
            await self._services.flush()
            if self._clock.monotonic() - shown_at >= PROGRESS_SECONDS:
                await self._services.flush_progress()
                shown_at = self._clock.monotonic()
            await self._clock.sleep(0.1 if self._held_runs else 0.5)

    # ------------------------------------------------------------------------------------------------------- endings

    def on_ended(self, ended: list[Ended]) -> None:
        """Free the slots of ended runs, and pass their outcomes on."""
        for kind, number in Counter(item.kind for item in ended).items():
            self._slots.release(kind, number)
            self._finished[POOL_OF[kind]] += number
        self._services.end([item.run for item in ended])
        settled = [item.settled for item in ended if item.settled is not None]
        if self._services.owes_any and (owing := [item for item in settled if self._services.owes_progress(item.run)]):
            self._spawn(self._settle_after_progress(owing))
            settled = [item for item in settled if not self._services.owes_progress(item.run)]
        self._settle(settled)
        if unstarted := [item for item in ended if item.settled is None]:
            self._take_back(unstarted)
        self._slots_came_free()

    def _settle(self, settled: Sequence[End | Deferred]) -> None:
        """Pass outcomes to the outbox, also those that come after it has stopped."""
        self._figures.add(settled)
        if self.outbox.is_done:
            self._on_late(settled)
        else:
            self.outbox.put(settled)

    def _slots_came_free(self) -> None:
        if self._slots.waiting:  # otherwise no run waits for them
            self._wake_starts.set()
        self._claiming.wake_if_worthwhile()

    def _put_off(self, unstarted: list[Ended]) -> None:
        """Hand back runs that could not be started here.

        Their slots are freed later: we would only claim them again, and fail again.
        """
        self._take_back(unstarted)
        seconds = self._setback.seconds(self._clock.monotonic())
        self._spawn(self._release_later([item.kind for item in unstarted], seconds))

    async def _release_later(self, kinds: list[Kind], seconds: float) -> None:
        await self._until(self._ended.is_set, seconds)
        self._release(kinds)

    def _release(self, kinds: list[Kind]) -> None:
        for kind in kinds:
            self._slots.release(kind)
        self._slots_came_free()

    def _take_back(self, unstarted: list[Ended]) -> None:
        """Settle the runs that were asked to stop, and hand back the others."""
        given = [item.run for item in unstarted]
        self._settle([held.as_cancelled() for held in self._held_runs.of(given) if held.cancelled])
        self._return(given)
        if named := [item.run for item in unstarted if item.kind is Kind.ALONE]:
            self._spawn(self._tidy_up(named, []))

    async def _settle_after_progress(self, settled: list[End | Deferred]) -> None:
        """Write the progress of runs while the lease is valid, then their outcomes."""
        try:
            if self._worker_lease.is_safe:
                await self._services.flush_progress()
        finally:
            self._settle(settled)

    def _on_settled(self, settled: list[End | Deferred]) -> None:
        done = [item.run for item in settled]
        over = self._held_runs.let_go(done)
        self._services.forget(done)
        named = [held.run for held in over if held.kind is Kind.ALONE]
        signals = [runs.Signal(held.run.run_id, held.run.fence, "cancel") for held in over if held.cancelled]
        if named or signals:
            self._spawn(self._tidy_up(named, signals))
        if any(_leads_on(item) for item in settled if not isinstance(item, Finished)):
            self._claiming.wake()
        elif self._watch.limits:
            # a slot of a concurrency key is free, which it was not while its run was ending
            self._claiming.wake_if_worthwhile()
        if any(run.metadata.node for run in done):
            self._hint_at_released_nodes()

    def _hint_at_released_nodes(self) -> None:
        """Look for nodes that our outcomes released, and hint at them; under load everybody looks anyway."""
        now = self._clock.monotonic()
        if self._claiming.wake_idle() and now - self._hinted_at >= HINT_SECONDS:
            self._hinted_at = now
            self._spawn(self._hint())

    async def _hint(self) -> None:
        with contextlib.suppress(Unavailable):
            await hints.send(self._database, self.identity.queues)

    async def _tidy_up(self, named: list[Run], signals: list[runs.Signal]) -> None:
        """Withdraw the announcements and signals of runs, once their outcomes are written."""
        with contextlib.suppress(Unavailable):
            if named:
                await workers.retract(self._database, self.worker_id, named)
            if signals:
                await runs.drop_signals(self._database, self.worker_id, signals)

    def _return(self, given: list[Run]) -> asyncio.Task[None]:
        """Hand back runs that were not started. From here on we do not hold them; others settle the cancelled ones."""
        unstarted = [held.run for held in self._held_runs.of(given) if not held.cancelled]
        self._held_runs.let_go(unstarted)
        return self._spawn(self._hand_back_until_answered(unstarted))

    async def _hand_back_until_answered(self, unstarted: list[Run]) -> None:
        pause = RETURN_SECONDS
        while True:
            try:
                await hand_back(self._database, self.worker_id, unstarted)
                return
            except Unavailable:
                self._claiming.doubt()
            except Exception as error:  # noqa: BLE001 - whatever it was, they hang on us still
                self._log.error("hand_back_failed", runs=len(unstarted), error=repr(error))
                self._claiming.doubt()
                pause = min(2 * pause, RETURN_SECONDS_MAX)
            if not self._ended.is_set():
                return  # the periodic check will find them
            # The periodic check has ended, and a later reclaim would count them as started.
            await self._clock.sleep(pause)

    async def _write_last_lines(self, seconds: float) -> None:
        """Write the last log lines, within so long: a database that does not answer must not delay the end."""
        with contextlib.suppress(Exception):
            async with asyncio.timeout(seconds):
                await self._services.flush()

    async def _wind_down(self, grace_seconds: float) -> None:
        """Hand back what was not started, let active runs end within the grace period, then interrupt them."""
        waiting = [*self._slots.drain(), *(held.run for held in self._wheel.drain())]
        self._return(waiting)
        self._isolated.stop()
        if self._stopping:
            await self._until(lambda: self._is_quiet or not self._worker_lease.is_safe, grace_seconds)
        self._interrupt()
        await self._until(lambda: self._is_quiet or not (self._stopping or self._slots.running), LAST_WORDS_SECONDS)

    def _interrupt(self) -> None:
        self._executor.interrupt()
        for held in self._held_runs:
            if held.started and (pool := self._pools.get(held.kind)) is not None:
                pool.interrupt(held.run)

    async def _until(self, condition: Callable[[], bool], seconds: float) -> None:
        deadline = self._clock.monotonic() + seconds
        while not condition() and self._clock.monotonic() < deadline:
            await self._clock.sleep(0.01)

    @property
    def _is_quiet(self) -> bool:
        """Return whether nothing runs and everything is written."""
        return not (self._slots.running or len(self.outbox) or self._background)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._on_background_end)
        return task

    def _on_background_end(self, task: asyncio.Task[None]) -> None:
        self._background.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            doing = getattr(task.get_coro(), "__name__", None)
            self._log.error("background_task_failed", doing=doing, error=repr(error))

    async def _survive(self, loop: Callable[..., Coroutine[Any, Any, None]], *args: Any) -> None:
        """Keep a loop going through errors, each logged with what it was doing. It ends by itself, or is cancelled."""
        while True:
            try:
                await loop(*args)
            except Unavailable as error:
                self._log.warning("database_unavailable", doing=loop.__name__, error=str(error))
            except Exception as error:  # noqa: BLE001 - a loop that must not end says what it was doing and goes on
                self._log.error("loop_failed", doing=loop.__name__, error=repr(error))
            else:
                return
            await self._clock.sleep(retry_delay(self._rng))


def _leads_on(item: End | Deferred) -> bool:
    """Return whether this outcome may make something ready: the next attempt, or a run that waited for the slot."""
    if type(item) is Settled and type(item.outcome) not in _QUIET:
        return True
    return item.run.policy.has_consequence
