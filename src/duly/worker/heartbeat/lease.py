"""The worker's end of the heartbeat: starts the heartbeat process, and knows until when it is safe to start a run."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Set
from uuid import UUID

import msgspec

from duly.clock import Clock, Rng
from duly.log import Log
from duly.store.tables.workers import SQL
from duly.worker.heartbeat.process import HEARTBEATS_PER_LEASE
from duly.worker.heartbeat.shared_state import SharedState
from duly.worker.pacing import SETBACK_SECONDS_MAX, Setback

TICK_SECONDS = 0.25


class WorkerLease:
    """One heartbeat process for one life of a worker."""

    def __init__(
        self,
        url: str,
        worker_id: UUID,
        lease_seconds: float,
        *,
        pooler: bool = False,
        clock: Clock,
        rng: Rng,
        log: Log,
        on_lost: Callable[[], None],
        on_returned: Callable[[Set[tuple[UUID, int]]], None],
    ) -> None:
        self.shared_state = SharedState()
        self._config = {
            "url": url,
            "pooler": pooler,
            "worker_id": str(worker_id),
            "lease": lease_seconds,
            "statement": SQL["heartbeat"],
            "stalled": SQL["stall"],
            "shared_state": self.shared_state.descriptor,
            "seed": int(rng.uniform() * 2**53),
        }
        self._clock = clock
        self._log = log
        self._on_lost = on_lost
        # called when the heartbeat handed back all but these runs while we were stalled
        self._on_returned = on_returned
        self._process: Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self._closing = False
        # No longer than between two heartbeats: so there are some more tries while the lease is valid.
        self._setback = Setback(min(lease_seconds / HEARTBEATS_PER_LEASE, SETBACK_SECONDS_MAX))
        self.safe_until = float("-inf")
        self.due_until = float("-inf")
        self.stalls = 0  # how often runs were handed back for us; earlier claims are not ours any more

    @property
    def is_safe(self) -> bool:
        """Return whether the lease is certainly valid: our monotonic clock has not passed two thirds of it."""
        return self._clock.monotonic() < self.safe_until

    @property
    def is_lost(self) -> bool:
        """Return whether the lease may be lost. A heartbeat that sees a stall renews it, and says when to go on."""
        is_renewed = self.shared_state.is_stalled and self._clock.monotonic() < self.shared_state.renewed_until
        return not (self.is_safe or is_renewed)

    def now(self) -> float:
        """Return the latest due moment that may be started: the clock's, but none that the store would count as
        unstarted.

        The second bound holds us back only after the database clock was set forwards, until the next heartbeat.
        """
        return min(self._clock.now(), self.due_until)

    async def start(self, give_up: Callable[[], bool]) -> None:
        """Start the heartbeat process and wait for its first heartbeat, unless `give_up` says otherwise."""
        self._reading = asyncio.create_task(self._keep_renewing(), name="worker_lease")
        while not (self.is_safe or self._reading.done() or give_up()):
            await self._clock.sleep(0.005)

    async def stop(self) -> None:
        """End the heartbeat process."""
        self._closing = True
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
        if self._reading is not None:
            await asyncio.wait({self._reading}, timeout=2.0)
            self._reading.cancel()

    async def _keep_renewing(self) -> None:
        """Restart the heartbeat process should it die: every lease depends on it."""
        ticking = asyncio.create_task(self._keep_ticking(), name="ticking")
        try:
            await self._restart_for_ever()
        finally:
            ticking.cancel()

    async def _keep_ticking(self) -> None:
        """Show the heartbeat process that the engine's loop passes."""
        while True:
            self.shared_state.tick(self._clock.monotonic())
            await self._clock.sleep(TICK_SECONDS)

    async def _restart_for_ever(self) -> None:
        while not self._closing:
            try:
                if await self._heartbeat():
                    return
            except Exception as error:  # noqa: BLE001 - no process to be had, for instance: the lease lasts for some more tries
                self._log.warning("heartbeat_process_failed", error=repr(error))
            if not self._closing:
                await self._clock.sleep(self._setback.seconds(self._clock.monotonic()))

    async def _heartbeat(self) -> bool:
        """Follow one heartbeat process to its end. True: the lease is lost."""
        self.shared_state.tick(self._clock.monotonic())
        process = self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "duly.worker.heartbeat.process",
            stdin=PIPE,
            stdout=PIPE,
            pass_fds=[self.shared_state.descriptor],
        )
        assert process.stdin
        assert process.stdout
        try:
            process.stdin.write(msgspec.json.encode(self._config) + b"\n")
            async for line in process.stdout:
                if self._heed(msgspec.json.decode(line)):
                    return True
            await process.wait()
        finally:
            process.stdin.close()  # should it live, this ends it: there is never more than one
        if not self._closing:
            self._log.warning("heartbeat_process_died", status=process.returncode)
        return False

    def _heed(self, message: dict[str, object]) -> bool:
        """Handle one message of the heartbeat process. True: the lease is lost."""
        match message:
            case {"safe_until": float(moment), "due_until": float(due_until)}:
                self.safe_until, self.due_until = moment, due_until
            case {"kept": list(kept)}:
                self.stalls += 1
                self._on_returned({(UUID(run_id), fence) for run_id, fence in kept})
            case {"lost": True}:
                self.safe_until = float("-inf")
                self._on_lost()
                return True
            case {"error": error}:
                self._log.warning("heartbeat_failed", error=error)
        return False
