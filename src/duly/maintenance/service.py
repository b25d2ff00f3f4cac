"""The maintenance loop: each task at its own interval, each surviving the failure of the others."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, date, datetime, timedelta
from math import inf

import msgspec

from duly.clock import Rng
from duly.domain.diagnosis.loops import Rounds
from duly.domain.errors import DulyError
from duly.domain.limits.overload import AGE_LIMIT
from duly.domain.targets.circuit import TICK_SECONDS
from duly.log import Log
from duly.maintenance.reaper import STEP_SECONDS, Reaper
from duly.moves.admin import notifications
from duly.moves.admin.destinations import mind
from duly.moves.admin.overload import record_overloads
from duly.moves.archive.export import Exporter
from duly.moves.cancel import carry_out, void_overstayed
from duly.moves.completion_callbacks import deliver
from duly.moves.recall import put_back
from duly.moves.schedules import purge
from duly.moves.unroutable import FIRST, UnroutableLimits, mark_unroutable, restore_routable
from duly.moves.waiting import IDLE_SECONDS, RESERVATIONS_SECONDS, check_dependents, expire, reserve
from duly.moves.workers import receive
from duly.moves.workflows.runs import settle_ended
from duly.moves.workflows.workflows import run_workflow_tasks
from duly.store import retention
from duly.store.boxes import history
from duly.store.connection.database import Database
from duly.store.reads import figures, maintenance_tasks
from duly.store.reads.maintenance_tasks import Work
from duly.store.retention import Aging, Expiring
from duly.store.tenancy import tenants

PARTITION_DAYS_AHEAD = 4
BATCH_MAX = 10_000
HOLLOW_BYTES = 32 * 1024 * 1024  # the disk space that a box of a quiet system may take: scanning it takes no time
WORKFLOWS_MAX = 100  # of a thousand nodes each
REAP = "reap"
EVENTS_KEPT = timedelta(days=7)  # for so long a repeated event is recognized
# unused: a destination that is called once a year keeps the secret that its receiver has
DESTINATIONS_KEPT = timedelta(days=400)
CHANGES_KEPT = timedelta(hours=2)  # of definitions; a listener may come back an hour later
_TASK_SECONDS = 0.5  # interval of tasks that runs wait for
_SLOW_TASK_SECONDS = 1.0  # and of the others
_LOOK_SECONDS = 0.1  # how long the last look at pending work is valid
_RECORD_REAP_SECONDS = 0.9
_RECORD_ROUNDS_SECONDS = 5.0
_MIND_IDLE_SECONDS = 0.5  # how often destinations are checked while none needs it
_ARCHIVE_SECONDS = 60.0
ROLLUPS_KEPT = timedelta(days=90)
_COUNT_SHARE = 0.05  # of our time, at most: a large backlog is counted less often

MaintenanceTask = Callable[[], Awaitable[object]]
Need = Callable[[Work], bool]


class Retention(msgspec.Struct, frozen=True):
    """The retention of history."""

    succeeded: timedelta = timedelta(days=7)
    failed: timedelta = timedelta(days=90)
    logs: timedelta = timedelta(days=7)
    audit: timedelta = timedelta(days=400)
    jobs: timedelta | None = None  # ended definitions; None: for ever
    payload_bytes: int = 8_192  # of a success; of all else the whole payload is kept
    redact: tuple[str, ...] | None = None  # the installation's rules of redaction; None: they stay as they are
    archives: timedelta | None = None  # archived history; None: for ever


class Maintenance:
    """Runs the maintenance tasks. Safe in any number of processes: every task is a guarded move or idempotent."""

    def __init__(
        self,
        database: Database,
        *,
        rng: Rng,
        log: Log,
        retention: Retention | None = None,
        age_limit: timedelta = AGE_LIMIT,
        unroutable: UnroutableLimits | None = None,
        rounds: Rounds | None = None,
        exporter: Exporter | None = None,
    ) -> None:
        self._database = database
        self._rng = rng
        self._log = log
        self._retention = retention or Retention()
        self._age_limit = age_limit
        self._unroutable = unroutable or UnroutableLimits()
        self._exporter = exporter
        self._next_queue = FIRST
        self._stopping = asyncio.Event()
        self.reaper = Reaper(database, rng=rng, log=log)
        self.reaped_at: float | None = None
        self._reap_recorded_at = self._rounds_recorded_at = -inf
        self.rounds = rounds or Rounds()
        self._looking = asyncio.Lock()
        self._seen: tuple[float, Work] | None = None

    async def run(self) -> None:
        """Do every task until stopped."""
        schedule: list[tuple[float, MaintenanceTask, Need]] = [
            (STEP_SECONDS, self._reap, _always),
            (_TASK_SECONDS, self._carry_out, lambda work: work.signals),
            (_TASK_SECONDS, self._release, lambda work: work.blocked),
            (_TASK_SECONDS, self._time_out, lambda work: work.awaited),
            (_TASK_SECONDS, self._deliver_callbacks, lambda work: work.callbacks),
            (_TASK_SECONDS, self._run_workflow_tasks, lambda work: work.tasks),
            (_TASK_SECONDS, self._check_dependents, lambda work: work.dependency_checks),
            (_SLOW_TASK_SECONDS, self._expire, _always),
            (notifications.PASS_SECONDS, self._notify, _always),
            (TICK_SECONDS, self._mind, _always),
            (RESERVATIONS_SECONDS, self._reserve, _always),
            (_SLOW_TASK_SECONDS, self._count_usage, _always),
            (_SLOW_TASK_SECONDS, self._record_overloads, _always),
            (_SLOW_TASK_SECONDS, self._mark_unroutable, _always),
            (_TASK_SECONDS, self._restore_routable, lambda work: work.unroutable),
            (_SLOW_TASK_SECONDS, self.fold, lambda work: work.tallies),
            (3.0, self._vacuum, _always),
            (60.0, self._sweep, _always),
            (600.0, self.keep_history, _always),
            (_ARCHIVE_SECONDS, self.archive, lambda _: self._exporter is not None),
        ]
        for _, maintenance_task, _ in schedule:
            self.rounds.begin(_name_of(maintenance_task), self._database.clock.monotonic())
        tasks = [asyncio.create_task(self._repeat(*each), name=each[1].__name__) for each in schedule]
        try:
            await self._stopping.wait()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def stop(self) -> None:
        """Ask the loop to end."""
        self._stopping.set()

    async def keep_history(self) -> None:
        """Create partitions ahead of time and drop those past their retention; rows in none are deleted in batches."""
        await history.limit_payloads(self._database, self._retention.payload_bytes)
        if self._retention.redact is not None:
            await tenants.set_rules(self._database, None, self._retention.redact)
        await history.create_partitions(self._database, PARTITION_DAYS_AHEAD)
        if self._exporter is not None:
            await history.archive(self._database, self._retention.payload_bytes)
        now = await self._database.read_clock()
        for parent, kept in (
            ("attempts_succeeded", self._retention.succeeded),
            ("attempts_failed", self._retention.failed),
            ("logs", self._retention.logs),
        ):
            before = _first_day_kept(now, kept)
            for name in await history.drop_partitions(self._database, parent, before):
                self._log.info("partition_dropped", name=name)
            while await history.forget_strays(self._database, parent, before, BATCH_MAX) == BATCH_MAX:
                pass

    async def archive(self) -> None:
        """Archive and drop attempts past their retention, and delete archives past theirs. Each kind by itself."""
        assert self._exporter is not None
        await history.archive(self._database, self._retention.payload_bytes)
        now = await self._database.read_clock()
        try:
            await self._exporter.export_before("succeeded", _first_day_kept(now, self._retention.succeeded))
        finally:
            await self._exporter.export_before("failed", _first_day_kept(now, self._retention.failed))
        if self._retention.archives is not None:
            await self._exporter.delete_before(_first_day_kept(now, self._retention.archives))
        await self._exporter.delete_abandoned()

    async def _reap(self) -> None:
        """Move on the runs of lost workers: separately, because it has to be soon."""
        await self.reaper.step()
        self.reaped_at = self._database.clock.monotonic()
        if self.reaped_at >= self._reap_recorded_at + _RECORD_REAP_SECONDS:
            self._reap_recorded_at = self.reaped_at
            await maintenance_tasks.record(self._database, {REAP: 0.0, **self._rounds_to_record(self.reaped_at)})

    def _rounds_to_record(self, now: float) -> dict[str, float]:
        """Return the rounds of this process, every few seconds, for other processes."""
        if now < self._rounds_recorded_at + _RECORD_ROUNDS_SECONDS:
            return {}
        self._rounds_recorded_at = now
        return self.rounds.ages(now)

    async def _carry_out(self) -> None:
        """Carry out cancels of runs that were moving, and of runs that do not stop."""
        await carry_out(self._database)
        for run_id in await void_overstayed(self._database):
            self._log.warning("run_overstayed", run_id=run_id)

    async def _release(self) -> None:
        """Release runs at concurrency keys with a free slot, and recalled runs whose caller has gone away."""
        await history.release_waiting(self._database, BATCH_MAX)
        await put_back(self._database)

    async def _time_out(self) -> None:
        """Time out runs that their receiver has not settled."""
        while await receive.time_out(self._database, self._rng) == receive.BATCH_MAX:
            pass

    async def _deliver_callbacks(self) -> None:
        """Deliver completion callbacks to jobs: separately from the reaper, because a locked job makes us wait."""
        await deliver(self._database, self._log)

    async def _run_workflow_tasks(self) -> None:
        """Do pending workflow tasks, and settle runs whose workflow has ended."""
        if await run_workflow_tasks(self._database):
            await settle_ended(self._database, self._rng, self._log)

    async def _check_dependents(self) -> None:
        """Release runs whose dependencies had ended at the submit, or were about to."""
        await check_dependents(self._database)

    async def _expire(self) -> None:
        """End waiting runs that have expired: a worker may never come for them."""
        if ended := await expire(self._database):
            self._log.info("runs_expired", runs=ended)

    async def _notify(self) -> None:
        """Notice and send notifications, as every living process does."""
        await notifications.step(self._database, self._log)

    async def _mind(self) -> None:
        """Probe destinations with open circuits, and release runs that wait for healthy ones."""
        if not await mind(self._database, self._rng):
            await self._database.clock.sleep(_MIND_IDLE_SECONDS - TICK_SECONDS)

    async def _reserve(self) -> None:
        """Grant reservations to runs that wait at a rate limit."""
        if not await reserve(self._database):
            await self._database.clock.sleep(IDLE_SECONDS - RESERVATIONS_SECONDS)

    async def _vacuum(self) -> None:
        await retention.vacuum(self._database)

    async def fold(self) -> None:
        """Add ended runs to the roll-ups, in batches; another process's batches are skipped."""
        while await figures.fold(self._database, BATCH_MAX) == BATCH_MAX:
            pass

    async def _count_usage(self) -> None:
        """Count the backlog of tenants with a quota, and rest."""
        await self._with_rest(tenants.count_usage(self._database))

    async def _record_overloads(self) -> None:
        """Record the overloads, and rest."""
        await self._with_rest(record_overloads(self._database, self._age_limit))

    async def _with_rest(self, work: Awaitable[object]) -> None:
        """Do something, and rest in proportion to its duration."""
        clock = self._database.clock
        began = clock.monotonic()
        await work
        await clock.sleep(max(0.0, (clock.monotonic() - began) / _COUNT_SHARE - _SLOW_TASK_SECONDS))

    async def _mark_unroutable(self) -> None:
        """Mark unroutable runs."""

        async def batch() -> int:
            moved, self._next_queue = await mark_unroutable(self._database, self._unroutable, self._next_queue)
            return moved

        await self._in_batches(batch, "runs_marked_unroutable", _SLOW_TASK_SECONDS)

    async def _restore_routable(self) -> None:
        """Return runs to their queues whose handler a live worker has by now."""
        await self._in_batches(lambda: restore_routable(self._database), "runs_restored_routable", _TASK_SECONDS)

    async def _in_batches(self, batch: Callable[[], Awaitable[int]], event: str, interval: float) -> None:
        """Move batch after batch, each followed by as long a rest, until there is none; an empty look rests longer."""
        clock, runs, moved, elapsed = self._database.clock, 0, 1, 0.0
        while moved:
            await clock.sleep(elapsed)
            began = clock.monotonic()
            moved = await batch()
            elapsed = clock.monotonic() - began
            runs += moved
        if runs:
            self._log.info(event, runs=runs)
        await clock.sleep(max(0.0, elapsed / _COUNT_SHARE - interval))

    async def _sweep(self) -> None:
        kept = self._retention
        for expiring in Expiring:
            await retention.forget_expired(self._database, expiring, BATCH_MAX)
        await retention.forget_payloads(self._database, kept.succeeded, kept.failed, BATCH_MAX)
        for aging, span in (
            (Aging.SUBTASKS, kept.failed),
            (Aging.EVENTS, EVENTS_KEPT),
            (Aging.JOB_CHANGES, CHANGES_KEPT),
            (Aging.WORKFLOW_CHANGES, CHANGES_KEPT),
            (Aging.ROLLUPS, ROLLUPS_KEPT),
            (Aging.DESTINATIONS, DESTINATIONS_KEPT),
            (Aging.ZONE_MOVES, kept.failed),
            (Aging.NOTIFICATIONS, kept.failed),
            (Aging.AUDIT, kept.audit),
        ):
            await retention.forget_older(self._database, aging, span, BATCH_MAX)
        await retention.forget_older(self._database, Aging.WORKFLOWS, kept.failed, WORKFLOWS_MAX)
        await retention.forget_expired_workers(self._database)
        await retention.forget_expired_schedulers(self._database)
        await purge.go_on(self._database, kept.jobs)
        await retention.shorten(self._database, HOLLOW_BYTES)

    async def _repeat(self, seconds: float, maintenance_task: MaintenanceTask, is_needed: Need) -> None:
        while True:
            try:
                if is_needed is _always or is_needed(await self._work()):
                    await maintenance_task()
                self.rounds.end(_name_of(maintenance_task), self._database.clock.monotonic())
            except DulyError as error:
                self._log.warning(
                    "maintenance_task_failed", maintenance_task=maintenance_task.__name__, error=str(error)
                )
            except Exception as error:  # noqa: BLE001 - a loop that must not end says what it was doing and goes on
                self._log.error(
                    "maintenance_task_failed", maintenance_task=maintenance_task.__name__, error=repr(error)
                )
            await self._database.clock.sleep(seconds)

    async def _work(self) -> Work:
        """Return the pending work. One look serves all callers at about the same time."""
        async with self._looking:
            now = self._database.clock.monotonic()
            if self._seen is None or now - self._seen[0] >= _LOOK_SECONDS:
                self._seen = (now, await maintenance_tasks.look(self._database))
            return self._seen[1]


def _first_day_kept(now: datetime, kept: timedelta) -> date:
    """Return the first day of history that stays: the last moment of every day before it is older than `kept`."""
    return (now - kept).astimezone(UTC).date()


def _name_of(maintenance_task: MaintenanceTask) -> str:
    return maintenance_task.__name__.removeprefix("_")


def _always(_: Work) -> bool:
    return True
