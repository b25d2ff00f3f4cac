"""Findings of the doctor on a server that is set as one in use is: safe, small, and with transactions that are prepared.

What takes minutes or a gibibyte to become true is read as it is, from a limit that is lower. The role of this server may
replicate, which that of an embedded one may not. That a replica lags is told in test_system.py from values put in its place: it
needs a second server that follows this one.
"""

import asyncio
import os
from datetime import timedelta

import asyncpg
import pytest

from duly import __version__
from duly.clock import host_now
from duly.domain.diagnosis import doctor
from duly.domain.diagnosis.doctor import Finding, findings
from duly.maintenance.service import PARTITION_DAYS_AHEAD, REAP
from duly.postgres import embedded, folder
from duly.store.boxes import history
from duly.store.connection import local
from duly.store.connection.database import Database
from duly.store.connection.session import Sessions
from duly.store.reads import maintenance_tasks
from duly.store.reads.system import read
from tests.builders import a_scheduler, a_worker
from tests.clock import ManualClock
from tests.conftest import make_template

CONNECTIONS = 20
SETTINGS = {
    "shared_buffers": "32MB",
    "max_connections": str(CONNECTIONS),
    "max_prepared_transactions": "2",
    "wal_level": "logical",
}
LOOK = timedelta(seconds=20)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A server that forgets nothing, and vacuums by itself."""
    with pytest.MonkeyPatch.context() as patch:
        may_replicate = f"alter role {folder.ROLE} replication;\n"
        patch.setattr(folder, "_FIRST_STATEMENTS", folder._FIRST_STATEMENTS + may_replicate)
        with embedded.start(tmp_path_factory.mktemp("safe"), settings=SETTINGS) as started:
            asyncio.run(make_template(started.url))
            yield started


@pytest.fixture
async def well(server):
    """An installation that does well, on such a server."""
    clock = ManualClock()
    async with Database(server.url, size_max=4, clock=clock) as database:
        clock.moves(database)
        await clock.step(0)
        await a_scheduler(database)
        await a_worker(database)
        await maintenance_tasks.record(database, {REAP: 0})
        await history.create_partitions(database, PARTITION_DAYS_AHEAD)
        await database.execute("update duly.schedulers set version = $1", __version__)
        await database.execute("update duly.workers set version = $1", __version__)
        yield database
        await database.execute(
            "delete from duly.workers; delete from duly.schedulers; delete from duly.maintenance_tasks"
        )


@pytest.fixture(autouse=True)
def _disk_with_room(monkeypatch):
    """Whatever the disk of this machine has."""
    monkeypatch.setattr(doctor, "DISK_SHARE_MIN", 0.0)


async def findings_of(database: Database) -> list[Finding]:
    async with Sessions(database, size_max=1) as sessions, sessions.look(timeout=LOOK) as session:
        return list(findings(await read(session, host_now)))


async def found_in(database: Database) -> dict[str, str]:
    return {one.code: one.message for one in await findings_of(database)}


async def test_doctor_finds_no_fault_in_a_healthy_system_on_a_safe_server(well):
    assert await found_in(well) == {}


async def test_doctor_reports_a_forgotten_prepared_transaction(well, monkeypatch):
    connection = await asyncpg.connect(well.url)
    await connection.execute("begin; select duly.clock_now(); prepare transaction 'forgotten'")
    try:
        assert "prepared_transactions" not in await found_in(well), "not in its first minute"
        monkeypatch.setattr(doctor, "PREPARED_SECONDS_MAX", 0.0)
        assert (await found_in(well))["prepared_transactions"].startswith("1 prepared transaction")
    finally:
        await connection.execute("rollback prepared 'forgotten'")
        await connection.close()
    assert await found_in(well) == {}


async def test_doctor_reports_a_long_open_transaction(well, monkeypatch):
    connection = await asyncpg.connect(well.url)
    async with connection.transaction():
        await connection.execute("select 1")
        assert "old_transaction" not in await found_in(well), "not in its first minutes"
        monkeypatch.setattr(doctor, "TRANSACTION_SECONDS_MAX", 0.0)
        assert "old_transaction" in await found_in(well)
    await connection.close()
    monkeypatch.undo()
    assert await found_in(well) == {}


async def test_doctor_reports_an_idle_replication_slot_and_its_remedy_drops_it(well, monkeypatch):
    connection = await asyncpg.connect(well.url)
    await connection.execute("select pg_create_physical_replication_slot('forgotten', true)")
    try:
        await connection.execute("create table written as select repeat('x', 1000) from generate_series(1, 1000)")
        await connection.execute("drop table written")
        assert "slot_idle" not in await found_in(well), "not while it keeps little"
        monkeypatch.setattr(doctor, "RETAINED_BYTES_MAX", 100_000)
        [idle] = [one for one in await findings_of(well) if one.code == "slot_idle"]
        assert "forgotten" in idle.message
        await connection.execute(idle.remedy.partition("drop the slot: ")[2])
        assert await found_in(well) == {}
    finally:
        await connection.execute(
            "select pg_drop_replication_slot(slot_name) from pg_replication_slots where slot_name = 'forgotten'"
        )
        await connection.close()


async def test_doctor_names_the_transaction_that_holds_vacuum_back_and_its_remedy_ends_it(well, monkeypatch):
    monkeypatch.setattr(doctor, "XMIN_AGE_MAX", 20)
    writer = await asyncpg.connect(well.url)
    await writer.execute("begin; select pg_current_xact_id()")
    pid = writer.get_server_pid()
    assert "xmin_held_back" not in await found_in(well), "not in its first transactions"
    await use_up_ids(well)

    held = await xmin_finding(well)

    assert f"the transaction of process {pid} holds them back" in held.message
    await well.execute(held.remedy.partition(": ")[2])
    writer.terminate()
    await until_gone(well, "xmin_held_back")


async def test_doctor_names_the_prepared_transaction_that_holds_vacuum_back(well, monkeypatch):
    monkeypatch.setattr(doctor, "XMIN_AGE_MAX", 20)
    await well.execute("create table if not exists written_to (number integer)")
    connection = await asyncpg.connect(well.url)
    await connection.execute("begin; insert into written_to values (1); prepare transaction 'it''s mine'")
    try:
        await use_up_ids(well)
        held = await xmin_finding(well)
        assert "the prepared transaction it's mine holds them back" in held.message
        assert "rollback prepared 'it''s mine';" in held.remedy
    finally:
        await connection.execute("rollback prepared 'it''s mine'")
        await connection.close()
        await well.execute("drop table written_to")
    await until_gone(well, "xmin_held_back")


async def test_doctor_names_the_slot_that_holds_vacuum_back_and_its_remedy_drops_it(well, monkeypatch):
    monkeypatch.setattr(doctor, "XMIN_AGE_MAX", 20)
    await well.fetch("select pg_create_logical_replication_slot('forgotten', 'pgoutput')")
    await use_up_ids(well)

    held = await xmin_finding(well)

    assert "replication slot forgotten holds them back" in held.message
    await well.execute(held.remedy.partition("drop the slot: ")[2])
    assert await found_in(well) == {}


async def test_doctor_reports_rows_that_were_not_frozen_for_long(well, monkeypatch):
    assert "freeze_age" not in await found_in(well)
    monkeypatch.setattr(doctor, "FREEZE_AGE_MAX", 0)
    [one] = [one for one in await findings_of(well) if one.code == "freeze_age"]
    assert one.severity == "warning"
    assert "the server stops before 2,147,483,648" in one.message

    monkeypatch.setattr(doctor, "FREEZE_AGE_GRAVE", 0)
    assert [one.severity for one in await findings_of(well) if one.code == "freeze_age"] == ["error"]


async def test_doctor_sees_the_disk_of_a_server_on_this_machine(well, monkeypatch):
    monkeypatch.setattr(doctor, "DISK_SHARE_MIN", 1.0)
    pgdata = os.path.realpath(f"/proc/{await well.fetchval('select pg_backend_pid()')}/cwd")
    assert (await found_in(well))["disk_fills_up"].startswith(f"The disk of {pgdata} has ")

    monkeypatch.setattr(local, "_START_DIFFERS_MAX", timedelta(-1))
    assert await found_in(well) == {}, "the folder of another server"


async def xmin_finding(database: Database) -> Finding:
    [held] = [one for one in await findings_of(database) if one.code == "xmin_held_back"]
    return held


async def use_up_ids(database: Database, number: int = 30) -> None:
    for _ in range(number):
        await database.execute("select pg_current_xact_id()")


async def until_gone(database: Database, code: str) -> None:
    """A server process ends a moment after its connection."""
    for _ in range(100):
        if code not in await found_in(database):
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"{code} is still found")


async def test_doctor_reports_scarce_connections(well):
    held = [await asyncpg.connect(well.url) for _ in range(round(CONNECTIONS * doctor.CONNECTIONS_SHARE_MAX))]
    try:
        found = await found_in(well)
    finally:
        for connection in held:
            await connection.close()

    assert f"of {CONNECTIONS}" in found["connections_scarce"]
