"""The cost of a run does not depend on the number of cells: each has its own server, scheduler and worker."""

import asyncio
import os
from contextlib import AsyncExitStack, ExitStack
from functools import partial
from pathlib import Path

import pytest

from duly.domain.jobs.job import Submission
from duly.moves.submit import submit_many
from duly.store.connection.database import Database
from tests.end_to_end.house import House, a_house, wait_until

pytestmark = [pytest.mark.proof, pytest.mark.timeout(900)]
RUNS, SECONDS = 250, 30  # in each cell: so many runs a second, and for how long
TICKS = os.sysconf("SC_CLK_TCK")


def cpu_of(pids: set[int]) -> dict[int, float]:
    """Read the CPU seconds of processes and of all below them, those included that have ended."""
    found = dict[int, tuple[int, float]]()
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            found[int(entry.name)] = (int(fields[1]), sum(map(int, fields[11:15])) / TICKS)
    family = set(pids)
    while more := {pid for pid, (parent, _) in found.items() if parent in family} - family:
        family |= more
    return {pid: seconds for pid, (_, seconds) in found.items() if pid in family}


async def load(houses: list[House], seconds: int, key: str) -> None:
    """Submit to each cell at the same rate, whatever the others do: idle processes cost by the second."""
    async with AsyncExitStack() as stack:
        opened = [await stack.enter_async_context(Database(house.url)) for house in houses]
        for second in range(seconds):
            began = asyncio.get_running_loop().time()
            jobs = [Submission("quick", "{}", "default", 5)] * RUNS
            await asyncio.gather(*(submit_many(database, jobs, key=f"{key} {second}") for database in opened))
            await asyncio.sleep(max(0.0, began + 1 - asyncio.get_running_loop().time()))


def has_done(house: House, runs: int) -> bool:
    """Return whether so many runs have ended."""
    return bool(house.ask("select count(*) from duly.attempts where outcome = 'succeeded'")[0][0] == runs)


def cost(folder: Path, cells: int) -> float:
    """Give the CPU seconds of a run in so many cells under load, servers, schedulers and workers together."""
    with ExitStack() as stack:
        houses = []
        for number in range(cells):
            (folder / f"{cells}-{number}").mkdir()
            house = stack.enter_context(a_house(folder / f"{cells}-{number}"))
            house.start_scheduler("scheduler0")
            house.start_worker("worker0", slots=100)
            houses.append(house)
        asyncio.run(load(houses, 5, "warm"))
        for house in houses:
            wait_until(partial(has_done, house, RUNS * 5), 120)
        pids = {house.server.pid for house in houses} | {
            one.pid for house in houses for one in house.processes.values()
        }
        before = cpu_of(pids)
        asyncio.run(load(houses, SECONDS, "load"))
        for house in houses:
            wait_until(partial(has_done, house, RUNS * (5 + SECONDS)), 300, pause=0.5)
        after = cpu_of(pids)
        return sum(seconds - before.get(pid, 0.0) for pid, seconds in after.items()) / (cells * RUNS * SECONDS)


def test_cpu_of_a_run_is_the_same_in_three_cells_as_in_one(tmp_path):
    one = cost(tmp_path, 1)
    three = cost(tmp_path, 3)

    print(f"CPU of a run: {one * 1e6:.0f} us in one cell, {three * 1e6:.0f} us in each of three")
    assert abs(three / one - 1) <= 0.1
