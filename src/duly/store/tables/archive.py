"""The archive's side of the database: the rows of a partition on their way out, the record of each archive, and legal holds."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from datetime import UTC, date, datetime, time, timedelta
from typing import Any
from uuid import UUID

import msgspec

from duly.domain.archive import COLUMNS, MOMENTS, Archived, ArchiveFailure, Contents, LegalHold
from duly.store.connection.database import Database
from duly.store.connection.statements import load

_RECORD = ", ".join(Archived.__struct_fields__)
SQL = {name: sql.replace("{record}", _RECORD) for name, sql in load("tables/archive").items()}
_COPY_SECONDS = 300.0  # of a few pages; their payloads may be large
_SHARES = 1 << 20
_MOMENT = "greatest(least({0} at time zone 'UTC', '9999-12-31 23:59:59.999999'), '0001-01-01 00:00:00')::text as {0}"
# Sealed texts are in targets and callbacks alone.
_UNSEALED = (
    "case when {0} ?| array['target', 'callbacks']"
    " then regexp_replace({0}::text, '\"sealed:[A-Za-z0-9_-]{{1,64}}:[A-Za-z0-9_-]{{38,}}\"', '\"***\"', 'g')"
    " else {0}::text end as {0}"
)
_HELD = (
    "exists (select from duly.legal_holds where legal_holds.tenant = one.tenant"
    " and coalesce(legal_holds.job_id, one.job_id) = one.job_id)"
)
Sink = Callable[[bytes], Coroutine[Any, Any, None]]


class Selection(msgspec.Struct, frozen=True):
    """The rows of an archive: of a whole partition, or of a day in the table of rows that missed theirs.

    `sample` is the share of rows that is archived; of those under a legal hold all are.
    """

    source: str
    late_day: date | None = None
    sample: float = 1.0

    @property
    def _matching(self) -> str:
        if self.late_day is None:
            return "true"
        since, before = _span(self.late_day)
        return f"finished_at >= '{since:%Y-%m-%d} 00:00+00' and finished_at < '{before:%Y-%m-%d} 00:00+00'"

    @property
    def _chosen(self) -> str:
        if self.sample >= 1:
            return self._matching
        least = round(self.sample * _SHARES)
        return f"((uuid_hash_extended(run_id, 0) & {_SHARES - 1}) < {least} or {_HELD})"

    def statement(self, name: str) -> str:
        """Return a statement about these rows."""
        return SQL[name].format(
            source=_checked(self.source),
            matching=self._matching,
            chosen=self._chosen,
            columns=", ".join(COLUMNS),
            moments=", ".join(_MOMENT.format(one) for one in MOMENTS),
            unsealed=", ".join(_UNSEALED.format(one) for one in ("metadata", "options")),
        )


def _checked(source: str) -> str:
    """Check the name of a table, which becomes part of a statement."""
    assert source.replace("_", "").isalnum(), source
    assert source.startswith("attempts_"), source
    return source


def _span(day: date) -> tuple[datetime, datetime]:
    since = datetime.combine(day, time.min, UTC)
    return since, since + timedelta(days=1)


async def claim(
    database: Database,
    selection: Selection,
    archived: tuple[str, str, date],
    holder: UUID,
    location: str,
    lease: timedelta,
) -> Archived | None:
    """Claim the export of an archive, by its name, kind and day. None: another process has it, or it is done."""
    name, kind, day = archived
    is_late = selection.late_day is not None
    arguments = (name, selection.source, kind, day, is_late, holder, location, lease)
    return await database.fetch_row_as(_archived, SQL["claim"], *arguments)


async def late_days(database: Database, kind: str, before: date) -> list[date]:
    """Return the first days before a date whose rows missed their partition."""
    statement = SQL["late_days"].format(source=f"attempts_{kind}_default")
    return [row[0] for row in await database.fetch(statement, datetime.combine(before, time.min, UTC))]


async def late_number(database: Database, kind: str, day: date) -> int:
    """Return the number of the unfinished archive of a day's late rows, or of the next one."""
    return int(await database.fetchval(SQL["late_number"], kind, day))


async def pages(database: Database, source: str) -> int:
    """Return how many pages a table has; a table that is gone has none."""
    return int(await database.fetchval(SQL["pages"], _checked(source)) or 0)


async def copy_rows(database: Database, selection: Selection, first: int, behind: int, sink: Sink) -> None:
    """Pass the rows of some pages to `sink`, as whole lines of CSV."""
    async with database.transaction() as connection:
        await connection.execute("set local datestyle = 'ISO'; set local bytea_output = 'hex'")
        await connection.copy_from_query(
            selection.statement("rows"), first, behind, output=sink, format="csv", timeout=_COPY_SECONDS
        )


async def count(database: Database, selection: Selection) -> tuple[int, int]:
    """Count the rows that an archive must have, and those that it leaves out."""
    async with database.transaction() as connection:
        row = await connection.fetchrow(selection.statement("count"), timeout=_COPY_SECONDS)
    assert row is not None
    return row["rows"], row["left_out"]


async def verified(database: Database, name: str, holder: UUID, contents: Contents, left_out: int) -> Archived | None:
    """Record that an archive was read back and is whole. None: the claim is lost."""
    found = (contents.rows, left_out, contents.checksum, contents.bytes)
    runs = (contents.first_run, contents.last_run, contents.tenants)
    return await database.fetch_row_as(_archived, SQL["verified"], name, holder, *found, *runs)


async def renew(database: Database, name: str, holder: UUID, lease: timedelta) -> bool:
    """Extend a claim. False: it is lost."""
    return bool(await database.fetch(SQL["renew"], name, holder, lease))


async def fail(database: Database, name: str, holder: UUID, error: str, delay: timedelta) -> None:
    """Record why an archive could not be made, and give up its claim after a delay."""
    await database.execute(SQL["fail"], name, holder, error, delay)


async def redo(database: Database, name: str, holder: UUID) -> None:
    """Export anew what is still here and whose archive is not whole."""
    await database.execute(SQL["redo"], name, holder)


async def drop(database: Database, name: str, holder: UUID) -> str:
    """Drop a partition whose archive is verified: dropped, changed, busy, or lost."""
    return str(await database.fetchval(SQL["drop"], name, holder))


async def forget_late(database: Database, source: str, day: date, rows: Sequence[tuple[UUID, int, str]]) -> int:
    """Delete late rows of a day that their archive has. Returns how many were there."""
    columns = [list(column) for column in zip(*rows, strict=True)]
    return int(await database.fetchval(SQL["forget_late"].format(source=_checked(source)), *columns, *_span(day)))


async def end_late(database: Database, name: str, holder: UUID) -> bool:
    """Record that late rows are in their archive alone. False: the claim is lost."""
    return bool(await database.fetch(SQL["end_late"], name, holder))


async def delete_archives(database: Database, before: date, limit: int) -> int:
    """Give up archives of days before a date, so many at most, but those under a legal hold. Returns how many."""
    return int(await database.fetchval(SQL["delete_archives"], before, limit))


async def abandoned(database: Database, holder: UUID) -> list[tuple[str, list[str]]]:
    """Return files that are to be deleted, by the archives that they were of."""
    return [(row[0], row[1]) for row in await database.fetch(SQL["abandoned"], holder)]


async def forget_abandoned(database: Database, name: str, locations: Sequence[str]) -> None:
    """Forget files that were deleted."""
    await database.execute(SQL["forget_abandoned"], name, list(locations))


async def readable(
    database: Database, tenant: int, since: UUID, before: UUID, days: tuple[date, date]
) -> list[Archived]:
    """Return the archives with runs of a tenant between two ids that ended on some days, the last ones first."""
    rows = await database.fetch(SQL["readable"], tenant, since, before, *days)
    return [_archived(*row) for row in rows]


async def page(database: Database, after: str, size: int) -> list[Archived]:
    """Return records behind a name, in the order of their names."""
    return [_archived(*row) for row in await database.fetch(SQL["list"], after, size)]


async def find(database: Database, name: str) -> Archived | None:
    """Read one record."""
    return await database.fetch_row_as(_archived, SQL["find"], name)


async def failing(database: Database) -> list[ArchiveFailure]:
    """Return the archives that could not be made, the first to fail first."""
    return [ArchiveFailure(*row) for row in await database.fetch(SQL["failing"])]


async def job_names(database: Database, job_ids: Sequence[UUID]) -> dict[UUID, str]:
    """Return the names of jobs, as far as they are still there and the session may see them."""
    return {row[0]: row[1] for row in await database.fetch(SQL["job_names"], list(job_ids))} if job_ids else {}


async def rules_above(database: Database, tenant: int) -> list[str] | None:
    """Return the rules of redaction of a tenant and of the installation."""
    return await database.fetchval(SQL["rules_above"], tenant)  # type: ignore[no-any-return]


async def hold(database: Database, tenant: int, job_id: UUID | None, reason: str) -> tuple[LegalHold, bool]:
    """Keep the history of a tenant, or of one of its jobs; return the hold, and whether it is new."""
    *held, is_new = await database.fetch_one(SQL["hold"], tenant, job_id, reason)
    return LegalHold(*held), is_new


async def release(database: Database, tenant: int, job_id: UUID | None) -> bool:
    """Remove a legal hold. False: there was none."""
    return bool(await database.fetch(SQL["release"], tenant, job_id))


async def holds(database: Database) -> list[LegalHold]:
    """Return every legal hold."""
    return [LegalHold(*row) for row in await database.fetch(SQL["holds"])]


def _archived(*row: Any) -> Archived:
    found = dict(zip(Archived.__struct_fields__, row, strict=True))
    return Archived(**{**found, "checksum": None if found["checksum"] is None else int(found["checksum"])})
