"""Signing secrets as a worker uses them: opened once and kept for a few seconds, so that a rotation takes effect soon.

Requests ask on the handlers' loop; the database is read on the engine's. While the database does not answer, or a
secret does not open here, those read before still sign: the one before a rotation is valid for a day.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from uuid import UUID

import msgspec

from duly.clock import Clock, Rng, SystemClock
from duly.domain.targets.destination import SECRET_KEPT, signing_key
from duly.domain.tenancy.sealing import CannotOpen, Keyring
from duly.log import Log
from duly.moves.admin.destinations import secrets_for
from duly.store.connection.database import Database, Unavailable
from duly.store.tables.destinations import find_by_origin
from duly.worker.targets.webhook import CannotSign

KEPT_SECONDS = 5.0
KEPT_MAX = 10_000
PATIENCE_SECONDS = 0.5  # a request has its own deadline, which waiting for us must not use up
RETRY_SECONDS = 1.0
STALE_SECONDS = SECRET_KEPT.total_seconds() / 2
_NEVER = float("-inf")


class _Known(msgspec.Struct):
    """The known keys of a destination, and the time of the last failed read."""

    keys: list[bytes] = []
    read_at: float = _NEVER
    failed_at: float = _NEVER


class Secrets:
    """Returns the keys that sign a destination's requests; a service of a worker, over all its lives."""

    def __init__(self, keyring: Keyring, *, rng: Rng, clock: Clock | None = None) -> None:
        self._keyring = keyring
        self._rng = rng
        self._log = Log("destinations")
        self._clock = clock or SystemClock()
        self._known: dict[tuple[int, str], _Known] = {}
        self._reading: dict[tuple[int, str], asyncio.Task[list[bytes]]] = {}
        self._database: Database | None = None
        self._engine_loop: asyncio.AbstractEventLoop | None = None

    async def begin(self, database: Database, worker_id: UUID) -> None:
        """Begin a life of the worker."""
        self._database, self._engine_loop = database, asyncio.get_running_loop()

    async def end(self) -> None:
        """End that life."""

    async def of(self, tenant: int, origin: str) -> Sequence[bytes]:
        """Return the keys, the newest first; a new destination gets its first. Raises CannotSign."""
        known, now = self._known_of(tenant, origin), self._clock.monotonic()
        if now - known.read_at < KEPT_SECONDS:
            return known.keys
        if now - known.failed_at >= RETRY_SECONDS:
            try:
                return await self._read_shared(tenant, origin)
            except (TimeoutError, Unavailable, CannotOpen) as error:
                self._log_failure(known, tenant, origin, error)
        if self._clock.monotonic() - known.read_at < STALE_SECONDS:
            return known.keys
        raise CannotSign(f"the signing secret of {origin} cannot be read now")

    def are_known(self, tenant: int, origin: str) -> bool:
        """Return whether a destination's keys have been read, so that it exists."""
        known = self._known.get((tenant, origin))
        return known is not None and known.read_at > _NEVER

    async def are_kept(self, tenant: int, origin: str) -> bool:
        """Return whether a destination exists; True if that cannot be known."""
        if self._database is None or self._engine_loop is None:
            return True
        reading = find_by_origin(self._database, tenant, origin)
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                found = await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(reading, self._engine_loop))
        except (TimeoutError, Unavailable):
            return True
        return found is not None

    def _known_of(self, tenant: int, origin: str) -> _Known:
        known = self._known.get((tenant, origin))
        if known is None:
            if len(self._known) >= KEPT_MAX:
                self._known.clear()
            known = self._known[tenant, origin] = _Known()
        return known

    async def _read_shared(self, tenant: int, origin: str) -> list[bytes]:
        reading = self._reading.get((tenant, origin))
        if reading is None:  # however many want it, it is read once
            reading = self._reading[tenant, origin] = asyncio.create_task(self._read(tenant, origin))
            reading.add_done_callback(lambda task: self._answered(tenant, origin, task))
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await asyncio.shield(reading)  # a cancelled caller does not cancel it for others

    def _answered(self, tenant: int, origin: str, task: asyncio.Task[list[bytes]]) -> None:
        self._reading.pop((tenant, origin), None)
        if not task.cancelled():
            task.exception()  # otherwise it is logged as never retrieved

    async def _read(self, tenant: int, origin: str) -> list[bytes]:
        if self._database is None or self._engine_loop is None:
            raise Unavailable("the worker is not connected yet")
        reading = secrets_for(self._database, self._keyring, tenant, origin, self._rng)
        found = await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(reading, self._engine_loop))
        known = self._known_of(tenant, origin)
        known.keys, known.read_at = [signing_key(one.text) for one in found], self._clock.monotonic()
        return known.keys

    def _log_failure(self, known: _Known, tenant: int, origin: str, error: Exception) -> None:
        """Log the failure, once for all that have waited; the tenant can do nothing about it."""
        now = self._clock.monotonic()
        if now - known.failed_at >= RETRY_SECONDS:
            known.failed_at = now
            why = str(error) or "the database has not answered"
            self._log.warning("signing_secret_unread", tenant=tenant, origin=origin, error=why)
