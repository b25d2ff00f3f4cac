"""The archive: what a partition had is in its file before it is dropped, whatever happens on the way."""

import asyncio
import resource
import threading
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow.parquet as pq
import pytest

from duly.clock import Rng, host_now
from duly.domain.archive import COLUMNS, ArchiveError, ArchivePlace
from duly.domain.diagnosis.doctor import findings
from duly.domain.runs.outcome import Failed, Succeeded
from duly.log import Log
from duly.maintenance.service import Maintenance, Retention
from duly.moves.archive import export, parquet
from duly.moves.archive.export import LEASE, RETRY, Exporter, check, check_record
from duly.moves.settle import settle
from duly.outbound.archive_files import ArchiveFiles, NewFile
from duly.store import retention
from duly.store.boxes import history
from duly.store.connection.database import Database
from duly.store.reads import system
from duly.store.tables import archive
from tests.builders import RNG, a_leased_run, a_worker, claimed, ended, many_ready_runs, settled
from tests.clock import START

DAY, NEXT_DAY = START.date(), START.date() + timedelta(days=1)
SUCCESSES = "attempts_succeeded_20261102"
AGES = timedelta(days=10)
# Transactions that are open in other sessions.
OPEN = (
    "select count(*) from pg_stat_activity"
    " where datname = current_database() and pid <> pg_backend_pid() and xact_start is not null"
)
_numbers = iter(range(1, 1_000_000))


@pytest.fixture
def files(tmp_path) -> ArchiveFiles:
    """An archive in a folder."""
    return ArchiveFiles(ArchivePlace(False, str(tmp_path / "archive")))


def an_exporter(database: Database, files: ArchiveFiles, **more: Any) -> Exporter:
    """Give an exporter that has done nothing yet."""
    return Exporter(database, files, rng=Rng(next(_numbers)), log=Log("test"), **more)


def maintenance_of(database: Database, files: ArchiveFiles | None, **kept: Any) -> Maintenance:
    """Give the maintenance of a process with this archive, or without one."""
    exporter = None if files is None else an_exporter(database, files)
    return Maintenance(database, rng=Rng(1), log=Log("test"), retention=Retention(**kept), exporter=exporter)


async def old_history(database: Database, clock, number: int = 3, **more: Any) -> list[UUID]:
    """Leave runs that succeeded, and one that failed, in partitions of a day that is long past."""
    await history.create_partitions(database, 1)
    worker_id = await a_worker(database)
    taken = []
    for _ in range(number):
        _, run = await a_leased_run(database, worker_id, **more)
        await settled(database, worker_id, run, Succeeded('{"rows": 42}'))
        taken.append(run.run_id)
    _, bad = await a_leased_run(database, worker_id)
    await settled(database, worker_id, bad, Failed('broken,\n"badly"', retryable=False))
    await clock.advance(AGES)
    return taken


async def many_old_runs(database: Database, clock, number: int) -> list[Any]:
    """Leave runs that succeeded in a partition of a day that is long past."""
    await history.create_partitions(database, 1)
    worker_id = await a_worker(database)
    await many_ready_runs(database, number)
    taken = await claimed(database, worker_id, limit=number)
    await settle(database, worker_id, [ended(database, run, Succeeded()) for run in taken], RNG)
    await clock.advance(AGES)
    return taken


async def records(database: Database) -> dict[str, Any]:
    return {one.name: one for one in await archive.page(database, "", 100)}


def archived_rows(files: ArchiveFiles, location: str) -> list[dict[str, Any]]:
    with files.reading(location) as stream:
        rows: list[dict[str, Any]] = pq.read_table(stream).to_pylist()
    return rows


def files_in(files: ArchiveFiles) -> list[Path]:
    return sorted(path for path in Path(files.place.root).rglob("*") if path.is_file())


async def is_there(database: Database, table: str = SUCCESSES) -> bool:
    return bool(await database.fetchval("select to_regclass('duly.' || $1) is not null", table))


async def as_texts(database: Database, table: str) -> list[dict[str, Any]]:
    """Give rows of history as an archive has them."""
    rows = await database.fetch(f"select * from duly.{table}")
    found = [dict(row) for row in rows]
    for row in found:
        row.pop("payload_stored")
        row |= {name: str(row[name]) for name in ("run_id", "job_id", "worker_id", "xid") if row[name] is not None}
    return sorted(found, key=lambda row: row["run_id"])


def halved(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def emptied(file: Path) -> None:
    file.write_bytes(b"")


def removed(file: Path) -> None:
    file.unlink()


def replaced(file: Path) -> None:
    file.write_bytes(b"PAR1" + b"x" * (file.stat().st_size - 8) + b"PAR1")


class Crash(BaseException):
    """The end of a process: nothing catches it."""


def crashing(real: Any, *, is_carried_out: bool) -> Any:
    """Give a step at which the process crashes: behind it, or before it."""

    async def crash(*arguments: Any, **more: Any) -> None:
        if is_carried_out:
            await real(*arguments, **more)
        raise Crash

    return crash


class TestExport:
    async def test_an_archive_has_each_value_of_each_row(self, own_database, clock, files):
        await old_history(own_database, clock)
        for kind in ("succeeded", "failed"):
            table = f"attempts_{kind}_20261102"
            before = await as_texts(own_database, table)

            await an_exporter(own_database, files).export_before(kind, NEXT_DAY)

            assert not await is_there(own_database, table)
            record = (await records(own_database))[table]
            assert (record.state, record.rows, record.left_out) == ("dropped", len(before), 0)
            rows = sorted(archived_rows(files, record.location), key=lambda row: row["run_id"])
            assert [list(row) for row in rows] == [list(COLUMNS)] * len(before)
            assert rows == [{name: row[name] for name in COLUMNS} for row in before]
        assert len(files_in(files)) == 2

    async def test_a_payload_that_is_stored_beside_goes_along(self, own_database, clock, files):
        long = '{"text": "' + "x" * 3_000 + '"}'
        await old_history(own_database, clock, 1, payload=long)
        await history.archive(own_database, 8_192)

        await retention.forget_payloads(own_database, timedelta(days=7), timedelta(days=90), 100)
        await an_exporter(own_database, files).export_before("succeeded", NEXT_DAY)

        [row] = archived_rows(files, (await records(own_database))[SUCCESSES].location)
        assert row["payload"] == long

    async def test_sealed_texts_do_not_reach_the_archive(self, own_database, clock, files):
        await old_history(own_database, clock, 1)
        sealed = "sealed:key-1:" + "A" * 60
        target = f'{{"target": {{"type": "webhook", "url": "https://a.example/", "headers": {{"x": "{sealed}"}}}}}}'
        await own_database.execute("update duly.attempts set options = $1::text::jsonb", target)

        await an_exporter(own_database, files).export_before("succeeded", NEXT_DAY)

        [row] = archived_rows(files, (await records(own_database))[SUCCESSES].location)
        assert sealed not in str(row)
        assert '"x": "***"' in row["options"]

    async def test_a_partition_of_several_blocks_and_looks_is_whole(self, own_database, clock, files, monkeypatch):
        monkeypatch.setattr(parquet, "BLOCK_BYTES", 20_000)
        monkeypatch.setattr(export, "PAGES_AT_ONCE", 3)
        taken = await many_old_runs(own_database, clock, 1_000)

        await an_exporter(own_database, files).export_before("succeeded", NEXT_DAY)

        record = (await records(own_database))[SUCCESSES]
        rows = archived_rows(files, record.location)
        assert {row["run_id"] for row in rows} == {str(run.run_id) for run in taken}
        assert record.rows == 1_000
        assert (record.first_run, record.last_run) == (min(r.run_id for r in taken), max(r.run_id for r in taken))

    async def test_a_moment_outside_of_the_calendar_stops_no_archive(self, own_database, clock, files):
        await old_history(own_database, clock, 2)
        await own_database.execute("update duly.attempts set scheduled_at = 'infinity', due_at = '0044-03-15 BC'")

        await an_exporter(own_database, files).export_before("succeeded", NEXT_DAY)

        rows = archived_rows(files, (await records(own_database))[SUCCESSES].location)
        assert {(row["scheduled_at"].year, row["due_at"].year) for row in rows} == {(9999, 1)}

    async def test_no_snapshot_is_open_while_an_archive_is_slow(self, own_database, clock, files, monkeypatch):
        monkeypatch.setattr(parquet, "BLOCK_BYTES", 50_000)
        monkeypatch.setattr(export, "PAGES_AT_ONCE", 2)
        await many_old_runs(own_database, clock, 1_000)
        begun, may_go_on, real = threading.Event(), threading.Event(), parquet.Writer.write

        def slowly(*arguments: Any) -> None:
            begun.set()
            assert may_go_on.wait(60)
            real(*arguments)

        monkeypatch.setattr(parquet.Writer, "write", slowly)
        exporting = asyncio.create_task(an_exporter(own_database, files).export_before("succeeded", NEXT_DAY))
        try:
            await asyncio.to_thread(begun.wait, 60)
            await asyncio.sleep(0.5)
            async with asyncio.timeout(20):
                while await own_database.fetchval(OPEN):
                    await asyncio.sleep(0.01)
        finally:
            may_go_on.set()
            await exporting

        assert (await records(own_database))[SUCCESSES].rows == 1_000

    async def test_two_schedulers_archive_a_partition_once(self, own_database, clock, files):
        await old_history(own_database, clock)

        await asyncio.gather(*(an_exporter(own_database, files).export_before("succeeded", NEXT_DAY) for _ in range(4)))

        assert list(await records(own_database)) == [SUCCESSES]
        assert len(files_in(files)) == 1

    async def test_a_partition_that_is_read_for_a_moment_is_dropped_in_the_same_round(
        self, own_database, clock, files, monkeypatch
    ):
        await old_history(own_database, clock)
        answers, real = list[str](), archive.drop
        async with AsyncExitStack() as reading:
            reader = await reading.enter_async_context(own_database.transaction())
            await reader.fetch("select count(*) from duly.attempts")

            async def dropped(*arguments: Any) -> str:
                answers.append(await real(*arguments))
                await reading.aclose()
                return answers[-1]

            monkeypatch.setattr(archive, "drop", dropped)
            await an_exporter(own_database, files).export_before("succeeded", NEXT_DAY)

        assert answers == ["busy", "dropped"]

    async def test_a_partition_that_somebody_reads_is_dropped_the_next_time(self, own_database, clock, files):
        await old_history(own_database, clock)
        async with own_database.transaction() as reader:
            await reader.fetch("select count(*) from duly.attempts")
            await an_exporter(own_database, files).export_before("succeeded", NEXT_DAY)
            assert (await records(own_database))[SUCCESSES].state == "verified"

        await an_exporter(own_database, files).export_before("succeeded", NEXT_DAY)

        assert (await records(own_database))[SUCCESSES].state == "dropped"
        assert len(files_in(files)) == 1


class TestFailures:
    """A failure leaves history in place, is reported, and is tried again later."""

    @pytest.mark.parametrize("is_carried_out", [True, False], ids=["carried_out", "not_carried_out"])
    async def test_a_crash_at_any_step_loses_nothing(self, own_database, clock, files, monkeypatch, is_carried_out):
        for step in ("claim", "copy_rows", "renew", "count", "verified", "drop"):
            day = clock.at.date()
            table = f"attempts_succeeded_{day:%Y%m%d}"
            runs = await old_history(own_database, clock)
            with monkeypatch.context() as broken:
                broken.setattr(archive, step, crashing(getattr(archive, step), is_carried_out=is_carried_out))
                broken.setattr(NewFile, "give_up", lambda _: None)  # a crash tidies nothing up
                with pytest.raises(Crash):
                    await an_exporter(own_database, files).export_before("succeeded", day + timedelta(days=1))
            if await is_there(own_database, table):
                assert await own_database.fetchval(f"select count(*) from duly.{table}") == len(runs), step

            await clock.advance(LEASE)
            later = an_exporter(own_database, files)
            await later.export_before("succeeded", day + timedelta(days=1))
            await later.delete_abandoned()

            record = (await records(own_database))[table]
            assert not await is_there(own_database, table), step
            rows = archived_rows(files, record.location)
            assert {row["run_id"] for row in rows} == {str(run) for run in runs}, step
            assert [str(file) for file in files_in(files) if table in file.name] == [
                f"{files.place.root}/{record.location}"
            ], step

    async def test_a_full_disk_stops_the_archive_and_nothing_else(self, own_database, clock, files):
        await old_history(own_database, clock, 200)
        maintenance = maintenance_of(own_database, files)
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (2_000, before[1]))
        try:
            with pytest.raises(ArchiveError, match="Free space"):
                await maintenance.archive()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)

        assert await own_database.fetchval(f"select count(*) from duly.{SUCCESSES}") == 200
        assert files_in(files) == []
        facts = await system.read(own_database, host_now)
        [finding] = [one for one in findings(facts) if one.code == "archive_failing"]
        assert SUCCESSES in finding.message
        assert "too large" in finding.message
        await clock.advance(RETRY)
        await maintenance.archive()
        assert not await is_there(own_database)
        assert await archive.failing(own_database) == []

    async def test_the_other_kind_is_archived_when_one_fails(self, own_database, clock, files, monkeypatch):
        await old_history(own_database, clock)
        await clock.advance(timedelta(days=90))
        real = parquet.read_back
        looked = []

        def first_is_damaged(stream: Any) -> tuple[int, int]:
            looked.append(stream)
            rows, checksum = real(stream)
            return (rows, checksum + (len(looked) == 1))

        monkeypatch.setattr(parquet, "read_back", first_is_damaged)
        with pytest.raises(ArchiveError, match="checksum"):
            await maintenance_of(own_database, files).archive()

        assert await is_there(own_database)
        assert not await is_there(own_database, "attempts_failed_20261102")

    async def test_an_archive_that_is_damaged_before_the_drop_is_made_anew(self, own_database, clock, files):
        for damage in (halved, emptied, removed, replaced):
            day = clock.at.date()
            table, later = f"attempts_succeeded_{day:%Y%m%d}", day + timedelta(days=1)
            runs = await old_history(own_database, clock)
            async with own_database.transaction() as reader:
                await reader.fetch("select count(*) from duly.attempts")
                await an_exporter(own_database, files).export_before("succeeded", later)
            [file] = [file for file in files_in(files) if table in file.name]
            damage(file)

            with pytest.raises(ArchiveError):
                await an_exporter(own_database, files).export_before("succeeded", later)
            assert await own_database.fetchval(f"select count(*) from duly.{table}") == len(runs)

            await clock.advance(RETRY)
            await an_exporter(own_database, files).export_before("succeeded", later)
            rows = archived_rows(files, (await records(own_database))[table].location)
            assert {row["run_id"] for row in rows} == {str(run) for run in runs}

    async def test_no_flipped_byte_changes_a_row_unnoticed(self, own_database, clock, files):
        await old_history(own_database, clock)
        await an_exporter(own_database, files).export_before("succeeded", NEXT_DAY)
        record = (await records(own_database))[SUCCESSES]
        rows = archived_rows(files, record.location)
        [file] = files_in(files)
        whole = file.read_bytes()
        noticed = 0
        for place in range(0, len(whole), 101):
            file.write_bytes(whole[:place] + bytes([whole[place] ^ 0x15]) + whole[place + 1 :])
            try:
                check_record(files, record)
            except ArchiveError:
                noticed += 1
            else:
                assert archived_rows(files, record.location) == rows, f"byte {place}"
        assert noticed > len(whole) / 101 / 2

    async def test_a_file_is_not_taken_for_another(self, own_database, clock, files):
        await old_history(own_database, clock)
        await an_exporter(own_database, files).export_before("succeeded", NEXT_DAY)
        record = (await records(own_database))[SUCCESSES]

        check(files, record.location, record.rows, record.checksum, record.bytes)
        with pytest.raises(ArchiveError, match="should have"):
            check(files, record.location, record.rows, record.checksum + 1, record.bytes)
        with pytest.raises(ArchiveError, match="should have"):
            check(files, record.location, record.rows - 1, record.checksum, record.bytes)

    async def test_a_row_that_came_during_the_export_is_archived_too(self, own_database, clock, files, monkeypatch):
        runs = await old_history(own_database, clock)
        worker_id, late = await a_leased_run(own_database)
        real = archive.drop

        async def after_another_row(*arguments: Any) -> str:
            monkeypatch.setattr(archive, "drop", real)
            await settled(own_database, worker_id, late)
            await own_database.execute(
                "update duly.attempts set finished_at = $2, xid = pg_current_xact_id() where run_id = $1",
                late.run_id,
                START,
            )
            return await real(*arguments)

        monkeypatch.setattr(archive, "drop", after_another_row)
        with pytest.raises(ArchiveError, match="changed"):
            await an_exporter(own_database, files).export_before("succeeded", NEXT_DAY)
        assert await own_database.fetchval(f"select count(*) from duly.{SUCCESSES}") == len(runs) + 1

        await clock.advance(RETRY)
        later = an_exporter(own_database, files)
        await later.export_before("succeeded", NEXT_DAY)
        await later.delete_abandoned()

        assert len(files_in(files)) == 1
        rows = archived_rows(files, (await records(own_database))[SUCCESSES].location)
        assert {row["run_id"] for row in rows} == {str(run) for run in (*runs, late.run_id)}

    async def test_rows_that_missed_their_partition_are_archived_before_they_are_deleted(
        self, own_database, clock, files
    ):
        worker_id = await a_worker(own_database)
        late = []
        for _ in range(3):
            _, run = await a_leased_run(own_database, worker_id)
            await settled(own_database, worker_id, run)
            late.append(run.run_id)
        await clock.advance(AGES)

        for _ in range(2):
            await an_exporter(own_database, files).export_before("succeeded", NEXT_DAY)

        [record] = (await records(own_database)).values()
        assert (record.name, record.state) == (f"{SUCCESSES}_late_1", "dropped")
        assert {row["run_id"] for row in archived_rows(files, record.location)} == {str(run) for run in late}
        assert await own_database.fetchval("select count(*) from duly.attempts") == 0

    async def test_a_scheduler_without_the_archive_drops_nothing(self, own_database, clock, files):
        await old_history(own_database, clock)
        await history.archive(own_database, 8_192)

        await maintenance_of(own_database, None).keep_history()

        assert await is_there(own_database)
        facts = await system.read(own_database, host_now)
        assert "archive_stopped" not in {one.code for one in findings(facts)}
        await clock.advance(timedelta(hours=7))
        facts = await system.read(own_database, host_now)
        assert "archive_stopped" in {one.code for one in findings(facts)}

        assert await history.stop_archive(own_database)
        await maintenance_of(own_database, None).keep_history()
        assert not await is_there(own_database)


class TestSamplesAndHolds:
    async def test_so_many_successes_are_sampled_and_every_failure_is_kept(self, own_database, clock, files):
        await old_history(own_database, clock, 200)
        exporter = an_exporter(own_database, files, sample=0.25)

        await exporter.export_before("succeeded", NEXT_DAY)
        await exporter.export_before("failed", NEXT_DAY)

        found = await records(own_database)
        assert 20 <= found[SUCCESSES].rows <= 85
        assert found[SUCCESSES].rows + found[SUCCESSES].left_out == 200
        assert found["attempts_failed_20261102"].rows == 1

    async def test_a_hold_keeps_what_would_not_be_sampled(self, own_database, clock, files):
        runs = await old_history(own_database, clock, 20)
        assert await archive.hold(own_database, 1, runs[3], "case 7")

        await an_exporter(own_database, files, sample=0.0).export_before("succeeded", NEXT_DAY)

        [row] = archived_rows(files, (await records(own_database))[SUCCESSES].location)
        assert row["run_id"] == str(runs[3])

    async def test_a_hold_after_the_sampling_is_in_time(self, own_database, clock, files):
        runs = await old_history(own_database, clock, 20)
        async with own_database.transaction() as reader:
            await reader.fetch("select count(*) from duly.attempts")
            await an_exporter(own_database, files, sample=0.0).export_before("succeeded", NEXT_DAY)
        await archive.hold(own_database, 1, None, "case 7")

        for _ in range(2):
            try:
                await an_exporter(own_database, files, sample=0.0).export_before("succeeded", NEXT_DAY)
            except ArchiveError:
                await clock.advance(RETRY)

        assert (await records(own_database))[SUCCESSES].rows == len(runs)

    async def test_a_hold_keeps_history_where_there_is_no_archive(self, own_database, clock):
        runs = await old_history(own_database, clock)
        await archive.hold(own_database, 1, runs[0], "case 7")

        await maintenance_of(own_database, None).keep_history()
        assert await is_there(own_database)
        assert await archive.release(own_database, 1, runs[0])
        await maintenance_of(own_database, None).keep_history()

        assert not await is_there(own_database)

    async def test_archives_are_deleted_by_age_but_those_under_a_hold(self, own_database, clock, files):
        await old_history(own_database, clock)
        maintenance = maintenance_of(own_database, files, archives=timedelta(days=30))
        await maintenance.archive()
        await archive.hold(own_database, 1, None, "case 7")
        await clock.advance(timedelta(days=40))

        await maintenance.archive()
        assert len(files_in(files)) == 1
        await archive.release(own_database, 1, None)
        await maintenance.archive()

        assert files_in(files) == []
        assert (await records(own_database))[SUCCESSES].state == "deleted"
