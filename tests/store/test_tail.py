"""The tail of history: every end is read once, wherever its row lies and whenever its transaction commits."""

import asyncio
import re
from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from uuid import UUID

import asyncpg
import psycopg
import pytest

from duly.api.streams.events import EventHub, Wanted
from duly.log import Log
from duly.postgres import embedded
from duly.store.boxes import history
from duly.store.connection.database import Database
from duly.store.reads import stream
from duly.store.reads import tail as module
from duly.store.reads.changes import job_changes, workflow_changes
from duly.store.reads.stream import Endings
from duly.store.reads.tail import Position, Tail, positions
from duly.store.schema.migrate import migrate
from tests.clock import START
from tests.outage import away

INSERT = """
insert into duly.attempts (run_id, job_id, scheduled_at, due_at, started_at, finished_at, fence, tenant, attempt, outcome, became,
                           queue, handler, reason)
select gen_random_uuid(), gen_random_uuid(), $2, $2, $2, $2, 1, $3, 1, 'succeeded', 'succeeded', 'default', 'greet', $4
  from generate_series(1, $1)
"""
JOB_CHANGE = """
insert into duly.job_changes (xid, tenant, job_id, generation, change, name, queue, handler, changed_at)
values ($1::text::xid8, 1, gen_random_uuid(), 1, 'created', 'restored', 'mail', 'app:mail', duly.clock_now())
"""
WORKFLOW_CHANGE = """
insert into duly.workflow_changes (xid, tenant, workflow_id, change, name, replays, changed_at)
values ($1::text::xid8, 1, gen_random_uuid(), 'paused', 'restored', 0, duly.clock_now())
"""
LARGE = "x" * 1_800  # Four such rows leave room on their page for a small one.


async def end(connection, count=1, at=START, tenant=1, reason=None):
    """Record the ends of so many runs."""
    await connection.fetch(INSERT, count, at, tenant, reason)


class Readers:
    """Both who follow history: the one that counts and the one that tells."""

    def __init__(self, database):
        self.tail, self.endings = Tail(database), Endings(database)

    async def look(self):
        """Say how many ends each has found."""
        return sum(ended.runs for ended in await self.tail.look()), len(await self.endings.look([1]))


@pytest.fixture
async def readers(own_database):
    made = Readers(own_database)
    await made.look()
    return made


class TestOnce:
    async def test_an_end_on_a_page_that_a_slow_connection_began_long_ago(self, own_database, readers, clock):
        async with own_database.pool.acquire() as slow, own_database.pool.acquire() as busy:
            await end(slow)
            await end(busy, 500, reason=LARGE)
            for _ in range(3):
                await clock.advance(20)
                await readers.look()
            await end(slow)

            assert await readers.look() == (1, 1)

    async def test_tail_reads_an_end_on_a_page_that_vacuum_freed(self, own_database, readers, clock):
        await end(own_database, 500, reason=LARGE)
        await end(own_database, 1, tenant=2)
        await readers.look()
        await own_database.execute("delete from duly.attempts where tenant = 1")
        await own_database.execute("vacuum duly.attempts")
        await clock.advance(60)
        await readers.look()
        await end(own_database, 3)

        assert await readers.look() == (3, 3)

    async def test_tail_reads_an_end_whose_transaction_commits_late(self, own_database, readers, clock):
        async with own_database.transaction() as slow:
            await end(slow, 2)
            for _ in range(3):
                await end(own_database, 500)
                await clock.advance(3_600)
                assert await readers.look() == (500, 500)
        assert await readers.look() == (2, 2)
        assert await readers.look() == (0, 0)

    async def test_an_end_recorded_in_a_subtransaction(self, own_database, readers):
        async with own_database.transaction() as slow:
            await end(slow)
            await slow.execute("savepoint inner_one")
            await end(slow)
            await end(own_database)
            assert await readers.look() == (1, 1)
        assert await readers.look() == (2, 2)

    async def test_tail_reads_ends_despite_an_open_transaction_in_another_database(
        self, own_database, readers, postgres
    ):
        elsewhere = await asyncpg.connect(postgres.url())
        try:
            await elsewhere.execute("begin")
            await elsewhere.fetchval("select pg_current_xact_id()")
            for _ in range(3):
                await end(own_database, 4)
                assert await readers.look() == (4, 4)
        finally:
            await elsewhere.close()

    async def test_an_end_that_was_rolled_back_is_not_read(self, own_database, readers):
        with suppress(RuntimeError):
            async with own_database.transaction() as lost:
                await end(lost)
                await readers.look()
                raise RuntimeError
        assert await readers.look() == (0, 0)

    async def test_an_end_that_moves_from_the_default_partition_to_its_day(self, own_database, readers):
        await end(own_database, 3)
        assert await readers.look() == (3, 3)
        await end(own_database, 2)
        await history.create_partitions(own_database, 1)

        assert await readers.look() == (2, 2)

    async def test_tail_reads_an_end_of_a_day_long_past(self, own_database, readers, clock):
        await history.create_partitions(own_database, 2)
        await clock.advance(timedelta(days=30))
        await history.create_partitions(own_database, 2)
        await end(own_database, 2)

        assert await readers.look() == (2, 2)

    async def test_ends_that_were_restored_from_another_cluster_are_not_read(self, own_database, readers):
        ahead = await own_database.fetchval("select pg_snapshot_xmax(pg_current_snapshot())::text::bigint + 10")
        async with own_database.transaction() as restore:
            await end(restore, 5)
            await restore.execute("update duly.attempts set xid = $1::text::xid8", str(ahead))
        for _ in range(30):
            await end(own_database)

        assert await readers.look() == (30, 30)

    async def test_changes_that_were_restored_from_another_cluster_are_not_read(self, own_database):
        jobs, workflows = job_changes(own_database), workflow_changes(own_database)
        await jobs.look([1])
        await workflows.look([1])
        ahead = await own_database.fetchval("select pg_snapshot_xmax(pg_current_snapshot())::text::bigint + 10")
        await own_database.execute(JOB_CHANGE, str(ahead))
        await own_database.execute(WORKFLOW_CHANGE, str(ahead))

        assert [await jobs.look([1]), await workflows.look([1])] == [[], []]


class TestUnderLoad:
    async def test_tail_reports_and_counts_exactly_the_history(self, own_database, readers):
        """Connections of different speed, several partitions, rollbacks, vacuum, and one transaction as long as all of it."""
        await history.create_partitions(own_database, 3)
        told: Counter[UUID] = Counter()
        counted = 0

        async def write(number):
            async with own_database.pool.acquire() as connection:
                for turn in range(120 // number):
                    rows = connection.transaction()
                    await rows.start()
                    await end(connection, 1 + turn % 7, START + timedelta(days=turn % 4), reason=LARGE[: 600 * number])
                    await asyncio.sleep(0.002 * number)
                    await (rows.rollback() if turn % 5 == 4 else rows.commit())

        async def sweep():
            for _ in range(5):
                await own_database.execute("vacuum duly.attempts")
                await asyncio.sleep(0.05)

        async def read():
            nonlocal counted
            counted += sum(ended.runs for ended in await readers.tail.look())
            told.update(row.run_id for row in await readers.endings.look([1]))
            assert not readers.endings.left_out

        async with own_database.transaction() as longest:
            await end(longest, 3)
            writing = asyncio.gather(sweep(), *(write(number) for number in (1, 2, 3)))
            while not writing.done():
                await read()
            await writing
        await read()

        recorded = {row["run_id"] for row in await own_database.fetch("select run_id from duly.attempts")}
        assert len(recorded) > 400
        assert told == Counter(recorded)
        assert counted == len(recorded)


class TestFallingBehind:
    async def test_transactions_of_others_are_passed_over_at_once(self, own_database, readers, monkeypatch):
        monkeypatch.setattr(module, "TRANSACTIONS_MAX", 10)
        for _ in range(50):
            await own_database.execute("select pg_current_xact_id()")
        await end(own_database)

        assert await readers.look() == (1, 1)

    async def test_counts_go_on_a_part_at_a_time_until_nothing_is_left(self, own_database, readers, monkeypatch):
        monkeypatch.setattr(module, "TRANSACTIONS_MAX", 4)
        async with own_database.transaction() as slow:
            await end(slow, 2)
            for _ in range(10):
                await end(own_database)
            counted = [(await readers.tail.look())]
            while readers.tail.is_behind:
                counted.append(await readers.tail.look())
        counted.append(await readers.tail.look())

        assert len(counted) > 3
        assert sum(ended.runs for look in counted for ended in look) == 12

    @pytest.mark.parametrize("limit", ["SCAN_MAX", "ROWS_MAX"])
    async def test_endings_beyond_the_limit_leave_a_gap_and_reading_continues(
        self, own_database, readers, monkeypatch, limit
    ):
        monkeypatch.setattr(stream, limit, 3)
        for _ in range(10):
            await end(own_database)
        await readers.endings.look([1])
        assert readers.endings.left_out

        await end(own_database)
        assert len(await readers.endings.look([1])) == 1
        assert not readers.endings.left_out

    async def test_a_flood_of_another_tenant_costs_a_gap_and_no_memory(self, own_database, readers, monkeypatch):
        monkeypatch.setattr(stream, "SCAN_MAX", 100)
        await end(own_database, 101, tenant=2)

        assert await readers.endings.look([1]) == []
        assert readers.endings.left_out


class TestServers:
    async def test_tail_on_another_server_restarts_and_reports_the_gap(
        self, own_database, readers, postgres_15, template_15
    ):
        name = postgres_15.create(template_15)
        async with Database(postgres_15.url(name)) as other:
            _, foreign = await positions(other)
        tail, endings = Tail(own_database, foreign), Endings(own_database, foreign)
        await end(own_database, 5)

        assert await tail.look() == []
        assert tail.was_cut_off
        assert await endings.look([1]) == []
        assert endings.left_out
        await end(own_database, 2)
        assert [ended.runs for ended in await tail.look()] == [2]
        assert (tail.was_cut_off, endings.was_cut_off) == (False, True)
        assert len(await endings.look([1])) == 2

    async def test_a_position_that_is_still_to_come_means_nothing(self, own_database):
        here, _ = await positions(own_database)
        tail = Tail(own_database, Position(here.cluster, here.end + 1_000))

        await tail.look()

        assert tail.was_cut_off

    async def test_a_restart_of_the_server_loses_nothing(self, tmp_path):
        with embedded.start(tmp_path / "data", durable=False) as server:
            async with Database(server.url) as database:
                await migrate(database)
                tail = Tail(database)
                await tail.look()
                await end(database, 2)
                await tail.look()
                await end(database, 3)
        with embedded.start(tmp_path / "data", durable=False) as server:
            async with Database(server.url) as database:
                again = Tail(database, tail._position)
                await end(database, 4)

                assert sum(ended.runs for ended in await again.look()) == 7
                assert not again.was_cut_off


class TestCrash:
    """The server is killed, and gives ids out again that never reached its disk."""

    @pytest.fixture
    def server(self, tmp_path):
        with embedded.start(tmp_path / "data", durable=True, settings={"wal_writer_delay": "10s"}) as server:
            yield server

    async def test_reader_with_a_saved_position_past_reused_ids_misses_no_end(self, server):
        async with Database(server.url) as database:
            await migrate(database)
            await end(database)
            seen = use_up_ids(server, 100)
            tail, endings = Tail(database), Endings(database)
            await asyncio.gather(tail.look(), endings.look([1]))
        await crash(server)

        async with Database(server.url) as database:
            tail, endings = Tail(database, tail.position), Endings(database, endings.position)
            await end_by_ids_before(database, seen, 4)
            use_up_ids(server, 200)

            assert sum(ended.runs for ended in await tail.look()) == 4
            assert len(await endings.look([1])) == 4

    async def test_reader_that_skipped_reused_ids_misses_no_end(self, server, monkeypatch):
        monkeypatch.setattr(module, "TRANSACTIONS_MAX", 10)
        async with Database(server.url) as database:
            await migrate(database)
            tail = Tail(database)
            await tail.look()
            await end(database)
            seen = use_up_ids(server, 100)
            assert await all_counted(tail) == 1
        await crash(server)

        async with Database(server.url) as database:
            tail = Tail(database, tail.position)
            await end_by_ids_before(database, seen, 4)
            use_up_ids(server, 200)

            assert await all_counted(tail) == 4

    async def test_reader_that_was_sent_a_gap_past_reused_ids_misses_no_end(self, server, monkeypatch):
        monkeypatch.setattr(stream, "ROWS_MAX", 3)
        async with Database(server.url) as database:
            await migrate(database)
            endings = Endings(database)
            await endings.look([1])
            await end(database, 3)
            seen = use_up_ids(server, 100)
            await endings.look([1])
            assert endings.left_out
        await crash(server)

        async with Database(server.url) as database:
            endings = Endings(database, endings.position)
            await end_by_ids_before(database, seen, 2)
            use_up_ids(server, 200)

            assert len(await endings.look([1])) == 2

    async def test_client_that_resumes_from_an_event_past_reused_ids_misses_no_end(self, server):
        wanted = Wanted(tenant=1)
        async with Database(server.url) as database:
            await migrate(database)
            hub = EventHub(database, Log("events"))
            joined = await hub.join(wanted, None)
            await end(database, at=datetime.now(UTC))
            seen = use_up_ids(server, 100)
            await hub.step()
            text, _ = hub._text_after(wanted, joined.cursor)
            hub.close()
        last_id = re.findall(r"^id: (.*)$", text.decode(), re.MULTILINE)[-1]
        await crash(server)

        async with Database(server.url) as database:
            await end_by_ids_before(database, seen, 4)
            use_up_ids(server, 200)
            hub = EventHub(database, Log("events"))
            joined = await hub.join(wanted, last_id)
            hub.close()

        kinds = re.findall(r"^event: (.*)$", b"".join(joined.first).decode(), re.MULTILINE)
        assert kinds == ["duly.run.succeeded.v1"] * 4


def use_up_ids(server, number):
    """Begin transactions that leave nothing on the disk. Gives the id of the last."""
    last = 0
    with psycopg.connect(server.url) as connection:
        for _ in range(number):
            [(last,)] = connection.execute("select pg_current_xact_id()::text::bigint").fetchall()
            connection.rollback()
    return last


async def crash(server):
    """Kill the server, and start it again on the same data."""
    async with away(server):
        pass


async def end_by_ids_before(database, seen, number):
    for _ in range(number):
        await end(database)
    newest = await database.fetchval("select max(xid)::text::bigint from duly.attempts")
    assert newest <= seen, "the ids were not given out again"


async def all_counted(tail):
    counted = await tail.look()
    while tail.is_behind:
        counted += await tail.look()
    return sum(ended.runs for ended in counted)


class TestCost:
    async def test_tail_reads_new_ends_and_not_the_stored_history(self, own_database, readers):
        """On a plan that was made while history was small, and beside a transaction that was open during the last look."""
        await history.create_partitions(own_database, 3)
        async with own_database.transaction() as slow:
            await end(slow)
            await readers.look()
            await end(own_database, 20_000)
            await readers.look()
        await end(own_database, 5)
        async with own_database.transaction() as connection:
            await connection.fetch(module.SQL["look"], *arguments(readers.tail))
            fetched = await connection.fetchval(
                "select sum(pg_stat_get_xact_tuples_fetched(relid) + pg_stat_get_xact_tuples_returned(relid))"
                "  from pg_partition_tree('duly.attempts') where isleaf"
            )

        assert fetched < 50


def arguments(tail):
    end, still_open = tail._position.arguments()
    return end, str(tail._position.end + 1_000), still_open, [1.0], [1.0], [1.0]


def test_a_position_with_fewer_open_transactions_has_seen_no_more():
    seen = Position("here", 100, (40, 60, 80))

    assert seen.shortened(3) == seen
    assert seen.shortened(1) == Position("here", 60, (40,))
    assert seen.cut(200) == seen
