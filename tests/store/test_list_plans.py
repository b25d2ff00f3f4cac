"""A page of a list reads only the page, however much is stored: measured as for the hot statements, in test_plans.py."""

from typing import Any

import asyncpg
import pytest

from duly.domain.jobs import filter as filters
from duly.store.reads import lists
from tests.store import test_plans
from tests.store.test_plans import BATCH, COUNTERS, FILL, GROWING, ROWS, WORKER, connect, too_much

large, chosen = test_plans.large, test_plans.chosen

# Each list, at its beginning; what it may look at is the batch, and what it then reads of each row found.
LISTS = {
    **{
        f"jobs {text}": ("jobs", text, filters.JOBS)
        for text in (
            "",
            "state:active",
            "queue:default",
            "handler:greet",
            "name:x",
            "name:x*",
            "tag:x",
            "tag:(x,y)",
            "owner:code",
            "next_run_at<1999-01-01",
            "created_at<1999-01-01",
        )
    },
    **{
        f"jobs by name {text}": ("jobs_by_name", text, filters.JOBS)
        for text in ("", "name:x*", "state:paused", "tag:x", "next_run_at<1999-01-01")
    },
    **{
        f"runs {text}": ("runs", text, filters.RUNS)
        for text in (
            "",
            "state:dead",
            "state:succeeded",
            "state:scheduled",
            "state:cancelled",
            "queue:none",
            "tag:x",
            "scheduled_at<1999-01-01",
            "job_id:{job}",
            "job_id:{run}",
            "parent:{worker}",
            "parent:{worker} AND state:dead",
        )
    },
    **{
        f"dead {text}": ("dead", text, filters.DEAD)
        for text in ("", "queue:none", "reason:x*", "error:x", "buried_at<1999-01-01")
    },
}
# In a worker's hands there is never much, and no index leads to a tenant's part of it: all of it is looked at.
WHOLE_LEASED = {"leased": ROWS}


async def list_touches(connection: asyncpg.Connection, name: str, tenant: int) -> dict[str, int]:
    """Read one page, looking at a batch of rows. Gives the rows fetched of each table that grows, beyond what it may."""
    kind, text, fields = LISTS[name]
    job = await connection.fetchval("select job_id from duly.jobs limit 1") or WORKER
    run = await connection.fetchval("select run_id from duly.ready limit 1") or WORKER
    chosen = filters.parse(text.format(job=job, run=run, worker=WORKER), fields)
    async with connection.transaction():
        before = {row["relname"]: row["rows"] for row in await connection.fetch(COUNTERS, GROWING)}
        await getattr(lists, kind)(connection, tenant, chosen, BATCH // 2, None, BATCH)
        after = {row["relname"]: row["rows"] for row in await connection.fetch(COUNTERS, GROWING)}
    touched = {table: rows - before[table] - WHOLE_LEASED.get(table, 0) for table, rows in after.items()}
    return too_much("", touched)


@pytest.mark.parametrize("tenant", [1, 2])
@pytest.mark.parametrize("name", LISTS)
async def test_a_page_of_a_large_list_looks_at_no_more_than_it_may(chosen, name, tenant):
    connection, _ = chosen
    for _ in range(7):
        assert await list_touches(connection, name, tenant) == {}


async def test_an_order_that_no_index_has_is_refused_before_much_is_read(large):
    """And for a tenant that has few jobs it reads those, whatever others have."""
    connection: Any = await connect(large)
    try:
        async with connection.transaction():
            before = {row["relname"]: row["rows"] for row in await connection.fetch(COUNTERS, GROWING)}
            with pytest.raises(asyncpg.PostgresError, match="and there are more"):
                async with connection.transaction():
                    await lists.jobs_by_next(connection, 1, filters.EVERYTHING, BATCH // 2, most=BATCH)
            await lists.jobs_by_next(connection, 2, filters.EVERYTHING, BATCH // 2, most=BATCH)
            after = {row["relname"]: row["rows"] for row in await connection.fetch(COUNTERS, GROWING)}
        assert too_much("", {table: rows - before[table] for table, rows in after.items()}) == {}
    finally:
        await connection.close()


async def test_lists_of_tables_that_were_empty_when_they_were_planned(own_database_url):
    connection = await connect(own_database_url)
    try:
        for _ in range(7):
            for name in LISTS:
                await list_touches(connection, name, 1)
        await connection.execute(FILL)

        found = {name: await list_touches(connection, name, tenant) for name in LISTS for tenant in (1, 2)}
        assert {name: tables for name, tables in found.items() if tables} == {}
    finally:
        await connection.close()
