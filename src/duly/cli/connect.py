"""From settings to an open database, and from a coroutine to its end."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from datetime import timedelta
from functools import partial
from typing import TypeVar

from duly.cli.client import is_remote
from duly.cli.flags.settings import span
from duly.domain.errors import DatabaseUnusable
from duly.log import Log
from duly.postgres import embedded
from duly.settings import Settings, SettingsError
from duly.store.connection.database import Database
from duly.store.connection.replica import Replica
from duly.store.schema import migrate
from duly.store.tenancy.keyring import keyring_of

T = TypeVar("T")
_READ_LAG_MAX = timedelta(hours=1)  # positions of the primary's log are remembered for so long


def database_url(settings: Settings) -> str:
    """Return the database: the named one, or the one that `duly up` runs on the data folder."""
    if is_remote(settings) and settings.database_url is None:
        raise SettingsError(
            f"this needs the database itself, and {settings.sources['url']} names a Duly over HTTP; give --database-url"
            " or --data, or leave the URL away"
        )
    url = settings.database_url or embedded.attach(settings.data)
    if url is None:
        raise DatabaseUnusable(
            f"nothing runs on {settings.data}; start it with `duly up`, or set DULY_DATABASE_URL to a PostgreSQL"
        )
    return url


@asynccontextmanager
async def opened(settings: Settings, *, size_max: int = 2) -> AsyncIterator[Database]:
    """Open the database and check its schema."""
    keyring = partial(keyring_of, settings)
    url = database_url(settings)
    async with Database(url, pooler=settings.pooler, size_max=size_max, keyring=keyring) as database:
        await migrate.check(database)
        yield database


def replica_of(database: Database, settings: Settings) -> AbstractAsyncContextManager[Replica | None]:
    """Return the replica of the settings, for an `async with`; None where none is named."""
    if settings.read_url is None:
        return nullcontext()
    lag_max = span(settings, "read_lag")
    if lag_max > _READ_LAG_MAX:
        raise SettingsError(f"{settings.sources['read_lag']}: read_lag must be at most PT1H")
    return Replica(database, settings.read_url, lag_max=lag_max, log=Log("replica"))
