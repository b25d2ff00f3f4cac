"""A tenant moves between two servers under load while its movers are killed: nothing is lost, and nothing fires twice."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from uuid import UUID

import msgspec
import pytest

from duly.bench.chaos.evidence import Sink
from duly.clock import Rng
from duly.domain.errors import TenantMoved, TenantMoving
from duly.domain.jobs.job import Recurring, Submission
from duly.domain.limits.concurrency import FIFO, check_concurrency
from duly.domain.notifications.channel import WebhookChannel
from duly.domain.notifications.rule import RuleSpec
from duly.domain.runs.options import options_of
from duly.domain.runs.retry import Retry
from duly.domain.tenancy.api_key import Scope, Secret
from duly.domain.tenancy.sealing import Keyring, new_key_line, read_keyring
from duly.domain.triggers.schedule.timing import every_shape
from duly.moves.admin import notifications
from duly.moves.admin.cells import place as placing
from duly.moves.admin.cells.directory import Directory
from duly.moves.admin.cells.verify import verify
from duly.moves.schedules.calendars import put_calendar
from duly.moves.submit import submit, submit_recurring
from duly.store.connection.database import Database
from duly.store.tenancy import api_keys
from duly.store.tenancy import cells as store
from tests.end_to_end.house import PYTHONPATH, ROOT, House, a_house
from tests.graphs import a_graph, a_node, a_workflow

pytestmark = pytest.mark.timeout(400)
RNG = Rng()
STEPS = ["begun", "prepared", "frozen", "departed", "arriving", "arriving rows", "arrived", "cleared"]
SCHEDULES, LINES = 6, 3
AGAIN = Retry(max_attempts=5, base_seconds=1, cap_seconds=1)
UNDER_WAY = """
select (select count(*) from unnest($2::uuid[]) as submitted(run_id) where not exists (
            select from duly.attempts where attempts.run_id = submitted.run_id and became in ('succeeded', 'dead')))
     + (select count(*) from duly.workflows where tenant = $1 and ended_at is null)
"""
ENDED = """
select run_id, job_id, scheduled_at, attempt, outcome::text, became::text, fence from duly.attempts
 where tenant = $1 order by run_id, attempt
"""
OVER = ("succeeded", "dead")


class World:
    """Two cells, and a tenant whose work never stops."""

    def __init__(self, one: Database, two: Database, keys: Callable[[], Keyring]) -> None:
        self.cells = {"one": one, "two": two}
        self.directory = Directory(one)
        self.keys = keys
        self.runs = set[UUID]()
        self.refused = Counter[str]()
        self.tenant = 0
        self.stops = asyncio.Event()

    async def begin(self) -> None:
        """Give the tenant schedules, and everything that is to go along."""
        await placing.place(self.directory, "acme", cell="one")
        one = self.cells["one"]
        found = await store.resident(one, "acme")
        assert found is not None
        self.tenant = found.tenant
        await put_calendar(one, {"name": "never", "dates": ["2020-01-01"]}, self.tenant)
        for number in range(SCHEDULES):
            shape = every_shape(1, None) | {"overlap": {"policy": "allow"}}
            job = Recurring("quick", "{}", "default", 5, shape, f"each second {number}")
            await submit_recurring(one, job, key=f"schedule {number}", tenant=self.tenant)
        channel = WebhookChannel(url="https://hooks.example/in?token=secret")
        await notifications.put_channel(one, self.keys(), self.tenant, "ops", channel, RNG)
        await notifications.put_rule(one, self.tenant, "all", RuleSpec(events=["failed"], channels=["ops"]))
        await api_keys.create(one, "key-of-acme", Secret("s"), tenant=self.tenant, name="test", scopes=[Scope.ADMIN])

    async def load(self) -> None:
        """Submit to the cell that has the tenant, as a program does that listens to refusals."""
        cell, number = self.cells["one"], 0
        while not self.stops.is_set():
            number += 1
            for job in jobs(number):
                cell = await self._submitted(cell, job, f"{number}/{job.handler}/{job.payload}")
            if number % 10 == 0:
                cell = await self._workflow(cell)
            await asyncio.sleep(0.05)

    async def _submitted(self, cell: Database, job: Submission, key: str) -> Database:
        while True:
            try:
                self.runs.add((await submit(cell, job, key=key, tenant=self.tenant)).job_id)
            except TenantMoving:
                self.refused["moving"] += 1
                await asyncio.sleep(0.1)
            except TenantMoved as moved:
                self.refused["moved"] += 1
                cell = self.cells[str(moved.cell)]
            else:
                return cell

    async def _workflow(self, cell: Database) -> Database:
        graph = a_graph("a b:a c:a", handler="node")
        nodes = (*graph.nodes, a_node("d", "b", "c", handler="node", payload={"flaps": 1}, retry=AGAIN))
        with suppress(TenantMoving, TenantMoved):
            await a_workflow(cell, msgspec.structs.replace(graph, nodes=nodes), tenant=self.tenant)
        return cell

    async def move(self, to: str, step: str, keyring: Path) -> int:
        """Move the tenant by a process of its own, which dies at a step; and say how it ended."""
        url = self.cells["one"].url
        command = [sys.executable, "-m", "tests.end_to_end.mover", url, str(keyring), "acme", to, step]
        environment = {**os.environ, "PYTHONPATH": PYTHONPATH}
        mover = await asyncio.create_subprocess_exec(*command, cwd=ROOT, env=environment, stderr=subprocess.PIPE)
        _, said = await mover.communicate()
        assert mover.returncode in (0, -signal.SIGKILL), said.decode()
        return mover.returncode

    async def is_settled(self) -> bool:
        """Say whether both cells have adopted their time zone data, as each does when it begins."""
        found = [await store.version(cell) for cell in self.cells.values()]
        return all(one.tzdb is not None and not one.is_retiming for one in found)

    async def is_idle(self, cell: str) -> bool:
        """Say whether all that was submitted has ended."""
        return int(await self.cells[cell].fetchval(UNDER_WAY, self.tenant, list(self.runs))) == 0


def jobs(number: int) -> list[Submission]:
    """Give what is submitted in one round: plain runs, retries, dead letters, and FIFO keys whose slot is held over retries."""
    found = [Submission("quick", payload(n=number), "default", 5)]
    if number % 3 == 0:
        found.append(Submission("node", payload(flaps=2), "default", 5, options=options_of(retry=AGAIN)))
    if number % 20 == 0:  # a run of these keeps its key for a second
        line = check_concurrency(f"line-{number // 20 % LINES}", 1, FIFO)
        fields = payload(flaps=1, seconds=0.05)
        found.append(Submission("node", fields, "default", 5, options=options_of(retry=AGAIN, **line)))
    if number % 7 == 0:
        found.append(Submission("node", payload(fails=True), "default", 5, options=options_of(retry=AGAIN)))
    if number % 5 == 0:
        found.append(Submission("steady", payload(), "default", 5))
    return found


def payload(**fields: object) -> str:
    """Write a payload."""
    return msgspec.json.encode({name: value for name, value in fields.items() if name != "n"}).decode()


def test_nothing_is_lost_or_doubled_by_moves_whose_mover_is_killed(tmp_path):
    keyring = tmp_path / "keyring"
    keyring.write_text(new_key_line(RNG.secret).reveal())
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    with two_houses(tmp_path) as (one, two):
        asyncio.run(story(one, two, keyring))


async def story(one: House, two: House, keyring: Path) -> None:
    """Move the tenant back and forth under load; each mover dies at another step, and another goes on."""

    def keys() -> Keyring:
        return read_keyring(keyring.read_text(), "test")

    async with (
        Database(one.url, size_max=4, keyring=keys) as first,
        Database(two.url, size_max=4, keyring=keys) as second,
    ):
        world = World(first, second, keys)
        await placing.add_first(world.directory, "one", "eu", RNG)
        await placing.add(world.directory, "two", two.url, "eu", RNG)
        await world.begin()
        loading = asyncio.create_task(world.load())
        await asyncio.sleep(3)
        await until(world.is_settled, 60)
        at = "one"
        for step in STEPS:
            at = "two" if at == "one" else "one"
            assert await world.move(at, step, keyring) == -signal.SIGKILL
            await asyncio.sleep(0.3)
            assert await world.move(at, "none", keyring) == 0
            await asyncio.sleep(1)
        world.stops.set()
        await loading
        await until(lambda: world.is_idle(at), 60)

        await judge(world, at, Sink(one.sink))


class two_houses:
    """Two servers, each with a scheduler and a worker; their handlers share a sink."""

    def __init__(self, folder: Path) -> None:
        self._houses = [a_house(folder / name) for name in ("one", "two")]

    def __enter__(self):
        one, two = (house.__enter__() for house in self._houses)
        two.sink = one.sink
        for house in (one, two):
            house.start_scheduler("scheduler0")
            house.start_worker("worker0")
        return one, two

    def __exit__(self, *error):
        for house in reversed(self._houses):
            house.__exit__(*error)


async def until(condition, seconds):
    """Wait for a condition."""
    began = time.monotonic()
    while not await condition():
        assert time.monotonic() - began < seconds
        await asyncio.sleep(0.2)


async def judge(world: World, at: str, sink: Sink) -> None:
    """Compare what was acknowledged with what the handlers saw and what the last cell has on record."""
    cell, other = world.cells[at], world.cells["one" if at == "two" else "two"]
    rows = await cell.fetch(ENDED, world.tenant)
    calls = list(sink.read())

    # Each acknowledged run has ended, once.
    ends = Counter(row["run_id"] for row in rows if row["became"] in OVER)
    assert world.runs - ends.keys() == set()
    assert {run_id for run_id, count in ends.items() if count > 1} == set()

    # No attempt ran twice, in whichever cell, and fences rise across cells.
    assert [key for key, count in Counter((call.run_id, call.attempt) for call in calls).items() if count > 1] == []
    fences = defaultdict[str, list[tuple[int, int]]](list)
    for call in calls:
        fences[call.run_id].append((call.attempt, call.fence))
    assert all(earlier[1] < later[1] for one in fences.values() for earlier, later in pairwise(sorted(one)))
    assert any(len(one) > 1 for one in fences.values())

    # Each schedule fired at each second, once.
    moments = defaultdict[UUID, list[float]](list)
    schedules = {row[0] for row in await cell.fetch("select job_id from duly.jobs where tenant = $1", world.tenant)}
    assert len(schedules) == SCHEDULES
    for row in rows:
        if row["job_id"] in schedules:
            assert row["outcome"] == "succeeded", dict(row)
            moments[row["job_id"]].append(row["scheduled_at"].timestamp())
    for job_id in schedules:
        ordered = sorted(moments[job_id])
        # The newest may still be under way.
        assert {round(later - earlier) for earlier, later in pairwise(ordered[:-5])} == {1}, job_id
        assert len(ordered) > 30

    # Dead letters, rules, keys and secrets are there, and every promise holds in both.
    assert await cell.fetchval("select count(*) from duly.dead where tenant = $1", world.tenant) > 3
    channel = await notifications.opened_channel(cell, world.keys(), world.tenant, "ops")
    assert isinstance(channel, WebhookChannel)
    assert channel.url.endswith("token=secret")
    assert await api_keys.find(cell, "key-of-acme") is not None
    assert await api_keys.find(other, "key-of-acme") is None
    assert world.refused["moved"] > 3
    assert await verify(world.directory) == []
