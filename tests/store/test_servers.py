"""The moves on the oldest PostgreSQL we support, and through pgbouncer in transaction mode: the same tests, run again there."""

from pathlib import Path

import psycopg
import pytest

from duly.store.connection.database import Database
from tests.builders import a_ready_run, a_worker, claimed, settled, staged
from tests.clock import ManualClock
from tests.conftest import SHARED, Shared, template_on
from tests.kept import Kept
from tests.moves import (
    test_cancel,
    test_claim,
    test_concurrency_keys,
    test_replay,
    test_settle,
    test_stage,
    test_submit,
)
from tests.postgres import scratch_server
from tests.schedules import test_edit, test_firing, test_fixed_delay, test_trigger
from tests.store import pgbouncer
from tests.store.gathered import gathered_from
from tests.store.test_migrations import migrate_in_five_processes

MOVES = (test_submit, test_stage, test_claim, test_settle, test_cancel, test_replay, test_concurrency_keys)
SCHEDULES = (test_firing, test_fixed_delay, test_edit, test_trigger)
globals().update(gathered_from(*MOVES, *SCHEDULES))


@pytest.fixture(scope="session")
def pooled(tmp_path_factory):
    """The database that tests share behind pgbouncer, and its address through it."""
    if not Path(pgbouncer.PROGRAM).exists():
        pytest.skip("needs the Debian package pgbouncer")
    with scratch_server(tmp_path_factory.mktemp("pooled")) as server, pgbouncer.pgbouncer(server) as folder:
        shared = Shared(server, template_on(server))
        yield shared, f"postgresql:///{SHARED}?host={folder}&port={pgbouncer.PORT}&user=duly"
        shared.close()


@pytest.fixture(scope="session")
async def kept_by_pooler(pooled):
    """The connections to the second."""
    kept = Kept(pooled[1], pooler=True)
    yield kept
    await kept.close()


@pytest.fixture(params=["PostgreSQL 15", "pgbouncer"])
def server(request):
    """The connections to an empty database on one of the two."""
    if request.param == "PostgreSQL 15":
        request.getfixturevalue("oldest").empty()
        return request.getfixturevalue("kept_on_oldest")
    shared, _ = request.getfixturevalue("pooled")
    shared.delete_all()
    return request.getfixturevalue("kept_by_pooler")


@pytest.fixture
async def database(server: Kept, clock: ManualClock):
    """An open, empty database on one of the two."""
    async with server.lent(clock) as opened:
        clock.moves(opened)
        yield opened


async def test_the_oldest_server_is_the_oldest_we_take(postgres_15):
    async with Database(postgres_15.url()) as opened:
        assert await opened.fetchval("select current_setting('server_version_num')::int / 10000") == 15


async def test_five_processes_migrate_the_oldest_server_at_once(postgres_15):
    name = postgres_15.create()

    assert migrate_in_five_processes(postgres_15.url(name)) == 1


async def test_five_processes_migrate_through_a_pooler_at_once(pooled):
    shared, url = pooled
    with psycopg.connect(shared.url, autocommit=True) as connection:
        connection.execute("create database test_five")

    assert migrate_in_five_processes(url.replace(f"/{SHARED}?", "/test_five?"), pooler=True) == 1


async def test_a_move_leaves_no_setting_and_no_lock_behind_on_a_shared_connection(database):
    settings = (
        "select name, setting from pg_settings"
        " where name like 'enable%' or name in ('jit', 'lock_timeout', 'TimeZone', 'IntervalStyle') order by name"
    )
    before = await database.fetch(settings)
    await a_ready_run(database)
    worker_id = await a_worker(database)
    [run] = await claimed(database, worker_id)
    await settled(database, worker_id, run)
    await staged(database)

    assert await database.fetch(settings) == before
    assert await database.fetchval("select count(*) from pg_locks where locktype = 'advisory'") == 0
