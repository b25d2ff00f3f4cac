"""From settings to an open database, and from a coroutine to its end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from typing import TypeVar

from duly.cli.client import is_remote
from duly.domain.errors import DatabaseUnusable
from duly.postgres import embedded
from duly.settings import Settings, SettingsError
from duly.store.connection.database import Database
from duly.store.schema import migrate
from duly.store.tenancy.keyring import keyring_of

T = TypeVar("T")


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


def run_loop(main: Coroutine[object, object, T]) -> T:
    """Run a role to its end on the fastest loop."""
    try:
        from uvloop import new_event_loop
    except ImportError:
        return asyncio.run(main)
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(main)
