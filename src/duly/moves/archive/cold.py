"""Cold history: runs that are in the archive alone, in the shapes and the order in which the database has the others.

A question reads the parts of the files that can matter, the last scheduled first, and stops when its page is full or
its time is over; the page then says where to go on. Only so many are asked at once, and each in bounded memory. Rows of
other tenants are left out by the first condition of every question.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from functools import partial
from heapq import merge
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

import msgspec

from duly.domain.archive import Archived, ArchiveError
from duly.domain.jobs.filter import Filter, Span
from duly.domain.jobs.spec_of import shown_payload
from duly.domain.runs.options import RunOptions
from duly.domain.runs.run import PRIORITY_DEFAULT
from duly.moves.archive import parquet
from duly.moves.archive.export import check_record
from duly.outbound.archive_files import ArchiveFiles
from duly.store.boxes.options import decode
from duly.store.boxes.runs import assembled
from duly.store.connection.database import Database
from duly.store.reads.lists import Page, bounds_of_runs
from duly.store.tables import archive

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")
AT_ONCE_MAX = 2
SECONDS_MAX = 6.0
_PREVIEW_CHARACTERS_MAX = 200
_FIRST_DAY, _LAST_DAY = date(1970, 1, 1), date(9999, 12, 31)
_ENDED = ("succeeded", "cancelled", "expired", "skipped")
_LISTED = (
    *(
        "run_id",
        "job_id",
        "tenant",
        "attempt",
        "outcome",
        "became",
        "queue",
        "handler",
        "priority",
        "scheduled_at",
        "due_at",
    ),
    *("started_at", "finished_at", "worker_id", "fence", "reason", "detail", "metadata", "payload", "options"),
)
_MOMENTS = ("scheduled_at", "due_at", "started_at", "finished_at")
_ENDING = "(outcome = 'succeeded' or became in ('cancelled', 'expired', 'skipped'))"
_NEXT = timedelta(microseconds=1)
Row = dict[str, Any]


def reaches_back(chosen: Filter) -> bool:
    """Return whether a filter of runs asks for a time range, and for runs that have ended: then archives are read."""
    states = chosen.words.get("state", _ENDED)
    return not {"scheduled_at", "finished_at"}.isdisjoint(chosen.moments) and not set(states).isdisjoint(_ENDED)


class ColdHistory:
    """Answers questions to one archive."""

    def __init__(self, files: ArchiveFiles, *, seconds_max: float = SECONDS_MAX) -> None:
        self._files = files
        self._seconds_max = seconds_max
        self._room = asyncio.Semaphore(AT_ONCE_MAX)

    async def beside(
        self, hot: Page[UUID], database: Database, tenant: int, chosen: Filter, size: int, after: UUID | None
    ) -> Page[UUID]:
        """Add archived runs to a page of the database's, read from the same position. Raises ArchiveError.

        The database was asked first: what is dropped meanwhile is found twice, and not missed.
        """
        before, since = bounds_of_runs(after, chosen)
        found = await archive.readable(
            database, tenant, since, before, _days(chosen.moments.get("finished_at", Span()))
        )
        if not found:
            return hot
        above = await archive.rules_above(database, tenant)
        rows, reached = await self._in_time(
            lambda: self._page(found, tenant, chosen, (since, before), size, database.clock.monotonic)
        )
        return _together(hot, [_listed(row, above) for row in rows], reached, size)

    async def run(self, database: Database, tenant: int, run_id: UUID) -> tuple[Row, Row] | None:
        """Read one archived run as the database has it, and what it carried; None: it is in no archive.

        Raises ArchiveError, also when it takes too long: a part of its attempts would be wrong.
        """
        everything = UUID(int=run_id.int + 1)
        found = await archive.readable(database, tenant, run_id, everything, (_FIRST_DAY, _LAST_DAY))
        if not found:
            return None
        rows = await self._in_time(lambda: self._run(found, tenant, run_id, database.clock.monotonic))
        above = await archive.rules_above(database, tenant)
        return None if not rows else (assembled(None, rows), {**_carried(rows), "redact_above": above})

    async def verify(self, found: Archived) -> None:
        """Read an archive back and compare it with its record. Raises ArchiveError."""
        await self._asked(partial(check_record, self._files, found))

    async def _in_time(self, ask: Callable[[], T]) -> T:
        """Ask in a thread, when there is room. Raises ArchiveError, also when there is no answer in twice the time.

        A store that does not answer keeps its thread and its room, until the store's own limits end it.
        """
        try:
            async with asyncio.timeout(2 * self._seconds_max):
                return await self._asked(ask)
        except TimeoutError:
            raise ArchiveError(f"the archive did not answer within {2 * self._seconds_max:g} s") from None

    async def _asked(self, ask: Callable[[], T]) -> T:
        """Ask in a thread, when there is room; who stops waiting leaves the room to the thread until it ends."""
        await self._room.acquire()
        asking = asyncio.ensure_future(asyncio.to_thread(ask))
        asking.add_done_callback(self._make_room)
        return await asyncio.shield(asking)

    def _make_room(self, asked: asyncio.Future[Any]) -> None:
        self._room.release()
        if not asked.cancelled():
            asked.exception()  # It is not logged as unseen, when nobody waits for it any more.

    def _page(
        self,
        found: Sequence[Archived],
        tenant: int,
        chosen: Filter,
        span: tuple[UUID, UUID],
        size: int,
        monotonic: Callable[[], float],
    ) -> tuple[list[Row], UUID | None]:
        """Read a page from the parts of files, the last scheduled first. Returns where more may follow.

        Raises ArchiveError when its time is over before it has come any further: the next page would be the same.
        """
        condition, arguments = _condition(tenant, chosen, span)
        # A run that is there twice is one row, or a limited answer could lack runs between its rows and the next part's.
        question = (
            f"select distinct on (run_id) * from part where {condition}"  # noqa: S608 - people's words are arguments
            f" order by run_id desc, became = 'skipped' limit {size}"
        )
        deadline, rows = monotonic() + self._seconds_max, list[Row]()
        with parquet.engine() as asked:
            for number, part in enumerate(self._parts(found, tenant, span)):
                if len(rows) >= size and str(rows[size - 1]["run_id"]) > part.last_run:
                    return rows[:size], rows[size - 1]["run_id"]
                if number and monotonic() > deadline:
                    if UUID(part.last_run).int + 1 >= span[1].int:
                        raise ArchiveError(
                            f"the runs of a page were not read from the archive within {self._seconds_max:g} s: "
                            "ask for a shorter time range"
                        )
                    return _until(rows, part.last_run)
                asked.register("part", part.read(_LISTED))
                new = _rows(asked.sql(question, params=arguments))
                rows = _distinct(merge(rows, new, key=lambda row: row["run_id"].int, reverse=True))
        return rows[:size], rows[size - 1]["run_id"] if len(rows) > size - 1 else None

    def _run(self, found: Sequence[Archived], tenant: int, run_id: UUID, monotonic: Callable[[], float]) -> list[Row]:
        deadline, rows = monotonic() + self._seconds_max, list[Row]()
        with parquet.engine() as asked:
            for part in self._parts(found, tenant, (run_id, UUID(int=run_id.int + 1))):
                if monotonic() > deadline:
                    raise ArchiveError(
                        f"run {run_id} was not read from the archive within {self._seconds_max:g} s: "
                        "ask for it in a list of runs with a time range"
                    )
                asked.register("part", part.read(None))
                answer = asked.sql("select * from part where tenant = ? and run_id = ?", params=[tenant, str(run_id)])
                rows += _rows(answer)
        return sorted(rows, key=lambda row: (row["attempt"], row["finished_at"]))[:1_000]

    def _parts(self, found: Sequence[Archived], tenant: int, span: tuple[UUID, UUID]) -> Iterator[_Part]:
        """Yield the parts of files that may have runs of a tenant between two ids, by their last run, the last first.

        A file is opened when its turn has come.
        """
        waiting: list[_Part] = []
        for one in sorted(found, key=lambda one: str(one.last_run), reverse=True):
            while waiting and waiting[-1].last_run >= str(one.last_run):
                yield waiting.pop()
            waiting += parts_of(self._files, one, tenant, span)
            waiting.sort(key=lambda part: part.last_run)
        while waiting:
            yield waiting.pop()


class _Part:
    """A row group of a file."""

    def __init__(self, files: ArchiveFiles, location: str, number: int, last_run: str) -> None:
        self._files = files
        self._location = location
        self._number = number
        self.last_run = last_run

    def read(self, columns: Sequence[str] | None) -> pa.Table:
        """Read its rows. Raises ArchiveError."""
        from pyarrow import parquet as files

        with self._files.reading(self._location) as stream:
            opened = files.ParquetFile(stream, page_checksum_verification=True)
            return opened.read_row_group(self._number, None if columns is None else list(columns), use_threads=False)


def parts_of(files: ArchiveFiles, one: Archived, tenant: int, span: tuple[UUID, UUID]) -> list[_Part]:
    """Return the parts of a file that may have runs of a tenant between two ids. Raises ArchiveError."""
    from pyarrow import parquet as opened

    since, before = str(span[0]), str(span[1])
    parts = []
    with files.reading(one.location) as stream:
        described = opened.ParquetFile(stream).metadata
        names = described.schema.names
        for number in range(described.num_row_groups):
            group = described.row_group(number)
            runs = group.column(names.index("run_id")).statistics
            tenants = group.column(names.index("tenant")).statistics
            if runs.max >= since and runs.min < before and tenants.min <= tenant <= tenants.max:
                parts.append(_Part(files, one.location, number, runs.max))
    return parts


def _condition(tenant: int, chosen: Filter, span: tuple[UUID, UUID]) -> tuple[str, list[Any]]:
    """Return the condition of a filter, and its arguments. What people write is only ever an argument."""
    terms: list[tuple[str, Any]] = [("tenant = ?", tenant), ("run_id >= ?", str(span[0])), ("run_id < ?", str(span[1]))]
    columns = {
        "state": "became",
        "queue": "queue",
        "handler": "handler",
        "job_id": "job_id",
        "workflow": "json_extract_string(metadata, '$.node[0]')",
        "parent": "json_extract_string(metadata, '$.parent')",
    }
    for name, values in chosen.words.items():
        terms.append((f"coalesce(list_contains(?::varchar[], {columns[name]}), false)", list(values)))
    tags = "coalesce(json_extract_string(metadata, '$.tags[*]'), [])"
    if chosen.tags:
        terms.append((f"list_has_all({tags}, ?::varchar[])", list(chosen.tags)))
    if chosen.any_tags:
        terms.append((f"list_has_any({tags}, ?::varchar[])", list(chosen.any_tags)))
    for name, wanted in chosen.moments.items():
        assert name in _MOMENTS, name
        for sign, moment in ((">=", wanted.since), ("<", wanted.before)):
            if moment is not None:
                terms.append((f"epoch_us({name}) {sign} ?", (moment - datetime(1970, 1, 1, tzinfo=UTC)) // _NEXT))
    return " and ".join([_ENDING, *(term for term, _ in terms)]), [argument for _, argument in terms]


def _days(span: Span) -> tuple[date, date]:
    """Return the days on which runs ended within a span: from the first on, before the second."""
    first = _FIRST_DAY if span.since is None else max(_FIRST_DAY, span.since.date())
    return first, _LAST_DAY if span.before is None else min(_LAST_DAY, _after(span.before.date()))


def _after(day: date) -> date:
    return day if day == date.max else day + timedelta(days=1)


def _together(hot: Page[UUID], cold: Sequence[Row], reached: UUID | None, size: int) -> Page[UUID]:
    """Return both as far as both were read; the database's row of a run that both have."""
    furthest = max((at for at in (hot.after, reached) if at is not None), default=None)
    known = {row["run_id"] for row in hot.rows}
    rows = [*hot.rows, *(row for row in cold if row["run_id"] not in known)]
    rows.sort(key=lambda row: row["run_id"].int, reverse=True)
    shown = [row for row in rows if furthest is None or row["run_id"] >= furthest]
    if len(shown) > size:
        return Page(shown[:size], shown[size - 1]["run_id"])
    return Page(shown, furthest)


def _until(rows: Sequence[Row], last_run: str) -> tuple[list[Row], UUID]:
    """Return the rows before a part that was not read, and the position from which it is."""
    position = UUID(int=min(UUID(last_run).int + 1, (1 << 128) - 1))
    return [row for row in rows if row["run_id"] >= position], position


def _distinct(rows: Iterator[Row]) -> list[Row]:
    """Keep the last state of a run that is there twice: skipped, and later made up for."""
    kept: dict[UUID, Row] = {}
    for row in rows:
        if row["run_id"] not in kept or kept[row["run_id"]]["became"] == "skipped":
            kept[row["run_id"]] = row
    return list(kept.values())


def _rows(answer: Any) -> list[Row]:
    rows: list[Row] = answer.to_arrow_table().to_pylist()
    for row in rows:
        if row["priority"] is None and row["became"] in _ENDED[:3]:
            row["priority"] = PRIORITY_DEFAULT  # as it is stored
        row |= {name: None if row[name] is None else UUID(row[name]) for name in ("run_id", "job_id", "worker_id")}
        row |= {name: None if row[name] is None else row[name].astimezone(UTC) for name in _MOMENTS}
    return rows


def _listed(row: Row, above: Sequence[str] | None) -> Row:
    """Return a row as lists of runs have it, redacted by its own rules and those above them."""
    metadata = decode(row["metadata"]).metadata
    node = metadata.node or (None, None)
    payload, options = row.pop("payload"), decode(row.pop("options"))
    if payload is not None and options.rules(above):
        payload = msgspec.json.encode(shown_payload(payload, options, above)).decode()
    return {
        **row,
        "state": row["became"],
        "job_name": None,
        "tags": list(metadata.tags),
        "request_id": metadata.request_id,
        "traceparent": metadata.traceparent,
        "workflow_id": node[0],
        "node": node[1],
        "payload_preview": None if payload in (None, "{}") else _shortened(payload),
        "is_archived": True,
    }


def _shortened(text: str) -> str:
    return text if len(text) <= _PREVIEW_CHARACTERS_MAX else f"{text[: _PREVIEW_CHARACTERS_MAX - 1]}…"


def _carried(attempts: Sequence[Row]) -> Row:
    """Return what a run carried, from the record of its end."""
    ended = [row for row in attempts if row["became"] in _ENDED and row["outcome"] != "fenced"]
    last: Mapping[str, Any] = (ended or attempts)[-1]
    parts = [msgspec.json.decode(last[name]) for name in ("options", "metadata") if last[name] is not None]
    merged = {name: value for part in parts for name, value in part.items()}
    options: RunOptions = decode(msgspec.json.encode(merged).decode() if parts else None)
    return {
        "payload": last["payload"],
        "options": options,
        "generation": last["generation"],
        "is_kept": last["payload"] is not None,
    }
