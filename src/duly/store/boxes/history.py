"""History: its day partitions, its retention, and the check that nothing was lost."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from duly.store.connection.database import Database
from duly.store.connection.statements import load

SQL = load("boxes/history")


async def create_partitions(database: Database, days_ahead: int) -> int:
    """Create the day partitions from today on, where missing. Returns how many were created."""
    return int(await database.fetchval(SQL["create_partitions"], days_ahead))


async def drop_partitions(database: Database, parent: str, before: date) -> list[str]:
    """Drop the partitions of days before a date. Returns those dropped; one that is being read stays for now."""
    names = [name for name, _ in await partitions_before(database, parent, before)]
    return [name for name in names if await drop_partition(database, name)]


async def drop_partition(database: Database, name: str, *, only_empty: bool = False) -> bool:
    """Drop a partition, or only an empty one. False: it is read, is to be archived first, or is under a legal hold."""
    return bool(await database.fetchval(SQL["drop_partition"], name, only_empty))


async def partitions_before(database: Database, parent: str, before: date) -> list[tuple[str, date]]:
    """Return the partitions of days before a date, the first ones first, each with its day."""
    rows = await database.fetch(SQL["partitions"])
    found = [(row["name"], _day_of(row["name"])) for row in rows if row["parent"] == parent]
    return sorted((name, day) for name, day in found if day < before)


async def archive(database: Database, payload_bytes: int) -> None:
    """From now on drop attempts only once they are archived."""
    await database.execute(SQL["archive"], payload_bytes)


async def stop_archive(database: Database) -> bool:
    """From now on drop attempts without an archive. False: that was so before."""
    return bool(await database.fetch(SQL["stop_archive"]))


async def archive_age_seconds(database: Database) -> float | None:
    """Return how long ago a scheduler with an archive looked for partitions to archive; None: there is no archive."""
    return await database.fetchval(SQL["archive_age"])  # type: ignore[no-any-return]


async def forget_strays(database: Database, parent: str, before: date, limit: int) -> int:
    """Delete rows of days before a date that never had a partition. Returns how many; `limit` means: call again."""
    return int(await database.fetchval(SQL[f"forget_{parent}"], datetime.combine(before, time.min, UTC), limit))


def _day_of(partition: str) -> date:
    return datetime.strptime(partition[-8:] + "+0000", "%Y%m%d%z").date()


async def purge(database: Database, limit: int) -> int:
    """Delete more history of jobs that are being purged, so many runs of each. Returns how many."""
    return int(await database.fetchval(SQL["purge"], limit))


async def purge_over(database: Database, kept: timedelta, limit: int) -> int:
    """Purge definitions that ended longer ago than they are kept, so many at most. Returns how many."""
    return int(await database.fetchval(SQL["purge_over"], kept, limit))


async def limit_payloads(database: Database, payload_bytes: int) -> None:
    """Store the payloads of successes up to so many bytes, from now on."""
    await database.execute(SQL["limit_payloads"], payload_bytes)


async def release_waiting(database: Database, limit: int) -> int:
    """Release runs that wait at a concurrency key with a free slot. Returns how many."""
    released: int | None = await database.fetchval(SQL["release_waiting"], limit)
    return released or 0


async def verify(database: Database) -> list[dict[str, Any]]:
    """Check the invariants in one snapshot. An empty list means that all hold."""
    return [dict(row) for row in await database.fetch(SQL["verify"])]
