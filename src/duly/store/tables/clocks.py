"""Processes, as each records itself: its version, and the difference of its host's clock from the database's.

Everything uses the database's time, so a host whose clock is wrong delays nothing: only its logs are wrong, and checks
by its own clock, such as of certificates. A database clock that was set back stops schedules: each has its next fire
after the last.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from duly import __version__
from duly.clock import host_now
from duly.domain.diagnosis.doctor import ClockSetBack, HostClock
from duly.log import Log
from duly.store.connection.database import Database, Unavailable
from duly.store.connection.local import this_host
from duly.store.connection.statements import load
from duly.store.schema import state

SQL = load("tables/clocks")
RECORD_SECONDS = 5.0
_SCHEMA = state.newest()  # read when the program starts: its files may be replaced while it runs
_ROUND_TRIP_SECONDS_MAX = 1.0  # a slower answer does not tell when the clock was read


async def difference(session: Database, now: Callable[[], datetime]) -> tuple[float, float]:
    """Return the lead of this host's clock over the server's, and the round trip; half of it is the error."""
    sent_at = now()
    reported_at: datetime = await session.fetchval(SQL["server"])
    came_at = now()
    ahead = sent_at + (came_at - sent_at) / 2 - reported_at
    return round(ahead.total_seconds(), 3) + 0.0, (came_at - sent_at).total_seconds()


async def record(database: Database, roles: Sequence[str], name: str, now: Callable[[], datetime] = host_now) -> None:
    """Measure the clock of this host and record it for the roles of this process. Raises Unavailable."""
    seconds, round_trip = await difference(database, now)
    if abs(round_trip) <= _ROUND_TRIP_SECONDS_MAX:
        for role in roles:
            await database.execute(SQL["record"], role, name, this_host(), seconds, __version__, _SCHEMA)


async def keep_recording(database: Database, roles: Sequence[str], name: str, log: Log) -> None:
    """Measure and record until cancelled."""
    while True:
        try:
            await record(database, roles, name)
        except Unavailable:
            pass  # other users of the database report it
        except Exception as error:  # noqa: BLE001 - a figure is never worth the process that it describes
            log.warning("host_clock_not_recorded", error=repr(error))
        await database.clock.sleep(RECORD_SECONDS)


async def recorded(database: Database) -> list[HostClock]:
    """Read the measurements of the last minute."""
    return [HostClock(*row) for row in await database.fetch(SQL["recorded"])]


async def set_back(database: Database) -> ClockSetBack | None:
    """Return by how much the database clock was set back, and when it catches up; None: it was not."""
    return await database.fetch_row_as(ClockSetBack, SQL["set_back"])
