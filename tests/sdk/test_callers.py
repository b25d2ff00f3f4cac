"""Submit inside the caller's own transaction: a rollback leaves nothing, a commit starts it, whatever the driver."""

from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import timedelta
from urllib.parse import parse_qs, urlsplit

import asyncpg
import psycopg
import pytest
from psycopg.rows import dict_row
from sqlalchemy import URL, create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from duly import App, InvalidOption, InvalidSchedule, KeyBusy, KeyConflict
from duly.domain.errors import DatabaseUnusable
from tests.builders import counts
from tests.clock import START


class Undone(Exception):
    """Raised to roll back."""


def sqlalchemy_url(url: str, driver: str) -> URL:
    parts = urlsplit(url)
    query = {name: values[0] for name, values in parse_qs(parts.query).items()}
    user = query.pop("user", parts.username)
    return URL.create(f"postgresql+{driver}", user, database=parts.path.strip("/"), query=query)


@asynccontextmanager
async def asyncpg_connection(url):
    connection = await asyncpg.connect(url)
    try:
        async with connection.transaction():
            yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def asyncpg_pooled(url):
    async with (
        asyncpg.create_pool(url, min_size=0) as pool,
        pool.acquire() as connection,
        connection.transaction(),
    ):
        yield connection


@asynccontextmanager
async def psycopg_async(url):
    async with await psycopg.AsyncConnection.connect(url) as connection:
        yield connection


@asynccontextmanager
async def psycopg_async_cursor(url):
    async with await psycopg.AsyncConnection.connect(url) as connection, connection.cursor() as cursor:
        yield cursor


@asynccontextmanager
async def sqlalchemy_async_session(url):
    engine = create_async_engine(sqlalchemy_url(url, "psycopg"), poolclass=NullPool)
    async with AsyncSession(engine) as session, session.begin():
        yield session


@asynccontextmanager
async def sqlalchemy_asyncpg_session(url):
    engine = create_async_engine(sqlalchemy_url(url, "asyncpg"), poolclass=NullPool)
    async with AsyncSession(engine) as session, session.begin():
        yield session


@asynccontextmanager
async def sqlalchemy_async_connection(url):
    async with create_async_engine(sqlalchemy_url(url, "psycopg"), poolclass=NullPool).begin() as connection:
        yield connection


@asynccontextmanager
async def sqlalchemy_asyncpg_connection(url):
    async with create_async_engine(sqlalchemy_url(url, "asyncpg"), poolclass=NullPool).begin() as connection:
        yield connection


@contextmanager
def psycopg_sync(url):
    with psycopg.connect(url) as connection:
        yield connection


@contextmanager
def psycopg_sync_of_dicts(url):
    with psycopg.connect(url, row_factory=dict_row) as connection:
        yield connection


@contextmanager
def psycopg_sync_cursor(url):
    with psycopg.connect(url) as connection, connection.cursor() as cursor:
        cursor.execute("select 7")
        yield cursor
        assert cursor.fetchone() == (7,)  # The caller's own cursor was left alone.


@contextmanager
def sqlalchemy_sync_connection(url):
    with create_engine(sqlalchemy_url(url, "psycopg"), poolclass=NullPool).begin() as connection:
        yield connection


@contextmanager
def sqlalchemy_sync_session(url):
    with Session(create_engine(sqlalchemy_url(url, "psycopg"), poolclass=NullPool)) as session, session.begin():
        yield session


class Django:
    """What Django hands out: a wrapper that is neither a driver's connection nor a cursor."""

    def __init__(self, connection):
        self._connection = connection

    def cursor(self):
        return self._connection.cursor()


@contextmanager
def any_db_api(url):
    with psycopg.connect(url) as connection:
        yield Django(connection)


AWAITED = [
    asyncpg_connection,
    asyncpg_pooled,
    psycopg_async,
    psycopg_async_cursor,
    sqlalchemy_async_connection,
    sqlalchemy_asyncpg_connection,
    sqlalchemy_async_session,
    sqlalchemy_asyncpg_session,
]
PLAIN = [
    psycopg_sync,
    psycopg_sync_of_dicts,
    psycopg_sync_cursor,
    sqlalchemy_sync_connection,
    sqlalchemy_sync_session,
    any_db_api,
]


@asynccontextmanager
async def asyncpg_alone(url):
    connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def psycopg_async_alone(url):
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        yield connection


@asynccontextmanager
async def sqlalchemy_async_alone(url):
    engine = create_async_engine(sqlalchemy_url(url, "psycopg"), poolclass=NullPool, isolation_level="AUTOCOMMIT")
    async with engine.connect() as connection:
        yield connection


@asynccontextmanager
async def sqlalchemy_asyncpg_alone(url):
    engine = create_async_engine(sqlalchemy_url(url, "asyncpg"), poolclass=NullPool, isolation_level="AUTOCOMMIT")
    async with AsyncSession(engine) as session:
        yield session


@asynccontextmanager
async def psycopg_sync_alone(url):
    with psycopg.connect(url, autocommit=True) as connection:
        yield connection


@asynccontextmanager
async def any_db_api_alone(url):
    with psycopg.connect(url, autocommit=True) as connection:
        yield Django(connection)


@asynccontextmanager
async def sqlalchemy_sync_alone(url):
    engine = create_engine(sqlalchemy_url(url, "psycopg"), poolclass=NullPool, isolation_level="AUTOCOMMIT")
    with Session(engine) as session:
        yield session


AWAITED_ALONE = [asyncpg_alone, psycopg_async_alone, sqlalchemy_async_alone, sqlalchemy_asyncpg_alone]
PLAIN_ALONE = [psycopg_sync_alone, any_db_api_alone, sqlalchemy_sync_alone]


class OwnRows:
    """A table of the caller's own."""

    insert = "insert into orders_of_the_caller values (7)"

    def __init__(self, database):
        self._database = database

    async def count(self):
        return await self._database.fetchval("select count(*) from orders_of_the_caller")


@pytest.fixture
async def own_rows(database):
    await database.execute("create table orders_of_the_caller (id int)")
    yield OwnRows(database)
    await database.execute("drop table orders_of_the_caller")


@pytest.mark.parametrize("connected", AWAITED)
async def test_a_commit_starts_it_and_a_rollback_leaves_nothing(connected, send, database, database_url):
    with suppress(Undone):
        async with connected(database_url) as connection:
            await send.options(connection=connection, key="k").submit(7, to="a")
            raise Undone
    assert await counts(database) == {}
    assert await database.fetchval("select count(*) from duly.idempotency_keys") == 0

    async with connected(database_url) as connection:
        handle = await send.options(connection=connection, key="k").submit(7, to="a")
        assert await counts(database) == {}  # Nobody sees it before the commit.

    assert await counts(database) == {"ready": 1}
    assert await handle.status() == "ready"


@pytest.mark.parametrize("connected", PLAIN)
async def test_the_same_for_plain_connections(connected, send, database, database_url):
    with suppress(Undone), connected(database_url) as connection:
        send.options(connection=connection, key="k").submit_sync(7, to="a")
        raise Undone
    assert await counts(database) == {}

    with connected(database_url) as connection:
        handle = send.options(connection=connection, key="k").submit_sync(7, to="a")

    assert await counts(database) == {"ready": 1}
    assert await handle.status() == "ready"


@pytest.mark.parametrize("connected", AWAITED)
async def test_driver_connection_accepts_every_kind_of_job(connected, send, tick, database, database_url):
    async with connected(database_url) as connection:
        many = await send.options(connection=connection, delay="P1DT2H0.5S").submit_many(
            [{"customer": i, "to": "ü \u2603 'quoted' \"x\" %s :body \\"} for i in range(3)]
        )
        schedule = await tick.options(connection=connection, every="PT10S", name="t", timeout=5, at=START).submit()

    assert [one.scheduled_at for one in many] == [START + timedelta(days=1, hours=2, seconds=0.5)] * 3
    assert schedule.next_fires[0] == START
    assert await counts(database) == {"timers": 4}
    [stored] = await database.fetch("select payload::jsonb->>'to' from duly.timers where run_id = $1", many[1].job_id)
    assert stored[0] == "ü \u2603 'quoted' \"x\" %s :body \\"


@pytest.mark.parametrize("connected", AWAITED)
async def test_a_key_means_the_same_job_whatever_the_driver(connected, send, tick, database, database_url):
    choices = {"key": "k", "delay": "P2DT1S"}
    ours = await send.options(**choices).submit(7, to="a")
    ours_many = await send.options(key="many").submit_many([{"customer": 1, "to": "a"}])
    ours_schedule = await tick.options(every=60, key="schedule", at=START).submit()

    async with connected(database_url) as connection:
        theirs = await send.options(**choices, connection=connection).submit(7, to="a")
        theirs_many = await send.options(key="many", connection=connection).submit_many([{"customer": 1, "to": "a"}])
        theirs_schedule = await tick.options(every=60, key="schedule", at=START, connection=connection).submit()

    assert theirs.replayed
    assert (theirs.job_id, theirs.scheduled_at) == (ours.job_id, ours.scheduled_at)
    assert [one.job_id for one in theirs_many] == [one.job_id for one in ours_many]
    assert theirs_schedule.job_id == ours_schedule.job_id


@pytest.mark.parametrize("connected", AWAITED)
async def test_refusals_are_ours_whatever_the_driver(connected, send, database, database_url):
    await send.options(key="k").submit(7, to="a")

    with pytest.raises(KeyConflict, match=r"key 'k' was used for another job \(job .*\)\. Use another key"):
        async with connected(database_url) as connection:
            await send.options(connection=connection, key="k").submit(8, to="b")
    with pytest.raises(InvalidSchedule, match="is in the past: the database's clock says"):
        async with connected(database_url) as connection:
            await send.options(connection=connection, at=START - timedelta(hours=1)).submit(7, to="a")
    assert await counts(database) == {"ready": 1}


@pytest.mark.parametrize("connected", PLAIN)
async def test_refusals_are_ours_on_plain_connections_too(connected, send, database, database_url):
    await send.options(key="k").submit(7, to="a")

    with pytest.raises(KeyConflict, match="Use another key"), connected(database_url) as connection:
        send.options(connection=connection, key="k").submit_sync(8, to="b")
    assert await counts(database) == {"ready": 1}


def spoken(connection, words):
    """Run plain SQL on a caller's connection, in the way of its driver."""
    if hasattr(connection, "in_transaction"):  # SQLAlchemy's.
        return connection.execute(text(words))
    if hasattr(connection, "execute"):
        return connection.execute(words)
    return connection.cursor().execute(words)


@pytest.mark.parametrize("connected", AWAITED)
async def test_a_refusal_leaves_the_callers_transaction_whole(connected, send, own_rows, database, database_url):
    await send.options(key="k").submit(7, to="a")

    async with connected(database_url) as connection:
        await spoken(connection, own_rows.insert)
        for _ in range(2):
            with pytest.raises(KeyConflict):
                await send.options(connection=connection, key="k").submit(8, to="b")
        with pytest.raises(InvalidSchedule, match="in the past"):
            await send.options(connection=connection, at=START - timedelta(hours=1)).submit(7, to="a")
        await send.options(connection=connection, key="other").submit(8, to="b")

    assert await own_rows.count() == 1
    assert await counts(database) == {"ready": 2}


@pytest.mark.parametrize("connected", PLAIN)
async def test_a_refusal_leaves_a_plain_transaction_whole(connected, send, own_rows, database, database_url):
    await send.options(key="k").submit(7, to="a")

    with connected(database_url) as connection:
        spoken(connection, own_rows.insert)
        if connected is psycopg_sync_cursor:
            connection.execute("select 7")
        with pytest.raises(KeyConflict):
            send.options(connection=connection, key="k").submit_sync(8, to="b")
        with pytest.raises(InvalidSchedule, match="in the past"):
            send.options(connection=connection, at=START - timedelta(hours=1)).submit_sync(7, to="a")
        send.options(connection=connection, key="other").submit_sync(8, to="b")

    assert await own_rows.count() == 1
    assert await counts(database) == {"ready": 2}


@pytest.mark.parametrize("connected", [*AWAITED_ALONE, *PLAIN_ALONE])
async def test_where_each_statement_commits_by_itself_there_is_no_savepoint(connected, send, database, database_url):
    await send.options(key="k").submit(7, to="a")

    async with connected(database_url) as connection:
        if connected in AWAITED_ALONE:
            with pytest.raises(KeyConflict):
                await send.options(connection=connection, key="k").submit(8, to="b")
            await send.options(connection=connection).submit(8, to="b")
        else:
            with pytest.raises(KeyConflict):
                send.options(connection=connection, key="k").submit_sync(8, to="b")
            send.options(connection=connection).submit_sync(8, to="b")
        assert await counts(database) == {"ready": 2}


async def test_a_transaction_that_was_begun_by_hand_is_left_whole_as_well(send, own_rows, database_url):
    await send.options(key="k").submit(7, to="a")

    with psycopg.connect(database_url, autocommit=True) as connection, connection.transaction():
        connection.execute(own_rows.insert)
        with pytest.raises(KeyConflict):
            send.options(connection=connection, key="k").submit_sync(8, to="b")
    async with asyncpg_alone(database_url) as connection:
        await connection.execute(f"begin; {own_rows.insert}")
        with pytest.raises(KeyConflict):
            await send.options(connection=connection, key="k").submit(8, to="b")
        await connection.execute("commit")

    assert await own_rows.count() == 2


async def test_a_callers_pipeline_may_be_open(send, own_rows, database, database_url):
    await send.options(key="k").submit(7, to="a")

    with psycopg.connect(database_url) as connection, connection.pipeline():
        connection.execute(own_rows.insert)
        with pytest.raises(KeyConflict):
            send.options(connection=connection, key="k").submit_sync(8, to="b")
        send.options(connection=connection).submit_sync(8, to="b")
    with psycopg.connect(database_url, autocommit=True) as connection, connection.pipeline():
        send.options(connection=connection).submit_sync(8, to="b")

    assert await own_rows.count() == 1
    assert await counts(database) == {"ready": 3}


async def test_a_key_that_another_transaction_is_submitting_is_busy(send, database, database_url):
    async with asyncpg_connection(database_url) as connection:
        await send.options(connection=connection, key="k").submit(7, to="a")

        with pytest.raises(KeyBusy, match="try again when it has"):
            await send.options(key="k").submit(7, to="a")


async def test_plain_sql_submits_in_any_language(database, database_url):
    with psycopg.connect(database_url) as connection:
        connection.execute("""select duly.submit('greet', '{"name": "world"}')""")
        connection.rollback()
    assert await counts(database) == {}

    with psycopg.connect(database_url) as connection:
        connection.execute("""select duly.submit('greet', '{"name": "world"}')""")
        connection.execute(
            "select duly.submit('greet', '{}', queue => 'mail', priority => 2, delay => '1 hour', key => 'k')"
        )
    assert await counts(database) == {"ready": 1, "timers": 1}


async def test_a_plain_connection_is_not_awaited_and_an_awaited_one_is(send, database_url):
    with psycopg_sync(database_url) as connection, pytest.raises(InvalidOption, match="use submit_sync with it"):
        await send.options(connection=connection).submit(7, to="a")
    with (
        sqlalchemy_sync_connection(database_url) as connection,
        pytest.raises(InvalidOption, match="use submit_sync with it"),
    ):
        await send.options(connection=connection).submit(7, to="a")
    for connected in AWAITED:
        async with connected(database_url) as connection:
            with pytest.raises(InvalidOption, match="is asynchronous: use `await"):
                send.options(connection=connection).submit_sync(7, to="a")


@pytest.mark.parametrize("given", ["postgresql:///duly", 7, object()])
async def test_unsupported_connection_is_refused(given, send):
    named = rf"{type(given).__name__} is not supported; use a connection of asyncpg, psycopg, SQLAlchemy"
    with pytest.raises(InvalidOption, match=named):
        await send.options(connection=given).submit(7, to="a")
    with pytest.raises(InvalidOption, match=named):
        send.options(connection=given).submit_sync(7, to="a")


@pytest.fixture
def strange_url(postgres):
    """The address of a database that has never heard of Duly."""
    name = postgres.create()
    yield postgres.url(name)
    postgres.drop_database(name)


NOT_MIGRATED = r'schema "duly" does not exist\. Run `duly migrate` on it'


@pytest.mark.parametrize("connected", [*AWAITED, *AWAITED_ALONE])
async def test_database_without_the_schema_is_reported_as_unmigrated(connected, send, strange_url):
    async with connected(strange_url) as connection:
        with pytest.raises(DatabaseUnusable, match=NOT_MIGRATED):
            await send.options(connection=connection).submit(7, to="a")


@pytest.mark.parametrize("connected", PLAIN)
async def test_the_same_for_a_plain_connection_to_it(connected, send, strange_url):
    with connected(strange_url) as connection, pytest.raises(DatabaseUnusable, match=NOT_MIGRATED):
        send.options(connection=connection).submit_sync(7, to="a")


@pytest.mark.parametrize("connected", [asyncpg_connection, psycopg_async, sqlalchemy_asyncpg_session])
@pytest.mark.parametrize("part", ["function duly.submit_one", "table duly.ready"])
async def test_incomplete_schema_is_reported_as_unmigrated(connected, part, send, own_database_url):
    with psycopg.connect(own_database_url) as connection:
        connection.execute(f"alter {part} rename to another")

    async with connected(own_database_url) as connection:
        with pytest.raises(DatabaseUnusable, match=r"does not exist\. Run `duly migrate` on it"):
            await send.options(connection=connection).submit(7, to="a")


async def test_changes_of_the_caller_commit_with_the_job(own_database, own_database_url):
    app = App()

    @app.handler
    def send(customer: int) -> None: ...

    async with sqlalchemy_async_session(own_database_url) as session:
        await session.execute(text("create table customers (id int)"))
        await session.execute(text("insert into customers values (7)"))
        await send.options(connection=session).submit(7)

    assert await own_database.fetchval("select id from customers") == 7
    assert await counts(own_database) == {"ready": 1}
