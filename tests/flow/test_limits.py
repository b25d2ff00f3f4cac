"""A limit is never exceeded: told by the handlers' own log, on processes that are killed."""

import asyncio
import json
import os
import signal
import sys
import time
from contextlib import asynccontextmanager
from pathlib import Path

from duly.domain.limits.pause import Scope
from duly.moves.admin.limit import limit, unlimit
from duly.store.boxes import history
from duly.store.connection import hints
from tests.builders import many_ready_runs
from tests.worker.stories import reaping, registry_of, until, working

ROOT = Path(__file__).parents[2]
QUEUE = Scope(queue="default")


@asynccontextmanager
async def a_process(url: str):
    """Let a worker work in a process of its own; who is still there at the end is killed."""
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "tests.flow.app", url, cwd=ROOT)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def overlaps(lines: list[str], killed: dict[int, float]) -> list[tuple[float, int]]:
    """Say at each start how many were under way, itself included. What a killed process had begun ended with it."""
    events = [(float(at), what, int(pid)) for at, what, pid in map(str.split, lines)]
    for pid, at in killed.items():
        open_ones = sum({"start": 1, "end": -1}[what] for _, what, who in events if who == pid)
        events += [(at, "end", pid)] * open_ones
    under_way, found = 0, []
    for at, what, _ in sorted(events, key=lambda event: (event[0], event[1])):
        under_way += 1 if what == "start" else -1
        if what == "start":
            found.append((at, under_way))
    return found


async def test_limit_is_never_exceeded_by_handlers_of_killed_processes(url, store, tmp_path):
    log, runs, slots = tmp_path / "log", 110, 3
    log.touch()
    await limit(store, QUEUE, slots, set_by="a test")
    payload = json.dumps({"path": str(log), "seconds": 0.03})
    await many_ready_runs(store, runs, late=1, handler="logged", payload=payload)
    killed: dict[int, float] = {}

    async with reaping(store), a_process(url) as victim, a_process(url):
        await until(lambda: len(log.read_text().splitlines()) > 40)
        os.kill(victim.pid, signal.SIGKILL)
        await victim.wait()
        killed[victim.pid] = time.time()
        await until(lambda: log.read_text().count("start") >= 80, 30)
        await limit(store, QUEUE, 1, set_by="a test")
        lowered_at = time.time()
        await until(lambda: _is_drained(store), 30)

    found = overlaps(log.read_text().splitlines(), killed)
    assert len(found) >= runs
    assert max(number for _, number in found) == slots, "all places were used, and no more"
    assert all(number == 1 for at, number in found if at > lowered_at + 2)
    assert await history.verify(store) == []


async def test_new_queue_limit_returns_runs_claimed_ahead_within_two_seconds(url, store):
    """Sixty runs stand in the worker's wheel when the limit comes; from two seconds on they run one by one."""
    running, most = 0, 0

    async def work() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01)
        running -= 1

    async with working(url, registry_of(work), slots=100):
        await many_ready_runs(store, 60, late=-3, handler="work")
        await hints.send(store, ["default"])
        await until(lambda: _is_claimed(store, 60))
        await limit(store, QUEUE, 1, set_by="a test")
        await until(lambda: _is_claimed(store, 0), 2.0)

        await until(lambda: _is_drained(store))
        assert most == 1

        await unlimit(store, QUEUE)
        await many_ready_runs(store, 60, handler="work")
        await until(lambda: _is_drained(store))
        assert most > 1


async def _is_claimed(store, number: int) -> bool:
    return bool(await store.fetchval("select count(*) = $1 from duly.leased", number))


async def _is_drained(store) -> bool:
    left = "select exists (select from duly.ready) or exists (select from duly.leased)"
    return not await store.fetchval(left)
