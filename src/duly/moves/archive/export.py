"""Export: a partition of history goes into a file of the archive, and is dropped when that is verified.

claim → copy → read back → record as verified → drop. Each step may be the last one of this process: another claims the
partition when the lease has run out, and goes on from what is recorded. Rows are only ever deleted here after their
file was read back and counted, and only those that it has.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Iterator, Sequence
from datetime import date, timedelta
from typing import Any
from uuid import UUID

from duly.clock import Rng
from duly.domain.archive import Archived, ArchiveDamaged, ArchiveError, Contents
from duly.log import Log
from duly.moves.archive import parquet
from duly.outbound.archive_files import ArchiveFiles
from duly.store.boxes import history
from duly.store.connection.database import Database, Unavailable
from duly.store.tables import archive
from duly.store.tables.archive import Selection

KINDS = ("succeeded", "failed")
LEASE = timedelta(minutes=15)
RETRY = timedelta(minutes=5)
PAGES_AT_ONCE = 1_024  # 8 MiB; so no snapshot is old
COPIES_AT_ONCE = 2
DROP_TRIES_MAX = 5  # before the next round, which reads the whole file back first
_DROP_PAUSE_SECONDS = 1.0  # others get their locks meanwhile
_DELETED_MAX = 1_000


class Exporter:
    """Exports partitions of one database into one archive. Any number may work at once."""

    def __init__(self, database: Database, files: ArchiveFiles, *, rng: Rng, log: Log, sample: float = 1.0) -> None:
        self._database = database
        self._files = files
        self._holder = rng.uuid()
        self._rng = rng
        self._log = log
        self._sample = sample

    async def export_before(self, kind: str, before: date) -> None:
        """Archive and drop the partitions of days before a date, the first ones first, and rows that missed theirs.

        One that fails holds up no other, but when the archive or the database does not answer. Raises Unavailable,
        ArchiveError.
        """
        failure: ArchiveError | None = None
        sample = self._sample if kind == "succeeded" else 1.0
        selections = [
            (Selection(name, None, sample), (name, kind, day))
            for name, day in await history.partitions_before(self._database, f"attempts_{kind}", before)
            if not await history.drop_partition(self._database, name, only_empty=True)
        ]
        for day in await archive.late_days(self._database, kind, before):
            name = f"attempts_{kind}_{day:%Y%m%d}_late_{await archive.late_number(self._database, kind, day)}"
            selections.append((Selection(f"attempts_{kind}_default", day), (name, kind, day)))
        for selection, archived in selections:
            try:
                await self._export(selection, archived)
            except ArchiveError as error:
                failure = failure or error
        if failure is not None:
            raise failure

    async def delete_before(self, before: date) -> None:
        """Delete archives of days before a date, but those under a legal hold."""
        await archive.delete_archives(self._database, before, _DELETED_MAX)

    async def delete_abandoned(self) -> None:
        """Delete files that are no archive any more, or never were a whole one."""
        for name, locations in await archive.abandoned(self._database, self._holder):
            for location in locations:
                await asyncio.to_thread(self._files.delete, location)
            await archive.forget_abandoned(self._database, name, locations)

    async def _export(self, selection: Selection, archived: tuple[str, str, date]) -> None:
        name, kind, day = archived
        location = f"attempts/kind={kind}/day={day}/{name}-{self._rng.uuid().hex[:8]}.parquet"
        found = await archive.claim(self._database, selection, archived, self._holder, location, LEASE)
        if found is None:
            return
        try:
            if found.state == "verified":
                await self._check_again(found)
            if found.state == "exporting":
                found = await self._write(selection, found)
            await (self._drop if selection.late_day is None else self._forget_late)(found)
        except Unavailable:
            raise
        except Exception as error:
            await archive.fail(self._database, name, self._holder, str(error) or repr(error), RETRY)
            raise

    async def _write(self, selection: Selection, found: Archived) -> Archived:
        """Write the file, read it back, and record that it is whole. Raises ArchiveError."""
        contents = await self._copy(selection, found)
        rows, left_out = await archive.count(self._database, selection)
        if contents.rows != rows and not found.is_late:
            raise ArchiveError(f"{found.name} has changed while it was exported: {contents.rows:,} rows, then {rows:,}")
        await self._renew(found.name)
        sums = contents.rows, contents.checksum, contents.bytes
        await asyncio.to_thread(check, self._files, found.location, *sums)
        verified = await archive.verified(self._database, found.name, self._holder, contents, left_out)
        if verified is None:
            await asyncio.to_thread(self._files.delete, found.location)
            raise _lost(found.name)
        self._log.info("partition_archived", name=found.name, rows=rows, left_out=left_out, bytes=contents.bytes)
        return verified

    async def _copy(self, selection: Selection, found: Archived) -> Contents:
        """Write the rows into the file, a block while the next one is read. Raises ArchiveError."""
        feed = _Feed(await asyncio.to_thread(lambda: parquet.Writer(self._files.create(found.location))))
        try:
            looks = iter(range(0, await archive.pages(self._database, selection.source), PAGES_AT_ONCE))
            await _all_of(self._copy_pages(selection, found.name, looks, feed) for _ in range(COPIES_AT_ONCE))
            return await feed.finish()
        except BaseException:
            await feed.give_up()
            raise

    async def _copy_pages(self, selection: Selection, name: str, looks: Iterator[int], feed: _Feed) -> None:
        """Copy the pages that no other copy of the same partition has taken."""
        for first in looks:
            pages = _Pages(feed)
            await archive.copy_rows(self._database, selection, first, first + PAGES_AT_ONCE, pages.put)
            await pages.hand_over()
            await self._renew(name)

    async def _renew(self, name: str) -> None:
        if not await archive.renew(self._database, name, self._holder, LEASE):
            raise _lost(name)

    async def _check_again(self, found: Archived) -> None:
        """Read a file back that was verified a while ago. If it is gone or damaged, it is written anew the next time.

        Raises ArchiveError.
        """
        try:
            await asyncio.to_thread(check_record, self._files, found)
        except ArchiveDamaged:
            await archive.redo(self._database, found.name, self._holder)
            raise

    async def _drop(self, found: Archived) -> None:
        done = await archive.drop(self._database, found.name, self._holder)
        for _ in range(DROP_TRIES_MAX - 1):
            if done != "busy":
                break
            await self._database.clock.sleep(_DROP_PAUSE_SECONDS)
            done = await archive.drop(self._database, found.name, self._holder)
        if done == "dropped":
            self._log.info("partition_dropped", name=found.name)
        elif done == "changed":
            raise ArchiveError(f"{found.name} has changed since it was exported; it is exported anew")
        elif done == "busy":
            await archive.renew(self._database, found.name, self._holder, timedelta())

    async def _forget_late(self, found: Archived) -> None:
        """Delete late rows that the file has, as read back from it."""
        for keys in await asyncio.to_thread(self._keys, found.location):
            await archive.forget_late(self._database, found.source, found.day, keys)
        await archive.end_late(self._database, found.name, self._holder)

    def _keys(self, location: str) -> list[list[tuple[UUID, int, str]]]:
        with self._files.reading(location) as stream:
            return [list(keys) for keys in parquet.keys_in(stream)]


def check_record(files: ArchiveFiles, found: Archived) -> None:
    """Read a file of the archive back: it has what its record says. Raises ArchiveError, ArchiveDamaged."""
    assert found.rows is not None
    assert found.checksum is not None
    check(files, found.location, found.rows, found.checksum, found.bytes or 0)


def check(files: ArchiveFiles, location: str, rows: int, checksum: int, size: int) -> None:
    """Read a file of the archive back: it has these rows. Raises ArchiveError; ArchiveDamaged, if the store has answered."""
    where = files.place.text(location)
    with files.reading(location) as stream:
        try:
            found = parquet.read_back(stream)
        except ArchiveDamaged as error:
            files.read_all(location)  # raises another error, if it is the store that fails
            raise ArchiveDamaged(f"{where} cannot be used: {error}") from None
    if found != (rows, checksum) or files.size(location) != size:
        raise ArchiveDamaged(
            f"{where} has {found[0]:,} rows with checksum {found[1]}; it should have {rows:,} with {checksum}"
        )


class _Feed:
    """Rows on their way into one file: they are gathered to blocks, and written in a thread."""

    def __init__(self, writer: parquet.Writer) -> None:
        self._writer = writer
        self._gathered: list[bytes] = []
        self._bytes = 0
        self._turn = asyncio.Lock()
        self._written: asyncio.Future[None] | None = None

    async def take(self, lines: Sequence[bytes], size: int) -> None:
        """Take whole lines in, and wait while the block before theirs is written. Raises ArchiveError."""
        async with self._turn:
            self._gathered += lines
            self._bytes += size
            if self._bytes >= parquet.BLOCK_BYTES:
                await self._flush()

    async def finish(self) -> Contents:
        """Write what is left, and finish the file. Raises ArchiveError."""
        await self._flush()
        await self._settled()
        return await asyncio.to_thread(self._writer.finish)

    async def give_up(self) -> None:
        """Leave nothing of the file."""
        if self._written is not None:
            await asyncio.wait([self._written])
        await asyncio.to_thread(self._writer.give_up)

    async def _flush(self) -> None:
        await self._settled()
        if self._gathered:
            block, self._gathered, self._bytes = self._gathered, [], 0
            self._written = asyncio.ensure_future(asyncio.to_thread(self._writer.write, block))

    async def _settled(self) -> None:
        if self._written is not None:
            await asyncio.shield(self._written)  # a thread that writes cannot be cancelled
            self._written = None


class _Pages:
    """The rows of some pages. They reach the feed together, so that runs of one time stay together in the file.

    They wait here until their copy is over, so that no slow archive holds its snapshot, unless they are a whole block.
    """

    def __init__(self, feed: _Feed) -> None:
        self._feed = feed
        self._lines: list[bytes] = []
        self._bytes = 0

    async def put(self, lines: bytes) -> None:
        """Take whole lines in. Raises ArchiveError."""
        self._lines.append(bytes(lines))
        self._bytes += len(lines)
        if self._bytes >= parquet.BLOCK_BYTES:
            await self.hand_over()

    async def hand_over(self) -> None:
        """Pass to the feed what is here. Raises ArchiveError."""
        lines, size = self._lines, self._bytes
        self._lines, self._bytes = [], 0
        await self._feed.take(lines, size)


async def _all_of(copies: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Carry out copies side by side. The first error ends them all, and is raised."""
    tasks = [asyncio.ensure_future(copy) for copy in copies]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _lost(name: str) -> ArchiveError:
    return ArchiveError(f"another scheduler has taken over {name}")
