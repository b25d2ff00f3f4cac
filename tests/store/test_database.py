"""The connection: a statement answers, is refused with one of our errors, or is unknown; nothing else comes through."""

import asyncio
from contextlib import suppress
from datetime import timedelta
from types import SimpleNamespace
from unittest.mock import Mock

import asyncpg
import pytest

from duly import clock
from duly.clock import SystemClock, moment_of
from duly.domain.errors import DatabaseUnusable, KeyConflict, NotFound
from duly.postgres.unix_socket import address
from duly.store.connection import database as module
from duly.store.connection import test_clock
from duly.store.connection.database import Database, ReadOnly, Unavailable, is_connection_lost, translated
from duly.store.connection.refusals import refusal
from duly.store.connection.statements import load
from duly.store.connection.together import together
from tests.clock import START


class TestOpen:
    async def test_an_embedded_one_that_is_down_is_to_be_started(self, tmp_path):
        url = address(tmp_path, ".", role="duly", database="duly")

        with pytest.raises(
            DatabaseUnusable, match=r"no database responds at postgresql:///duly\?.*Start it with `duly up`$"
        ):
            await Database(url).open()

    async def test_error_without_a_message_is_reported_by_its_class_name(self, monkeypatch):
        monkeypatch.setattr(module, "Pool", Mock(side_effect=TimeoutError))

        with pytest.raises(DatabaseUnusable, match=r"no database responds at postgresql:///x: TimeoutError\. Check"):
            await Database("postgresql:///x").open()
        assert str(translated(TimeoutError())) == "the database did not respond: TimeoutError"

    async def test_a_database_that_does_not_exist_is_named_with_the_remedy(self, postgres):
        with pytest.raises(DatabaseUnusable, match=r'database "nowhere" does not exist.*DULY_DATABASE_URL'):
            await Database(postgres.url("nowhere")).open()

    async def test_a_url_that_is_none_is_named_with_the_remedy(self):
        for url in ("not a url", "postgresql://me@127.0.0.1:99999/db"):
            with pytest.raises(DatabaseUnusable, match=f"at {url}: .* Check the address"):
                await Database(url).open()

    async def test_a_server_that_is_too_old_is_refused(self, database_url, monkeypatch):
        monkeypatch.setattr(module, "VERSION_MIN", 990_000)

        with pytest.raises(DatabaseUnusable, match=r"PostgreSQL \d+ is too old; Duly needs 99 or newer"):
            await Database(database_url).open()

    async def test_a_database_that_is_read_only_is_refused(self, database_url):
        with pytest.raises(DatabaseUnusable, match=r"read-only.*the primary"):
            await Database(database_url + "&default_transaction_read_only=on").open()

    async def test_before_it_is_open_nothing_answers(self, database_url):
        with pytest.raises(Unavailable, match="is not open"):
            await Database(database_url).fetch("select 1")


class TestAnswers:
    async def test_rows_a_row_a_value_or_nothing(self, database):
        assert await database.fetch("select 1 as a union all select 2 order by 1") == [(1,), (2,)]
        assert await database.fetchrow("select 1 as a where false") is None
        assert await database.fetchval("select $1::int", 7) == 7
        assert await database.fetchval("select 1 where false") is None

    async def test_a_transaction_that_fails_leaves_nothing(self, database):
        async def fail() -> None:
            async with database.transaction() as connection:
                await connection.execute("delete from duly.shards")
                raise NotFound("on purpose")

        with pytest.raises(NotFound):
            await fail()

        assert await database.fetchval("select count(*) from duly.shards") == 64

    async def test_a_deadlock_or_a_serialization_failure_is_tried_again_unseen(self, database, monkeypatch):
        failures = [asyncpg.SerializationError("40001"), asyncpg.DeadlockDetectedError("40P01")]
        fetch = asyncpg.Connection.fetch

        async def failing(self, *args, **kwargs):
            if failures:
                raise failures.pop()
            return await fetch(self, *args, **kwargs)

        monkeypatch.setattr(asyncpg.Connection, "fetch", failing)

        assert await database.fetchval("select 1") == 1
        assert failures == []

    async def test_statement_is_not_retried_forever(self, database, monkeypatch):
        tries = []

        async def failing(*_, **__):
            tries.append(1)
            raise asyncpg.SerializationError("40001")

        monkeypatch.setattr(asyncpg.Connection, "fetch", failing)

        with pytest.raises(Unavailable):
            await database.fetchval("select 1")
        assert len(tries) == 4

    async def test_a_connection_that_was_lost_is_unavailable_and_the_next_one_works(self, database):
        killer = await asyncpg.connect(database.url)
        sleeping = asyncio.create_task(database.fetch("select pg_sleep(30)"))
        while not await killer.fetchval("select count(*) from pg_stat_activity where query = 'select pg_sleep(30)'"):
            await asyncio.sleep(0.01)
        await killer.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity where query = 'select pg_sleep(30)'"
        )

        with pytest.raises(Unavailable):
            await sleeping

        assert await database.fetchval("select 1") == 1
        await killer.close()

    async def test_a_server_that_takes_no_writes_is_unavailable_and_the_next_connection_may_lead_to_another(
        self, database
    ):
        """After a failover, a name or a pooler may lead to a standby for a moment."""
        await database.execute("set default_transaction_read_only = on")

        with pytest.raises(ReadOnly, match=r"read-only.*DULY_DATABASE_URL at the primary"):
            await database.execute("delete from duly.idempotency_keys")

        await database.execute("delete from duly.idempotency_keys")

    async def test_nor_is_it_kept_after_a_transaction(self, database):
        await database.execute("set default_transaction_read_only = on")

        async def write(all_of_it: Database) -> None:
            await all_of_it.execute("delete from duly.idempotency_keys")

        with pytest.raises(ReadOnly):
            await together(database, write)

        await together(database, write)

    async def test_a_server_that_takes_no_more_connections_is_unavailable_until_it_does(self, own_database_url):
        name = own_database_url.partition("?")[0].rpartition("/")[2]
        async with Database(own_database_url) as database, Database(own_database_url) as late:
            await database.execute(f"alter database {name} connection limit 1")
            with suppress(Unavailable):
                await late.fetch("select pg_terminate_backend(pg_backend_pid())")

            with pytest.raises(Unavailable, match="TooManyConnectionsError"):
                await late.fetch("select 1")
            with pytest.raises(DatabaseUnusable, match=r"no free connection: .*Raise max_connections"):
                await Database(own_database_url).open()

            await database.execute(f"alter database {name} connection limit -1")
            assert await late.fetchval("select 1") == 1

    async def test_an_answer_that_does_not_come_is_unavailable(self, database_url):
        async with Database(database_url, command_timeout=0.05) as impatient:
            with pytest.raises(Unavailable, match="TimeoutError"):
                await impatient.fetch("select pg_sleep(1)")

    async def test_unencodable_value_is_a_data_error_not_a_lost_connection(self, database):
        with pytest.raises(asyncpg.DataError, match="invalid input"):
            await database.fetch("select $1::text", "\ud800")


class TestClock:
    @pytest.mark.parametrize("is_another", [True, False])
    async def test_a_connection_to_another_server_is_a_new_start_for_the_clock(
        self, database_url, monkeypatch, is_another
    ):
        """After a failover the server may be a little behind: by the time of the one before, runs would start early."""
        monkeypatch.setattr(clock, "time", SimpleNamespace(monotonic=lambda: 1000.0))
        if is_another:  # Each connection names another moment of its server's start.
            monkeypatch.setattr(
                "duly.store.connection.database._SERVER_CLOCK", "select duly.clock_now(), clock_timestamp()"
            )
        async with Database(database_url, size_max=1, clock=SystemClock()) as ours:
            await ours.read_clock()
            assert moment_of(ours.clock.now()) == START
            async with Database(database_url) as other:
                await test_clock.move(other, START - timedelta(seconds=0.3))
            await ours.read_clock()
            assert moment_of(ours.clock.now()) == START, "of one server, that is no contradiction"

            with suppress(Unavailable):
                await ours.fetch("select pg_terminate_backend(pg_backend_pid())")
            await ours.fetch("select 1")

            assert moment_of(ours.clock.now()) == START - timedelta(seconds=0.3 if is_another else 0)

    async def test_a_database_that_is_not_migrated_has_no_time_to_tell(self, postgres):
        postgres.create_database("test_empty")
        async with Database(postgres.url("test_empty"), clock=SystemClock()) as empty:
            assert await empty.fetchval("select 1") == 1
            assert empty.clock.now() == float("-inf")
        postgres.drop_database("test_empty")


class TestErrors:
    @pytest.mark.parametrize(
        "error",
        [
            OSError(),
            TimeoutError(),
            asyncpg.ConnectionDoesNotExistError("as the server said"),
            asyncpg.AdminShutdownError("as the server said"),
            asyncpg.CannotConnectNowError("as the server said"),
            asyncpg.TooManyConnectionsError("as the server said"),
            asyncpg.IdleInTransactionSessionTimeoutError("as the server said"),
            asyncpg.InterfaceError("connection is closed"),
        ],
    )
    def test_a_lost_answer_is_known_as_such(self, error):
        assert is_connection_lost(error)
        assert isinstance(translated(error), Unavailable)

    @pytest.mark.parametrize(
        "error",
        [ValueError(), asyncpg.UniqueViolationError("as the server said"), asyncpg.DataError("as the server said")],
    )
    def test_unrelated_error_is_passed_on_unchanged(self, error):
        assert not is_connection_lost(error)
        assert translated(error) is error

    def test_duly_error_is_passed_on_unchanged(self):
        error = NotFound("no run")

        assert translated(error) is error

    def test_a_refusal_of_a_move_becomes_the_domains_error(self):
        found = refusal("DU001", "key 'k' was used for another job", "01a1")

        assert isinstance(found, KeyConflict)
        assert "(job 01a1). Use another key" in str(found)
        assert refusal("23505", "duplicate key value violates unique constraint", None) is None
        taken = refusal("23505", 'violates unique constraint "jobs_by_name"', None)
        assert str(taken).startswith("a schedule of that name exists"), "a server may keep the detail to itself"
        assert refusal("DU999", "of a newer Duly", None) is None


def test_statements_are_read_by_name_without_their_comments():
    statements = load("tables/workers")

    assert {"register", "heartbeat", "expire", "retire"} <= statements.keys()
    assert all(statement and "--" not in statement for statement in statements.values())
