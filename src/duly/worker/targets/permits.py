"""Permits: whether a request may be sent now, shared with all other workers through the store.

Requests ask on the handlers' loop, and are mostly answered from the worker's share without waiting. Reports are sent on
the engine's loop, for all destinations in one statement: about every quarter of a second while there is something to
report, and at once when a run waits for a first share or failures come in a row. The answer is the share until the
next one.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar
from uuid import UUID

from duly.clock import Clock, Rng, SystemClock
from duly.domain.errors import DulyError
from duly.domain.targets.circuit import TICK_SECONDS, Verdict
from duly.log import Log
from duly.moves.admin.destinations import report
from duly.store.connection.database import Database
from duly.store.tables.destinations import Allowed, DestinationReport
from duly.worker.targets.share import Share

# Three reports: time for others to give up a slot. A run not sent by then waits for its destination: it holds a worker's slot.
PATIENCE_SECONDS = 0.8
GATHER_SECONDS = 0.005
RESERVATION_SECONDS_LEAST = 0.001  # between two looks for a reservation that is due
IDLE_SECONDS = 1.0
RETRY_AFTER_SECONDS_MAX = 86_400.0  # a longer Retry-After is cut to a day
_Answer = TypeVar("_Answer")


class Permits:
    """Admits requests to destinations; a service of a worker, over all its lives."""

    def __init__(self, *, rng: Rng, log: Log, clock: Clock | None = None) -> None:
        self._rng = rng
        self._log = log
        self._clock = clock or SystemClock()
        self._shares: dict[tuple[int, str], Share] = {}
        self._timers: dict[Share, asyncio.TimerHandle] = {}
        self._handlers_loop: asyncio.AbstractEventLoop | None = None
        self._engine_loop: asyncio.AbstractEventLoop | None = None
        self._wake = asyncio.Event()
        self._reporting: asyncio.Task[None] | None = None
        self._number = 0

    # ------------------------------------------------------------------------------------------- on the handlers' loop

    async def enter(self, tenant: int, origin: str, *, is_retry: bool = False) -> bool:
        """Wait a little for a slot. False: not now; the run is to wait for its destination. After True, call `leave`."""
        self._handlers_loop = asyncio.get_running_loop()
        share, now = self._share(tenant, origin), self._clock.monotonic()
        if share.is_blocked(now):
            return False
        is_charged = is_retry and not share.is_half_open  # a probe is sent even if it is a retry
        if is_charged and not share.spend_retry(now):
            return False
        has_entered = False
        try:
            has_entered = await self._find_slot(share, now)
        finally:
            if is_charged and not has_entered:
                share.refund_retry()
        if has_entered and not is_retry:
            share.earn_retries(now)
        return has_entered

    def is_probing(self, tenant: int, origin: str) -> bool:
        """Return whether a request to a destination is a probe now."""
        return self._share(tenant, origin).is_half_open

    async def _find_slot(self, share: Share, now: float) -> bool:
        if not share.waiters and share.take(now):
            return True
        return False if share.is_full() else await self._wait(share)

    def leave(self, tenant: int, origin: str, verdict: Verdict, retry_after: float | None = None) -> None:
        """Return the slot, and report the health of the destination; `retry_after` is in seconds, if it asked for it."""
        share, now = self._share(tenant, origin), self._clock.monotonic()
        wait = 0.0 if retry_after is None else min(max(0.0, retry_after), RETRY_AFTER_SECONDS_MAX)
        is_urgent = share.give_back(verdict, wait, now)
        self._serve(share)
        if is_urgent:
            self._hurry()

    async def _wait(self, share: Share) -> bool:
        waiter: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        share.waiters.append(waiter)
        self._serve(share)
        if share.is_unheard:
            self._hurry()
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                return await waiter
        except TimeoutError:
            return self._was_let_in(waiter)
        except asyncio.CancelledError:
            if self._was_let_in(waiter):
                self.leave(share.tenant, share.origin, Verdict.IGNORED)
            raise
        finally:
            with contextlib.suppress(ValueError):  # an answered waiter was removed already
                share.waiters.remove(waiter)

    def _serve(self, share: Share) -> None:
        """Admit waiters that can be, and look again when the next reservation is due."""
        now = self._clock.monotonic()
        share.serve(now)
        if (timer := self._timers.pop(share, None)) is not None:
            timer.cancel()
        if (seconds := share.seconds_to_reservation(now)) is not None:
            loop = asyncio.get_running_loop()
            self._timers[share] = loop.call_later(max(seconds, RESERVATION_SECONDS_LEAST), self._serve, share)

    @staticmethod
    def _was_let_in(waiter: asyncio.Future[bool]) -> bool:
        """Return whether the answer came at the moment in which its waiter gave up."""
        return waiter.done() and not waiter.cancelled() and waiter.result()

    def _share(self, tenant: int, origin: str) -> Share:
        share = self._shares.get((tenant, origin))
        if share is None:
            share = self._shares[tenant, origin] = Share(tenant, origin, self._rng.uuid())
        return share

    def _hurry(self) -> None:
        """Send a report at once."""
        loop = self._engine_loop
        if loop is not None:
            with contextlib.suppress(RuntimeError):  # it is closed: the worker has ended
                loop.call_soon_threadsafe(self._wake.set)

    async def _gather(self) -> list[DestinationReport]:
        """Gather all reports, and forget idle destinations."""
        now = self._clock.monotonic()
        for key in [key for key, share in self._shares.items() if share.is_idle(now)]:
            del self._shares[key]
        return [share.report(now) for share in self._shares.values() if share.has_news]

    async def _hear(self, answers: Sequence[tuple[Allowed, float]]) -> bool:
        """Take the answer to reports sent at these moments.

        True: a run waits for something that only another report can provide.
        """
        urgent = False
        for allowed, said_at in answers:
            share, now = self._share(allowed.tenant, allowed.origin), self._clock.monotonic()
            urgent = share.hear(allowed, now, said_at) or urgent
            self._serve(share)
        return urgent

    def _start_over(self) -> None:
        for share in self._shares.values():
            share.start_over()

    # --------------------------------------------------------------------------------------------- on the engine's loop

    async def begin(self, database: Database, worker_id: UUID) -> None:
        """Begin a life of the worker: the shares of the one before are void."""
        self._engine_loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        if self._handlers_loop is not None:
            # Not awaited: a handler may block it, and everything later there comes after.
            self._handlers_loop.call_soon_threadsafe(self._start_over)
        self._reporting = asyncio.create_task(self._keep_reporting(database, worker_id), name="destinations")

    async def end(self) -> None:
        """End that life; its shares end with its row."""
        if self._reporting is not None:
            self._reporting.cancel()
            await asyncio.gather(self._reporting, return_exceptions=True)
            self._reporting = None

    async def _keep_reporting(self, database: Database, worker_id: UUID) -> None:
        while True:
            try:
                pause = await self.step(database, worker_id)
            except DulyError as error:
                self._log.warning("destinations_unreported", error=str(error))
                pause = TICK_SECONDS
            except Exception as error:  # noqa: BLE001 - a loop that must not end says what it was doing and goes on
                self._log.error("destinations_unreported", error=repr(error))
                pause = TICK_SECONDS
            await database.clock.wait(self._wake, pause)
            await database.clock.sleep(GATHER_SECONDS)

    async def step(self, database: Database, worker_id: UUID) -> float:
        """Report once. Returns in how many seconds to report again, if nothing is urgent before."""
        reports = await self._on_handlers_loop(self._gather)
        if not reports:
            return IDLE_SECONDS
        self._number += 1
        sent_at = self._clock.monotonic()
        answers = await report(database, worker_id, self._number, reports, self._rng)
        heard_at, database_now = self._clock.monotonic(), database.clock.now()
        said = [(one, heard_at - min(max(0.0, _age(one, database_now)), heard_at - sent_at)) for one in answers]
        is_urgent = await self._on_handlers_loop(lambda: self._hear(said))
        return 0.0 if is_urgent else TICK_SECONDS

    async def _on_handlers_loop(self, work: Callable[[], Coroutine[Any, Any, _Answer]]) -> _Answer | None:
        """Do something on the loop of requests; nothing, while there has been none."""
        if self._handlers_loop is None:
            return None
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work(), self._handlers_loop))


def _age(allowed: Allowed, database_now: float) -> float:
    """Return how many seconds ago an answer was given, by the database clock as we know it."""
    return 0.0 if allowed.read_at is None else database_now - allowed.read_at.timestamp()
