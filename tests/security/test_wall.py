"""The wall between tenants: every function that the API's role may call, sent by hand with another tenant's ids.

Each call of `wall.sql` is sent by the tenant that owns the ids, for which it does or finds something; by another tenant, for
which nothing may change; and by that tenant with ids that nobody has, which has to be answered in the same way.
"""

import re
from pathlib import Path
from string import Template
from typing import Any, NamedTuple
from uuid import UUID, uuid4

import asyncpg
import pytest

from duly.domain.notifications.rule import RuleSpec, read_rule
from duly.domain.tenancy.sealing import Sealed
from duly.moves.schedules import calendars
from duly.moves.schedules.pause import pause
from duly.store.connection.session import Sessions
from duly.store.tables import destinations, notifications, remote_workers
from duly.store.tables.workers import Identity
from tests.builders import HANDLER, LEASE, QUEUE, a_leased_run, a_worker, an_active_schedule, an_awaited_run
from tests.graphs import a_workflow, carried_through
from tests.security.estate import TABLES, A, B, an_estate

NOBODY = 3
FIRST, LAST = UUID(int=0), UUID(int=2**128 - 1)
ONE = f"p_handler => '{HANDLER}', p_payload => '{{}}', p_queue => '{QUEUE}', p_priority => 5::smallint"
MANY = (
    f"p_handlers => array['{HANDLER}'], p_payloads => array['{{}}'], p_queues => array['{QUEUE}'],"
    " p_priorities => array[5::smallint]"
)
PHRASES = {
    "ONE": ONE,
    "MANY": f"{MANY}, p_at => array[null::timestamptz], p_delays => array[null::interval]",
    "NODES": f"p_names => array['new'], {MANY}, p_options => array[null::text], p_maps => array[null::text],"
    " p_parents => '{}', p_children => '{}', p_ons => '{}'",
    "SCHEDULE": f"{ONE}, p_every => 60, p_window => 0, p_overlap => 'skip'",
    "PAGE": f"p_before => '{LAST}', p_from => '{FIRST}', p_limit => 9, p_looks => 9",
    "DEAD": f"p_before_at => 'infinity', p_before => '{LAST}', p_since => '-infinity', p_limit => 9, p_looks => 9",
    "BOXES": "array['timers', 'blocked', 'ready', 'leased', 'dead', 'succeeded', 'ended']",
    "HELD": "p_worker_id => $remote, p_run_ids => array[$lent]::uuid[], p_fences => array[$fence]",
    "LEASED": "p_run_id => $lent, p_fence => $fence, p_worker_id => $remote",
    "SOON": "p_horizon => '5 seconds'",
    "FIRST": f"'{FIRST}'",
    "LAST": f"'{LAST}'",
}
WALL = Path(__file__).with_name("wall.sql").read_text(encoding="utf-8")
CALLS = {name: Template(call).safe_substitute(PHRASES) for name, call in re.findall(r"^(\w+)\((.*)\)$", WALL, re.M)}
# They compute from what they are given, or read by another one of these.
PURE = {
    "batch_name",
    "clock_now",
    "current_tenant",
    "held_state",
    "created_at",
    "marked",
    "metadata_of",
    "next_run_at",
    "occurrence_id",
    "redacted",
    "run_id",
    "wait_text",
}
FUNCTIONS = """
select proname from pg_proc where pronamespace = 'duly'::regnamespace and has_function_privilege('duly_api', oid, 'execute')
"""
ARGUMENTS = """
select array(select unnest(proargnames[:pronargs])), array(select unnest(proargtypes)::regtype::text) from pg_proc
 where pronamespace = 'duly'::regnamespace and proname = $1
"""
WITH_TENANT = "select count(*) from pg_attribute where attrelid = ('duly.' || $1)::regclass and attname = 'tenant'"
PAST = """
insert into duly.attempts (run_id, job_id, scheduled_at, due_at, finished_at, fence, tenant, attempt, outcome, became, queue,
                           handler, worker_id, detail)
select $1, $1, at, at, at, $2, 1, 1, $3::text::duly.outcome, 'dead', 'default', '@webhook', $4,
       '{"to": "https://example.com/"}' from (select duly.clock_now() as at) as clock
"""
COMING = """
insert into duly.ready (run_id, job_id, scheduled_at, due_at, generation, tenant, attempt, priority, losses, suspect,
                        payload_stored, queue, handler, payload)
select duly.occurrence_id($1, $2, 'schedule'), $1, $2, $2, 1, 1, 0, 5, 0, false, false, 'default', 'greet', '{}'
"""


class Outcome(NamedTuple):
    """The answer to a call, and whether rows changed that are not the second tenant's."""

    answer: Any
    changed: bool


class Wall:
    """Sends calls as the API's role, and undoes each."""

    def __init__(self, connection: asyncpg.Connection, rows: str) -> None:
        self._connection = connection
        self._rows = rows

    async def send(self, tenant: int, call: str) -> Outcome:
        """Send one call for a tenant, with its deferred triggers."""
        transaction = self._connection.transaction()
        await transaction.start()
        try:
            before = await self._connection.fetch(self._rows)
            await self._connection.execute(f"set local role duly_api; set local duly.tenant = '{tenant}'")
            answer = await self._connection.fetch(call)
            await self._connection.execute("set constraints all immediate; reset role")
            return Outcome(answer, await self._connection.fetch(self._rows) != before)
        except asyncpg.PostgresError as error:
            return Outcome(error.sqlstate, False)
        finally:
            await transaction.rollback()


@pytest.fixture
async def wall(database):
    names = [row[0] for row in await database.fetch(TABLES)]
    guards = {name: " where tenant is distinct from 2" * await database.fetchval(WITH_TENANT, name) for name in names}
    rows = " union all ".join(f"select '{name}', t::text from duly.{name} as t{guards[name]}" for name in names)
    connection = await asyncpg.connect(database.url)
    yield Wall(connection, f"{rows} order by 1, 2")
    await connection.close()


@pytest.fixture
async def owned(database, clock) -> dict[str, object]:
    """Fill every box of the first tenant, and everything beside them. Gives the ids by their names in `wall.sql`."""
    await database.execute("insert into duly.tenants (tenant, name, created_at) values (2, 'other', duly.clock_now())")
    worker_id = await a_worker(database, declares=["1/app"])
    remote, sent, lost = uuid4(), uuid4(), uuid4()
    async with Sessions(database, size_max=1) as sessions, sessions.open(A) as session:
        await remote_workers.register(session, Identity(remote, "remote", "0", [QUEUE], [HANDLER], 10, LEASE))
    ended = await a_workflow(database, "a b:a")
    await carried_through(database, worker_id)
    awaited = await an_awaited_run(database)
    _, lent = await a_leased_run(database, worker_id)
    halted, workflow = await a_workflow(database, "a"), await a_workflow(database, "a b:a")
    paused = (await an_active_schedule(database)).job_id
    await pause(database, paused, "enough")
    estate = await an_estate(database, clock)
    await calendars.put_calendar(database, {"name": "unused", "tz": "UTC", "dates": ["2026-12-25"]})
    for name in ("ops", "used"):
        await notifications.put_channel(database, 1, name, "webhook", {}, Sealed("k", b"x"))
    await notifications.put_rule(database, 1, "all", read_rule(RuleSpec(events=["dead"], channels=["used"])))
    destination = await destinations.make(database, uuid4(), A, "https://example.com")
    pending = "select scheduled_at from duly.timers where job_id = $1 and run_id is null"
    paused_at = await database.fetchval(pending, paused)
    for run_id, outcome in ((sent, "failed"), (lost, "lost")):
        await database.execute(PAST, run_id, lent.fence, outcome, remote)
    await database.execute(COMING, paused, paused_at)
    for statement, *arguments in (
        ("update duly.leased set worker_id = $1 where run_id = $2", remote, lent.run_id),
        ("update duly.workers set draining_at = duly.clock_now() where worker_id = $1", remote),
        ("update duly.workers set unstarted = array[$1::uuid], stalled_at = duly.clock_now()", estate.leased),
        ("update duly.workflows set state = 'paused' where workflow_id = $1", halted),
        ("update duly.calendars set earlier = '[]'",),
        ("update duly.jobs set applied = 1 where job_id = $1", paused),
        ("update duly.tenants set least_period = '1 minute' where tenant = 1",),
        ("insert into duly.redactions (tenant, rules) values (1, array['$.card'])",),
        ("insert into duly.subtasks values ($1, $2, 1, duly.clock_now())", estate.leased, estate.waiting),
        ("insert into duly.zone_data (version, rules, adopted_at) values ('x', '', duly.clock_now())",),
        ("insert into duly.destination_shares values ($1, $2, 1, 1, 1)", destination, worker_id),
    ):
        await database.execute(statement, *arguments)
    holder = await database.fetchval("select worker_id from duly.leased where run_id = $1", estate.leased)
    node = await database.fetchrow(
        "select run_id, fence from duly.leased where options->'node'->>0 = $1::text", str(workflow)
    )
    return {
        **{
            name: getattr(estate, name)
            for name in ("schedule", "pending", "backfill", *("waiting", "ready", "blocked"))
        },
        **{name: getattr(estate, name) for name in ("leased", "dead", "done")},
        "ended": ended,
        "halted": halted,
        "workflow": workflow,
        "node": node["run_id"],
        "node_fence": node["fence"],
        "remote": remote,
        "lent": lent.run_id,
        "fence": lent.fence,
        "sent": sent,
        "lost": lost,
        "worker": holder,
        "paused": paused,
        "paused_at": paused_at,
        "destination": destination,
        "awaited": awaited.run_id,
        "definition": await database.fetchval("select definition::text from duly.calendars where name = 'holidays'"),
        "tenant": A,
    }


async def calling(database, name: str) -> str:
    """Write a call with all of the function's parameters: those that are not given are null."""
    names, kinds = await database.fetchrow(ARGUMENTS, name)
    nulls = [f"{one} => null::{kind}" for one, kind in zip(names, kinds, strict=True) if f"{one} =>" not in CALLS[name]]
    return f"select * from duly.{name}({', '.join(filter(None, [CALLS[name], *nulls]))})"


def filled(call: str, ids: dict[str, object]) -> str:
    """Put ids in the place of their names."""
    words = {name: str(value) if isinstance(value, int) else f"'{value}'" for name, value in ids.items()}
    return Template(call).substitute(words, own=f"'{UUID(int=7)}'")


def unknown(ids: dict[str, object]) -> dict[str, object]:
    """Give ids like these that nobody has."""
    return {name: uuid4() if isinstance(value, UUID) else value for name, value in ids.items()}


async def test_every_function_that_the_role_may_call_is_called_here(database):
    assert {row[0] for row in await database.fetch(FUNCTIONS)} == CALLS.keys() | PURE


@pytest.mark.parametrize("name", CALLS)
async def test_another_tenants_rows_are_as_unknown_as_rows_that_never_were(database, wall, owned, name):
    call = await calling(database, name)

    ours = await wall.send(A, filled(call, owned))
    theirs = await wall.send(B, filled(call, owned))
    nobodys = await wall.send(B, filled(call, {**unknown(owned), "tenant": NOBODY}))

    assert not isinstance(ours.answer, str)
    assert theirs != ours
    assert theirs == nobodys
    assert not theirs.changed


def names_rows(call: str) -> bool:
    """Say whether a call names ids beside the tenant."""
    return bool(set(re.findall(r"\$([a-z]\w+)", call)) - {"tenant", "own"})


OWN_TENANT = [name for name, call in CALLS.items() if "$tenant" in call and names_rows(call)]


@pytest.mark.parametrize("name", OWN_TENANT)
async def test_another_tenants_ids_under_ones_own_tenant_are_unknown(database, wall, owned, name):
    call = await calling(database, name)

    theirs = await wall.send(B, filled(call, {**owned, "tenant": B}))
    nobodys = await wall.send(B, filled(call, {**unknown(owned), "tenant": B}))

    assert theirs == nobodys
    assert not theirs.changed


@pytest.mark.parametrize(
    "name", ["submit_checked", "submit_many", "submit_schedule", "submit_workflow", "create_one_shot"]
)
async def test_idempotency_key_reveals_nothing_to_another_tenant(database, wall, owned, name):
    call = (await calling(database, name)).replace("'fresh'", "'ready'")

    assert (await wall.send(A, filled(call, owned))).answer == "DU001"
    assert (await wall.send(B, filled(call, owned))).answer == "DU021"
