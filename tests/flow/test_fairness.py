"""Nobody starves: the promises about who waits behind how many, on a worker that lives."""

import asyncio
from collections import Counter
from contextlib import suppress

from duly.store.connection import hints
from tests.builders import many_ready_runs
from tests.worker.stories import registry_of, until, working


class Seen:
    """Notes in which order runs start, by tenant and priority, and takes its time with each."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.started: list[tuple[int, int]] = []

    async def work(self, tenant: int, priority: int) -> None:
        """Be slow enough that the flood outlasts the story."""
        self.started.append((tenant, priority))
        await asyncio.sleep(self.seconds)

    def count(self) -> Counter:
        return Counter(self.started)


async def ready_runs(store, number: int, *, tenant: int = 1, priority: int = 5, late: float = 0.0) -> None:
    """Put runs into ready that know whose they are."""
    payload = f'{{"tenant": {tenant}, "priority": {priority}}}'
    await many_ready_runs(store, number, tenant=tenant, priority=priority, late=late, handler="work", payload=payload)
    await hints.send(store, ["default"])


async def overtaken_by(store, seen: Seen, *, tenant: int, priority: int = 5) -> int:
    """Put one run into ready and wait for its start. Gives how many others were started before it, however slow we are."""
    await ready_runs(store, 1, tenant=tenant, priority=priority)
    before = len(seen.started)
    await until(lambda: (tenant, priority) in seen.started[before:])
    return seen.started.index((tenant, priority), before) - before


async def test_tenant_with_a_single_run_starts_soon_despite_a_backlog_of_100000_runs(url, store):
    """Five hundred a second are run, so within two seconds."""
    seen = Seen(0.02)
    await ready_runs(store, 100_000, tenant=1, late=600)
    async with working(url, registry_of(seen.work), slots=10):
        await until(lambda: seen.count()[1, 5] > 50)

        for tenant in (2, 3, 2):
            assert await overtaken_by(store, seen, tenant=tenant) <= 1_000

        assert seen.count()[1, 5] < 50_000, "the flood was still there"


async def test_under_a_steady_flood_of_the_highest_priority_the_lowest_starts(url, store):
    """Two hundred a second are run, four hundred come; a twentieth is the lowest's, so its one run waits half a second or so."""
    seen = Seen(0.02)

    async def pour() -> None:
        while True:
            await ready_runs(store, 40, priority=0)
            await asyncio.sleep(0.1)

    flood = asyncio.create_task(pour())
    try:
        async with working(url, registry_of(seen.work), slots=4):
            await until(lambda: seen.count()[1, 0] > 50)

            for _ in range(3):
                assert await overtaken_by(store, seen, tenant=1, priority=9) <= 1_000

            assert await store.fetchval("select count(*) from duly.ready where priority = 0") > 0
    finally:
        flood.cancel()
        with suppress(asyncio.CancelledError):
            await flood


async def test_tenant_carries_no_fairness_debt_after_its_backlog_drains(url, store):
    seen = Seen(0.0)
    await ready_runs(store, 10_000, tenant=2, late=60)
    async with working(url, registry_of(seen.work), slots=200):
        await until(lambda: seen.count()[2, 5] == 10_000)
        seen.seconds = 0.02
        await ready_runs(store, 20_000, tenant=1)
        await until(lambda: seen.count()[1, 5] > 200)

        assert await overtaken_by(store, seen, tenant=2) <= 6_000, "with a debt it would be behind 10,000"
