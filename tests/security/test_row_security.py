"""The second wall: what the API's role may see and call, as the server's catalogue tells it; and what its reads cost."""

import asyncpg
import pytest

from duly.domain.errors import NotFound
from duly.domain.jobs.filter import Filter
from duly.domain.tenancy.audit import Actor
from duly.moves.submit import submit, submit_each
from duly.store.boxes import runs
from duly.store.connection.database import Database
from duly.store.connection.session import Sessions
from duly.store.reads import lists, overview
from duly.store.tables import jobs
from tests.builders import a_ready_run, a_submission, an_active_schedule

READABLE = {
    "idempotent_responses",
    "attempts",
    "attempts_failed",
    "attempts_succeeded",
    "audit",
    "awaited",
    "backfills",
    "blocked",
    "calendars",
    "channels",
    "checkpoints",
    "dead",
    "destination_secrets",
    "destinations",
    "files",
    "dependencies",
    "key_limits",
    "concurrency_keys",
    "job_tags",
    "job_versions",
    "jobs",
    "idempotency_keys",
    "leased",
    "notification_deliveries",
    "notification_rules",
    "notifications",
    "rate_limits",
    "payloads",
    "progress",
    "ready",
    "rollups",
    "subtasks",
    "test_clock",
    "timers",
    "workflow_edges",
    "workflow_nodes",
    "workflows",
}
VIEWS = {
    "listed_blocked",
    "listed_dead",
    "listed_ended",
    "listed_leased",
    "listed_ready",
    "listed_succeeded",
    "listed_timers",
    "live_runs",
}
# With the rights of their caller: they read what the role may read, or nothing.
PLAIN = {
    "batch_name",
    "calendars_of",
    "clock_now",
    "coming_runs",
    "current_tenant",
    "handed",
    "held_state",
    "created_at",
    "marked",
    "metadata_of",
    "next_run_at",
    "occurrence_id",
    "redacted",
    "run_id",
    "standing",
    "wait_text",
    "with_rules",
}
RELATIONS = """
select relname from pg_class
 where relnamespace = 'duly'::regnamespace and relkind in ('r', 'p', 'v') and has_table_privilege('duly_api', oid, $1)
"""
FUNCTIONS = """
select proname, prosecdef, coalesce(array_to_string(proconfig, ' '), '') as settings from pg_proc
 where pronamespace = 'duly'::regnamespace and has_function_privilege($1, oid, 'execute')
"""


@pytest.fixture
async def sessions(database):
    async with Sessions(database, size_max=2) as opened:
        yield opened


async def test_the_role_owns_nothing_and_has_no_special_right(database):
    row = await database.fetchrow(
        "select rolsuper, rolbypassrls, rolcreaterole, rolcreatedb, rolcanlogin from pg_roles where rolname = 'duly_api'"
    )
    owned = "select count(*) from pg_class where relowner = 'duly_api'::regrole"

    assert not any(row)
    assert await database.fetchval(owned) == 0


async def test_api_role_reads_tables_with_a_policy_and_writes_nothing(database):
    held = {
        privilege: {row[0] for row in await database.fetch(RELATIONS, privilege)}
        for privilege in ("select", "insert", "update", "delete", "truncate")
    }

    assert held.pop("select") == READABLE | VIEWS
    assert set().union(*held.values()) == set()


async def test_each_table_it_reads_is_guarded(database):
    rows = await database.fetch(
        "select relname from pg_class where relnamespace = 'duly'::regnamespace and relkind in ('r', 'p') and relrowsecurity"
        "   and exists (select from pg_policy where polrelid = pg_class.oid)"
    )
    views = await database.fetch(
        "select relname from pg_class where relnamespace = 'duly'::regnamespace and relkind = 'v'"
        "   and reloptions @> array['security_invoker=true']"
    )

    assert {row[0] for row in rows} == READABLE - {"test_clock"}
    assert {row[0] for row in views} == VIEWS


async def test_each_policy_shows_the_rows_of_one_tenant(database):
    rows = await database.fetch("select polrelid::regclass::text, pg_get_expr(polqual, polrelid) from pg_policy")

    assert {row[1] for row in rows} == {"(tenant = current_tenant())", "owns(job_id)", "owns(run_id)"}, rows


async def test_a_function_it_may_call_has_its_owners_rights_and_a_fixed_path_or_none_at_all(database):
    rows = await database.fetch(FUNCTIONS, "duly_api")

    assert {row["proname"] for row in rows if not row["prosecdef"]} == PLAIN
    assert all("search_path=pg_catalog, pg_temp" in row["settings"] for row in rows if row["prosecdef"])


async def test_nothing_is_everybodys(database):
    assert await database.fetch(FUNCTIONS, "public") == []


class TestWithoutATenant:
    async def test_nothing_is_seen(self, database):
        await a_ready_run(database)
        await an_active_schedule(database)

        async with database.transaction() as connection:
            await connection.execute("set local role duly_api")
            for name in (READABLE | VIEWS) - {"test_clock"}:
                assert await connection.fetchval(f"select count(*) from duly.{name}") == 0, name

    async def test_nothing_is_moved(self, database):
        run_id = await a_ready_run(database)

        async with database.transaction() as connection:
            await connection.execute("set local role duly_api")
            assert await connection.fetch(runs.SQL["cancel"], [run_id], "x") == []


class TestRefusals:
    @pytest.mark.parametrize(
        "statement",
        [
            "select * from duly.api_keys",
            "select * from duly.tenants",
            "select * from duly.logs",
            "select * from duly.signals",
            "select * from duly.workers",
            "select * from duly.destination_shares",
            "select duly.take_next_fire(gen_random_uuid())",
            "select * from duly.attempts_succeeded_default",
            "delete from duly.ready",
            "insert into duly.ready select * from duly.ready",
            "update duly.jobs set tenant = 1",
            "select * from duly.expire(1)",
            "select * from duly.claim(gen_random_uuid(), '{}', '{}', '{}', 1)",
            "create table duly.mine ()",
        ],
    )
    async def test_api_role_is_refused_statements_outside_its_rights(self, sessions, statement):
        async def asked() -> None:
            async with sessions.open(1) as session:
                await session.fetch(statement)

        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await asked()


async def test_a_create_in_the_name_of_another_tenant_is_refused(sessions, database):
    await database.execute("insert into duly.tenants (tenant, name, created_at) values (2, 'two', duly.clock_now())")
    somebody = Actor("key", "a" * 10, "anna")

    async def create(session: Database) -> None:
        await submit(session, a_submission(), key="k", tenant=2)

    async def create_many(session: Database) -> None:
        await submit_each(session, [(a_submission(), somebody)] * 2, key="k", tenant=2)

    async def asked(what) -> None:
        async with sessions.open(1) as session:
            await what(session.acting_as(somebody))

    for what in (create, create_many):
        with pytest.raises(NotFound, match="no tenant 2"):
            await asked(what)
    assert await database.fetchval("select count(*) from duly.ready") == 0


ROWS = 20_000
FILL = f"""
insert into duly.tenants (tenant, name, created_at) values (2, 'other', duly.clock_now());
insert into duly.jobs (job_id, tenant, name, queue, handler, every_seconds, anchor_at, created_at, updated_at, payload_stored)
select gen_random_uuid(), 1 + n % 2, 'job ' || n, 'default', 'greet', 60, at, at, at, n % 10 = 1
  from (select n, duly.clock_now() as at from generate_series(1, {ROWS}) as n) as made;
insert into duly.payloads select job_id, 1, '{{}}', duly.clock_now() from duly.jobs where payload_stored;
insert into duly.timers (job_id, scheduled_at, due_at, generation, tenant, queue, handler, shard, every_seconds)
select job_id, anchor_at, anchor_at, 1, tenant, queue, handler, 0, 60 from duly.jobs;
insert into duly.timers (run_id, job_id, scheduled_at, due_at, generation, tenant, queue, handler, shard)
select id, id, at, at, 1, 1 + n % 2, 'default', 'greet', 0
  from (select n, gen_random_uuid() as id, duly.clock_now() as at from generate_series(1, {ROWS}) as n) as made;
insert into duly.ready
select gen_random_uuid(), gen_random_uuid(), at, at, null, 1, 1 + n % 2, 0, 5, 0, false, false, 'default', 'greet', '{{}}', null
  from (select n, duly.clock_now() as at from generate_series(1, {ROWS}) as n) as made;
insert into duly.dead
select gen_random_uuid(), gen_random_uuid(), at, at, null, 1, 1 + n % 2, 5, 5, 0, false, false, 'default', 'greet', '{{}}', null,
       at + n * interval '1 second', 'broken'
  from (select n, duly.clock_now() as at from generate_series(1, {ROWS}) as n) as made;
insert into duly.attempts (run_id, job_id, scheduled_at, due_at, finished_at, fence, tenant, attempt, outcome, became, queue,
                           handler)
select gen_random_uuid(), gen_random_uuid(), at, at, at, n, 1 + n % 2, 1, outcome, 'succeeded', 'default', 'greet'
  from (select n, duly.clock_now() as at, (array['succeeded', 'failed'])[1 + n % 2]::duly.outcome as outcome
          from generate_series(1, {ROWS}) as n) as made;
analyze;
"""
COUNTERS = """
select coalesce(sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0)), 0) from pg_stat_xact_all_tables
 where schemaname = 'duly'
"""


@pytest.fixture
async def large(own_database: Database):
    await own_database.execute(FILL)
    async with Sessions(own_database, size_max=2) as opened:
        yield own_database, opened


async def rows_read(session: Database, read) -> int:
    """Count the rows that a read touches."""
    before = await session.fetchval(COUNTERS)
    await read
    return int(await session.fetchval(COUNTERS)) - int(before)


async def test_a_read_under_the_wall_touches_no_more_than_it_gives(large):
    database, sessions = large
    job = await database.fetchrow("select job_id, name from duly.jobs where tenant = 2 and payload_stored limit 1")
    ready = await database.fetchval("select run_id from duly.ready where tenant = 2 limit 1")
    ended = await database.fetchval("select run_id from duly.attempts where tenant = 2 limit 1")

    async with sessions.open(2) as session:
        for _ in range(7):  # The server may choose another plan from the sixth time on.
            assert await rows_read(session, jobs.find(session, job["job_id"])) <= 10
            assert await rows_read(session, overview.job_by_name(session, job["name"], 2)) <= 4
            assert await rows_read(session, runs.find(session, ready)) <= 4
            assert await rows_read(session, runs.find(session, ended)) <= 4
            assert await rows_read(session, overview.arguments(session, ready)) <= 6
            assert await rows_read(session, runs.read_logs(session, ended, (0, 0))) <= 4
            assert await rows_read(session, lists.jobs(session, 2, Filter(), 50)) <= 120
            assert await rows_read(session, lists.runs(session, 2, Filter(), 50)) <= 120
            assert await rows_read(session, lists.dead(session, 2, Filter(), 50)) <= 120


FEW = """
insert into duly.tenants (tenant, name, created_at) values (3, 'small', duly.clock_now());
update duly.jobs set tenant = 3 where ctid in (select ctid from duly.jobs order by random() limit 5);
update duly.ready set tenant = 3 where ctid in (select ctid from duly.ready order by random() limit 5);
update duly.dead set tenant = 3 where ctid in (select ctid from duly.dead order by random() limit 5);
update duly.timers set tenant = 3 where ctid in (select ctid from duly.timers where run_id is not null order by random() limit 5);
analyze;
"""


async def test_a_page_of_a_small_tenant_does_not_walk_through_the_large(large):
    database, sessions = large
    await database.execute(FEW)

    async with sessions.open(3) as session:
        for _ in range(7):
            assert await rows_read(session, lists.jobs(session, 3, Filter(), 50)) <= 100
            assert await rows_read(session, lists.runs(session, 3, Filter(), 50)) <= 200
            assert await rows_read(session, lists.dead(session, 3, Filter(), 50)) <= 100
