"""The outbox: outcomes on their way to the store, in batches, over connections of their own.

It flushes as soon as the last flush is done and something is there, after a pause that lets a batch gather: two
milliseconds, and twenty while outcomes come so fast that each call would otherwise carry a handful; none where a node
of a workflow is among a few, because others may wait for it. After a rest, plain successes give way to starts: they are
held for up to a tenth of a second while more keep coming and due runs wait for a slot, because many are due at this
instant.

A lost connection means a retry: the store knows what it has seen. Outcomes that the store refuses are postponed, longer
each time: it may accept them later. A full outbox closes the intake, which is the only back-pressure there is.

The log lines of a run are written before its outcome, so that a reader who sees that it has ended finds all of them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias, cast
from uuid import UUID

from duly.clock import Rng
from duly.domain.diagnosis.figures import Histogram
from duly.domain.runs.outcome import Failed
from duly.domain.runs.run import Run
from duly.log import Log
from duly.moves.defer import Deferred, defer
from duly.moves.settle import End, Settled, Unstorable, name_of, settle
from duly.outbound import traces
from duly.store.boxes.leased import Finished
from duly.store.connection.database import Database, Unavailable
from duly.worker.pacing import retry_delay

BATCH_MAX = 2_000
FULL = 10_000
GATHER_SECONDS = 0.002
GATHER_BUSY_SECONDS = 0.02
GIVE_WAY_SECONDS = 0.1
GIVE_WAY_TURN_SECONDS = 0.005
REST_SECONDS = 0.5  # without a flush
BUSY = 8  # outcomes in one batch from which on a larger one is waited for
_RETRY_SECONDS_MAX = (0.1, 0.2, 0.4, 1.0, 2.0)
_DEFER_TRIES_MAX = 3
REFUSED_SECONDS = 0.1  # doubled each time an outcome is refused
REFUSED_SECONDS_MAX = 15.0
WriteLines: TypeAlias = Callable[[Sequence[Run]], Awaitable[None]]
_UNDEFERRED = "the run could not be put where it was to wait; the worker's log says why"


class Outbox:
    """Settles a worker's finished runs."""

    def __init__(
        self,
        database: Database,
        worker_id: UUID,
        *,
        rng: Rng,
        log: Log,
        on_settled: Callable[[list[End | Deferred]], None],
        write_lines: WriteLines | None = None,
        do_starts_wait: Callable[[], bool] = lambda: False,
        settles: Histogram | None = None,
    ) -> None:
        self._settles = settles or Histogram()
        self._database = database
        self._do_starts_wait = do_starts_wait
        self._write_lines = write_lines
        self._worker_id = worker_id
        self._rng = rng
        self._log = log
        self._on_settled = on_settled
        self._waiting: deque[End | Deferred] = deque()
        self._flushing: list[End | Deferred] = []
        self._put_off: list[tuple[float, End | Deferred]] = []  # until when, on the monotonic clock
        self._refusals: dict[UUID, int] = {}  # how often each postponed one was refused
        self._wake = asyncio.Event()
        self._closing = False
        self._last_batch = 0
        self._flushed_at = float("-inf")
        self.fenced = 0
        self.settled = 0

    def __len__(self) -> int:
        return len(self._waiting) + len(self._flushing) + len(self._put_off)

    @property
    def is_full(self) -> bool:
        """Return whether the intake must wait."""
        return len(self) >= FULL

    @property
    def is_done(self) -> bool:
        """Return whether it was closed and has nothing left."""
        return self._closing and not len(self)

    def put(self, settled: Sequence[End | Deferred]) -> None:
        """Add outcomes and deferrals."""
        self._waiting.extend(settled)
        self._wake.set()

    async def run(self) -> None:
        """Flush for ever; ends when closed and empty."""
        while not self.is_done:
            rest = self._take_up() if self._put_off else 1.0
            if not self._waiting:
                await self._database.clock.wait(self._wake, rest)
                continue
            if len(self._waiting) < BATCH_MAX and not self._is_waited_for():
                await self._database.clock.sleep(GATHER_BUSY_SECONDS if self._last_batch >= BUSY else GATHER_SECONDS)
                await self._give_way()
            await self.flush()
            self._flushed_at = self._database.clock.monotonic()

    async def _give_way(self) -> None:
        """After a rest, wait while plain successes keep coming and due runs wait for a slot, but not long."""
        clock, known = self._database.clock, 0
        began = clock.monotonic()
        if began - self._flushed_at < REST_SECONDS:
            return
        while self._do_starts_wait() and known < len(self) < FULL // 2 and clock.monotonic() - began < GIVE_WAY_SECONDS:
            if not all(type(item) is Finished for item in self._waiting):  # somebody may wait for another kind
                return
            known = len(self)
            await clock.sleep(GIVE_WAY_TURN_SECONDS)

    def _is_waited_for(self) -> bool:
        """Return whether the next node of a workflow may wait for one of a few outcomes: then no batch is gathered."""
        return max(len(self._waiting), self._last_batch) < BUSY and any(
            item.run.metadata.node for item in self._waiting
        )

    def close(self) -> None:
        """Ask `run` to end when everything is settled."""
        self._closing = True
        self._wake.set()

    async def flush(self) -> None:
        """Settle one batch; while the database does not answer, try again."""
        self._flushing = [self._waiting.popleft() for _ in range(min(BATCH_MAX, len(self._waiting)))]
        try:
            refused = await self._write_until_answered(self._flushing)
        except BaseException:  # whatever it was, they are not known to be written
            self._waiting.extendleft(reversed(self._flushing))
            self._flushing = []
            raise
        if refused:
            self.fenced += len(refused)
            self._log.warning("outcomes_fenced", runs=len(refused), **refused[0].ids)
        self.settled += len(self._flushing) - len(refused)
        done, self._flushing = self._flushing, []
        if traces.is_on():
            _trace(done)
        if self._log.is_talkative:
            self._say(done)
        self._last_batch = len(done)
        if self._refusals:
            for item in done:
                self._refusals.pop(item.run.run_id, None)
        self._on_settled(done)

    def _say(self, done: Sequence[End | Deferred]) -> None:
        """Log the end of each attempt."""
        for item in done:
            if not isinstance(item, Deferred):
                facts = {"outcome": name_of(item.outcome), "queue": item.run.queue, "handler": item.run.handler}
                self._log.info("attempt_ended", **item.run.ids, **facts, tenant=item.run.tenant)

    async def _write_until_answered(self, batch: list[End | Deferred]) -> list[Run]:
        await self._write_lines_until_answered([item.run for item in batch])
        deferred = [item for item in batch if type(item) is Deferred]
        ended = [item for item in batch if not isinstance(item, Deferred)] if deferred else cast("list[End]", batch)
        refused = await self._settle_until_answered(ended)
        if deferred:
            refused += await self._settle_until_answered(await self._defer_until_answered(deferred))
        return refused

    async def _write_lines_until_answered(self, ended: list[Run]) -> None:
        """Write the last log lines of runs before they are settled."""
        tries = 0
        while self._write_lines is not None:
            try:
                return await self._write_lines(ended)
            except Unavailable as error:
                self._log.warning("log_lines_unanswered", runs=len(ended), tries=tries, error=str(error))
            except Exception as error:  # noqa: BLE001 - no outcome waits for a line that is refused; the store takes it no more
                self._log.error("log_lines_refused", runs=len(ended), error=repr(error))
                return None
            await self._pause(tries)
            tries += 1
        return None

    async def _settle_until_answered(self, ended: Sequence[End]) -> list[Run]:
        tries = 0
        while True:
            began = self._database.clock.monotonic()
            try:
                fenced = await settle(self._database, self._worker_id, ended, self._rng)
                self._settles.observe(self._database.clock.monotonic() - began)
                return fenced
            except Unavailable as error:
                self._log.warning("settle_unanswered", runs=len(ended), tries=tries, error=str(error))
            except Unstorable as error:
                seconds = self._put_back({run.run_id for run in error.runs})
                self._log.error("settle_refused", runs=len(error.runs), again_in=seconds, error=str(error))
                return list(error.fenced)
            except Exception as error:  # noqa: BLE001 - an outcome must not be lost to a bug: say it, and ask again
                self._log.error("settle_failed", runs=len(ended), tries=tries, error=repr(error))
            await self._pause(tries)
            tries += 1

    def _put_back(self, run_ids: set[UUID]) -> float:
        """Retry refused outcomes later, each by how often it was refused. Returns when the first is due, in seconds."""
        now = self._database.clock.monotonic()
        delays: list[float] = []
        for item in [item for item in self._flushing if item.run.run_id in run_ids]:
            refusals = self._refusals.get(item.run.run_id, 0)
            self._refusals[item.run.run_id] = min(refusals + 1, 10)
            delays.append(min(REFUSED_SECONDS * 2**refusals, REFUSED_SECONDS_MAX))
            self._put_off.append((now + delays[-1], item))
        self._flushing = [item for item in self._flushing if item.run.run_id not in run_ids]
        return min(delays, default=REFUSED_SECONDS)

    def _take_up(self) -> float:
        """Retry what was postponed until now. Returns in how many seconds the next is due."""
        now = self._database.clock.monotonic()
        self._waiting.extend(item for at, item in self._put_off if at <= now)
        self._put_off = [(at, item) for at, item in self._put_off if at > now]
        return min((at - now for at, _ in self._put_off), default=1.0)

    async def _defer_until_answered(self, deferred: list[Deferred]) -> list[Settled]:
        """Move runs to where they wait. Returns those that failed, which delay no other."""
        tries = 0
        while True:
            try:
                await defer(self._database, self._worker_id, deferred)
            except Unavailable as error:
                self._log.warning("defer_unanswered", runs=len(deferred), tries=tries, error=str(error))
            except Exception as error:  # noqa: BLE001 - a fault of our own, which may be one run's alone
                self._log.error("defer_failed", runs=len(deferred), **deferred[0].run.ids, error=repr(error))
                if len(deferred) > 1:
                    middle = len(deferred) // 2
                    first = await self._defer_until_answered(deferred[:middle])
                    return first + await self._defer_until_answered(deferred[middle:])
                if tries >= _DEFER_TRIES_MAX:
                    return [Settled(item.run, item.started_at, None, Failed(_UNDEFERRED)) for item in deferred]
            else:
                return []
            await self._pause(tries)
            tries += 1

    async def _pause(self, tries: int) -> None:
        longest = _RETRY_SECONDS_MAX[min(tries, len(_RETRY_SECONDS_MAX) - 1)]
        await self._database.clock.sleep(retry_delay(self._rng, longest))


def _trace(done: Sequence[End | Deferred]) -> None:
    """Report attempts that have ended and are settled."""
    for item in done:
        if isinstance(item, Finished):
            traces.attempted(item.run, item.started, item.finished, "succeeded", None)
        elif isinstance(item, Settled) and item.started_at is not None and item.finished_at is not None:
            began, ended, outcome = item.started_at.timestamp(), item.finished_at.timestamp(), item.outcome
            error = outcome.kinds[0] if isinstance(outcome, Failed) and outcome.kinds else None
            traces.attempted(item.run, began, ended, name_of(outcome), error)
