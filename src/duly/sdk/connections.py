"""Database connections: the address, and one small pool for each event loop, because a pool belongs to its loop.

The database is the one given to the app; failing that `DULY_DATABASE_URL` or the settings file; failing that the server
of a running `duly up` in the data folder. A server over HTTP in the settings takes precedence over a folder that they
do not name: the command line would use it, and an app must not silently submit elsewhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Iterator
from contextlib import contextmanager
from weakref import WeakKeyDictionary

from duly.domain.errors import DatabaseUnusable, NotFound
from duly.domain.runs.run import TENANT_DEFAULT
from duly.domain.tenancy.sealing import FindKeyring, Keyring
from duly.outbound.shapes import Check, egress_of, url_check
from duly.postgres.unix_socket import is_our_own
from duly.settings import Settings, SettingsError, load, redacted
from duly.store.connection.database import Database
from duly.store.connection.hints import Waker
from duly.store.connection.local import this_account
from duly.store.schema import migrate
from duly.store.tenancy import tenants
from duly.store.tenancy.keyring import keyring_of


class LoopConnections:
    """The open connections of one event loop; they are closed with the loop."""

    def __init__(self) -> None:
        self.opening = asyncio.Lock()
        self.database: Database | None = None
        self.unaudited: Database | None = None  # the same, for what has no audit entry
        self.waker: Waker | None = None
        self._keeper: AsyncGenerator[None] | None = None

    async def open(self, url: str, *, pooler: bool, keyring: FindKeyring) -> None:
        """Connect, and check the schema."""
        database = await Database(url, pooler=pooler, application="duly sdk", keyring=keyring).open()
        try:
            await migrate.check(database)
        except BaseException:
            await database.close()
            raise
        self.database, self.unaudited, self.waker = database.acting_as(this_account()), database, Waker(database)
        self._keeper = self._until_the_loop_ends()
        await anext(self._keeper)

    async def close(self) -> None:
        """Disconnect."""
        if self._keeper is not None:
            await self._keeper.aclose()

    async def _until_the_loop_ends(self) -> AsyncGenerator[None]:
        """Wait until closed by us, or by the loop: at its end it closes each generator begun on it."""
        try:
            yield
        finally:
            database, waker, self.database, self.unaudited, self.waker = self.database, self.waker, None, None, None
            if waker is not None:
                await waker.close()
            if database is not None:
                await database.close()


_ByLoop = WeakKeyDictionary[asyncio.AbstractEventLoop, LoopConnections]


class Connections:
    """Opened at first use."""

    def __init__(self, url: str | None) -> None:
        self._url = url
        self._pooler: bool | None = None
        self._is_elsewhere = False
        self._check: Check | None = None
        self._keyring: Keyring | None = None
        self._by_loop: _ByLoop = WeakKeyDictionary()
        self._tenants: set[int] = set()

    async def database(self, *, is_audited: bool = True) -> Database:
        """Return this loop's pool. Raises DatabaseUnusable, naming the remedy."""
        connections = await self._of_this_loop()
        database = connections.database if is_audited else connections.unaudited
        assert database is not None
        return database

    async def waker(self) -> Waker:
        """Return this loop's waker."""
        connections = await self._of_this_loop()
        assert connections.waker is not None
        return connections.waker

    def locate(self) -> str:
        """Return the database's address. Raises DatabaseUnusable, naming the remedy."""
        if self._url is not None and self._url.startswith(("http://", "https://")):
            raise _over_http("App(url)", self._url)
        return self._url or _found(_settings())

    async def check_tenant(self, tenant: int) -> None:
        """Refuse a tenant that does not exist, whose runs would never start; checked once. Raises NotFound."""
        if tenant == TENANT_DEFAULT or tenant in self._tenants:
            return
        if await tenants.find(await self.database(), tenant) is None:
            raise NotFound(f"no tenant {tenant}; `duly tenants` lists them")
        self._tenants.add(tenant)

    def check_calls(self, urls: Iterable[str]) -> None:
        """Refuse addresses that no worker with our settings would call, as the API does. Raises InvalidOption."""
        for url in urls:
            self._check = self._check or self._judgement()
            self._check(url)

    def _judgement(self) -> Check:
        settings = _settings()
        # A `duly up` in this folder and a test's database are for development: there this machine may be called.
        is_development = self._is_elsewhere or (self._url is None and settings.database_url is None)
        return url_check(egress_of(settings, loopback=is_development))

    def keyring(self) -> Keyring | None:
        """Return the keyring that seals secrets. Raises DatabaseUnusable when the named file cannot be read."""
        if self._keyring is not None:
            return self._keyring
        settings = _settings()
        is_folder = self._url is None or is_our_own(self._url)
        if settings.secrets_key is None and not is_folder:
            return None  # the keyring in a folder is that of its own database
        try:
            return keyring_of(settings)
        except SettingsError as error:
            raise DatabaseUnusable(str(error)) from None

    def suggest(self, url: str) -> None:
        """Set the database of an app that was given no address."""
        self._url = self._url or url

    async def close(self) -> None:
        """Close this loop's connections, and let other loops close theirs; an ended loop has closed its own."""
        all_connections, self._by_loop = list(self._by_loop.items()), WeakKeyDictionary()
        for loop, connections in all_connections:
            if loop is asyncio.get_running_loop():
                await connections.close()
            elif loop.is_running():
                asyncio.run_coroutine_threadsafe(connections.close(), loop)  # not awaited: it may be waiting for us

    @contextmanager
    def elsewhere(self, url: str, keyring: Keyring | None = None) -> Iterator[None]:
        """Use another database and keyring meanwhile; its end closes what was opened."""
        before = self._url, self._pooler, self._by_loop, self._is_elsewhere, self._tenants, self._keyring
        self._url, self._pooler, self._by_loop, self._is_elsewhere = url, False, WeakKeyDictionary(), True
        self._keyring = keyring
        self._check, self._tenants = None, set()
        try:
            yield
        finally:
            self._url, self._pooler, self._by_loop, self._is_elsewhere, self._tenants, self._keyring = before
            self._check = None

    async def _of_this_loop(self) -> LoopConnections:
        loop = asyncio.get_running_loop()
        connections = self._by_loop.get(loop) or self._by_loop.setdefault(loop, LoopConnections())
        if connections.database is None:
            async with connections.opening:
                if connections.database is None:
                    await connections.open(self.locate(), pooler=self._is_pooled(), keyring=self.keyring)
        return connections

    def _is_pooled(self) -> bool:
        if self._pooler is None:
            self._pooler = _settings().pooler
        return self._pooler


def _settings() -> Settings:
    try:
        return load()
    except SettingsError as error:
        raise DatabaseUnusable(str(error)) from None


def _found(settings: Settings) -> str:
    if settings.database_url:
        return settings.database_url
    if settings.url is not None and not settings.is_given("data"):
        raise _over_http(settings.sources["url"], settings.url)
    from duly.postgres.embedded import attach

    url = attach(settings.data)
    if url is None:
        raise DatabaseUnusable(
            f"no database: nothing runs on {settings.data}."
            " Start one there with `duly up`, set DULY_DATABASE_URL, or give the app its address: App(url)"
        )
    return url


def _over_http(source: str, url: str) -> DatabaseUnusable:
    return DatabaseUnusable(
        f"{source} names a Duly over HTTP, {redacted(url)}, and an App speaks to the database itself:"
        " submit with `duly.Client` instead (docs/how-to/client.md), or set DULY_DATABASE_URL to its PostgreSQL"
    )
