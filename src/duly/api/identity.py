"""Who asks: a key is looked up, compared in constant time, and remembered for a few seconds, no longer.

What is remembered is what the database said, never whether a secret fits: that is compared for each request. Every refusal is
the same, so that nobody learns whether a key was unknown, wrong, expired, revoked, or of a suspended tenant.
"""

from __future__ import annotations

import asyncio

import msgspec

from duly.api.operations import Identity
from duly.api.refusals import Refusal
from duly.clock import moment_of
from duly.domain.api_key import ApiKey, implied_by, parse
from duly.store import api_keys
from duly.store.database import Database

# A revoked key is refused within five seconds: this long it may still be remembered, the rest is on the way.
REMEMBERED_SECONDS = 3.0
_REMEMBERED_MAX = 10_000
_SCHEME = "bearer "


class _Memory(msgspec.Struct, frozen=True):
    key: ApiKey | None
    until: float


class Keys:
    """The keys that were asked for lately."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._memories: dict[str, _Memory] = {}
        self._looking: dict[str, asyncio.Task[ApiKey | None]] = {}

    async def identify(self, authorization: str | None) -> Identity:
        """Say who a header names. Raises Refusal."""
        found = parse(authorization[len(_SCHEME) :].strip()) if _is_bearer(authorization) and authorization else None
        if found is None:
            raise _refusal()
        key_id, secret = found
        key = await self._find(key_id)
        now = moment_of(self._database.clock.now())
        if key is None or not key.is_opened_by(secret) or not key.is_usable(now) or key.tenant_state != "active":
            raise _refusal()
        return Identity(key, frozenset(map(str, implied_by(key.scopes))))

    async def _find(self, key_id: str) -> ApiKey | None:
        monotonic = self._database.clock.monotonic()
        memory = self._memories.get(key_id)
        if memory is not None and monotonic < memory.until:
            return memory.key
        key = await self._look_up(key_id)
        if len(self._memories) >= _REMEMBERED_MAX:
            self._memories.clear()
        self._memories[key_id] = _Memory(key, monotonic + REMEMBERED_SECONDS)
        return key

    async def _look_up(self, key_id: str) -> ApiKey | None:
        """Ask the database, once for all who ask at this moment."""
        task = self._looking.get(key_id)
        if task is None:
            task = asyncio.get_running_loop().create_task(api_keys.find(self._database, key_id), name="duly-key")
            self._looking[key_id] = task
            task.add_done_callback(lambda _: self._looking.pop(key_id, None))
        return await asyncio.shield(task)


def _is_bearer(authorization: str | None) -> bool:
    return authorization is not None and authorization[: len(_SCHEME)].lower() == _SCHEME


def _refusal() -> Refusal:
    return Refusal("unauthorized", "The request carries no valid key.", headers={"WWW-Authenticate": "Bearer"})
