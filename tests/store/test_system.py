"""Findings of the doctor on a real PostgreSQL: each thing that can be wrong is made wrong, here or in test_system_safe.py."""

import asyncio
import shlex
from datetime import timedelta
from uuid import UUID

import asyncpg
import msgspec
import pytest

from duly import __version__
from duly.clock import host_now
from duly.domain.diagnosis.doctor import Replica, Slot, findings, is_well
from duly.domain.runs.options import options_of
from duly.domain.runs.outcome import Failed, Succeeded
from duly.domain.targets.target import Webhook
from duly.domain.tenancy.sealing import Keyring
from duly.maintenance.service import PARTITION_DAYS_AHEAD, REAP
from duly.moves.admin.overload import record_overloads
from duly.moves.claim import claim
from duly.moves.submit import submit
from duly.store.boxes import history
from duly.store.connection.database import Database, Unavailable
from duly.store.connection.session import Sessions
from duly.store.reads import maintenance_tasks, system
from duly.store.schema import state
from duly.store.tables import clocks, workers
from duly.store.tables.workers import Identity
from tests.builders import (
    a_dead_run,
    a_key,
    a_ready_run,
    a_scheduler,
    a_submission,
    a_worker,
    runs_listed,
    settled,
)
from tests.moves.test_notifications import a_rule, watched

LOOK = timedelta(seconds=20)  # A busy machine is no fault of ours.
# The server of the tests forgets everything in a crash, and vacuums nothing by itself.
OF_THE_TESTS = {
    "fsync_off",
    "full_page_writes_off",
    "synchronous_commit_off",
    "autovacuum_off",
    "wal_level_minimal",
    "disk_fills_up",
}


STREWN = "select relid::regclass::text from pg_stat_user_tables where schemaname = 'duly' and n_dead_tup > 100"


async def facts_of(database: Database):
    async with Sessions(database, size_max=1) as sessions, sessions.look(timeout=LOOK) as session:
        return await system.read(session, host_now)


async def found_in(database: Database) -> dict[str, str]:
    """Give the sentence of each finding, without those that every database of the tests has."""
    found = findings(await facts_of(database))
    return {one.code: one.message for one in found if one.code not in OF_THE_TESTS}


@pytest.fixture
async def well(database):
    """An installation that does well."""
    for row in await database.fetch(STREWN):  # with what other tests have deleted
        await database.execute(f"vacuum {row[0]}")
    await a_scheduler(database)
    await a_worker(database)
    await maintenance_tasks.record(database, {REAP: 0})
    await history.create_partitions(database, PARTITION_DAYS_AHEAD)
    # Of a version that is ours, as its worker and its scheduler are.
    await database.execute("update duly.schedulers set version = $1", __version__)
    await database.execute("update duly.workers set version = $1", __version__)
    return database


async def test_doctor_finds_no_fault_in_a_healthy_system(well):
    assert await found_in(well) == {}


async def test_doctor_names_the_tenant_and_the_queue_of_an_old_backlog(well, clock):
    await submit(well, a_submission(queue="mail"), key=a_key(), tenant=7)
    await well.execute("update duly.ready set due_at = due_at - interval '3 days'")
    await record_overloads(well)

    assert (await found_in(well))["queue_overloaded"].startswith(
        "Queue mail of tenant 7 is overloaded: its oldest run has waited for 259200 s, and its limit is 60 s"
    )


async def test_doctor_reports_a_server_that_can_lose_accepted_jobs(well):
    server = (await facts_of(well)).server
    codes = {one.code: one.severity for one in findings(await facts_of(well))}

    assert not server.fsync
    assert not server.autovacuum
    assert codes["fsync_off"] == "error"
    assert codes["autovacuum_off"] == "error"
    assert ("synchronous_commit_off" in codes) == (server.synchronous_commit == "off")
    assert ("full_page_writes_off" in codes) == (not server.full_page_writes)
    assert ("wal_level_minimal" in codes) == (server.wal_level == "minimal")


async def test_doctor_reports_a_read_only_database(well):
    async with Sessions(well, size_max=1) as sessions, sessions.look(timeout=LOOK) as session:
        await session.execute("set local default_transaction_read_only = on")
        found = findings(await system.read(session, host_now))

    assert found[0].code == "read_only"


async def test_doctor_reports_when_no_scheduler_runs(well):
    await well.execute("delete from duly.schedulers")

    assert (await found_in(well)).keys() == {"no_scheduler"}


async def test_doctor_reports_shards_without_a_holder(well):
    await well.execute("update duly.shards set holder = null where shard < 3")

    assert "3 of 64 shards" in (await found_in(well))["shards_unheld"]


async def test_doctor_reports_delayed_staging(well, clock):
    await well.execute(
        "insert into duly.timers (run_id, job_id, scheduled_at, due_at, generation, tenant, queue, handler, payload, shard)"
        " select id, id, at, at, 1, 1, 'default', 'app:mail', '{}', 3"
        " from (select gen_random_uuid() as id, duly.clock_now() - interval '1 minute' as at) as late"
    )

    assert "60 s behind" in (await found_in(well))["staging_delayed"]


async def test_doctor_reports_a_silent_reaper(well):
    await well.execute(
        "update duly.maintenance_tasks set done_at = done_at - interval '1 minute' where name = $1", REAP
    )
    assert "for 60 s" in (await found_in(well))["reaper_silent"]

    await well.execute("delete from duly.maintenance_tasks")
    assert "not run yet" in (await found_in(well))["reaper_silent"]


async def _a_delivery(database, outcome) -> UUID:
    """Let a rule of channel `ops` notice something, and its delivery come to an outcome. Gives its run."""
    worker_id = await a_worker(database, queues=["@notifications"], handlers=["@notification"], lease=timedelta(days=1))
    await a_dead_run(database)
    await watched(database)
    [run] = await claim(database, worker_id, ["@notifications"], ["@notification"], 10)
    await settled(database, worker_id, run, outcome)
    await database.execute("update duly.workers set version = $1", __version__)
    return run.run_id


async def test_doctor_reports_a_channel_whose_latest_delivery_is_retried(well):
    await a_rule(well, "dead")
    await _a_delivery(well, Failed("no answer from the mail server"))

    assert (await found_in(well))["channel_failing"] == (
        "Notifications do not arrive at channel ops; its latest delivery is being retried: no answer from the mail server."
    )


async def test_doctor_says_how_to_deliver_again_what_a_channel_gave_up(well):
    await a_rule(well, "dead")
    run_id = await _a_delivery(well, Failed("the login was refused", retryable=False))

    [one] = [one for one in findings(await facts_of(well)) if one.code == "channel_failing"]
    assert "its latest delivery gave up: the login was refused" in one.message
    assert one.remedy == (
        f"Correct the channel and try it: duly notify test ops. Then deliver it again: duly dead replay {run_id}."
    )


async def test_channel_that_delivered_since_is_not_reported(well):
    await a_rule(well, "dead")
    await _a_delivery(well, Failed("refused", retryable=False))
    await _a_delivery(well, Succeeded())

    assert "channel_failing" not in await found_in(well)


async def test_doctor_counts_sealed_values_that_the_keyring_cannot_open(well, monkeypatch):
    old = Keyring({"old": bytes(32)}, "/etc/duly/keys")
    monkeypatch.setattr(well, "keyring", lambda: old)
    target = Webhook("https://receiver.example/", headers={"Authorization": "Bearer x"})
    await submit(
        well, msgspec.structs.replace(a_submission(handler="@webhook"), options=options_of(target=target)), key=a_key()
    )
    await submit(well, a_submission(), key=a_key())
    await well.execute("insert into duly.destination_secrets values (gen_random_uuid(), 1, 1, '', 'old', now())")
    await well.execute("insert into duly.channels values (1, 'ops', 'webhook', '{}', '', 'old', now())")
    assert "secrets_unreadable" not in await found_in(well), "the keyring has the key"

    monkeypatch.setattr(well, "keyring", lambda: Keyring({"new": bytes(32)}, "/etc/duly/keys"))
    [one] = [one for one in findings(await facts_of(well)) if one.code == "secrets_unreadable"]

    assert one.message.startswith(
        "3 sealed values (1 signing secret, 1 channel, 1 job or run) cannot be opened: the keyring has no key old."
    )
    assert one.remedy.startswith(
        "Add the line of key old from the old keyring to /etc/duly/keys, behind the first line, and restart every process"
    )


async def test_doctor_names_a_stalled_worker_and_its_handler(well):
    await well.execute(
        "update duly.workers set stalled_at = duly.clock_now() - interval '99 seconds', stalled_in = '{crunch}'"
    )

    found = await found_in(well)

    assert all(fact in found["worker_stalled"] for fact in ("Worker worker", "99 s", "handler crunch"))


async def test_doctor_reports_when_no_worker_runs(well):
    await well.execute("delete from duly.workers")

    assert (await found_in(well)).keys() == {"no_worker"}


async def test_every_index_of_the_migrations_is_known_and_there(well):
    facts = await facts_of(well)

    assert facts.expected_indexes <= {one.name for one in facts.indexes}
    assert len(facts.expected_indexes) > 40


async def test_doctor_reports_a_missing_index(well):
    await well.execute("drop index duly.blocked_by_key")

    assert "Index blocked_by_key is missing" in (await found_in(well))["index_missing"]


async def test_doctor_reports_an_invalid_index(postgres, well):
    name = "blocked_twice"
    await well.execute("create table duly.doubled (number integer); insert into duly.doubled values (1), (1)")
    connection = await asyncpg.connect(well.url)
    with pytest.raises(asyncpg.UniqueViolationError):
        await connection.execute(f"create unique index concurrently {name} on duly.doubled (number)")
    await connection.close()

    assert f"Index {name} is not valid" in (await found_in(well))["index_invalid"]


async def test_doctor_reports_a_missing_partition_for_tomorrow(well, clock):
    await clock.advance(PARTITION_DAYS_AHEAD * 86_400)

    assert "tomorrow" in (await found_in(well))["partition_missing"]


async def test_doctor_reports_a_table_that_is_not_vacuumed(well):
    async with well.transaction() as connection:
        await connection.execute("create table duly.worn (number integer)")
        await connection.execute("insert into duly.worn select generate_series(1, 60000)")
    async with well.transaction() as connection:
        await connection.execute("delete from duly.worn")
        await connection.execute("select pg_stat_force_next_flush()")

    async def is_told():
        return "60,000 dead rows" in (await found_in(well)).get("vacuum_behind", "")

    await until(is_told)


async def test_dead_row_limit_is_lower_for_tables_that_maintenance_vacuums(well):
    limits = {row["name"]: row["dead_limit"] for row in await well.fetch(system.SQL["tables"])}

    assert limits["ready"] == limits["leased"] == 20_000
    assert limits["timers"] >= 200_000


async def until(pauses) -> None:
    for _ in range(600):
        if await pauses():
            return
        await asyncio.sleep(0.05)
    raise AssertionError("it never came to hold")


async def test_doctor_reports_differing_time_zone_data(well):
    await well.execute("update duly.schedulers set tzdb = '1999a'")

    assert "1999a" in (await found_in(well))["tzdb_differs"]


async def test_doctor_reports_differing_versions_as_harmless(well):
    await well.execute("update duly.workers set version = '0.0.1'")
    found = findings(await facts_of(well))

    assert "0.0.1" in (await found_in(well))["versions_differ"]
    assert is_well([one for one in found if one.code not in OF_THE_TESTS])


async def test_doctor_reports_a_clock_that_differs_from_the_database(well):
    async with Sessions(well, size_max=1) as sessions, sessions.look(timeout=LOOK) as session:
        facts = await system.read(session, lambda: host_now() + timedelta(seconds=90))

    assert 80 < facts.clock_difference_seconds < 100
    assert "ahead of the database's" in {one.code: one.message for one in findings(facts)}["clock_differs"]


async def test_doctor_names_a_host_whose_clock_differs(well):
    await clocks.record(well, ["worker"], "far:1", lambda: host_now() + timedelta(hours=1))
    await clocks.record(well, ["scheduler"], "near:1")

    facts = await facts_of(well)
    [apart, near] = sorted(facts.clocks, key=lambda one: -abs(one.offset_seconds))
    assert apart.offset_seconds == pytest.approx(3600, abs=2)
    assert abs(near.offset_seconds) < 2
    message = {one.code: one.message for one in findings(facts)}["host_clock_differs"]
    assert message.startswith(f"The clock of host {apart.host} (worker) is 3")
    assert "ahead of the database's" in message


async def test_host_clock_of_an_ended_process_is_forgotten(well, clock):
    await clocks.record(well, ["worker"], "far:1", lambda: host_now() + timedelta(hours=1))
    await clock.advance(61)

    assert await clocks.recorded(well) == []
    await clock.advance(600)
    await clocks.record(well, ["worker"], "new:1")
    assert await well.fetchval("select array_agg(name) from duly.processes") == ["new:1"]


async def test_doctor_reports_a_set_back_database_clock_and_when_schedules_resume(well, clock):
    await clocks.record(well, ["scheduler"], "one:1")
    assert "database_clock_set_back" not in await found_in(well)

    before = clock.at
    await clock.step(-3600)
    await clocks.record(well, ["scheduler"], "one:1")

    back = (await facts_of(well)).clock_set_back
    assert (back.seconds, back.resumes_at) == (3600, before)
    assert "was set back by 3600 s" in (await found_in(well))["database_clock_set_back"]

    await clock.advance(3599)
    assert (await facts_of(well)).clock_set_back is None


async def test_doctor_reports_lagging_replicas_and_idle_replication_slots(well):
    facts = await facts_of(well)
    assert facts.replicas == []
    assert facts.slots == []
    behind = msgspec.structs.replace(
        facts, replicas=[Replica("standby", "streaming", 5 << 30, 300.0)], slots=[Slot("gone", False, 5 << 30)]
    )

    assert {"replica_lags", "slot_idle"} <= {one.code for one in findings(behind)}


async def test_system_facts_report_tables_including_their_partitions(well):
    tables = {one.name: one for one in (await facts_of(well)).tables}

    assert {"jobs", "timers", "ready", "leased", "attempts"} <= tables.keys()
    assert all(one.bytes >= 0 for one in tables.values())
    assert not any(name[-8:].isdigit() for name in tables)


async def test_a_look_changes_nothing_and_is_bounded(well):
    async with Sessions(well, size_max=1) as sessions:
        with pytest.raises(Exception, match="read-only"):
            async with sessions.look(timeout=LOOK) as session:
                await session.execute("delete from duly.maintenance_tasks")
        with pytest.raises(Unavailable):
            async with sessions.look(timeout=timedelta(milliseconds=50)) as session:
                await session.fetch("select pg_sleep(30)")


async def test_system_facts_report_the_schema_version(well):
    assert (await facts_of(well)).schema == state.known()[-1].version


async def unroutable_in(database: Database) -> dict[tuple[str, str], tuple[int, bool]]:
    found = (await facts_of(database)).unroutable
    return {(one.queue, one.handler): (one.runs, one.is_served) for one in found}


async def test_doctor_reports_unroutable_runs_with_their_count_and_age(well, clock):
    await a_worker(well, queues=["default"], handlers=["@webhook"], lease=timedelta(hours=1))
    await a_ready_run(well)
    assert await unroutable_in(well) == {}
    for handler, queue in [("typo", "default"), ("typo", "default"), ("greet", "mail"), ("@command:x", "default")]:
        await a_ready_run(well, handler=handler, queue=queue)
    since = clock.at
    await clock.advance(120)
    await a_worker(well, handlers=["greet"])

    told = [one for one in findings(await facts_of(well)) if one.code == "unroutable"]

    assert await unroutable_in(well) == {
        ("default", "typo"): (2, True),
        ("mail", "greet"): (1, False),
        ("default", "@command:x"): (1, True),
    }
    assert {one.oldest_due_at for one in (await facts_of(well)).unroutable} == {since}
    assert len(told) == 3
    assert not is_well(told)
    assert any("duly worker module:app --queue mail" in one.remedy for one in told)
    assert any("DULY_COMMANDS=x" in one.remedy for one in told)


async def test_unroutable_runs_are_reported_only_when_due(well, clock):
    await a_ready_run(well, handler="typo", delay=4)
    assert await unroutable_in(well) == {}
    await clock.advance(4)
    assert await unroutable_in(well) == {("default", "typo"): (1, True)}


async def test_a_worker_of_another_tenant_and_one_that_is_drained_can_run_nothing(well):
    await well.execute("insert into duly.tenants (tenant, name, created_at) values (2, 'other', duly.clock_now())")
    worker_id = await a_worker(well, handlers=["special"])
    await a_ready_run(well, handler="special")
    assert await unroutable_in(well) == {}
    await well.execute("update duly.workers set tenant = 2 where worker_id = $1", worker_id)
    assert ("default", "special") in await unroutable_in(well)
    await well.execute("update duly.workers set tenant = null where worker_id = $1", worker_id)
    await workers.drain(well, worker_id, is_draining=True)
    assert ("default", "special") in await unroutable_in(well)


async def test_unroutable_counts_include_marked_runs_and_are_bounded(well, monkeypatch):
    monkeypatch.setattr(system, "_RUNS_MAX", 3)
    for _ in range(5):
        await a_ready_run(well, handler="typo")
        await a_ready_run(well, handler="aside")
    await well.execute("update duly.ready set is_unroutable = true where handler = 'aside'")

    found = {one.handler: (one.runs, one.is_more) for one in (await facts_of(well)).unroutable}

    assert found == {"typo": (3, True), "aside": (3, True)}


async def test_doctor_reports_apps_that_share_a_handler_on_a_queue(well):
    for number, app in enumerate(["shop:app", "shop:app", "bank:app"]):
        identity = Identity(UUID(int=number), f"{app}.{number}", __version__, ["default"], ["pay"], 1, LOOK, app=app)
        await workers.register(well, identity)
        assert ("handler_clash" in await found_in(well)) == (number == 2)

    found = await found_in(well)
    for word in ("shop:app", "bank:app", "pay", "default", "bank:app.2"):
        assert word in found["handler_clash"]


async def test_remedy_that_cancels_unroutable_runs_finds_any_handler_name(well):
    strange = """it's "so" \\ `strange`"""
    run_id = await a_ready_run(well, handler=strange)
    await a_ready_run(well, handler="another")
    [remedy] = [one.remedy for one in findings(await facts_of(well)) if "strange" in one.message]

    text = shlex.split(remedy.partition("duly runs cancel --filter ")[2])[0]

    assert [row["run_id"] for row in await runs_listed(well, text)] == [run_id]
