"""The dispatcher, built: sessions, keys, limits and wake-ups around one database."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta

import msgspec
from litestar.handlers import HTTPRouteHandler

from duly.api.auth.api_keys import Keys
from duly.api.auth.browser import Logins
from duly.api.dispatch import WAKE_PAUSE_SECONDS, Dispatcher
from duly.api.server.listen import Tls
from duly.cli.connect import replica_of
from duly.cli.flags.settings import span
from duly.cli.up.archive import archive_of
from duly.dashboard.pages import pages
from duly.domain.limits.overload import AGE_LIMIT
from duly.domain.targets.target import Allowed
from duly.domain.tenancy.sealing import Keyring
from duly.log import Log
from duly.moves.admin.admit import Admission
from duly.moves.archive.cold import ColdHistory
from duly.outbound.archive_files import ArchiveFiles
from duly.outbound.shapes import egress_of, url_check
from duly.settings import Settings, Shown, shown
from duly.store.connection.database import Database
from duly.store.connection.hints import Waker
from duly.store.connection.replica import Replica
from duly.store.connection.session import Sessions

CONNECTIONS_MAX, SESSIONS_MAX, FIGURES_MAX = 8, 8, 2
COMMAND_SECONDS = 2.0


@asynccontextmanager
async def opened_at(
    url: str, settings: Settings, keyring: Keyring | None, tls: Tls | None, *, loopback: bool | None = None
) -> AsyncIterator[tuple[Database, Dispatcher]]:
    """Open a database for HTTP, and the dispatcher over it, by the settings; `loopback` is as in `allowed_by`."""
    database = Database(
        url,
        size_max=CONNECTIONS_MAX,
        pooler=settings.pooler,
        command_timeout=COMMAND_SECONDS,
        keyring=lambda: keyring,
    )
    async with (
        database,
        replica_of(database, settings) as replica,
        opened_dispatcher(
            database,
            allowed_by(settings, loopback=loopback),
            span(settings, "queue_age_limit"),
            logs_in=settings.dashboard,
            is_secure=tls is not None or settings.plain_http,
            settings=shown(settings),
            replica=replica,
            archive=archive_of(settings),
        ) as dispatcher,
    ):
        yield database, dispatcher


@asynccontextmanager
async def opened_dispatcher(
    database: Database,
    allowed: Allowed | None = None,
    age_limit: timedelta = AGE_LIMIT,
    *,
    logs_in: bool = True,
    is_secure: bool = False,
    settings: Sequence[Shown] = (),
    replica: Replica | None = None,
    archive: ArchiveFiles | None = None,
) -> AsyncIterator[Dispatcher]:
    """Open the dispatcher over a database, and close what it needed at the end.

    `logs_in`: people may log in with a session. `is_secure`: browsers reach it over TLS. `settings` are shown to the
    operator. What may lag is read from the replica, if there is one.
    """
    waker = Waker(database, WAKE_PAUSE_SECONDS)
    async with (
        Sessions(database, size_max=SESSIONS_MAX) as sessions,
        Sessions(database, size_max=FIGURES_MAX) as figures,
    ):
        keys, admission = Keys(database), Admission(database)
        allowed = msgspec.structs.replace(allowed or Allowed(), webhooks=database.keyring() is not None)
        yield Dispatcher(
            database,
            sessions,
            keys,
            admission,
            waker.wake,
            Log("api"),
            allowed=allowed,
            age_limit=age_limit,
            logins=Logins(database, keys, is_secure=is_secure) if logs_in else None,
            figures=figures,
            settings=settings,
            replica=replica,
            cold=None if archive is None else ColdHistory(archive),
        )
    await waker.close()


def pages_of(settings: Settings) -> list[HTTPRouteHandler]:
    """Return the page of the API, and those of the dashboard unless it is off."""
    return pages(has_dashboard=settings.dashboard)


def allowed_by(settings: Settings, *, loopback: bool | None = None) -> Allowed:
    """Return the programs, images and addresses that the operator allows; `loopback` is the default."""
    check_call = url_check(egress_of(settings, loopback=loopback))
    return Allowed(
        settings.commands,
        frozenset(settings.containers),
        apprise_schemes=frozenset(settings.apprise_schemes),
        check_call=check_call,
    )
