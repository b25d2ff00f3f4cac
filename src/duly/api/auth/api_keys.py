"""API keys of callers: a key is looked up, compared in constant time, and cached for three seconds.

The cache holds the database's row, never whether a secret matches: that is compared for each request. Every refusal is
the same, so that a caller cannot learn whether a key was unknown, wrong, expired, revoked, or of a suspended tenant.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta

import msgspec

from duly.api.problems import Refusal
from duly.clock import moment_of
from duly.domain.errors import DulyError, TenantMoved, TenantMoving
from duly.domain.tenancy.api_key import ApiKey, Identity, Secret, implied_by, parse
from duly.domain.tenancy.cells import GONE, LEAVING
from duly.store.connection.database import Database
from duly.store.tenancy import api_keys

# A revoked key is refused within five seconds: this long it may be cached, the rest is latency.
REMEMBERED_SECONDS = 3.0
_REMEMBERED_MAX = 10_000
_USABLE_STATES = ("active", LEAVING)  # what a leaving tenant may still do is decided for each operation
_SCHEME = "bearer "
_USE_RECORDED_EVERY = timedelta(minutes=1)


class _Memory(msgspec.Struct, frozen=True):
    """A cached key, and until when it is used."""

    identity: Identity | None
    until: float


class Keys:
    """The recently used keys."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._memories: dict[str, _Memory] = {}
        self._looking: dict[str, asyncio.Task[ApiKey | None]] = {}
        self._touching: set[asyncio.Task[None]] = set()

    async def identify(self, authorization: str | None) -> Identity:
        """Return the identity that a header names. Raises Refusal."""
        found = parse(authorization[len(_SCHEME) :].strip()) if _is_bearer(authorization) and authorization else None
        if found is None:
            raise _refusal()
        key_id, secret = found
        identity = await self._find(key_id)
        if identity is None:
            await self._refuse_moved(key_id, secret)
        if identity is None or not identity.key.is_opened_by(secret) or not self._is_usable(identity.key):
            raise _refusal()
        return identity

    async def _refuse_moved(self, key_id: str, secret: Secret) -> None:
        """Refuse a key whose tenant has left this cell. Raises TenantMoved, TenantMoving."""
        moved = await api_keys.find_moved(self._database, key_id)
        if moved is None or not moved.is_opened_by(secret):
            return
        if moved.state != GONE:
            raise TenantMoving(f"tenant {moved.tenant_name} is moving to cell {moved.cell}; try again in some seconds")
        raise TenantMoved(f"tenant {moved.tenant_name} is in cell {moved.cell}; send the request there")

    async def of_id(self, key_id: str) -> Identity:
        """Return the identity of a key whose secret was checked before. Raises Refusal when it grants nothing any more."""
        identity = await self._find(key_id)
        if identity is None or not self._is_usable(identity.key):
            raise _refusal()
        return identity

    def _is_usable(self, key: ApiKey) -> bool:
        return key.is_usable(moment_of(self._database.clock.now())) and key.tenant_state in _USABLE_STATES

    async def _find(self, key_id: str) -> Identity | None:
        monotonic = self._database.clock.monotonic()
        memory = self._memories.get(key_id)
        if memory is not None and monotonic < memory.until:
            return memory.identity
        key = await self._look_up(key_id)
        identity = None if key is None else Identity(key, frozenset(map(str, implied_by(key.scopes))))
        if len(self._memories) >= _REMEMBERED_MAX:
            self._memories.clear()
        self._memories[key_id] = _Memory(identity, monotonic + REMEMBERED_SECONDS)
        if key is not None:
            self._record_use(key)
        return identity

    async def _look_up(self, key_id: str) -> ApiKey | None:
        """Read the key from the database, once for all concurrent callers."""
        task = self._looking.get(key_id)
        if task is None:
            task = asyncio.get_running_loop().create_task(api_keys.find(self._database, key_id), name="duly-key")
            self._looking[key_id] = task
            task.add_done_callback(lambda _: self._looking.pop(key_id, None))
        return await asyncio.shield(task)

    def _record_use(self, key: ApiKey) -> None:
        """Record, to the minute, that a key is in use; it is not awaited."""
        now = moment_of(self._database.clock.now())
        if key.last_used_at is not None and now - key.last_used_at < _USE_RECORDED_EVERY:
            return
        task = asyncio.get_running_loop().create_task(self._touch(key.key_id), name="duly-key-used")
        self._touching.add(task)
        task.add_done_callback(self._touching.discard)

    async def _touch(self, key_id: str) -> None:
        with suppress(DulyError):  # it is recorded with the next look
            await api_keys.touch(self._database, [key_id])


def _is_bearer(authorization: str | None) -> bool:
    return authorization is not None and authorization[: len(_SCHEME)].lower() == _SCHEME


def _refusal() -> Refusal:
    return Refusal("unauthorized", "The request carries no valid key.", headers={"WWW-Authenticate": "Bearer"})
