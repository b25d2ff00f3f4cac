"""The facts of the whole installation, for the doctor. Read-only, and each statement is bounded by its session."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from functools import cache

from duly import __version__
from duly.domain.diagnosis.apps import clashes
from duly.domain.diagnosis.doctor import (
    Disk,
    Facts,
    FreezeAge,
    Index,
    Replica,
    Scheduler,
    Server,
    Slot,
    Stalled,
    Table,
    Unroutable,
    WaitingRecovery,
    XminHolder,
    tomorrow_of,
)
from duly.domain.triggers.zones import zones
from duly.store.boxes import history
from duly.store.connection.database import Database
from duly.store.connection.local import disk_of
from duly.store.connection.replica import Replica as Readable
from duly.store.connection.statements import load
from duly.store.reads.overview import backlog
from duly.store.schema import state
from duly.store.tables import archive, clocks, hosts, notifications, overloads, recovery, workers
from duly.store.tenancy import sealed

SQL = load("reads/system")
_SUBQUEUES_MAX, _RUNS_MAX = 500, 1_000  # how many queues are read, and how deep
UNROUTABLE_MAX = 20
_SEALED_ROWS_MAX = 10_000
FAILING_CHANNELS_MAX = 10
_INDEX = re.compile(
    r"^\s*create\s+(?:unique\s+)?index\s+(?:if\s+not\s+exists\s+)?(\w+)\s", re.IGNORECASE | re.MULTILINE
)
_DROPPED = re.compile(r"^\s*drop\s+index\s+(?:if\s+exists\s+)?(?:duly\.)?(\w+)", re.IGNORECASE | re.MULTILINE)


async def read(session: Database, host_now: Callable[[], datetime], replica: Readable | None = None) -> Facts:
    """Read all facts of the doctor. `host_now` is the clock of this machine, `replica` the one that it reads from."""
    seconds, _ = await clocks.difference(session, host_now)
    seen = await backlog(session)
    server = await session.fetch_one(SQL["server"])
    partitions = await session.fetch(SQL["missing_partitions"], tomorrow_of(seen.read_at))
    return Facts(
        read_at=seen.read_at,
        version=__version__,
        schema=await session.fetchval(SQL["schema"]),
        tzdb=zones.database_version(),
        tzdb_in_force=await session.fetchval(SQL["tzdb_in_force"]),
        worker_versions={row[0]: row[1] for row in await session.fetch(SQL["worker_versions"])},
        stalled=[Stalled(*row) for row in await session.fetch(SQL["stalled"])],
        schedulers=[Scheduler(**row) for row in await session.fetch(SQL["schedulers"])],
        lag_seconds=seen.lag_seconds,
        reaper_age_seconds=seen.reaper_age_seconds,
        server=Server(**server),
        tables=[Table(**row) for row in await session.fetch(SQL["tables"])],
        indexes=[Index(*row) for row in await session.fetch(SQL["indexes"])],
        expected_indexes=expected_indexes(),
        missing_partitions=[row[0] for row in partitions],
        replicas=[Replica(*row) for row in await session.fetch(SQL["replicas"])],
        read_replica=None if replica is None else replica.fact,
        slots=[Slot(*row) for row in await session.fetch(SQL["slots"])],
        clock_difference_seconds=seconds,
        clocks=await clocks.recorded(session),
        clock_set_back=await clocks.set_back(session),
        overloads=list((await overloads.standing(session)).values()),
        drained_hosts=await hosts.drained(session),
        is_unfinished=bool((await state.read(session)).unfinished),
        clashes=clashes(await workers.offers(session)),
        unroutable=await unroutable(session),
        archive_age_seconds=await history.archive_age_seconds(session),
        archive_failures=await archive.failing(session),
        failing_channels=await notifications.failing(session, FAILING_CHANNELS_MAX),
        waiting_recovery=await waiting_recovery(session),
        unopened_secrets=await sealed.unopened(session, session.keyring(), _SEALED_ROWS_MAX),
        xmin_holder=await session.fetch_row_as(XminHolder, SQL["xmin_holder"]),
        freeze_age=await session.fetch_row_as(FreezeAge, SQL["freeze_age"]),
        disk=await disk(session),
    )


async def waiting_recovery(session: Database) -> WaitingRecovery | None:
    """Return the recovery that waits for the decision of a person."""
    last = await recovery.last(session)
    if last is None or last.state != recovery.OPEN:
        return None
    missed = (await recovery.totals(session, last.recovery_id)).missed
    return WaitingRecovery(last.opened_at, last.backup_at, missed)


async def disk(session: Database) -> Disk | None:
    """Return the disk of the server, if it runs on this machine and we may see its processes."""
    row = await session.fetch_one(SQL["server_process"])
    return disk_of(row["pid"], row["started_at"])


async def unroutable(session: Database) -> list[Unroutable]:
    """Return due runs that no live worker can run, within bounds on the rows read."""
    rows = await session.fetch(SQL["unroutable"], _SUBQUEUES_MAX, _RUNS_MAX, UNROUTABLE_MAX)
    return [Unroutable(**row) for row in rows]


@cache
def expected_indexes() -> frozenset[str]:
    """Return the indexes that the migrations have created and not dropped."""
    names: set[str] = set()
    for migration in state.known():
        names -= set(_DROPPED.findall(migration.sql))
        names |= set(_INDEX.findall(migration.sql))
    return frozenset(names)
