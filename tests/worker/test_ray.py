"""Handlers on a Ray cluster of two nodes on loopback; tests lose the second, kill drivers and workers, and end it all.

Those on the cluster take more than a minute of both cores, and are a programme of their own: `pytest -m proof` on this file.
"""

import asyncio
import importlib.util
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

import duly
from duly.clock import Rng
from duly.domain.errors import InvalidOption, Refused
from duly.domain.runs.outcome import Lost, Outcome, Succeeded
from duly.domain.runs.retry import Retry
from duly.domain.runs.run import Run
from duly.log import Log
from duly.moves.cancel import CancelAnswer, cancel_run
from duly.store.boxes import runs
from duly.worker.execute import process_pool, ray_tasks
from duly.worker.execute.process_pool import NoChild, ProcessPool
from duly.worker.execute.ray_tasks import RayTasks
from duly.worker.service import Worker, WorkerOptions
from tests.worker import ray_app
from tests.worker.conftest import ROOT
from tests.worker.family import command_of, is_gone
from tests.worker.stories import a_run, attempts_of, ended, in_box, reaping, state_of, submitted, until, working

DRIVER = "duly.worker.execute.ray_driver"


class TwoNodes:
    """A Ray cluster, and its second node, which can be lost."""

    def __init__(self) -> None:
        environment = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", "RAY_USAGE_STATS_ENABLED": "0"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.worker.ray_cluster"],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.address = self._heard()

    @property
    def is_up(self) -> bool:
        """Say whether it was not shut down."""
        return self._process.returncode is None

    def lose_second(self) -> None:
        """Kill it with all that runs on it."""
        assert self._process.stdin
        self._process.stdin.write("lose\n")
        self._process.stdin.flush()
        assert self._heard() == "done"

    def shutdown(self) -> None:
        """End both nodes."""
        self._process.communicate()

    def _heard(self) -> str:
        assert self._process.stdout
        return self._process.stdout.readline().strip()


on_a_cluster = pytest.mark.proof


@pytest.fixture(scope="module")
def cluster():
    cluster = TwoNodes()
    yield cluster
    if cluster.is_up:
        cluster.shutdown()


@pytest.fixture
def worker(url, cluster):
    def work(**options):
        chosen = {"app_path": ray_app.PATH, "ray_address": cluster.address} | options
        return working(url, ray_app.app.registry, **chosen)

    return work


@pytest.fixture
def tasks(cluster):
    """Makes workers' ways to the cluster, each with a driver of its own."""
    made: list[ProcessPool] = []

    def make(*, safe_seconds: float = 60.0) -> ProcessPool:
        resources = {name: ray_app.app.registry[name].resources for name in ray_app.app.registry.names()}
        children = RayTasks(
            resources,
            address=cluster.address,
            namespace="tests",
            app_path=ray_app.PATH,
            safe_until=lambda: time.monotonic() + safe_seconds,
            log=Log("worker"),
        )
        made.append(ProcessPool(children))
        return made[-1]

    yield make
    for pool in made:
        pool.close()


async def last_of(store, run_id) -> dict[str, Any]:
    """Give the last attempt of a run."""
    return max(await attempts_in(store, run_id), key=lambda attempt: attempt["attempt"])


async def lines_of(store, run_id) -> list[tuple[str, str]]:
    return [(line["level"], line["message"]) for line in await runs.read_logs(store, run_id, (0, 0))]


def pid_in(mark: Path | str) -> int:
    words = Path(mark).read_text() if Path(mark).exists() else ""
    return int(words) if words.isdigit() else 0


def drivers() -> list[Any]:
    return [one for one in psutil.Process().children(recursive=True) if DRIVER in command_of(one)]


async def attempted(pool: ProcessPool, run: Run) -> Outcome | None:
    """Let a pool run an attempt."""

    def heard(*_: Any) -> None: ...

    came_to = await pool.run(run, None, None, heard, lambda: True, time.time)
    return None if came_to is None else came_to[0]


def a_stay(folder: Path, **changes: Any) -> Run:
    return a_run("stay_on_second", payload=msgspec.json.encode({"folder": str(folder)}).decode(), **changes)


@on_a_cluster
async def test_a_handler_runs_on_the_cluster_with_all_that_a_run_offers(worker, store):
    async with worker():
        assert not drivers(), "Ray costs nothing before the first run"
        run_id = await submitted(store, "look_around", payload={"word": "here"})
        assert await ended(store, run_id) == "succeeded"

    last = await last_of(store, run_id)
    came = msgspec.json.decode(last["result"])
    assert came["pid"] != os.getpid()
    assert (came["run"], came["attempt"], came["fence"]) == (str(run_id), 1, last["fence"])
    assert came["saved"] == {"seen": "here"}
    assert {("info", "looking"), ("stdout", "printed there")} <= set(await lines_of(store, run_id))
    await until(lambda: not drivers())


@on_a_cluster
async def test_failures_there_are_failures_here(worker, store):
    async with worker():
        failing = await submitted(store, "fail_on_loop", retry=Retry(max_attempts=2, base_seconds=0.001))
        no_json = await submitted(store, "answer", payload={"what": "no JSON"})
        too_large = await submitted(store, "answer", payload={"what": "too much"})
        crashing = await submitted(store, "crash")
        refused = await submitted(store, "misname")
        assert await ended(store, failing) == "dead"
        assert await ended(store, no_json) == "dead"
        assert await ended(store, too_large) == "succeeded"
        assert await ended(store, crashing) == "dead"
        assert await ended(store, refused) == "dead"

    assert await attempts_of(store, failing) == [(1, "failed"), (2, "failed")]
    last = await last_of(store, failing)
    assert "ValueError: no luck" in last["reason"]
    assert "Traceback" in last["detail"]
    assert "the result is not JSON" in (await last_of(store, no_json))["reason"]
    assert (await last_of(store, too_large))["result"] is None
    assert "Ray refuses resources= of handler misname" in (await last_of(store, refused))["reason"]
    assert await attempts_of(store, crashing) == [(1, "lost"), (2, "lost")], "the run is to blame, and poison"


@on_a_cluster
async def test_cancels_and_timeouts_end_the_task(worker, store, tmp_path, monkeypatch):
    monkeypatch.setattr(process_pool, "STOP_GRACE_SECONDS", 1.0)
    tidy, stubborn, slow = tmp_path / "tidy", tmp_path / "stubborn", tmp_path / "slow"
    async with worker():
        on_loop = await submitted(store, "wait_on_loop", payload={"mark": str(tidy)})
        plain = await submitted(store, "sleep_on", payload={"mark": str(stubborn)})
        late = await submitted(store, "sleep_on", payload={"mark": str(slow)}, timeout=1.0, retry=Retry(max_attempts=1))
        pids = [await until(lambda mark=mark: pid_in(mark)) for mark in (tidy, stubborn, slow)]
        assert await cancel_run(store, on_loop) == CancelAnswer.REQUESTED
        assert await cancel_run(store, plain) == CancelAnswer.REQUESTED
        assert await ended(store, on_loop) == "cancelled"
        assert await ended(store, plain) == "cancelled"
        assert await ended(store, late) == "dead"
        await until(lambda: all(map(is_gone, pids)))

    assert tidy.read_text() == "tidied, cancelled: True"
    assert await attempts_of(store, late) == [(1, "timed_out")]


@on_a_cluster
async def test_an_attempt_of_an_earlier_fence_is_killed_before_the_next_starts(tasks, tmp_path):
    """A worker that is frozen or cut off cannot stop its task; the name of the run is the lock."""
    run = a_stay(tmp_path)
    frozen = asyncio.create_task(attempted(tasks(), run))
    pid = await until(lambda: pid_in(tmp_path / "1"))
    again = asyncio.create_task(attempted(tasks(), msgspec.structs.replace(run, fence=2, attempt=2)))
    await until(lambda: pid_in(tmp_path / "2"))
    assert is_gone(pid)

    (tmp_path / "go").touch()
    assert await again == Succeeded('"attempt 2"')
    assert isinstance(await frozen, Lost)


@on_a_cluster
async def test_a_worker_whose_lease_may_have_ended_kills_no_task(tasks, tmp_path):
    run = a_stay(tmp_path)
    valid = asyncio.create_task(attempted(tasks(), run))
    await until(lambda: pid_in(tmp_path / "1"))
    with pytest.raises(NoChild, match="still on the Ray cluster"):
        await attempted(tasks(safe_seconds=-1.0), msgspec.structs.replace(run, fence=0))

    (tmp_path / "go").touch()
    assert await valid == Succeeded('"attempt 1"')


@on_a_cluster
async def test_the_task_of_a_killed_worker_ends_and_the_run_is_reclaimed(
    worker, url, store, cluster, tmp_path, monkeypatch
):
    monkeypatch.setenv("DULY_RAY_ADDRESS", cluster.address)
    command = ("-m", "duly", "worker", ray_app.PATH, "--database-url", url, "--lease", "1.5")
    process = await asyncio.create_subprocess_exec(sys.executable, *command, cwd=ROOT)
    run_id = await submitted(store, "stay_on_second", payload={"folder": str(tmp_path)})
    pid = await until(lambda: pid_in(tmp_path / "1"))
    process.kill()
    await process.wait()
    await until(lambda: is_gone(pid))

    (tmp_path / "go").touch()
    async with reaping(store), worker():
        assert await ended(store, run_id) == "succeeded"
    assert await attempts_of(store, run_id) == [(1, "lost"), (2, "succeeded")]


@on_a_cluster
async def test_a_killed_driver_loses_its_attempts_and_another_is_started(worker, store, tmp_path):
    async with worker():
        run_id = await submitted(store, "stay_on_second", payload={"folder": str(tmp_path)})
        pid = await until(lambda: pid_in(tmp_path / "1"))
        [driver] = drivers()
        driver.send_signal(signal.SIGKILL)
        await until(lambda: is_gone(pid))
        (tmp_path / "go").touch()
        assert await ended(store, run_id) == "succeeded"

    assert await attempts_of(store, run_id) == [(1, "lost"), (2, "succeeded")]


@on_a_cluster
async def test_a_run_that_no_node_can_have_waits_and_fails_with_the_remedy(worker, store, monkeypatch):
    async with worker() as one:
        unwanted = await submitted(store, "want_too_much")
        await until(lambda: one.health.running == 1)
        await until(lambda: state_is(store, unwanted, "ready"))
        await cancel_run(store, unwanted)
        assert await ended(store, unwanted) == "cancelled"

        monkeypatch.setattr(ray_tasks, "UNPLACEABLE_SECONDS_MAX", 0.5)
        run_id = await submitted(store, "want_too_much", retry=Retry(max_attempts=1))
        assert await ended(store, run_id) == "dead"

    lacking = (
        "no node of the Ray cluster has CPU 64 (at most CPU 2); add one, or lower resources= of handler want_too_much"
    )
    assert (await last_of(store, run_id))["reason"] == lacking
    assert ("warning", lacking) in await lines_of(store, run_id)


async def state_is(store, run_id, state: str) -> bool:
    return await state_of(store, run_id) == state


@on_a_cluster
async def test_without_a_cluster_runs_go_back_unused_until_there_is_one(worker, store):
    with socket.socket() as free:
        free.bind(("127.0.0.2", 0))
        gone = f"127.0.0.2:{free.getsockname()[1]}"
    async with worker(ray_address=gone) as one:
        run_id = await submitted(store, "look_around", payload={"word": "late"})
        await until(lambda: one.health.running == 1)
        assert await until(lambda: in_box(store, "ready")) == 1
    assert await attempts_of(store, run_id) == []

    async with worker():
        assert await ended(store, run_id) == "succeeded"
    assert await attempts_of(store, run_id) == [(1, "succeeded")]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"executor": "dask"}, "executor 'dask' is unknown; give \"ray\""),
        ({"resources": {"num_cpus": 2}}, 'give executor="ray" as well'),
        ({"executor": "ray", "resources": {"num_cpu": 2}}, "did you mean 'num_cpus'"),
        ({"executor": "ray", "resources": {"num_cpus": -1}}, "give a number, 0 or more"),
        ({"executor": "ray", "resources": {"num_gpus": 1.5}}, "more than 1 and not whole"),
        ({"executor": "ray", "resources": {"resources": {"ssd": "many"}}}, "resources ssd 'many' is not an amount"),
        ({"executor": "ray", "resources": {"accelerator_type": 4}}, "is not a name"),
        ({"executor": "ray", "resources": 2}, "is not a mapping"),
    ],
)
def test_what_ray_would_refuse_is_refused_at_the_handler(options, says):
    with pytest.raises(InvalidOption, match=says):

        @duly.App().handler(**options)
        def work() -> None: ...


def a_worker(**options: Any) -> Worker:
    chosen = WorkerOptions("worker", **{"app_path": ray_app.PATH, **options})
    return Worker("postgresql://nowhere/", ray_app.app.registry, chosen, rng=Rng(), log=Log("worker"))


def test_a_worker_that_cannot_serve_ray_handlers_does_not_start(monkeypatch):
    with pytest.raises(Refused, match="start the worker as `duly worker module:app`"):
        a_worker(app_path=None)
    with pytest.raises(Refused, match="give host:port"):
        a_worker(ray_address="ray://127.0.0.1:10001")
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(Refused, match=r"pip install 'duly\[ray\]'"):
        a_worker()


@on_a_cluster
async def test_a_lost_node_is_a_lost_attempt_and_the_run_waits_for_another(worker, store, cluster, tmp_path):
    """From here on there is no second node."""
    async with worker() as one:
        run_id = await submitted(store, "stay_on_second", payload={"folder": str(tmp_path)})
        await until(lambda: pid_in(tmp_path / "1"))
        cluster.lose_second()
        [attempt] = await until(lambda: attempts_in(store, run_id))
        await until(lambda: one.health.running == 1)  # it is placed again, or waits to be
        await until(lambda: state_is(store, run_id, "ready"))

    assert (attempt["attempt"], attempt["outcome"]) == (1, "lost")
    assert re.fullmatch(r"Ray node \w{12} was lost while it ran this run", attempt["reason"])
    assert await attempts_of(store, run_id) == [(1, "lost")]
    assert not (tmp_path / "2").exists()


@on_a_cluster
async def test_a_lost_cluster_loses_an_attempt_and_starts_nothing_twice(worker, store, cluster, tmp_path):
    """The last test: it ends the cluster."""
    mark = tmp_path / "mark"
    async with worker() as one:
        run_id = await submitted(store, "sleep_on", payload={"mark": str(mark)})
        pid = await until(lambda: pid_in(mark))
        await asyncio.to_thread(cluster.shutdown)
        [attempt] = await until(lambda: attempts_in(store, run_id), 60.0)
        await until(lambda: one.health.running == 1)
        await until(lambda: in_box(store, "ready"))

    assert (attempt["attempt"], attempt["outcome"]) == (1, "lost")
    assert await attempts_of(store, run_id) == [(1, "lost")]
    assert is_gone(pid)
    assert pid_in(mark) == pid


async def attempts_in(store, run_id) -> list[dict[str, Any]]:
    found = await runs.find(store, run_id)
    assert found is not None
    attempts: list[dict[str, Any]] = found["attempts"]
    return attempts
