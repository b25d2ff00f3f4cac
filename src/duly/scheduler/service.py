"""The scheduler: renew the shard leases, stage what is due within the horizon, sleep until there is more.

Everything inserted into timers is due later than the horizon (earlier runs go straight to ready), so a tick of one
second delays nothing. Nor does the loss of a scheduler for less than the horizon: what it staged is in ready.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from datetime import datetime, timedelta
from uuid import UUID

import msgspec

from duly import __version__
from duly.clock import Clock, Rng
from duly.domain.diagnosis.figures import Histogram
from duly.domain.diagnosis.loops import Rounds
from duly.domain.runs.run import HORIZON
from duly.domain.triggers.zones.zones import database_version
from duly.log import Log
from duly.moves.schedules import recover, zones
from duly.moves.schedules.backfill import Allowance, go_on
from duly.moves.stage import BATCH_MAX, Cohorts, look, move
from duly.moves.stage_around import LeftOut
from duly.outbound import traces
from duly.store.boxes import timers
from duly.store.boxes.timers import DueRun, Staged
from duly.store.connection import hints
from duly.store.connection.database import Database, Unavailable
from duly.store.tables import shards
from duly.store.tables.recovery import OPEN, Standing

LEASE = timedelta(seconds=2)
RENEW_SECONDS = 0.5
TICK_SECONDS = 1.0
ZONES_SECONDS = 10.0
_BACKFILLS, _ZONES = "backfills", "zones"  # rounds, as they are reported
_TRACED_PER_SHARD = 16  # runs of a step whose staging is traced
_SWEEPER = 0  # the holder of this shard retimes fires for all
HINTED_SECONDS = 0.02  # minimum time between two looks, however many hints come
PAUSE_SECONDS = 0.2  # a minimum: the horizon is far longer, and larger batches cost less


class SchedulerHealth(msgspec.Struct):
    """The state of the scheduler, for `/readyz` and metrics."""

    shards: int = 0
    staged: int = 0
    backfilled: int = 0
    lag_seconds: float = 0.0
    stepped_at: float | None = None
    ticks: Histogram = msgspec.field(default_factory=Histogram)


class Scheduler:
    """One scheduler process: a random identity, a set of shards with their epochs. It takes those that are `named`, or
    its share.
    """

    def __init__(
        self,
        database: Database,
        *,
        name: str,
        rng: Rng,
        log: Log,
        horizon: timedelta = HORIZON,
        recovery_after: timedelta | None = None,
        rounds: Rounds | None = None,
        named: Collection[int] | None = None,
    ) -> None:
        self._named = named
        self.scheduler_id: UUID = rng.uuid()
        self._rng = rng
        self._recovery_after = recovery_after
        self._recovery: Standing | None = None
        self.health = SchedulerHealth()
        self.rounds = rounds or Rounds()
        self._database = database
        self._clock: Clock = database.clock
        self._name = name
        self._log = log
        self._horizon = horizon
        self._epochs: dict[int, int] = {}
        self._cohorts = Cohorts(log)
        self._left_out = LeftOut(log)
        self._sweep = zones.Sweep(log)
        self._standby_for: str | None = None
        self._lane = Allowance()
        self._lane_due_at: set[datetime] = set()
        self._wake = asyncio.Event()
        self._is_hinted = False
        self._ending = asyncio.Event()
        self._stopping = False

    async def run(self) -> None:
        """Hold shards and stage until stopped; then release the shards."""
        for name in (_BACKFILLS, _ZONES):
            self.rounds.begin(name, self._clock.monotonic())
        renewing = asyncio.create_task(self._renew_for_ever(), name="shards")
        beside = [
            asyncio.create_task(self._keep_zones_for_ever(), name="zones"),
            asyncio.create_task(self._listen(), name="hints"),
        ]
        try:
            while not self._stopping:
                pause = await self._step_safely()
                rested_at = self._clock.monotonic() + HINTED_SECONDS
                await self._clock.wait(self._wake, pause)
                if self._is_hinted:
                    await self._clock.sleep(max(0.0, rested_at - self._clock.monotonic()))
        finally:
            for task in beside:
                task.cancel()
            await asyncio.wait(beside)
            await self._end_renewing(renewing)
            await self._release_shards()

    def stop(self) -> None:
        """Ask the loop to end."""
        self._stopping = True
        self._wake.set()

    async def _listen(self) -> None:
        """Look at once when a job is created that is due soon; a lost hint costs up to a tick."""
        await hints.listen(self._database, {hints.DUE_CHANNEL: lambda _: self._hinted()}, lambda: self._stopping)

    def _hinted(self) -> None:
        self._is_hinted = True
        self._wake.set()

    async def renew(self) -> None:
        """Renew the lease and read which shards are ours. Any error means: none."""
        gained = self._epochs
        try:
            if not self._epochs:
                await self._read_zones()
            self._epochs = await shards.lease(
                self._database, self.scheduler_id, self._name, __version__, LEASE, named=self._named
            )
        except Exception:
            self._epochs = {}
            raise
        finally:
            self.health.shards = len(self._epochs)
        if self._epochs.keys() - gained.keys():
            self._wake.set()

    async def step(self) -> Staged | None:
        """Stage one batch. None: we hold no shard."""
        if not self._epochs:
            return None
        began = self._clock.monotonic()
        await self._mind_recovery()
        answers = await look(self._database, self._epochs, self._cohorts, horizon=self._horizon)
        if not self._epochs:  # lost while we looked
            return None
        due = await self._due_runs() if traces.is_on() else {}
        moved_at = self._clock.now()
        staged = await move(
            self._database, self.scheduler_id, self._epochs, answers, horizon=self._horizon, left_out=self._left_out
        )
        self.health.ticks.observe(self._clock.monotonic() - began)
        if due and staged.count:
            await self._trace(due, moved_at)
        self.health.staged += staged.count
        self.health.stepped_at = self._clock.monotonic()
        overdue = staged.read_at - staged.next_due_at if staged.next_due_at else timedelta()
        self.health.lag_seconds = max(0.0, overdue.total_seconds())
        await self._go_on_with_backfills(staged.read_at)
        return staged

    async def _due_runs(self) -> dict[UUID, DueRun]:
        return await timers.due_runs(self._database, list(self._epochs), self._horizon, _TRACED_PER_SHARD)

    async def _trace(self, due: dict[UUID, DueRun], began: float) -> None:
        """Report the staging of those runs that are not among the timers any more."""
        left = await self._due_runs()
        for run in due.values():
            if run.run_id not in left:
                traces.staged(run, began, self._clock.now())

    async def _mind_recovery(self) -> None:
        """Record that we stage, before staging; while a recovery is open, missed fires are held, and not acted upon."""
        self._recovery = await recover.record_staging(self._database, self._recovery_after, self._rng, self._log)
        self._cohorts.holds_missed = self._recovery is not None and self._recovery.state == OPEN
        if self._cohorts.holds_missed:
            await recover.defer_missed(self._database, self.scheduler_id, self._epochs)

    async def _read_zones(self) -> None:
        """Read which time zone data is in force before we stage anything by ours, and put ours in force when we may."""
        data = await zones.adopt(self._database, self._log)
        self._cohorts.exclude(() if data.is_settled else data.before)
        other = None if data.version == database_version() else data.version
        if other is not None and other != self._standby_for:
            self._log.warning(
                "standby", ours=database_version(), in_force=other, until="all schedulers have one version"
            )
        self._standby_for = other

    async def keep_zones(self) -> float:
        """Retime fires that other time zone data has timed; one scheduler does it for all.

        Returns how long to sleep after it.
        """
        if not self._epochs:
            return TICK_SECONDS
        if _SWEEPER not in self._epochs:
            await self._read_zones()
            return TICK_SECONDS if self._cohorts.has_excluded else ZONES_SECONDS
        swept = await self._sweep.go_on(self._database)
        if swept.is_settled:
            self._cohorts.exclude(())
        elif swept.has_more:
            return 0.0
        await zones.correct(self._database, self._log)
        return ZONES_SECONDS if swept.is_settled else TICK_SECONDS

    async def _keep_zones_for_ever(self) -> None:
        while not self._stopping:
            pause = ZONES_SECONDS
            try:
                pause = await self.keep_zones()
                self.rounds.end(_ZONES, self._clock.monotonic())
            except Unavailable as error:
                self._log.warning("zones_failed", error=str(error))
            except Exception as error:  # noqa: BLE001 - a loop that must not end says what it was doing and goes on
                self._log.error("zones_failed", error=repr(error))
            await self._clock.sleep(pause)

    async def _go_on_with_backfills(self, now: datetime) -> None:
        """Create what our share of the backfill lane allows since the last look."""
        if not self._epochs:
            return
        share = len(self._epochs) / shards.SHARDS
        if self._recovery is not None:
            await recover.carry_out(self._database, self._recovery, list(self._epochs), self._log)
        budget, recovery_id = self._lane.until(now, share), self._recovery.recovery_id if self._recovery else None
        created_runs = await go_on(self._database, list(self._epochs), now, budget, recovery_id)
        self._lane_due_at = {moment for moment in self._lane_due_at if moment > now} | created_runs.due_at
        self._lane.spend(created_runs.created)
        self.health.backfilled += created_runs.created

    async def _step_safely(self) -> float:
        """Stage one batch and return how long to sleep after it."""
        try:
            is_hinted, self._is_hinted = self._is_hinted, False
            staged = await self.step()
            if is_hinted and staged is not None and staged.count:
                await hints.send_to_all(self._database)  # released runs should not wait for a worker's next look
            self.rounds.end(_BACKFILLS, self._clock.monotonic())  # they come last, and staging reports itself
        except Unavailable as error:
            self._log.warning("stage_failed", error=str(error))
            return RENEW_SECONDS
        except Exception as error:  # noqa: BLE001 - a loop that must not end says what it was doing and goes on
            self._log.error("stage_failed", error=repr(error))
            return RENEW_SECONDS
        if staged is None:
            return TICK_SECONDS
        if self._recovery is not None and self._recovery.state != OPEN:
            return PAUSE_SECONDS  # it is being carried out, a batch with each look
        if staged.count >= BATCH_MAX // 2:
            return 0.0
        return min(self._until_staging(staged), self._until_lane(staged.read_at))

    def _until_lane(self, now: datetime) -> float:
        """Return when the first backfill may go on, so that a rate is kept whatever else there is to do."""
        first = min(self._lane_due_at, default=None)
        return TICK_SECONDS if first is None else max(PAUSE_SECONDS, (first - now).total_seconds())

    def _until_staging(self, staged: Staged) -> float:
        if staged.next_due_at is None:
            return TICK_SECONDS
        seconds = (staged.next_due_at - staged.read_at).total_seconds()
        if staged.count == 0 and 0 < seconds <= self._horizon.total_seconds():
            # It waits for the last run of its job, or at a concurrency key: look often, and at the moment it is due.
            return min(PAUSE_SECONDS, seconds)
        return min(TICK_SECONDS, max(PAUSE_SECONDS, seconds - self._horizon.total_seconds()))

    async def _end_renewing(self, renewing: asyncio.Task[None]) -> None:
        """Let a renewal under way be answered first, or it could take the shards again after they were released."""
        self.stop()
        self._ending.set()
        await asyncio.wait({renewing}, timeout=LEASE.total_seconds())
        renewing.cancel()

    async def _renew_for_ever(self) -> None:
        while not self._stopping:
            try:
                await self.renew()
            except Unavailable as error:
                self._log.warning("shards_lost", error=str(error))
            except Exception as error:  # noqa: BLE001 - a loop that must not end says what it was doing and goes on
                self._log.error("shards_failed", error=repr(error))
            await self._clock.wait(self._ending, RENEW_SECONDS)

    async def _release_shards(self) -> None:
        try:
            await shards.release(self._database, self.scheduler_id)
        except Unavailable as error:
            self._log.warning("shards_not_released", error=str(error))
