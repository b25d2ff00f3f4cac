"""One life of a worker: a lease, the runs that hang on it, and the loops that move them.

    intake  ── claim ──►  wheel (not yet due)  ──►  line (due)  ──►  executor  ──►  outbox  ── settle

It ends when it is asked to stop (what was not started goes back, what runs may end), or at once when the lease is gone:
then nothing more is started, and every outcome that still comes is refused by the store.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any
from uuid import UUID

import asyncpg
import msgspec

from duly.clock import Rng, moment_of
from duly.domain.errors import WorkerExpired
from duly.domain.outcome import Cancelled, Failed, Succeeded
from duly.domain.run import Run, encode_options
from duly.log import Log
from duly.moves.claim import claim
from duly.moves.settle import Settled, hand_back
from duly.store import leased, runs, workers
from duly.store.database import Database, Unavailable
from duly.store.workers import Identity
from duly.worker.crew import Crew
from duly.worker.desk import WorkerDesk
from duly.worker.executor import Ended, Executor
from duly.worker.handlers import Registry
from duly.worker.intake import Intake, Room
from duly.worker.lifeline import Lifeline
from duly.worker.outbox import Outbox
from duly.worker.slots import POOL_OF, Kind, Pool, Slots
from duly.worker.wheel import Wheel

POLL_SECONDS = 0.5
LOOK_SECONDS = 0.25
LOOK_IDLE_SECONDS = 1.0
STUCK_SECONDS = {Pool.LOOP: 0.25, Pool.PLAIN: 0.25, Pool.ALONE: 0.5}
SUSPECTS_MAX = 1_000
PATIENCE_SECONDS = 1.0  # What will start within so long is not worth handing back.
BELT_SECONDS = 30.0
BELT_IN_DOUBT_SECONDS = 1.0
DOUBT_SECONDS = 60.0  # A claim whose answer was lost may still commit until the server has noticed that we are gone.
STALE_NEWS_SECONDS = 0.05
LAST_WORDS_SECONDS = 2.0
RETURN_SECONDS = 0.2
HINT_CHANNEL = "duly_ready"


class Held(msgspec.Struct):
    """A run in our hands."""

    run: Run
    kind: Kind
    intake: Intake
    saved: str | None = None
    started: bool = False
    cancelled: bool = False  # Someone asked for it; one that was not started never will be.

    def as_cancelled(self) -> Settled:
        """Give the outcome of a run that was cancelled before its handler was called."""
        return Settled(self.run, None, None, Cancelled(), self.saved is not None)


class Engine:
    """The loops of one life, on the engine's own event loop."""

    def __init__(
        self,
        database: Database,
        identity: Identity,
        registry: Registry,
        executor: Executor,
        lifeline: Lifeline,
        *,
        slots: Slots,
        crew: Crew | None,
        rng: Rng,
        log: Log,
    ) -> None:
        self.identity = identity
        self._database = database
        self._clock = database.clock
        self._registry = registry
        self._executor = executor
        self._lifeline = lifeline
        self._crew = crew
        self._log = log
        self._slots = slots
        self._wheel: Wheel[Held] = Wheel()
        self._rooms = {pool: Room(number) for pool, number in slots.capacity.items()}
        self._intakes = {
            pool: Intake(pool, names, self._rooms[pool]) for pool, names in _names_by_pool(registry).items()
        }
        self._held: dict[UUID, Held] = {}
        self._handler_options = _options_of(registry)
        self._desk = WorkerDesk(database, identity.worker_id, lambda: lifeline.is_safe)
        self.outbox = Outbox(database, identity.worker_id, rng=rng, log=log, on_settled=self._on_settled)
        self._wake_line = asyncio.Event()
        self._stopping = False
        self._gone = asyncio.Event()
        self._in_doubt = asyncio.Event()
        self._in_doubt_until = float("-inf")
        self._children: set[asyncio.Task[None]] = set()
        self._finished = dict.fromkeys(Pool, 0)

    @property
    def worker_id(self) -> UUID:
        """The name of this life."""
        return self.identity.worker_id

    @property
    def counts(self) -> tuple[int, int, int]:
        """How many runs are running, waiting for a slot, and held in all."""
        return self._slots.running, self._slots.waiting, len(self._held)

    @property
    def held(self) -> list[Run]:
        """The runs in our hands: waiting, running, or with an outcome that is not written yet."""
        return [held.run for held in self._held.values()]

    async def live(self, grace_seconds: float) -> None:
        """Claim, run and settle until asked to stop or until the lease is gone; then end in order."""
        loops = [self._start_due, self._look, self._guard, self._keep_logs, self._mind_the_belt, self._listen]
        tasks = [asyncio.create_task(self._survive(loop), name=loop.__name__) for loop in loops]
        taking_in = [asyncio.create_task(self._survive(self._take_in, intake)) for intake in self._intakes.values()]
        settling = asyncio.create_task(self.outbox.run(), name="outbox")
        try:
            await self._gone.wait()
            if not self._stopping:
                self._interrupt()  # First of all: from the end of the lease on, someone else may run what we run.
            # A claim under way is answered first, or its runs would hang on us.
            await asyncio.wait(taking_in, timeout=LAST_WORDS_SECONDS)
            for task in taking_in:
                task.cancel()
            await self._wind_down(grace_seconds)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self.outbox.close()
            if self._stopping:
                await asyncio.wait({settling}, timeout=grace_seconds)
                settling.cancel()
            # Otherwise it goes on beside the next life: when the database is back, outcomes are taken that nobody else has made.
            with contextlib.suppress(Exception):
                await self._desk.flush()

    def stop(self) -> None:
        """Ask for a graceful end."""
        self._stopping = True
        self.lease_lost()

    def lease_lost(self) -> None:
        """End at once: the lease is gone."""
        self._gone.set()
        self._wake_intakes()

    # ------------------------------------------------------------------------------------------------------- the loops

    async def _take_in(self, intake: Intake) -> None:
        """Claim while there is room; sleep when there is nothing to claim or no room."""
        while not self._gone.is_set():
            limit = 0 if self.outbox.is_full or not self._lifeline.is_safe else self._claimable(intake)
            if limit == 0:
                pause = 0.02 if self._slots.waiting_for(intake.pool) else POLL_SECONDS
                await self._clock.wait(intake.wake, pause)
                continue
            held_before = intake.held_ahead
            claimed = await self._claim(intake, limit)
            intake.more = len(claimed) >= limit
            found_early = intake.held_ahead > held_before
            if found_early and intake.held_ahead < intake.room.ahead and len(claimed) >= limit // 2:
                intake.room.grow()
            elif found_early or not claimed or len(claimed) < limit // 2:
                await self._clock.wait(intake.wake, POLL_SECONDS)  # There is nothing more that is due.

    def _claimable(self, intake: Intake) -> int:
        if self._slots.waiting_for(Pool.ALONE) >= SUSPECTS_MAX:
            return 0
        free, waiting = self._slots.free_in(intake.pool), self._slots.waiting_for(intake.pool)
        return intake.room.left(free=free, waiting=waiting, held_ahead=intake.held_ahead)

    def _wake_intakes(self) -> None:
        for intake in self._intakes.values():
            intake.wake.set()

    async def _claim(self, intake: Intake, limit: int) -> list[Run]:
        try:
            async with intake.claiming:
                claimed = await claim(self._database, self.worker_id, self.identity.queues, intake.handlers, limit)
                await self._receive(intake, claimed)
        except Unavailable:
            self._doubt()
            raise
        except WorkerExpired:
            # While our heart beats, only the database's clock was set forwards: the next beat makes up for it.
            if not self._lifeline.is_safe:
                self.lease_lost()
            return []
        return claimed

    async def _receive(self, intake: Intake, claimed: list[Run]) -> None:
        """Hold what was claimed: in the wheel until it is due, in line when it is."""
        if not claimed:
            return
        extras = await self._fetch_extras(claimed)
        now = self._lifeline.now()
        for run in claimed:
            whole, saved = extras.get(run.run_id, (run, None))
            if whole.options is None and whole.handler in self._handler_options:
                whole = msgspec.structs.replace(whole, options=self._handler_options[whole.handler])
            held = self._held[run.run_id] = Held(whole, self._kind_of(whole), intake, saved)
            due = run.due_at.timestamp()
            if due > now:
                self._wheel.insert(due, held)
                intake.held_ahead += 1
            else:
                self._slots.queue(held.kind, whole, now)
        self._wake_line.set()

    async def _fetch_extras(self, claimed: list[Run]) -> dict[UUID, tuple[Run, str | None]]:
        """Fetch what stands outside the rows: large payloads, and checkpoints of earlier attempts."""
        special = [run for run in claimed if run.payload_stored or run.attempt > 1]
        if not special:
            return {}
        bodies = await runs.payloads(
            self._database, [(run.job_id, run.generation) for run in special if run.payload_stored]
        )
        saved = await runs.checkpoints(self._database, [run.run_id for run in special if run.attempt > 1])
        return {
            run.run_id: (
                msgspec.structs.replace(run, payload=bodies.get((run.job_id, run.generation), run.payload)),
                saved.get(run.run_id),
            )
            for run in special
        }

    def _kind_of(self, run: Run) -> Kind:
        handler = self._registry[run.handler]
        if run.suspect:
            return Kind.ALONE
        if handler.is_async:
            return Kind.LOOP
        can_kill = self._crew is not None and run.options is not None and run.policy.timeout_seconds is not None
        return Kind.CHILD if can_kill else Kind.THREAD

    async def _start_due(self) -> None:
        """Move what has fallen due from the wheel into line, and start whoever has a slot."""
        measured = self._clock.monotonic()
        while not self._gone.is_set():
            now = self._lifeline.now()
            for held in self._wheel.advance(now):
                held.intake.held_ahead -= 1
                if not held.cancelled:
                    self._slots.queue(held.kind, held.run, now)
            self._start(self._slots.take())
            measured = self._measure(measured)
            next_due = self._wheel.next_due()
            left = 0.1 if next_due is None else next_due - self._lifeline.now()
            pause = max(0.0005, min(0.1 if self._held else 1.0, left))
            await self._clock.wait(self._wake_line, pause if self._held else 1.0)
            if self._slots.waiting:
                await self._give_up_what_is_stuck()

    def _measure(self, since: float) -> float:
        now = self._clock.monotonic()
        if now - since < 0.05:
            return since
        for pool, room in self._rooms.items():
            room.observe(self._finished[pool], now - since)
            self._finished[pool] = 0
        return now

    def _start(self, starting: list[tuple[Kind, Run]]) -> None:
        """Hand runs to whoever executes them. One that was cancelled meanwhile frees its slot at once."""
        batch: list[tuple[Kind, Run, str | None]] = []
        suspects: list[Held] = []
        for kind, run in starting:
            held = self._held.get(run.run_id)
            if held is None or held.run.fence != run.fence or held.cancelled:
                self._slots.release(kind)
                continue
            held.started = True
            if kind is Kind.ALONE:
                suspects.append(held)
            elif kind is Kind.CHILD:
                self._spawn(self._run_apart(held))
            else:
                batch.append((kind, run, held.saved))
        if batch:
            self._executor.start(self._desk, batch)
        if suspects:
            self._spawn(self._run_alone(suspects))

    async def _run_alone(self, suspects: list[Held]) -> None:
        """Announce suspects, so that the death of each is laid at its own door; then run each in a child process."""
        if await self._announce([held.run for held in suspects]):
            for held in suspects:
                self._spawn(self._run_apart(held))
        else:
            self.on_ended([Ended(held.kind, held.run, None) for held in suspects])

    async def _run_apart(self, held: Held) -> None:
        """Run one in a child process."""
        run, kind = held.run, held.kind
        if not self._lifeline.is_safe or held.cancelled:
            self.on_ended([Ended(kind, run, None)])
            return
        if self._crew is None:
            self._executor.start(self._desk, [(kind, run, held.saved)])
            return
        started_at = moment_of(self._clock.now())
        try:
            outcome, left_behind = await self._crew.run(
                run, started_at, held.saved, run.policy.timeout_seconds, self._desk.on_said
            )
        except Exception as error:  # noqa: BLE001 - whatever becomes of a child, its run must not stay in our hands
            self._log.error("child_failed", run_id=run.run_id, error=repr(error))
            outcome, left_behind = Failed(f"its child process failed: {error!r}"), True
        settled = Settled(run, started_at, moment_of(self._clock.now()), outcome, left_behind or held.saved is not None)
        self.on_ended([Ended(kind, run, settled)])

    async def _announce(self, suspects: list[Run]) -> bool:
        try:
            return self._lifeline.is_safe and await workers.announce(self._database, self.worker_id, suspects)
        except Unavailable:
            return False

    async def _give_up_what_is_stuck(self) -> None:
        """Hand back what waits for a slot longer than it should and will not start soon: others may be free."""
        for pool, room in self._rooms.items():
            keep = max(self._slots.free_in(pool), int(room.rate * PATIENCE_SECONDS))
            waited = self._lifeline.now() - self._slots.waits_since(pool)
            if self._slots.waiting_for(pool) > keep and waited >= STUCK_SECONDS[pool]:
                room.shrink()
                await self._return(self._slots.give_up(pool, keep))

    async def _look(self) -> None:
        """Read the database's clock and our signals, several times a second while we hold anything."""
        while not self._gone.is_set():
            for signal in await runs.look(self._database, self.worker_id):
                self._heed(signal)
            await self._clock.sleep(LOOK_SECONDS if self._held else LOOK_IDLE_SECONDS)

    def _heed(self, signal: runs.Signal) -> None:
        """Do as a signal says, once. It stays until the outcome is written: should we die before, it speaks for the run."""
        held = self._held.get(signal.run_id)
        if held is None or held.run.fence != signal.fence or held.cancelled:
            return  # We may not know the run yet: the answer to its claim is on its way.
        if held.started:
            self._ask_to_stop(held)
        else:
            self.outbox.put([held.as_cancelled()])  # Wherever it waits, it will not be started.
        held.cancelled = True

    def _ask_to_stop(self, held: Held) -> None:
        if held.kind in (Kind.CHILD, Kind.ALONE) and self._crew is not None:
            self._crew.cancel(held.run)
        else:
            self._executor.cancel(held.run)

    async def _guard(self) -> None:
        """End this life when the lease could not be renewed in time: from here on someone else may hold our runs."""
        while not self._gone.is_set():
            if not self._lifeline.is_safe:
                # A handler that held the interpreter kept us from hearing good news: listen before believing the worst.
                await self._clock.sleep(STALE_NEWS_SECONDS)
                if not self._lifeline.is_safe:
                    self._log.error("self_fenced", worker_id=self.worker_id)
                    self.lease_lost()
            await self._clock.sleep(0.1 if self._held else 0.5)

    async def _keep_logs(self) -> None:
        while not self._gone.is_set():
            await self._desk.flush()
            await self._clock.sleep(0.1 if self._held else 0.5)

    async def _mind_the_belt(self) -> None:
        """Hand back leases that hang on us and that we do not know: claims whose answer was lost."""
        while not self._gone.is_set():
            doubtful = self._clock.monotonic() < self._in_doubt_until
            await self._clock.wait(self._in_doubt, BELT_IN_DOUBT_SECONDS if doubtful else BELT_SECONDS)
            hanging = await leased.held_by(self._database, self.worker_id, timedelta(), 10_000)
            for intake in self._intakes.values():
                async with intake.claiming:
                    pass  # A claim that was under way when we looked has been answered now.
            unknown = [run for run in hanging if not self._knows(run)]
            if unknown and await hand_back(self._database, self.worker_id, unknown):
                self._log.warning("unknown_leases_handed_back", runs=len(unknown))

    def _doubt(self) -> None:
        """Remember that runs may hang on us of which we know nothing."""
        self._in_doubt_until = self._clock.monotonic() + DOUBT_SECONDS
        self._in_doubt.set()

    def _knows(self, run: Run) -> bool:
        held = self._held.get(run.run_id)
        return held is not None and held.run.fence == run.fence

    def _is_cancelled(self, run: Run) -> bool:
        return self._knows(run) and self._held[run.run_id].cancelled

    async def _listen(self) -> None:
        """Wake the intake on a hint. Only a hint: the poll is the truth, so a lost connection costs latency alone.

        Behind a pooler there are none: a listener is part of a session, and sessions are shared there.
        """
        if self._database.pooler:
            return
        while not self._gone.is_set():
            try:
                connection = await asyncpg.connect(self._database.url, timeout=5.0, statement_cache_size=0)
            except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, TimeoutError):
                await self._clock.sleep(2.0)
                continue
            try:
                await connection.add_listener(HINT_CHANNEL, lambda *_: self._wake_intakes())
                while not connection.is_closed():
                    await self._clock.sleep(1.0)
            except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
                await self._clock.sleep(1.0)
            finally:
                connection.terminate()

    # ------------------------------------------------------------------------------------------------------- endings

    def on_ended(self, ended: list[Ended]) -> None:
        """Free the slots of runs that have ended, and pass their outcomes on."""
        for item in ended:
            self._slots.release(item.kind)
            self._finished[POOL_OF[item.kind]] += 1
        self.outbox.put([item.settled for item in ended if item.settled is not None])
        if unstarted := [item.run for item in ended if item.settled is None]:
            self.outbox.put([self._held[run.run_id].as_cancelled() for run in unstarted if self._is_cancelled(run)])
            self._spawn(self._return(unstarted))
        self._wake_line.set()
        for intake in self._intakes.values():
            if intake.more and self._claimable(intake) >= intake.worth_asking:
                intake.wake.set()

    def _on_settled(self, settled: list[Settled]) -> None:
        over: list[Held] = []
        for item in settled:
            if self._knows(item.run):
                over.append(self._held.pop(item.run.run_id))
            self._desk.forget(item.run)
        named = [held.run for held in over if held.kind is Kind.ALONE]
        told = [runs.Signal(held.run.run_id, held.run.fence, "cancel") for held in over if held.cancelled]
        if named or told:
            self._spawn(self._tidy_up(named, told))
        if any(_leads_on(item) for item in settled):
            self._wake_intakes()

    async def _tidy_up(self, named: list[Run], told: list[runs.Signal]) -> None:
        """Take back what speaks for runs after our death, once their outcomes are written: names, and what we were told."""
        with contextlib.suppress(Unavailable):
            if named:
                await workers.retract(self._database, self.worker_id, named)
            if told:
                await runs.drop_signals(self._database, self.worker_id, told)

    async def _return(self, given: list[Run]) -> None:
        """Hand back runs that were not started."""
        unstarted = [run for run in given if self._knows(run) and not self._is_cancelled(run)]
        for run in unstarted:
            del self._held[run.run_id]
        while True:
            try:
                await hand_back(self._database, self.worker_id, unstarted)
                return
            except Unavailable:
                self._doubt()
            if not self._gone.is_set():
                return  # The belt will find them.
            await self._clock.sleep(
                RETURN_SECONDS
            )  # There is no belt any more, and who finds them later thinks they were started.

    async def _wind_down(self, grace_seconds: float) -> None:
        """Hand back what was not started, let what runs end within the grace, then interrupt it."""
        waiting = [*self._slots.drain(), *(held.run for held in self._wheel.drain())]
        self._spawn(self._return(waiting))
        if self._stopping:
            await self._until(lambda: self._is_quiet or not self._lifeline.is_safe, grace_seconds)
        self._interrupt()
        await self._until(lambda: self._is_quiet or not (self._stopping or self._slots.running), LAST_WORDS_SECONDS)

    def _interrupt(self) -> None:
        self._executor.interrupt()
        for held in self._held.values():
            if held.started and self._crew is not None and held.kind in (Kind.CHILD, Kind.ALONE):
                self._crew.interrupt(held.run)

    async def _until(self, condition: Callable[[], bool], seconds: float) -> None:
        deadline = self._clock.monotonic() + seconds
        while not condition() and self._clock.monotonic() < deadline:
            await self._clock.sleep(0.01)

    @property
    def _is_quiet(self) -> bool:
        """Whether nothing runs and everything is written."""
        return not (self._slots.running or len(self.outbox) or self._children)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._children.add(task)
        task.add_done_callback(self._children.discard)

    async def _survive(self, loop: Callable[..., Coroutine[Any, Any, None]], *args: Any) -> None:
        """Keep a loop going through errors, each said with what it was doing."""
        while not self._gone.is_set():
            try:
                await loop(*args)
            except Unavailable as error:
                self._log.warning("database_unavailable", doing=loop.__name__, error=str(error))
            except Exception as error:  # noqa: BLE001 - a loop that must not end says what it was doing and goes on
                self._log.error("loop_failed", doing=loop.__name__, error=repr(error))
            else:
                return
            await self._clock.sleep(0.3)


def _leads_on(item: Settled) -> bool:
    """Say whether something may be ready by this outcome: the next attempt, or whoever waited for the place at its gate."""
    return type(item.outcome) not in (Succeeded, Cancelled) or item.run.has_consequence


def _options_of(registry: Registry) -> dict[str, str]:
    """Say what holds for runs that were submitted without a word about it, by plain SQL or the command line."""
    written = {name: encode_options(registry[name].options) for name in registry.names()}
    return {name: options for name, options in written.items() if options is not None}


def _names_by_pool(registry: Registry) -> dict[Pool, list[str]]:
    """Sort the handlers' names, aliases too, by what their runs compete for."""
    names: dict[Pool, list[str]] = {}
    for name in registry.names():
        names.setdefault(Pool.LOOP if registry[name].is_async else Pool.PLAIN, []).append(name)
    return names
