"""Lists and figures from a real streaming replica: while it is ours and recent, and from the primary whenever it is not."""

import asyncio
import re
import signal
import time
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, cast

import httpx
import psycopg
import pytest

from duly.api.app import create
from duly.api.metrics.collector import Metrics
from duly.api.operations import SAFE
from duly.api.routes import OPERATIONS
from duly.cli.up.api import vitals_of
from duly.cli.up.dispatcher import opened_dispatcher
from duly.clock import host_now
from duly.domain.diagnosis import doctor
from duly.domain.diagnosis.doctor import findings
from duly.log import Log
from duly.store.connection.database import Database, ReadOnly
from duly.store.connection.replica import KNOWN_SECONDS, Replica
from duly.store.reads import system
from duly.store.schema import migrate
from tests.api.front import A_TARGET, Front
from tests.end_to_end.standby import a_pair

LAG_MAX = timedelta(seconds=3)
LISTS = ("/v1/jobs", "/v1/runs", "/v1/dead", "/v1/workflows", "/v1/audit", "/v1/series", "/v1/overview", "/v1/upcoming",
         "/v1/backfills", "/v1/moved-fires", "/v1/files", "/v1/destinations", "/v1/dead?group=error",
         "/v1/jobs?include=one_shots", "/v1/jobs?sort=name", "/v1/jobs?sort=next_run_at")  # fmt: skip


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """A primary and its standby, migrated."""
    with a_pair(tmp_path_factory.mktemp("pair"), is_synchronous=False) as pair:
        asyncio.run(_migrate(pair.url_of("primary")))
        yield pair


async def _migrate(url):
    async with Database(url) as database:
        await migrate.migrate(database)


class Served(Front):
    """An API that reads from a replica."""

    def __init__(self, client, database, door, replica, metrics):
        super().__init__(client, database, [], door)
        self.replica = replica
        self.metrics = metrics

    async def until_used(self):
        """Look until the replica has all that the primary has now, and is read from."""
        moment = self.replica.moment()
        await self.until(lambda: self.replica.has(moment) and self.replica.pools is not None)

    async def until(self, is_so):
        """Look until something is so."""
        deadline = time.monotonic() + 20
        while not is_so():
            assert time.monotonic() < deadline, self.replica.problem
            await self.replica.look()
            await asyncio.sleep(0.02)

    async def codes(self):
        """Give the doctor's findings."""
        facts = await system.read(self.database, host_now, self.replica)
        return {one.code for one in findings(facts)}


@asynccontextmanager
async def an_api(primary_url, read_url):
    """Serve over a primary and a replica; the replica is looked at when a test says so, and by itself."""
    async with (
        Database(primary_url, size_max=4) as database,
        Replica(database, read_url, lag_max=LAG_MAX, log=Log("test")) as replica,
        opened_dispatcher(database, replica=replica) as door,
    ):
        vitals = vitals_of(database)
        metrics = Metrics(database, Log("test"), replica=replica, every=0)
        app = create(vitals, metrics, Log("test"), door)
        transport = httpx.ASGITransport(cast("Any", app), raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://duly") as client:
            yield Served(client, database, door, replica, metrics)


@pytest.fixture
async def served(pair):
    async with an_api(pair.url_of("primary"), pair.url_of("standby")) as served:
        await served.until_used()
        yield served


def source(answer):
    """Give where an answer was read, and why, if that was not the replica."""
    assert answer.status_code == 200, answer.text
    found = re.fullmatch(r'(replica|primary); (?:age=\d+\.\d|reason="(\w+)")', answer.headers["read-from"])
    assert found is not None, answer.headers["read-from"]
    return found[1], found[2]


FROM_REPLICA = ("replica", None)


def test_no_operation_that_changes_something_may_lag():
    assert all(one.method in SAFE for one in OPERATIONS if one.may_lag)
    assert not any("{" in one.path for one in OPERATIONS if one.may_lag and one.path.endswith("_id}"))


async def test_every_list_is_read_from_the_replica_and_says_how_old_it_is(served):
    caller = await served.caller()
    job = await caller.a_job(name="nightly")
    await served.until_used()

    for path in LISTS:
        assert source(await caller.get(path)) == FROM_REPLICA, path
    assert [one["job_id"] for one in (await caller.get("/v1/jobs")).json()["items"]] == [job["job_id"]]


async def test_single_reads_and_changes_stay_on_the_primary(served, pair):
    caller = await served.caller()
    await served.until_used()
    pair.ask("standby", "select pg_wal_replay_pause()")
    try:
        created = (await caller.post("/v1/jobs", json={"target": A_TARGET})).json()
        for path in (f"/v1/jobs/{created['job_id']}", f"/v1/runs/{created['run_id']}"):
            answer = await caller.get(path)
            assert answer.status_code == 200
            assert "read-from" not in answer.headers
    finally:
        pair.ask("standby", "select pg_wal_replay_resume()")


async def test_a_key_sees_its_own_writes_in_lists_and_others_see_them_later(served, pair):
    writer, reader = await served.caller(), await served.caller()
    await served.until_used()
    pair.ask("standby", "select pg_wal_replay_pause()")
    try:
        job = await writer.a_job()
        own, other = await writer.get("/v1/jobs"), await reader.get("/v1/jobs")
        exact = await reader.get("/v1/jobs", headers={"Cache-Control": "no-cache"})
        versions = await reader.get(f"/v1/jobs/{job['job_id']}/versions")
    finally:
        pair.ask("standby", "select pg_wal_replay_resume()")

    assert source(own) == ("primary", "own_write")
    assert own.json()["items"][0]["job_id"] == job["job_id"]
    assert source(other) == FROM_REPLICA
    assert job["job_id"] not in other.text
    assert source(exact) == ("primary", "requested")
    assert job["job_id"] in exact.text
    assert source(versions) == ("primary", "not_on_replica")
    await served.until_used()
    assert source(await writer.get("/v1/jobs")) == FROM_REPLICA


async def test_a_tenant_reads_nothing_of_another_on_the_replica(served):
    caller, stranger = await served.caller(), await served.stranger()
    await caller.a_job(name="secret-plan")
    await served.until_used()

    for path in LISTS:
        answer = await stranger.get(path)
        assert source(answer) == FROM_REPLICA, path
        assert "secret-plan" not in answer.text
    async with served.replica.pools.sessions.open(stranger.tenant) as session:
        assert await session.fetchval("select count(*) from duly.jobs") == 0
        assert await session.fetchval("select current_user::text") == "duly_api"


async def test_nothing_can_be_claimed_or_written_over_the_replica(served):
    with pytest.raises(ReadOnly):
        await served.replica.pools.database.execute("delete from duly.ready")


async def test_a_replica_that_lags_more_than_its_limit_is_not_read_until_it_has_caught_up(served, pair):
    caller = await served.caller()
    pair.ask("standby", "select pg_wal_replay_pause()")
    try:
        await caller.a_job()
        await served.until(lambda: served.replica.problem is not None)
        assert "lags" in served.replica.problem
        assert source(await (await served.caller()).get("/v1/jobs")) == ("primary", "replica_unused")
        assert "read_replica_unused" in await served.codes()
        scraped, _ = await served.metrics.scrape("")
        assert b"duly_api_replica_used 0\n" in scraped
        assert re.search(rb"^duly_api_replica_age_seconds [3-9]", scraped, re.MULTILINE)
    finally:
        pair.ask("standby", "select pg_wal_replay_resume()")
    await served.until_used()
    assert source(await caller.get("/v1/jobs")) == FROM_REPLICA
    assert "read_replica_unused" not in await served.codes()
    scraped, _ = await served.metrics.scrape("")
    assert b"duly_api_replica_used 1\n" in scraped
    assert re.search(rb'^duly_api_list_reads_total\{server="replica"\} [1-9]', scraped, re.MULTILINE)


async def test_an_idle_primary_does_not_make_the_replica_look_old(served):
    began = time.monotonic()
    while time.monotonic() - began < LAG_MAX.total_seconds() + 0.5:
        await served.replica.look()
        await asyncio.sleep(0.2)
        assert served.replica.problem is None


async def test_a_frozen_replica_delays_the_reads_under_way_and_no_later_ones(served, pair):
    caller = await served.caller()
    await served.until_used()
    pair.signal("standby", signal.SIGSTOP)
    try:
        began = time.monotonic()
        answers = await asyncio.gather(*(caller.get("/v1/jobs") for _ in range(5)))
        delayed = time.monotonic() - began
        began = time.monotonic()
        for _ in range(10):
            answers.append(await caller.get("/v1/jobs"))
        later = time.monotonic() - began
    finally:
        pair.signal("standby", signal.SIGCONT)

    assert {source(answer)[0] for answer in answers} == {"primary"}
    assert delayed < KNOWN_SECONDS + 1.5, "they wait for one look"
    assert later < 1.0, "and none after it waits at all"
    await served.until_used()
    assert source(await caller.get("/v1/jobs")) == FROM_REPLICA


async def test_reads_go_on_while_the_replica_is_killed_and_come_back_to_it(served, pair):
    caller = await served.caller()
    await served.until_used()
    assert source(await caller.get("/v1/jobs")) == FROM_REPLICA
    pair.kill("standby")
    assert source(await caller.get("/v1/jobs"))[0] == "primary"
    for path in LISTS:
        assert source(await caller.get(path))[0] == "primary"
    await served.replica.look()
    assert "does not answer" in served.replica.problem

    async with an_api(pair.url_of("primary"), pair.url_of("standby")) as begun_without:
        assert source(await (await begun_without.caller()).get("/v1/jobs")) == ("primary", "replica_unused")
        pair.serve("standby")
        await begun_without.until_used()
        assert source(await (await begun_without.caller()).get("/v1/jobs")) == FROM_REPLICA


async def test_a_replica_with_another_schema_is_not_read(served, pair):
    pair.ask("standby", "select pg_wal_replay_pause()")
    try:
        pair.ask("primary", "insert into duly.migrations (version, name) values (9999, 'later')")
        await served.replica.look()
        assert "schema" in served.replica.problem
    finally:
        pair.ask("primary", "delete from duly.migrations where version = 9999")
        pair.ask("standby", "select pg_wal_replay_resume()")
    await served.until_used()


async def test_another_database_or_installation_is_not_read(pair):
    pair.ask("primary", "create database other")
    pair.ask("primary", "create database empty")
    other = pair.url_of("primary", "other")
    await _migrate(other)
    for name, reason in (("other", "another installation"), ("empty", "no schema")):
        url = pair.url_of("standby", name)
        async with an_api(pair.url_of("primary"), url) as served:
            await served.until(lambda reason=reason, served=served: reason in (served.replica.problem or ""))
            assert source(await (await served.caller()).get("/v1/jobs")) == ("primary", "replica_unused")


async def test_the_primary_itself_is_no_replica(pair):
    async with an_api(pair.url_of("primary"), pair.url_of("primary")) as served:
        assert "no standby" in served.replica.problem
        assert source(await (await served.caller()).get("/v1/jobs")) == ("primary", "replica_unused")


async def test_doctor_names_the_replica_whose_query_holds_vacuum_back(pair, monkeypatch):
    monkeypatch.setattr(doctor, "XMIN_AGE_MAX", 20)
    for setting in ("hot_standby_feedback = on", "wal_receiver_status_interval = '1s'"):
        pair.ask("standby", f"alter system set {setting}")
    pair.ask("standby", "select pg_reload_conf()")

    async def found(database):
        facts = await system.read(database, host_now)
        return [one for one in findings(facts) if one.code == "xmin_held_back"]

    try:
        async with Database(pair.url_of("primary")) as database:
            with psycopg.connect(pair.url_of("standby")) as query:
                query.execute("begin isolation level repeatable read; select 1")
                await until_found(database, found, 1)
                [held] = await found(database)
                assert "a query on replica walreceiver holds them back" in held.message
                assert "hot_standby_feedback = off" in held.remedy
            await until_found(database, found, 0)
    finally:
        for setting in (
            "hot_standby_feedback",
            "wal_receiver_status_interval",
        ):  # all would be its way to the primary, too
            pair.ask("standby", f"alter system reset {setting}")
        pair.ask("standby", "select pg_reload_conf()")


async def until_found(database, found, number):
    """Use up transaction ids until so much is found: a standby reports once a second."""
    deadline = time.monotonic() + 30
    while len(await found(database)) != number:
        assert time.monotonic() < deadline
        for _ in range(5):
            await database.execute("select pg_current_xact_id()")
        await asyncio.sleep(0.1)


async def test_where_the_address_names_several_standbys_another_takes_the_place_of_a_promoted_one(tmp_path):
    with a_pair(tmp_path, is_synchronous=False) as pair:
        await _migrate(pair.url_of("primary"))
        pair.add_standby("spare")
        hosts = ",".join(f"127.0.0.1:{pair.ports[name]}" for name in ("standby", "primary", "spare"))
        read_url = f"postgresql://postgres@{hosts}/duly"
        async with an_api(pair.url_of("primary"), read_url) as served:
            await served.until_used()
            pair.ask("standby", "select pg_promote()")
            await served.until(lambda: "no standby" in (served.replica.problem or ""))
            await served.until_used()

            assert source(await (await served.caller()).get("/v1/jobs")) == FROM_REPLICA


# The last with the pair of this module: from here on it has no standby.
async def test_a_promoted_replica_is_not_read_any_more(served, pair):
    caller = await served.caller()
    await served.until_used()
    pair.ask("standby", "select pg_promote()")
    await served.replica.look()

    assert "no standby" in served.replica.problem
    assert source(await caller.get("/v1/jobs")) == ("primary", "replica_unused")
