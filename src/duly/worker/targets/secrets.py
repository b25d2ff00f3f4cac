"""Signing secrets as a worker uses them: opened once, kept for a few seconds, so that a rotation is soon heard of.

Requests ask on the handlers' loop; the database is asked on the engine's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from uuid import UUID

from duly.clock import Clock, Rng, SystemClock
from duly.domain.destination import signing_key
from duly.domain.sealing import Keyring
from duly.moves.destinations import secrets_for
from duly.store.database import Database, Unavailable

KEPT_SECONDS = 5.0
KEPT_MAX = 10_000


class Secrets:
    """Gives the keys that a destination's requests are signed with; a part of a worker, over all its lives."""

    def __init__(self, keyring: Keyring, *, rng: Rng, clock: Clock | None = None) -> None:
        self._keyring = keyring
        self._rng = rng
        self._clock = clock or SystemClock()
        self._kept: dict[tuple[int, str], tuple[float, list[bytes]]] = {}
        self._asking: dict[tuple[int, str], asyncio.Task[list[bytes]]] = {}
        self._database: Database | None = None
        self._engine_loop: asyncio.AbstractEventLoop | None = None

    async def begin(self, database: Database, worker_id: UUID) -> None:
        """A life of the worker begins."""
        self._database, self._engine_loop = database, asyncio.get_running_loop()

    async def end(self) -> None:
        """That life is over; nobody asks any more."""

    async def of(self, tenant: int, origin: str) -> Sequence[bytes]:
        """Give the keys, the newest first; a destination that is new gets its first. Raises Unavailable, CannotOpen."""
        kept = self._kept.get((tenant, origin))
        if kept is not None and self._clock.monotonic() - kept[0] < KEPT_SECONDS:
            return kept[1]
        asking = self._asking.get((tenant, origin))
        if asking is None:  # However many want it, it is asked for once.
            asking = self._asking[tenant, origin] = asyncio.create_task(self._ask(tenant, origin))
            asking.add_done_callback(lambda _: self._asking.pop((tenant, origin), None))
        return await asyncio.shield(asking)  # Who is cancelled takes it away from nobody.

    async def _ask(self, tenant: int, origin: str) -> list[bytes]:
        if self._database is None or self._engine_loop is None:
            raise Unavailable("the worker is not connected yet")
        asking = secrets_for(self._database, self._keyring, tenant, origin, self._rng)
        found = await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(asking, self._engine_loop))
        if len(self._kept) >= KEPT_MAX:
            self._kept.clear()
        keys = [signing_key(one.text) for one in found]
        self._kept[tenant, origin] = (self._clock.monotonic(), keys)
        return keys
