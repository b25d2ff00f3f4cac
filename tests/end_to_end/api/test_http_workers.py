"""Workers over HTTP under the same blows as our own: killed, frozen, and without a database for a while."""

import asyncio
import os
import signal
import socket
import time
from collections import Counter
from datetime import timedelta

import pytest

from duly.bench.chaos import checker
from duly.bench.chaos.evidence import Arrival, Sink
from duly.clock import Rng
from duly.domain.jobs.job import Submission
from duly.domain.tenancy.api_key import Scope, new_key, written
from duly.moves.submit import submit
from duly.store.connection.database import Database
from duly.store.tenancy import api_keys
from tests.end_to_end.aftermath import calm_down, gathered, verified
from tests.end_to_end.client import PLAIN
from tests.end_to_end.house import LEASE_SECONDS, House, a_house, wait_until

RUNS, SECONDS, SCHEDULES = 200, 6.0, 4
START_AGAIN_SECONDS = LEASE_SECONDS + 2.0


@pytest.mark.timeout(120)
def test_a_storm_over_http_loses_nothing_and_doubles_nothing(tmp_path):
    with a_house(tmp_path) as house:
        house.start_scheduler("scheduler0")
        address, key = open_the_door(house)
        for name in ("http0", "http1"):
            start_worker(house, name, address, key)
        client = house.start("client", "client", house.ledger, RUNS, SECONDS, SCHEDULES)
        frozen, killed_at = freeze_one_and_kill_the_other(house, address, key)
        wait_until(lambda: time.time() > killed_at + START_AGAIN_SECONDS, 30)
        os.kill(frozen, signal.SIGCONT)
        wait_until(lambda: fenced(house), 20, what="a late outcome that is fenced")
        house.kill_postgresql()
        arrivals = len(seen(house))
        wait_until(lambda: len(seen(house)) > arrivals, 30, what="work after a restart of PostgreSQL")
        assert client.wait(60) == 0, house.last_words("client")
        calm_down(house)
        evidence, broken = gathered(house), verified(house)
    outcomes = Counter(record.outcome for record in evidence.records)
    print(
        f"\ncalls {len(evidence.arrivals)}, beyond the first {checker.duplicates(evidence)}; outcomes {dict(outcomes)}"
    )
    assert checker.findings(evidence) == []
    assert broken == []
    assert len([asked for asked in evidence.acknowledged if not asked.is_schedule]) == RUNS
    assert outcomes["lost"] > 0


def open_the_door(house: House) -> tuple[str, str]:
    """Start the API, and make a key for workers."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    house.start("api", "api", port)
    return f"http://127.0.0.1:{port}", asyncio.run(_a_key(house.url))


async def _a_key(url: str) -> str:
    key_id, secret = new_key(Rng().secret)
    async with Database(url) as database:
        await api_keys.create(database, key_id, secret, tenant=1, name="workers", scopes=[Scope.WORKER])
    return written(key_id, secret).reveal()


def start_worker(house: House, name: str, address: str, key: str) -> None:
    """Start the example as a worker."""
    house.start("http_worker", name, address, key, LEASE_SECONDS)


def freeze_one_and_kill_the_other(house: House, address: str, key: str) -> tuple[int, float]:
    """Freeze the worker that has a slow run in its hands, and kill the other, of which a new one takes the place."""
    wait_until(lambda: len(seen(house)) > 50, 30, what="the first runs")
    run_id = asyncio.run(_a_slow_run(house.url))
    wait_until(lambda: run_id in {call.run_id for call in seen(house)}, 30, what="the slow run")
    [frozen] = [call.pids[0] for call in seen(house) if call.run_id == run_id]
    os.kill(frozen, signal.SIGSTOP)
    [other] = [name for name in ("http0", "http1") if house.processes[name].pid != frozen]
    killed_at = time.time()
    house.processes[other].kill()
    house.processes[other].wait()
    start_worker(house, other, address, key)
    return frozen, killed_at


async def _a_slow_run(url: str) -> str:
    async with Database(url) as database:
        slow = Submission("slow", "{}", "default", 0, None, timedelta(), PLAIN)
        return str((await submit(database, slow, key="slow")).job_id)


def seen(house: House) -> list[Arrival]:
    """Read the calls so far."""
    return list(Sink(house.sink).read())


def fenced(house: House) -> int:
    """Count the outcomes that were refused."""
    return int(house.ask("select count(*) from duly.attempts where outcome = 'fenced'")[0][0])
