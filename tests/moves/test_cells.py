"""Cells: a tenant moves whole, once, and only where it may; nothing of it is lost, and nothing fires in two cells."""

import asyncio
from base64 import b64encode
from copy import copy
from datetime import timedelta

import asyncpg
import pytest

from duly.domain.errors import InvalidOption, NotFound, Refused, TenantMoved, TenantMoving
from duly.domain.runs.outcome import Failed, Succeeded
from duly.domain.runs.retry import Retry
from duly.domain.tenancy.cells import Cell, choose
from duly.domain.tenancy.sealing import new_key_line, no_keyring, read_keyring
from duly.moves.admin.cells import move as moves
from duly.moves.admin.cells import place as placing
from duly.moves.admin.cells.directory import Directory
from duly.moves.admin.cells.verify import verify
from duly.moves.admin.reseal import reseal
from duly.moves.submit import submit, submit_recurring
from duly.store.boxes import history
from duly.store.connection.database import Database
from duly.store.tenancy import cells as store
from tests.builders import (
    BOTH_CLAIMS,
    RNG,
    a_key,
    a_schedule,
    a_submission,
    a_worker,
    claimed,
    settled,
    staged,
)
from tests.kept import a_keyring

AT_ONCE = timedelta(0)
NONE_OF_A_TENANT = {"made_for_tests", "test_clock"}
SCHEMA = """
select c.relname as name, array_agg(a.attname::text) as columns
  from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
 where c.relnamespace = 'duly'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition group by 1
"""
COLUMNS = """
select attname as name, format_type(atttypid, atttypmod) as type, attidentity <> '' as is_given, typtype = 'e' as is_enum,
       (select min(enumlabel::text) from pg_enum where enumtypid = atttypid) as label
  from pg_attribute join pg_type on pg_type.oid = atttypid
 where attrelid = ('duly.' || $1)::regclass and attnum > 0 and not attisdropped order by attnum
"""


@pytest.fixture
async def one(postgres, template, clock):
    """The database of the directory, which is cell `one`."""
    async with a_database(postgres, template, clock) as database:
        yield database


@pytest.fixture
async def two(postgres, template, clock):
    """Another database."""
    async with a_database(postgres, template, clock) as database:
        yield database


class a_database:
    """A migrated database of its own, whose time the test moves."""

    def __init__(self, postgres, template, clock):
        self.postgres, self.template, self.clock = postgres, template, clock

    async def __aenter__(self):
        self.name = self.postgres.create(self.template)
        self.database = Database(self.postgres.url(self.name), size_max=8, clock=self.clock, keyring=a_keyring)
        self.clock.moves(await self.database.open())
        return self.database

    async def __aexit__(self, *_):
        self.clock._databases.remove(self.database)
        await self.database.close()
        self.postgres.drop_database(self.name)


@pytest.fixture
async def directory(one, two):
    """Two cells in one region; the first has the directory."""
    directory = Directory(one)
    await placing.add_first(directory, "one", "eu", RNG)
    await placing.add(directory, "two", two.url, "eu", RNG)
    return directory


@pytest.fixture
async def acme(directory, one):
    """The number of a tenant in cell `one`."""
    await placing.place(directory, "acme", cell="one")
    return await number_of(one, "acme")


async def number_of(database, tenant):
    """Give the number of a tenant that is known here."""
    found = await store.resident(database, tenant)
    assert found is not None
    return found.tenant


async def moved(directory, to="two", tenant="acme", **more):
    return await moves.move_tenant(directory, tenant, to, grace=AT_ONCE, frozen=AT_ONCE, **more)


async def residence(database, tenant="acme"):
    """Say whether a tenant is here: None; or what it is instead."""
    found = await store.resident(database, tenant)
    return "unknown" if found is None else found.state


class TestPlacement:
    def test_tenants_spread_over_the_active_cells_of_their_region(self):
        cells = [Cell(f"eu-{n}", n, "eu", "active", "") for n in range(4)] + [Cell("us-1", 9, "us", "active", "")]
        chosen = [choose(f"tenant {n}", cells, "eu").name for n in range(1_000)]

        assert set(chosen) == {"eu-0", "eu-1", "eu-2", "eu-3"}
        assert all(200 < chosen.count(name) < 300 for name in set(chosen))

    def test_a_cell_that_goes_moves_only_its_own_tenants(self):
        cells = [Cell(f"eu-{n}", n, "eu", "active", "") for n in range(4)]
        for n in range(200):
            first = choose(f"tenant {n}", cells)
            others = [cell for cell in cells if cell.name != "eu-3"]
            assert first.name == "eu-3" or choose(f"tenant {n}", others) == first

    async def test_the_choice_is_a_row_so_a_new_cell_moves_nobody(self, directory, one, two):
        before = {n: (await placing.place(directory, f"tenant {n}")).cell for n in range(10)}
        await placing.set_state(directory, "two", "draining")

        assert {n: (await placing.place(directory, f"tenant {n}")).cell for n in range(10)} == before
        assert {(await placing.place(directory, f"later {n}")).cell for n in range(5)} == {"one"}
        assert await verify(directory) == []

    async def test_a_tenant_has_one_number_in_all_cells(self, directory, one, two):
        await placing.place(directory, "near", cell="one")
        await placing.place(directory, "far", cell="two")

        assert await number_of(one, "near") < 1_000_000 <= await number_of(two, "far")

    async def test_a_cached_answer_is_dropped_by_its_epoch(self, directory, acme, two):
        before = await directory.find("acme")
        await moved(directory)
        assert (await directory.find("acme")).cell == "one"

        directory.forget(before)
        after = await directory.find("acme")

        assert (before.cell, after.cell, after.epoch > before.epoch) == ("one", "two", True)
        assert after.url.reveal() == two.url
        directory.forget(before)
        assert "acme" in directory._places


class TestWhole:
    async def test_every_table_is_said_to_move_to_be_dropped_or_to_be_local(self, directory, one):
        tables = {row["name"]: set(row["columns"]) for row in await one.fetch(SCHEMA)}
        listed = [tuple(row) for row in await one.fetch("select name, fate, found_by from duly.tenant_tables()")]

        assert sorted(name for name, _, _ in listed) == sorted(tables.keys() - NONE_OF_A_TENANT)
        for name, fate, found_by in listed:
            assert (fate == "local") == (found_by is None)
            assert found_by is None or found_by in tables[name], name
            # With a number of a tenant it is found by that, or is about the cell.
            assert "tenant" not in tables[name] or found_by in ("tenant", None), name
        about_cells = {
            "run",
            "leased",
            "workers",
            "claim_positions",
            "absent_tenants",
            "departures",
            "arrivals",
        }
        about_cells |= {"moved_keys", "tenants"}
        assert {name for name, fate, _ in listed if fate == "local" and "tenant" in tables[name]} == about_cells

    async def test_every_column_of_every_table_arrives_as_it_was(self, directory, one, two, acme):
        tables = await one.fetch("select name, fate, found_by from duly.tenant_tables() where fate <> 'local'")
        for row in tables:
            await fill(one, row["name"], acme)
        before = {row["name"]: await rows(one, row["name"], row["found_by"], acme) for row in tables}
        assert all(before.values())

        await moved(directory)

        for row in tables:
            name, found_by = row["name"], row["found_by"]
            assert await rows(one, name, found_by, acme) == [], name
            arrived = await rows(two, name, found_by, acme)
            assert arrived == (before[name] if row["fate"] == "moved" else []), name
        assert await one.fetchval("select count(*) from duly.departures") == 0

    async def test_and_come_back_as_they_were(self, directory, one, two, acme):
        for row in await one.fetch("select name from duly.tenant_tables() where fate = 'moved'"):
            await fill(one, row["name"], acme)
        before = await rows(one, "timers", "tenant", acme)
        await moved(directory)
        await moved(directory, "one")

        assert await rows(one, "timers", "tenant", acme) == before
        assert (await residence(one), await residence(two)) == (None, "gone")

    async def test_limits_and_state_of_the_tenant_go_along(self, directory, one, two, acme):
        await one.execute(
            "update duly.tenants set state = 'suspended', weight = 7, ready_max = 9 where tenant = $1", acme
        )
        await moved(directory)

        found = await two.fetchrow("select state, weight, ready_max from duly.tenants where tenant = $1", acme)
        assert tuple(found) == ("suspended", 7, 9)


class TestOnce:
    async def test_work_goes_on_in_the_other_cell_and_only_there(self, directory, one, two, acme):
        await submit_recurring(one, a_schedule(every=60), key=a_key(), tenant=acme)
        run_id = (await submit(one, a_submission(), key=a_key(), tenant=acme)).job_id
        await moved(directory)
        await one.clock.advance(60)

        for database in (one, two):
            await staged(database)
        assert await claimed(one, await a_worker(one)) == []
        worker_id = await a_worker(two)
        found = await claimed(two, worker_id, limit=10)

        assert len(found) == 2
        assert run_id in {run.run_id for run in found}
        for run in found:
            assert await settled(two, worker_id, run, Succeeded()) == []
        assert await verify(directory) == []

    async def test_fences_rise_across_cells(self, directory, one, two, acme):
        await one.execute("select setval('duly.fences', 5000000), setval('duly.fifo_numbers', 7000)")
        retry = a_submission(retry=Retry(max_attempts=3, base_seconds=1, jitter=0))
        await submit(one, retry, key=a_key(), tenant=acme)
        worker_id = await a_worker(one)
        [first] = await claimed(one, worker_id)
        await settled(one, worker_id, first, Failed("x"))
        await moved(directory)
        await one.clock.advance(2)
        await staged(two)
        [second] = await claimed(two, await a_worker(two))

        assert (second.run_id, second.attempt, second.fence > first.fence) == (first.run_id, 2, True)
        assert await two.fetchval("select nextval('duly.fifo_numbers')") > 7000

    async def test_readers_of_history_do_not_see_it_again(self, directory, one, two, acme):
        await submit(one, a_submission(), key=a_key(), tenant=acme)
        worker_id = await a_worker(one)
        [run] = await claimed(one, worker_id)
        await settled(one, worker_id, run, Succeeded())
        position = await two.fetchval("select pg_snapshot_xmin(pg_current_snapshot())::text")
        await moved(directory)

        assert await two.fetchval("select count(*) from duly.attempts where tenant = $1", acme) == 1
        assert await two.fetchval("select count(*) from duly.ended_since($1::text::xid8, '{}', 100)", position) == 0
        assert await two.fetchval("select count(*) from duly.job_changes") == 0
        assert await history.verify(two) == []

    async def test_two_that_move_at_once_move_it_once(self, directory, one, two, acme):
        for _ in range(50):
            await submit(one, a_submission(delay=60), key=a_key(), tenant=acme)
        answers = await asyncio.gather(*(moved(directory) for _ in range(4)), return_exceptions=True)

        assert any(isinstance(answer, moves.Moved) for answer in answers)
        assert all(isinstance(answer, (moves.Moved, Refused)) for answer in answers), answers
        assert await two.fetchval("select count(*) from duly.timers where tenant = $1", acme) == 50
        assert await verify(directory) == []

    @pytest.mark.parametrize(
        "step",
        ["begun", "prepared", "frozen", "departed", "arriving", "arriving rows", "arrived", "cleared", "finished"],
    )
    async def test_interrupted_at_any_step_it_goes_on_when_asked_again(self, directory, one, two, acme, step):
        await submit_recurring(one, a_schedule(every=60), key=a_key(), tenant=acme)

        def interrupt(at):
            if at == step:
                raise Interrupted

        with pytest.raises(Interrupted):
            await moved(directory, on_step=interrupt)
        here, there = await residence(one), await residence(two)
        assert [here, there].count(None) <= 1, "in two cells"
        await moved(directory)

        assert (await residence(one), await residence(two)) == ("gone", None)
        assert await two.fetchval("select count(*) from duly.timers where tenant = $1", acme) == 1
        assert await verify(directory) == []

    @pytest.mark.parametrize(("delay", "leaves", "enters"), [(60, "timers", "ready"), (0, "ready", "timers")])
    async def test_rows_that_move_meanwhile_are_followed(self, directory, one, two, acme, delay, leaves, enters):
        """A run between two boxes is in one of them in each snapshot, so no departure misses it."""
        run_id = (await submit(one, a_submission(delay=delay), key=a_key(), tenant=acme)).job_id
        async with one.transaction() as moving:
            more = (", shard", ", 0") if enters == "timers" else ("", "")
            await moving.execute(MOVE.format(leaves=leaves, enters=enters, column=more[0], value=more[1]), run_id)
            await store.freeze(one, acme, await begun(directory))
            departing = asyncio.create_task(store.depart(one, acme, 2))
            await asyncio.sleep(0.2)
            assert not departing.done()
        await departing

        assert (
            await one.fetchval("select table_name from duly.departures where body->>'run_id' = $1", str(run_id))
            == enters
        )
        assert await store.strays(one) == []


class TestLeaving:
    @BOTH_CLAIMS
    @pytest.mark.usefixtures("way_to_claim")
    async def test_nothing_is_added_or_claimed_while_it_leaves(self, directory, one, acme):
        await submit(one, a_submission(), key=a_key(), tenant=acme)
        await submit(one, a_submission(), key=a_key())
        await store.freeze(one, acme, await begun(directory))
        handed_out = await claimed(one, await a_worker(one), limit=10)

        assert [run.tenant for run in handed_out] == [1]
        with pytest.raises(TenantMoving, match="moving to cell two") as refused:
            await submit(one, a_submission(), key=a_key(), tenant=acme)
        assert refused.value.cell == "two"
        with pytest.raises(TenantMoving):
            await submit_recurring(one, a_schedule(), key=a_key(), tenant=acme)
        assert await one.fetchval("select count(*) from duly.timers where tenant = $1", acme) == 0

    async def test_after_that_the_refusal_names_the_cell(self, directory, one, acme):
        await moved(directory)

        with pytest.raises(TenantMoved, match="cell two"):
            await submit(one, a_submission(), key=a_key(), tenant=acme)
        with pytest.raises(TenantMoved):
            await submit_recurring(one, a_schedule(), key=a_key(), tenant=acme)

    @pytest.mark.parametrize("isolation", ["read_committed", "repeatable_read", "serializable"])
    @pytest.mark.parametrize("adds_first", [True, False])
    async def test_it_waits_for_transactions_that_began_before(self, directory, one, two, acme, isolation, adds_first):
        """One with a snapshot of its own does not see that the tenant leaves, and may add to it until its end."""
        connection = await asyncpg.connect(one.url)
        transaction = connection.transaction(isolation=isolation)
        await transaction.start()
        add = "select duly.submit('report', tenant => $1)"
        await connection.fetch(add if adds_first else "select $1::integer from duly.jobs", acme)
        with pytest.raises(Refused, match="transactions did not end, of server processes"):
            await moved(directory)
        assert (await residence(one), await residence(two)) == (None, "gone")

        await connection.fetch(add, acme)
        await transaction.commit()
        await connection.close()
        await moved(directory)
        assert await two.fetchval("select count(*) from duly.ready where tenant = $1", acme) == 1 + adds_first

    async def test_a_run_under_way_keeps_it_where_it_is_after_the_grace(self, directory, one, two, acme):
        await submit(one, a_submission(), key=a_key(), tenant=acme)
        worker_id = await a_worker(one)
        [run] = await claimed(one, worker_id)
        with pytest.raises(Refused, match=f"runs did not end, {run.run_id}"):
            await moved(directory)

        assert await verify(directory) == []
        await submit(one, a_submission(), key=a_key(), tenant=acme)
        await settled(one, worker_id, run, Succeeded())
        assert (await moved(directory)).rows > 0

    async def test_rows_that_came_late_are_brought_after_it(self, directory, one, two, acme):
        await moved(directory)
        await one.execute(
            "insert into duly.pauses (tenant, reason, paused_by, paused_at) values ($1, 'late', 'ops', now())", acme
        )
        [fault] = await verify(directory)
        assert "rows of a tenant that is in another cell" in fault.broken

        assert (await moved(directory)).rows == 2
        assert await two.fetchval("select reason from duly.pauses where tenant = $1", acme) == "late"
        assert await verify(directory) == []
        assert (await moved(directory)).rows == 0


class TestRefused:
    async def test_unknown_tenants_and_cells(self, directory, acme):
        with pytest.raises(NotFound, match="no cell 'three'; there are one, two"):
            await moved(directory, "three")
        with pytest.raises(NotFound, match="duly cells place nobody"):
            await moved(directory, tenant="nobody")
        with pytest.raises(Refused, match="every cell has one"):
            await placing.place(directory, "default")

    async def test_another_region(self, directory, one, two, acme, postgres, template, clock):
        async with a_database(postgres, template, clock) as far:
            await placing.add(directory, "far", far.url, "us", RNG)
            with pytest.raises(Refused, match="its data does not leave its region"):
                await moved(directory, "far")
            assert await residence(far) == "unknown"
            with pytest.raises(Refused, match="another region"):
                await placing.add(directory, "far", far.url, "eu", RNG)

    async def test_a_cell_that_is_drained(self, directory, acme):
        await placing.set_state(directory, "two", "draining")

        with pytest.raises(Refused, match="takes no tenants"):
            await moved(directory)
        with pytest.raises(Refused, match="takes no new tenants"):
            await placing.place(directory, "new", cell="two")

    async def test_another_move_under_way(self, directory, acme, postgres, template, clock):
        async with a_database(postgres, template, clock) as third:
            await placing.add(directory, "three", third.url, "eu", RNG)
            await begun(directory)
            with pytest.raises(Refused, match="is moving from cell one to two"):
                await moved(directory, "three")

    async def test_a_tenant_of_that_name_that_is_there(self, directory, two, acme):
        await store.create_tenant(two, "acme")
        with pytest.raises(Refused, match="in two cells, one and two"):
            await moved(directory)
        assert "tenant in two cells" in {fault.broken for fault in await verify(directory)}

    async def test_a_cell_of_another_schema(self, directory, two, acme):
        await two.execute("update duly.functions set edition = edition + 1")

        with pytest.raises(Refused, match="upgrade the older one"):
            await moved(directory)

    async def test_other_time_zone_data(self, directory, one, two, acme):
        for database, version in ((one, "2026a"), (two, "2026b")):
            await database.execute(
                "insert into duly.zone_data (version, rules, adopted_at, settled_at) values ($1, '', now(), now())",
                version,
            )
        with pytest.raises(Refused, match="time zone data 2026a and 2026b"):
            await moved(directory)

    async def test_a_database_that_is_another_cell_or_of_another_directory(self, directory, one, two, acme):
        with pytest.raises(Refused, match="is cell two already"):
            await placing.add(directory, "three", two.url, "eu", RNG)
        with pytest.raises(Refused, match="has the directory"):
            await placing.add(directory, "one", one.url, "eu", RNG)
        await two.execute("update duly.cell set directory = gen_random_uuid()")
        with pytest.raises(Refused, match="another directory"):
            await moved(directory)
        assert [fault.broken for fault in await verify(directory)] == ["cell cannot be verified"]

    async def test_a_database_with_tenants(self, directory, postgres, template, clock):
        async with a_database(postgres, template, clock) as third:
            await store.create_tenant(third, "acme")
            with pytest.raises(Refused, match="a cell is added empty"):
                await placing.add(directory, "three", third.url, "eu", RNG)
        assert [cell.name for cell in await directory.cells()] == ["one", "two"]

    async def test_a_cell_that_has_tenants_is_not_removed(self, directory, two, acme):
        await moved(directory)
        with pytest.raises(Refused, match="move them away first"):
            await placing.remove(directory, "two")
        with pytest.raises(Refused, match="has the directory"):
            await placing.remove(directory, "one")
        await moved(directory, "one")
        await placing.remove(directory, "two")

        assert await store.identity(two) is None
        assert [cell.name for cell in await directory.cells()] == ["one"]

    async def test_another_cell_asked_for_the_directory(self, directory, two):
        with pytest.raises(Refused, match="the directory is in another"):
            await Directory(two).identity()

    async def test_no_keyring(self, directory, one):
        bare = copy(one)
        bare.keyring = no_keyring
        with pytest.raises(InvalidOption, match="no key"):
            await placing.add_first(Directory(bare), "one", "eu", RNG)


async def test_a_new_key_seals_addresses_anew(directory, one, acme):
    new = new_key_line(RNG.secret).reveal()
    both = f"{new}\n" + "\n".join(f"{key_id}:{b64encode(key).decode()}" for key_id, key in a_keyring()._keys.items())
    assert (await reseal(one, read_keyring(both, "both"), RNG)).rows == 2
    rotated = copy(one)
    rotated.keyring = lambda: read_keyring(new, "new")

    assert (await moved(Directory(rotated))).to_cell == "two"


async def test_a_cell_that_is_down_leaves_the_others(directory, one, two, acme):
    await placing.place(directory, "far", cell="two")
    await one.execute("update duly.cells set sealed = $1, key_id = $2 where name = 'two'", *sealed_nowhere("two"))

    assert (await placing.place(directory, "near", cell="one")).cell == "one"
    assert [fault.cell for fault in await verify(directory)] == ["two"]


async def test_a_drained_cell_is_empty_and_what_cannot_go_is_named(directory, one, two, acme):
    await placing.place(directory, "busy", cell="one")
    busy = await number_of(one, "busy")
    await submit(one, a_submission(), key=a_key(), tenant=busy)
    worker_id = await a_worker(one)
    [run] = await claimed(one, worker_id)
    await placing.set_state(directory, "one", "draining")

    done = await moves.drain(directory, "one", grace=AT_ONCE, frozen=AT_ONCE)
    assert {type(found).__name__: found.tenant for found in done} == {"Moved": "acme", "NotMoved": "busy"}
    await settled(one, worker_id, run, Succeeded())
    [last] = await moves.drain(directory, "one", grace=AT_ONCE, frozen=AT_ONCE)

    assert isinstance(last, moves.Moved)
    assert await directory.placements("one") == []


class Interrupted(Exception):
    """The end of a mover."""


async def begun(directory):
    """Begin a move of acme to cell two, and go no further."""
    found = await store.begin(directory.database, await directory.placement("acme"), "two")
    assert found is not None
    return found


def sealed_nowhere(name):
    """Seal an address at which nobody answers."""
    from duly.domain.tenancy.api_key import Secret
    from duly.domain.tenancy.cells import about_cell

    sealed = a_keyring().seal(Secret("postgresql://127.0.0.1:1/none"), about_cell(name), RNG.secret)
    return sealed.body, sealed.key_id


# ------------------------------------------------------------------------------------------------- rows of every table


RUN = "00000000-0000-7000-8000-00000000000a"
VALUES = {
    "uuid": f"'{RUN}'",
    "text": "'x'",
    "boolean": "false",
    "bytea": "decode(repeat('00ff', 16), 'hex')",
    "jsonb": """'{"a": null, "b": 0.1, "c": "é\\\\\\"}"}'""",
    "interval": "interval '1 day 02:03:04.000005'",
    "double precision": "0.1",
    "timestamp with time zone": "timestamptz '2026-11-02 09:00:00.123456+00'",
    "text[]": """array['x', 'a "b", {c}', null]""",
    "bytea[]": "array['\\x00'::bytea]",
    "uuid[]": f"array['{RUN}'::uuid]",
    "integer[]": "array_fill(3, array[21])",
    "numeric": "0.1",
}
OTHERWISE = {
    "timers": {"overlap": "'allow'", "jitter": "'job'", "every_seconds": "null", "cohort": "null"},
    "rollups": {"grain": "'hour'"},
    "audit": {"actor_kind": "'key'"},
    "jobs": {"owner": "'api'", "state": "'active'"},
    "backfills": {"state": "'active'", "to_at": "timestamptz '2026-11-03'"},
    "api_keys": {"scopes": "array['admin']", "revoked_at": "null"},
    "idempotent_responses": {"status": "200"},
    "destinations": {"state": "'closed'"},
    "workflows": {"state": "'succeeded'", "open_nodes": "0", "ended_xid": "'3'"},
    "workflow_nodes": {"state": "'succeeded'"},
    "workflow_edges": {"on_end": "'always'"},
    "workflow_changes": {"change": "'paused'"},
    "job_changes": {"change": "'edited'"},
    "dependencies": {"on_end": "'always'"},
    "workflow_tasks": {"kind": "'look'"},
    "notification_rules": {"mode": "'every'"},
    "channels": {"kind": "'email'"},
    "signals": {"kind": "'cancel'"},
    "attempts": {"xid": "'3'", "outcome": "'failed'"},
    "events": {"digest": "sha256('x')"},
}
MOVE = """
with taken as (delete from duly.{leaves} where run_id = $1 returning *)
insert into duly.{enters} (run_id, job_id, scheduled_at, due_at, generation, tenant, attempt, priority, losses, suspect,
                           payload_stored, queue, handler{column})
select run_id, job_id, scheduled_at, due_at, generation, tenant, attempt, priority, losses, suspect, payload_stored,
       queue, handler{value} from taken
"""
IN_TRANSIT = "select set_config('duly.in_transit', 'yes', true)"


async def fill(database, table, tenant):
    """Write a row of a tenant, with a value in each column."""
    columns, values = [], []
    for column in await database.fetch(COLUMNS, table):
        name, kind = column["name"], column["type"]
        value = OTHERWISE.get(table, {}).get(name) or VALUES.get(kind)
        if name == "tenant":
            value = str(tenant)
        elif column["is_enum"] and value is None:
            value = f"'{column['label']}'"
        elif kind == "xid8" and value is None:
            value = "pg_current_xact_id()"
        if column["is_given"] and table != "notifications":
            continue
        columns.append(name)
        values.append(value or "1")
    async with database.transaction() as connection:
        await connection.execute(IN_TRANSIT)
        listed, given = ", ".join(columns), ", ".join(values)
        await connection.execute(
            f"insert into duly.{table} ({listed}) overriding system value values ({given}) on conflict do nothing"
        )


async def rows(database, table, found_by, tenant):
    """Read the rows of a tenant as they are, but for numbers that each cell gives itself."""
    which = f"one.tenant = {tenant}" if found_by == "tenant" else f"one.{found_by} = '{RUN}'"
    own = {"workflow_tasks": "task_id", "dependency_checks": "check_id", "legal_holds": "xid"}.get(table)
    shown = f"(to_jsonb(one) - '{own}')::text" if own else "one::text"
    return [row[0] for row in await database.fetch(f"select {shown} from duly.{table} as one where {which} order by 1")]
