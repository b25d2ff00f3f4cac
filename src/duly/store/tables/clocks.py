"""Clocks: how far the clock of each process's host is from the database's, and whether that one was set back.

Everything goes by the database's time, so a host whose clock is wrong delays nothing: its logs are wrong, and what it checks by
its own clock, such as certificates. A database clock that was set back stops schedules: each has its next fire after the last.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from duly.clock import host_now
from duly.domain.diagnosis.doctor import ClockSetBack, HostClock
from duly.log import Log
from duly.store.connection.database import Database, Unavailable
from duly.store.connection.local import this_host
from duly.store.connection.statements import load

SQL = load("tables/clocks")
NOTE_SECONDS = 5.0
_ROUND_TRIP_SECONDS_MAX = 1.0  # Of a slower answer nobody can tell when the clock was read.


async def difference(session: Database, now: Callable[[], datetime]) -> tuple[float, float]:
    """Say how far this host's clock is ahead of the server's, give or take half of the round trip, which is given as well."""
    sent_at = now()
    told_at: datetime = await session.fetchval(SQL["server"])
    came_at = now()
    ahead = sent_at + (came_at - sent_at) / 2 - told_at
    return round(ahead.total_seconds(), 3) + 0.0, (came_at - sent_at).total_seconds()


async def note(database: Database, roles: Sequence[str], name: str, now: Callable[[], datetime] = host_now) -> None:
    """Measure the clock of this host and write down for which roles of this process. Raises Unavailable."""
    seconds, round_trip = await difference(database, now)
    if abs(round_trip) <= _ROUND_TRIP_SECONDS_MAX:
        for role in roles:
            await database.execute(SQL["note"], role, name, this_host(), seconds)


async def keep_noting(database: Database, roles: Sequence[str], name: str, log: Log) -> None:
    """Do so until cancelled."""
    while True:
        try:
            await note(database, roles, name)
        except Unavailable:
            pass  # Whoever needs the database says so.
        except Exception as error:  # noqa: BLE001 - a figure is never worth the process that it describes
            log.warning("host_clock_not_noted", error=repr(error))
        await database.clock.sleep(NOTE_SECONDS)


async def noted(database: Database) -> list[HostClock]:
    """Read what the processes of the last minute have measured."""
    return [HostClock(*row) for row in await database.fetch(SQL["noted"])]


async def set_back(database: Database) -> ClockSetBack | None:
    """Say by how much the database's clock was set back, and when it is again where it was; None: it was not."""
    return await database.fetch_row_as(ClockSetBack, SQL["set_back"])
