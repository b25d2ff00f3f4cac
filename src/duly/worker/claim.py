"""Claiming: claims as many runs as there is room for, and holds each until it is due or has a slot.

A claim whose answer was lost leaves leases that we do not know of: a periodic check finds them and hands them back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from uuid import UUID

import msgspec

from duly.domain.errors import WorkerExpired
from duly.domain.limits.pause import Pauses
from duly.domain.runs.lifecycle import spent
from duly.domain.runs.options import PLAIN, RunPolicy
from duly.domain.runs.run import Run
from duly.log import Log
from duly.moves.claim import claim, claim_all
from duly.moves.settle import Settled, hand_back
from duly.moves.workflows.hand_out import hand_out
from duly.outbound import traces
from duly.store.boxes import leased, runs
from duly.store.connection import hints
from duly.store.connection.database import Database, Unavailable
from duly.store.tables.workers import Identity
from duly.worker.figures import Figures
from duly.worker.handlers import RAY, Handler, Registry
from duly.worker.heartbeat.lease import WorkerLease
from duly.worker.held_runs import HeldRun, HeldRuns
from duly.worker.intake import Intake, Room
from duly.worker.slots import POOL_OF, Kind, Pool, Slots
from duly.worker.targets import Targets
from duly.worker.watch import Watch
from duly.worker.wheel import Wheel

POLL_SECONDS = 0.5
POLL_BUSY_SECONDS = 0.02
SUSPECTS_MAX = 1_000
UNKNOWN_LEASES_SECONDS = 30.0
UNKNOWN_LEASES_BATCH = 5_000
UNKNOWN_LEASES_IN_DOUBT_SECONDS = 1.0
# a claim whose answer was lost may still commit until the server has noticed that the connection is lost
DOUBT_SECONDS = 60.0


class Claiming:
    """The intakes of one life of a worker."""

    def __init__(
        self,
        database: Database,
        identity: Identity,
        registry: Registry,
        targets: Targets,
        worker_lease: WorkerLease,
        *,
        held_runs: HeldRuns,
        wheel: Wheel[HeldRun],
        slots: Slots,
        watch: Watch,
        look_again: Callable[[], Awaitable[None]],
        can_kill: bool,
        ended: asyncio.Event,
        is_closed: Callable[[], bool],
        on_received: Callable[[], None],
        on_spent: Callable[[Sequence[Settled]], None],
        on_expired: Callable[[], None],
        figures: Figures,
        log: Log,
    ) -> None:
        self._figures = figures
        self._database = database
        self._clock = database.clock
        self._identity = identity
        self._registry = registry
        self._targets = targets
        self._worker_lease = worker_lease
        self._held_runs = held_runs
        self._wheel = wheel
        self._slots = slots
        self._watch = watch
        self._look_again = look_again
        self._can_kill = can_kill
        self._ended = ended
        self._is_closed = is_closed
        self._on_received = on_received
        self._on_spent = on_spent
        self._on_expired = on_expired
        self._log = log
        self.rooms = {pool: Room(number) for pool, number in slots.capacity.items()}
        self.intakes = [
            Intake(pool, names, self.rooms[pool]) for pool, names in _names_by_pool(registry, targets).items()
        ]
        self._policies = _policies_of(registry)
        self._kinds = _kinds_of(registry, targets)
        self.closed_pools: frozenset[Pool] = frozenset()  # nothing is claimed for these: their executor is blocked
        self.last_reservation_at = float("-inf")  # the latest reservation of a rate limit that we were given
        self._in_doubt = asyncio.Event()
        self._in_doubt_until = float("-inf")

    async def take_in(self, intake: Intake) -> None:
        """Claim while there is room; sleep when there is nothing to claim or no room."""
        while not self._ended.is_set():
            limit = 0 if self._is_closed() or not self._worker_lease.is_safe else self._claimable(intake)
            if limit == 0:
                pause = POLL_BUSY_SECONDS if self._slots.waiting_for(intake.pool) else POLL_SECONDS
                await self._clock.wait(intake.wake, pause)
                continue
            held_before = intake.leased_ahead
            claimed = await self._claim(intake, limit)
            # Under a limit there may be more than we were given, and it comes when held runs end.
            intake.more = len(claimed) >= limit or bool(self._watch.limits)
            found_early = intake.leased_ahead > held_before
            # A full claim filled the free slots, too: it may hold more ahead than the budget, and there may be more.
            may_hold_more = intake.leased_ahead < intake.room.ahead or (len(claimed) >= limit and intake.room.may_grow)
            if found_early and may_hold_more and len(claimed) >= limit // 2:
                intake.room.grow()
            elif found_early or not claimed or len(claimed) < limit // 2:
                await self._clock.wait(intake.wake, POLL_SECONDS)  # nothing more is due

    def wake(self) -> None:
        """Look now."""
        for intake in self.intakes:
            intake.wake.set()

    def heed(self, hint: str) -> None:
        """Look now where the run that a hint names would be claimed."""
        queue, handler = hints.names_of(hint)
        if queue and queue not in self._identity.queues:
            return
        for intake in self.intakes:
            if not handler or handler in intake.handlers:
                intake.wake.set()

    def wake_idle(self) -> bool:
        """Look now where the last look found nothing more. Returns whether that was so anywhere."""
        idle = [intake for intake in self.intakes if not intake.more]
        for intake in idle:
            intake.wake.set()
        return bool(idle)

    def wake_if_worthwhile(self) -> None:
        """Look now where slots are free, and the last claim left more."""
        for intake in self.intakes:
            if intake.more and self._claimable(intake) >= intake.worth_asking:
                intake.wake.set()

    def _claimable(self, intake: Intake) -> int:
        if self._slots.waiting_for(Pool.ALONE) >= SUSPECTS_MAX or intake.pool in self.closed_pools:
            return 0
        free, waiting = self._slots.free_in(intake.pool), self._slots.waiting_for(intake.pool)
        return intake.room.left(free=free, waiting=waiting, leased_ahead=intake.leased_ahead)

    async def _claim(self, intake: Intake, limit: int) -> list[Run]:
        try:
            async with intake.claiming:
                identity, limits, stalls = self._identity, self._watch.limits, self._worker_lease.stalls
                take = claim if intake.more else claim_all
                began, asked_at = self._clock.monotonic(), self._clock.now()
                claimed = await take(
                    self._database, identity.worker_id, identity.queues, intake.handlers, limit, identity.weights
                )
                self._figures.claims.observe(self._clock.monotonic() - began)
                self._figures.claimed += len(claimed)
                if claimed and traces.is_on():
                    for run in claimed:
                        traces.claimed(run, asked_at, self._clock.now())
                if narrowed := self._watch.limits.narrowed_since(limits):
                    claimed = await self._keep_within(narrowed, claimed)
                await self._receive(intake, claimed, stalls)
        except Unavailable:
            self.doubt()
            raise
        except WorkerExpired:
            # While our heartbeat works, only the database clock was set forwards: the next heartbeat makes up for it.
            if not self._worker_lease.is_safe:
                self._on_expired()
            return []
        return claimed

    async def _keep_within(self, narrowed: Pauses, claimed: list[Run]) -> list[Run]:
        """Hand back runs that may have been claimed before a limit that we have seen since."""
        if covered := [run for run in claimed if narrowed.cover(run)]:
            await hand_back(self._database, self._identity.worker_id, covered)
        return [run for run in claimed if not narrowed.cover(run)]

    async def _receive(self, intake: Intake, claimed: list[Run], stalls: int) -> None:
        """Hold the claimed runs: in the wheel until they are due, queued for a slot when they are."""
        if not claimed:
            return
        if any(map(self._watch.pauses.cover, claimed)):
            # The store's answer is what we now hold: a look sent from now on is not older than that.
            await self._look_again()
        extras = await self._fetch_extras(claimed)
        if stalls != self._worker_lease.stalls:  # meanwhile we were stalled, and they may have been handed back
            await hand_back(self._database, self._identity.worker_id, claimed)
            return
        now = self._worker_lease.now()
        for run in claimed:
            whole, saved = extras.get(run.run_id, (run, None)) if extras else (run, None)
            whole = self._with_policy(whole)
            held = HeldRun(whole, self._kind_of(whole), intake, saved)
            self._held_runs.take(held)
            if run.attempt > 1 and not run.policy.own and (end := spent(whole)) is not None:
                self._on_spent([Settled(whole, None, None, end, saved is not None)])
                continue
            due = run.due_at.timestamp()
            if due > now:
                if run.policy.rate is not None:
                    self.last_reservation_at = max(self.last_reservation_at, due)
                self._wheel.insert(due, held)
                intake.leased_ahead += 1
            else:
                self._slots.queue(held.kind, whole, now)
        self._on_received()

    def _with_policy(self, run: Run) -> Run:
        """Return a run with its handler's policy, where it has none of its own."""
        if run.policy.own or (handlers := self._policies.get(run.handler)) is None:
            return run
        return msgspec.structs.replace(run, policy=run.policy.or_handlers(handlers))

    async def _fetch_extras(self, claimed: list[Run]) -> dict[UUID, tuple[Run, str | None]]:
        """Fetch what is stored outside the rows: large payloads, checkpoints of earlier attempts, inputs of nodes."""
        special = [run for run in claimed if run.payload_stored or run.attempt > 1 or run.metadata.node]
        if not special:
            return {}
        bodies = await runs.payloads(
            self._database, [(run.job_id, run.generation) for run in special if run.payload_stored]
        )
        saved = await runs.checkpoints(self._database, [run.run_id for run in special if run.attempt > 1])
        whole = [
            msgspec.structs.replace(run, payload=bodies.get((run.job_id, run.generation), run.payload))
            for run in special
        ]
        handed = await hand_out(self._database, whole)
        return {run.run_id: (handed.get(run.run_id, run), saved.get(run.run_id)) for run in whole}

    def _kind_of(self, run: Run) -> Kind:
        kind = self._kinds[run.handler]
        if run.suspect and kind in (Kind.LOOP, Kind.THREAD):
            return Kind.ALONE
        may_be_killed = self._can_kill and run.policy.timeout_seconds is not None
        return Kind.CHILD if kind is Kind.THREAD and may_be_killed else kind

    async def return_unknown_leases(self) -> None:
        """Hand back leases that we hold and do not know: of claims whose answer was lost."""
        while not self._ended.is_set():
            doubtful = self._clock.monotonic() < self._in_doubt_until
            await self._clock.wait(
                self._in_doubt, UNKNOWN_LEASES_IN_DOUBT_SECONDS if doubtful else UNKNOWN_LEASES_SECONDS
            )
            hanging = await self._hanging()
            for intake in self.intakes:
                async with intake.claiming:
                    pass  # a claim that was under way when we looked has been answered now
            unknown = [run for run in hanging if self._held_runs.find(run.run_id, run.fence) is None]
            for first in range(0, len(unknown), UNKNOWN_LEASES_BATCH):
                batch = unknown[first : first + UNKNOWN_LEASES_BATCH]
                if back := await hand_back(self._database, self._identity.worker_id, batch):
                    self._log.warning("unknown_leases_handed_back", runs=len(back))

    async def _hanging(self) -> list[Run]:
        """Read all leases that we hold; with many slots for runs held ahead there may be ten thousand."""
        worker_id = self._identity.worker_id
        hanging = page = await leased.held_by(self._database, worker_id, UNKNOWN_LEASES_BATCH)
        while len(page) == UNKNOWN_LEASES_BATCH:
            page = await leased.held_by(self._database, worker_id, UNKNOWN_LEASES_BATCH, page[-1].run_id)
            hanging = hanging + page
        return hanging

    def doubt(self) -> None:
        """Remember that we may hold leases that we do not know."""
        self._in_doubt_until = self._clock.monotonic() + DOUBT_SECONDS
        self._in_doubt.set()

    async def listen(self) -> None:
        """Wake the intakes on one hint, and look for pauses on another."""
        heard = {hints.READY_CHANNEL: self.heed, hints.PAUSES_CHANNEL: lambda _: self._watch.wake()}
        await hints.listen(self._database, heard, self._ended.is_set)


def _policies_of(registry: Registry) -> dict[str, RunPolicy]:
    """Return the policies for runs that were submitted without one, such as by SQL; plain ones are left out."""
    policies = {name: registry[name].options.policy for name in registry.names()}
    return {name: policy for name, policy in policies.items() if policy != PLAIN}


def kind_of(handler: Handler) -> Kind:
    """Return how the runs of a handler are executed, as long as nothing else is known of them."""
    if handler.executor == RAY:
        return Kind.RAY
    return Kind.LOOP if handler.is_async else Kind.THREAD


def _kinds_of(registry: Registry, targets: Targets) -> dict[str, Kind]:
    """Return how the runs of each handler are executed, by name and alias, as long as nothing else is known of them."""
    return {name: kind_of(registry[name]) for name in registry.names()} | {
        target.name: target.kind for target in targets
    }


def _names_by_pool(registry: Registry, targets: Targets) -> dict[Pool, list[str]]:
    """Group the handlers' names and aliases by the pool that their runs need."""
    names: dict[Pool, list[str]] = {}
    for name in registry.names():
        names.setdefault(POOL_OF[kind_of(registry[name])], []).append(name)
    for target in targets:
        names.setdefault(POOL_OF[target.kind], []).append(target.name)
    return names
