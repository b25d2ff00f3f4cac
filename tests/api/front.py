"""Callers of the front door: each with a key of its own."""

from typing import Any
from uuid import uuid4

import httpx

from duly.api.dispatch import Dispatcher
from duly.clock import Rng
from duly.domain.runs.callback_token import CallbackTokens
from duly.domain.tenancy.api_key import Scope, new_key, written
from duly.store.connection.database import Database
from duly.store.tenancy import api_keys, tenants
from duly.store.tenancy.tenants import Limits
from tests.kept import KEYRING

A_TARGET = {"type": "function", "handler": "app:mail"}
EVERY_HOUR = {"trigger": {"type": "interval", "every": "PT1H"}}


CALLBACKS = CallbackTokens(KEYRING)


class Caller:
    """Someone with a key, or without."""

    def __init__(self, client: httpx.AsyncClient, key: str | None, key_id: str = "", tenant: int = 1) -> None:
        self._client = client
        self.key = key
        self.key_id = key_id
        self.tenant = tenant

    async def ask(self, method: str, path: str, **request) -> httpx.Response:
        """Send a request with the key."""
        headers = {} if self.key is None else {"Authorization": f"Bearer {self.key}"}
        return await self._client.request(method, path, headers={**headers, **request.pop("headers", {})}, **request)

    async def get(self, path: str, **request) -> httpx.Response:
        """Read."""
        return await self.ask("GET", path, **request)

    async def post(self, path: str, **request) -> httpx.Response:
        """Do."""
        return await self.ask("POST", path, **request)

    async def put(self, path: str, **request) -> httpx.Response:
        """Put."""
        return await self.ask("PUT", path, **request)

    async def patch(self, path: str, patch: object, **request) -> httpx.Response:
        """Change."""
        headers = {"Content-Type": "application/merge-patch+json", **request.pop("headers", {})}
        return await self.ask("PATCH", path, json=patch, headers=headers, **request)

    async def delete(self, path: str, **request) -> httpx.Response:
        """End."""
        return await self.ask("DELETE", path, **request)

    async def a_job(self, **fields) -> Any:
        """Create a job that fires every hour, unless told otherwise."""
        answer = await self.post("/v1/jobs", json={"target": A_TARGET, "schedule": EVERY_HOUR, **fields})
        assert answer.status_code == 202, answer.text
        return answer.json()


class Front:
    """The application, and those who call it."""

    def __init__(self, client: httpx.AsyncClient, database: Database, woken: list[str], door: Dispatcher) -> None:
        self.client = client
        self.database = database
        self.woken = woken
        self.door = door

    async def caller(self, *scopes: str, tenant: int = 1, **options) -> Caller:
        """Make a key, with scopes, or for everything."""
        key_id, secret = new_key(Rng().secret)
        chosen = [Scope(scope) for scope in scopes] or [Scope.ADMIN]
        await api_keys.create(self.database, key_id, secret, tenant=tenant, name="test", scopes=chosen, **options)
        return Caller(self.client, written(key_id, secret).reveal(), key_id, tenant)

    async def stranger(self) -> Caller:
        """Make another tenant, with a key for everything."""
        made = await tenants.create(self.database, f"stranger-{uuid4()}", Limits())
        return await self.caller(tenant=made.tenant)

    def nobody(self) -> Caller:
        """Someone without a key."""
        return Caller(self.client, None)
