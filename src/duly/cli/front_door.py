"""The front door, built: sessions, keys, limits and wake-ups around one database."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import msgspec

from duly.api.door import WAKE_PAUSE_SECONDS, Door
from duly.api.identity import Keys
from duly.cli.egress import egress_of
from duly.domain.errors import InvalidOption
from duly.domain.overload import AGE_LIMIT
from duly.domain.sealing import Keyring
from duly.domain.target import Allowed
from duly.log import Log
from duly.moves.admit import Admission
from duly.outbound.errors import NotAllowed
from duly.outbound.guard import judge
from duly.settings import Settings
from duly.store.database import Database
from duly.store.session import Sessions
from duly.store.waker import Waker

SESSIONS_MAX = 8


@asynccontextmanager
async def opened_door(
    database: Database, keyring: Keyring | None, allowed: Allowed | None = None, age_limit: timedelta = AGE_LIMIT
) -> AsyncIterator[Door]:
    """Open the door over a database, and close what it needed at the end."""
    waker = Waker(database, WAKE_PAUSE_SECONDS)
    async with Sessions(database, size_max=SESSIONS_MAX) as sessions:
        keys, admission = Keys(database), Admission(database)
        allowed = msgspec.structs.replace(allowed or Allowed(), webhooks=keyring is not None)
        parts = database, sessions, keys, admission, waker.wake, Log("api")
        yield Door(*parts, keyring=keyring, allowed=allowed, age_limit=age_limit)
    await waker.close()


def allowed_by(settings: Settings, *, loopback: bool | None = None) -> Allowed:
    """Give the programs, images and addresses that the operator allows; `loopback` is for what is not said there."""
    egress = egress_of(settings)
    if loopback is not None:
        egress = msgspec.structs.replace(egress, loopback=loopback)

    def check_call(url: str) -> None:
        try:
            judge(egress, url)
        except NotAllowed as error:
            raise InvalidOption(str(error)) from None

    return Allowed(frozenset(settings.commands), frozenset(settings.containers), check_call=check_call)
