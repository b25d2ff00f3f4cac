"""A session: one transaction of one tenant, with the surface of a database."""

import asyncio
from datetime import timedelta

import pytest

from duly.domain.errors import KeyConflict, Refused
from duly.moves.submit import submit
from duly.store.connection.database import Database, ReadOnly, Unavailable
from duly.store.connection.session import RolledBack, Sessions
from tests.builders import a_key, a_ready_run, a_submission, counts

BREAK = "select 1 / 0"


async def submit_and_raise(session, error: Exception) -> None:
    """Do something, and fail."""
    await submit(session, a_submission(), key=a_key())
    raise error


async def submit_and_break(session) -> None:
    """Do something, and let the server refuse the next."""
    await submit(session, a_submission(), key=a_key())
    await session.fetch(BREAK)


async def lose(database, session) -> None:
    """End the session's connection on the server."""
    await database.fetch("select pg_terminate_backend($1)", await session.fetchval("select pg_backend_pid()"))


async def in_session(sessions, story, *more, **options) -> None:
    """Tell a story in a session."""
    async with sessions.open(1, **options) as session:
        await story(session, *more)


async def in_savepoint(session, story, *more) -> None:
    """Tell a story in a savepoint."""
    async with session.transaction():
        await story(session, *more)


@pytest.fixture
async def sessions(database):
    async with Sessions(database, size_max=2) as opened:
        yield opened


async def test_session_commits_when_its_block_ends(database, sessions):
    async with sessions.open(1) as session:
        await submit(session, a_submission(), key=a_key())

    assert await counts(database) == {"ready": 1}


async def test_session_rolls_back_when_its_block_raises(database, sessions):
    with pytest.raises(Refused, match="no"):
        await in_session(sessions, submit_and_raise, Refused("no"))

    assert await counts(database) == {}


async def test_session_sets_role_tenant_and_timeout_and_leaves_none_behind(database):
    async with Sessions(database, size_max=1) as sessions:
        async with sessions.open(7, timeout=timedelta(seconds=2)) as session:
            asked = "select current_user, current_setting('duly.tenant'), current_setting('statement_timeout'), pg_backend_pid()"
            [(*seen, process)] = await session.fetch(asked)
        async with sessions.open(8) as session:
            [(*seen_next, process_next)] = await session.fetch(asked)

    assert seen == ["duly_api", "7", "2s"]
    assert seen_next == ["duly_api", "8", "0"]
    assert process == process_next


async def test_refusal_in_a_session_keeps_the_connection(database):
    async with Sessions(database, size_max=1) as sessions:
        async with sessions.open(1) as session:
            process = await session.fetchval("select pg_backend_pid()")
        with pytest.raises(Refused):
            await in_session(sessions, submit_and_raise, Refused("no"))
        async with sessions.open(1) as session:
            assert await session.fetchval("select pg_backend_pid()") == process


PID = "select pg_backend_pid()"


async def test_a_connection_to_a_server_that_takes_no_writes_is_not_kept(database):
    async with Sessions(database, size_max=1) as sessions:
        async with sessions.open(1) as session:
            process = await session.fetchval(PID)
            await session.execute("set session characteristics as transaction read only")
        with pytest.raises(ReadOnly):
            await in_session(sessions, submit_and_raise, Refused("no"))
        async with sessions.open(1) as session:
            assert await session.fetchval(PID) != process
            await submit(session, a_submission(), key=a_key())


async def test_read_only_session_keeps_its_connection(database):
    async def write(sessions: Sessions) -> None:
        async with sessions.look(timeout=timedelta(seconds=2)) as session:
            await session.execute("delete from duly.idempotency_keys")

    async with Sessions(database, size_max=1) as sessions:
        async with sessions.look(timeout=timedelta(seconds=2)) as session:
            process = await session.fetchval(PID)
        with pytest.raises(ReadOnly):
            await write(sessions)
        async with sessions.open(1) as session:
            assert await session.fetchval(PID) == process


async def test_a_block_that_is_interrupted_is_undone(database, sessions):
    async def interrupted():
        async with sessions.open(1) as session:
            await submit(session, a_submission(), key=a_key())
            begun.set()
            await session.fetch("select pg_sleep(60)")

    begun = asyncio.Event()
    task = asyncio.create_task(interrupted())
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    async with sessions.open(1) as session:
        await session.fetch("select 1")
    assert await counts(database) == {}


async def test_a_failure_that_was_swallowed_is_no_success(database, sessions):
    async def swallowed(session) -> None:
        with pytest.raises(Exception, match="division"):
            await submit_and_break(session)

    with pytest.raises(RolledBack):
        await in_session(sessions, swallowed)

    assert await counts(database) == {}


class TestSavepoint:
    async def test_savepoint_rolls_back_its_failed_part_and_keeps_the_rest(self, database, sessions):
        async with sessions.open(1) as session:
            await submit(session, a_submission(), key=a_key())
            with pytest.raises(Exception, match="division"):
                await in_savepoint(session, submit_and_break)
            await submit(session, a_submission(), key=a_key())

        assert await counts(database) == {"ready": 2}

    async def test_nested_transaction_rolls_back_alone(self, database, sessions):
        async with sessions.open(1) as session, session.transaction():
            with pytest.raises(Refused):
                await in_savepoint(session, submit_and_raise, Refused("no"))
            await submit(session, a_submission(), key=a_key())

        assert await counts(database) == {"ready": 1}

    async def test_a_transaction_of_several_statements_is_one(self, database, sessions):
        async def told(session) -> None:
            async with session.transaction() as connection:
                await submit_and_raise(connection, Refused("no"))

        async with sessions.open(1) as session:
            with pytest.raises(Refused):
                await told(session)

        assert await counts(database) == {}


class TestErrors:
    async def test_a_refusal_of_a_move_is_the_domains_own(self, sessions):
        async with sessions.open(1) as session:
            await submit(session, a_submission(), key="k")
        other = a_submission(payload='{"other": 1}')

        with pytest.raises(KeyConflict):
            await in_session(sessions, lambda session: submit(session, other, key="k"))

    async def test_a_deadlock_lets_the_whole_be_run_again(self, database, sessions):
        await database.execute(
            "create table if not exists duly.rows_to_lock (number int); grant all on duly.rows_to_lock to duly_api"
        )
        await database.execute("insert into duly.rows_to_lock values (1), (2)")
        met = asyncio.Barrier(2)

        async def lock(first: int, second: int) -> str:
            try:
                async with sessions.open(1) as session:
                    await session.fetch("select from duly.rows_to_lock where number = $1 for update", first)
                    await met.wait()
                    await session.fetch("select from duly.rows_to_lock where number = $1 for update", second)
            except RolledBack:
                return "rolled back"
            return "done"

        try:
            ends = await asyncio.gather(lock(1, 2), lock(2, 1))
        finally:
            await database.execute("drop table duly.rows_to_lock")
        assert sorted(ends) == ["done", "rolled back"]

    async def test_session_reports_a_lost_connection(self, database, sessions):
        async def lost(session) -> None:
            await a_ready_run(session)
            await lose(database, session)
            await session.fetch("select 1")

        with pytest.raises(Unavailable):
            await in_session(sessions, lost)

        async with sessions.open(1) as session:
            await a_ready_run(session)
        assert await counts(database) == {"ready": 1}

    async def test_a_commit_that_is_not_answered_is_no_success(self, database, sessions):
        async def lost(session) -> None:
            await a_ready_run(session)
            await lose(database, session)

        with pytest.raises(Unavailable):
            await in_session(sessions, lost)

        assert await counts(database) == {}

    async def test_a_statement_that_takes_too_long_is_ended(self, sessions):
        with pytest.raises(Unavailable):
            await in_session(
                sessions, lambda session: session.fetch("select pg_sleep(30)"), timeout=timedelta(milliseconds=20)
            )

        async with sessions.open(1) as session:
            assert await session.fetchval("select 1") == 1

    async def test_a_database_that_is_not_there_is_unavailable(self):
        sessions = Sessions(Database("postgresql:///nowhere?host=/nowhere"))

        with pytest.raises(Unavailable):
            await in_session(sessions, a_ready_run)
