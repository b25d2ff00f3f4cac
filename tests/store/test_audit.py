"""The audit in the database: it is added to and forgotten by age, and by nobody and nothing else; and what reading it costs."""

from datetime import timedelta

import asyncpg
import pytest

from duly.domain.tenancy.audit import Action, Actor, Subject, Wanted, local_actor
from duly.store.connection.session import Sessions
from duly.store.retention import Aging, forget_older
from duly.store.tenancy import audit
from duly.store.tenancy.tenants import Limits, create

ANNA = Actor("key", "a" * 10, "anna", "request-1")
KEPT = timedelta(days=400)


async def recorded(database, action=Action.JOB_PAUSED, subject="1", actor=ANNA, tenant=1, count=1):
    await audit.record(database, tenant, actor, action, Subject("job", subject), count, {})


async def count(database):
    return await database.fetchval("select count(*) from duly.audit")


@pytest.mark.parametrize(
    "statement",
    [
        "update duly.audit set actor_name = 'somebody else'",
        "delete from duly.audit",
        "truncate duly.audit",
        "with gone as (delete from duly.audit returning 1) select count(*) from gone",
        "do $$ begin set local duly.forgetting = 'on'; delete from duly.audit; end $$",
    ],
)
async def test_its_owner_can_neither_change_nor_delete_a_row(database, statement):
    await recorded(database)

    with pytest.raises(asyncpg.InsufficientPrivilegeError, match="append-only"):
        await database.execute(statement)
    assert await count(database) == 1


async def test_a_function_that_looks_like_the_retention_cannot_delete(own_database):
    await recorded(own_database)
    for name in ("public.forget_audit", 'public."duly.forget_audit"'):
        await own_database.execute(
            f"create function {name}(interval, integer) returns void language plpgsql as $$"
            " begin delete from duly.audit; end $$"
        )
        with pytest.raises(asyncpg.InsufficientPrivilegeError, match="append-only"):
            await own_database.execute(f"select {name}('1 day', 1)")
    assert await count(own_database) == 1


async def test_audit_entries_past_their_retention_alone_are_deleted_in_batches(database, clock):
    other = await create(database, "other", Limits())
    for tenant in (1, other.tenant):
        for _ in range(3):
            await recorded(database, tenant=tenant)
    await clock.advance(KEPT.total_seconds() + 1)
    await recorded(database)

    assert [await forget_older(database, Aging.AUDIT, KEPT, 4) for _ in range(3)] == [4, 2, 0]
    assert await count(database) == 1


async def test_a_retention_of_less_than_a_day_is_refused(database, clock):
    await recorded(database)
    await clock.advance(3600)

    with pytest.raises(asyncpg.InvalidParameterValueError, match="a day at least"):
        await forget_older(database, Aging.AUDIT, timedelta(hours=1), 10)


async def test_a_session_reads_its_own_and_writes_of_its_own_alone(database):
    other = await create(database, "other", Limits())
    await recorded(database)
    async with Sessions(database, size_max=1) as sessions:
        async with sessions.open(other.tenant) as session:
            await recorded(session, tenant=other.tenant)
            assert await session.fetchval("select count(*) from duly.audit") == 1
            assert (await audit.page(session, 1, Wanted(), 10)).entries == []
        with pytest.raises(Exception, match="no tenant 1"):
            async with sessions.open(other.tenant) as session:
                await recorded(session, tenant=1)
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            async with sessions.open(other.tenant) as session:
                await session.execute("insert into duly.audit select * from duly.audit")


async def test_a_detail_that_is_too_long_is_shortened(database):
    await audit.record(database, 1, ANNA, Action.JOB_PAUSED, Subject("job"), 1, {"reason": "x" * 500, "none": None})
    many = {str(number): "y" * 100 for number in range(100)}
    await audit.record(database, 1, ANNA, Action.JOB_EDITED, Subject("job"), 1, many)

    details = {entry.action: entry.detail for entry in (await audit.page(database, 1, Wanted(), 10)).entries}
    assert details == {"job.paused": {"reason": "x" * 199 + "…"}, "job.edited": {"is_too_long": True}}


FILTERS = {
    "audit_pkey": Wanted(),
    "audit_by_actor": Wanted(actor="local:root"),
    "audit_by_action": Wanted(action="key.revoked"),
    "audit_by_subject": Wanted(subject="7"),
}


@pytest.mark.parametrize("size", ["empty", "large"])
@pytest.mark.parametrize("index", FILTERS)
async def test_a_page_is_read_along_one_index(database, index, size):
    if size == "large":
        await database.execute(
            "insert into duly.audit (tenant, at, actor_kind, actor, actor_name, action, subject_kind, subject_id)"
            " select 1, duly.clock_now() + number * interval '1 second', 'key', 'k' || number % 7, 'k', 'job.created', 'job',"
            " number::text"
            " from generate_series(1, 20000) as number"
        )
        await recorded(database, Action.KEY_REVOKED, actor=local_actor("root"))
        await database.execute("analyze duly.audit")
    wanted = FILTERS[index]
    chosen = (wanted.actor, wanted.action, wanted.subject)
    async with database.transaction() as connection:
        if size == "empty":
            await connection.execute("set local enable_seqscan = off")
        plan = "\n".join(
            row[0]
            for row in await connection.fetch(
                f"explain {audit.statement_for(wanted)}", 1, audit.LATEST, audit.FIRST, audit.EARLIEST, 50, *chosen
            )
        )

    assert f"using {index}" in plan
    assert "Seq Scan" not in plan
