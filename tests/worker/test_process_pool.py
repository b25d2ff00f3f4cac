"""The crew: handlers that may have to be killed, in processes that can be."""

import asyncio
import os
import signal
import socket
import sys
from asyncio.subprocess import Process
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from duly.domain.runs.outcome import Cancelled, Failed, Lost, Snoozed, Succeeded, TimedOut
from duly.domain.runs.progress import Progress
from duly.domain.runs.run import Run
from duly.worker.execute import child_processes as pool
from duly.worker.execute import process_pool as module
from duly.worker.execute.attempt import INTERRUPTED
from duly.worker.execute.child import ChildMessage
from duly.worker.execute.child_processes import ChildProcess, ChildProcesses
from duly.worker.execute.process_pool import NoChild, ProcessPool
from tests.worker import app, family
from tests.worker.family import is_gone
from tests.worker.stories import PATIENCE_SECONDS, a_run, until

STARTED = datetime(2026, 11, 2, 9, tzinfo=UTC).timestamp()


class Heard:
    """What the handlers said, and what they are answered."""

    def __init__(self) -> None:
        self.said: list[ChildMessage] = []
        self.answer = True

    def on_message(self, run: Run, said: ChildMessage) -> asyncio.Future[bool] | None:
        self.said.append(said)
        if said.kind == "log":
            return None
        answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        answer.set_result(self.answer)
        return answer


@pytest.fixture
def heard():
    return Heard()


@pytest.fixture
async def process_pool(monkeypatch):
    """A crew all of whose children are buried at the end, on the loop that started them."""
    started: list[Process] = []
    real = asyncio.create_subprocess_exec

    async def recorded(*args: Any, **options: Any) -> Process:
        started.append(await real(*args, **options))
        return started[-1]

    monkeypatch.setattr(asyncio, "create_subprocess_exec", recorded)
    process_pool = ProcessPool(ChildProcesses(app.PATH))
    yield process_pool
    process_pool.close()
    for process in started:
        await asyncio.wait_for(process.wait(), PATIENCE_SECONDS)


def children() -> list[Any]:
    return family.children("duly.worker.execute.child")


def a_task(handler: str, **arguments: Any) -> Run:
    return a_run(handler, payload=msgspec.json.encode(arguments).decode())


async def served(
    process_pool: ProcessPool, run: Run, *, heard: Heard | None = None, timeout: float | None = None, saved: Any = None
):
    text = None if saved is None else msgspec.json.encode(saved).decode()
    said = (heard or Heard()).on_message
    work = process_pool.run(run, text, timeout, said, lambda: True, lambda: STARTED)
    return await asyncio.wait_for(work, PATIENCE_SECONDS)


async def test_process_pool_does_not_start_a_run_that_may_no_longer_start(process_pool, tmp_path):
    mark = tmp_path / "mark"
    run = a_task("sleep_until_stopped", mark=str(mark))

    assert await process_pool.run(run, None, None, Heard().on_message, lambda: True, lambda: None) is None

    assert await served(process_pool, a_task("add", a=2, b=3)) == (Succeeded("5"), False), (
        "the child is free for another"
    )
    assert not mark.exists()


@asynccontextmanager
async def underway(process_pool: ProcessPool, run: Run, mark: Path):
    """Let a run come so far that it has left its mark."""
    task = asyncio.create_task(served(process_pool, run))
    await until(mark.exists)
    yield task
    await asyncio.wait_for(task, PATIENCE_SECONDS)


@pytest.mark.parametrize("handler", ["add", "add_on_loop"])
async def test_a_handler_runs_in_a_child(process_pool, handler):
    assert await served(process_pool, a_task(handler, a=2, b=3)) == (Succeeded("5"), False)


async def test_process_pool_returns_every_kind_of_outcome(process_pool):
    failed, _ = await served(process_pool, a_task("fail", words="a\0b \ud800 c".encode("utf-8", "replace").decode()))
    assert isinstance(failed, Failed)
    assert failed.reason == "ValueError: a\ufffdb ? c"
    assert failed.retryable
    refused, _ = await served(process_pool, a_task("refuse"))
    assert isinstance(refused, Failed)
    assert not refused.retryable
    assert await served(process_pool, a_task("snooze")) == (Snoozed(timedelta(seconds=60)), False)


async def test_child_process_serves_many_runs(process_pool):
    first, _ = await served(process_pool, a_task("pid_of_child"))
    second, _ = await served(process_pool, a_task("pid_of_child"))
    assert first == second


@asynccontextmanager
async def busy(process_pool: ProcessPool, number: int, folder: Path):
    """Let so many runs be under way at the same time."""
    folder.mkdir()
    marks = [folder / str(each) for each in range(number)]
    runs = [a_task("wait_for_release", mark=str(mark), release=str(folder / "release")) for mark in marks]
    tasks = [asyncio.create_task(served(process_pool, run)) for run in runs]
    await until(lambda: all(mark.exists() for mark in marks))
    yield {child.pid for child in children()}
    (folder / "release").touch()
    await asyncio.gather(*tasks)


async def test_runs_at_the_same_time_have_a_child_each_and_few_stay(process_pool, tmp_path, monkeypatch):
    monkeypatch.setattr(pool, "LINGER_SECONDS", 0.1)
    async with busy(process_pool, pool.IDLE_MAX + 2, tmp_path / "runs") as pids:
        assert len(pids) == pool.IDLE_MAX + 2
    await until(lambda: len(children()) == pool.IDLE_MAX)


async def test_children_that_many_runs_needed_stay_for_those_behind_them(process_pool, tmp_path, monkeypatch):
    """A dead worker leaves many suspects: a fresh child for each would take longer than their handlers."""
    monkeypatch.setattr(pool, "LINGER_SECONDS", PATIENCE_SECONDS)
    async with busy(process_pool, pool.IDLE_MAX + 2, tmp_path / "first") as pids:
        pass
    async with busy(process_pool, pool.IDLE_MAX + 2, tmp_path / "second") as again:
        assert again == pids


async def test_quick_runs_share_the_child_that_is_there_first(process_pool):
    """Nobody waits for a child of its own to load the app while another has nothing to do."""
    first, _ = await served(process_pool, a_task("pid_of_child"))
    outcomes = [
        outcome for outcome, _ in await asyncio.gather(*(served(process_pool, a_task("pid_of_child")) for _ in "ab"))
    ]
    assert outcomes == [first, first]


async def test_story_09_past_its_timeout_a_handler_is_killed_with_everything_it_started(process_pool, tmp_path):
    mark = tmp_path / "pids"
    outcome, left_behind = await served(process_pool, a_task("sleep_with_child", mark=str(mark)), timeout=1.0)
    assert (outcome, left_behind) == (TimedOut(1.0), True)
    pids = mark.read_text().split()
    await until(lambda: all(is_gone(pid) for pid in pids))


async def test_the_time_it_takes_to_load_the_app_is_not_the_handlers(process_pool):
    """A fresh child needs longer than this to start."""
    assert await served(process_pool, a_task("add", a=1, b=1), timeout=0.1) == (Succeeded("2"), False)


@pytest.mark.parametrize("handler", ["crash", "crash_on_loop"])
async def test_a_handler_that_kills_its_process_is_lost_by_its_own_doing(process_pool, handler):
    assert await served(process_pool, a_task(handler)) == (Lost(named=True), True)
    assert await served(process_pool, a_task("add", a=2, b=3)) == (Succeeded("5"), False)


async def test_a_child_that_died_while_idle_harms_no_run(process_pool):
    await served(process_pool, a_task("add", a=1, b=1))
    [child] = children()
    child.kill()
    await until(lambda: is_gone(child.pid))
    assert await served(process_pool, a_task("add", a=2, b=3)) == (Succeeded("5"), False)


async def test_cancelled_isolated_handler_may_clean_up_before_it_ends(process_pool, tmp_path):
    mark = tmp_path / "mark"
    run = a_task("sleep_until_stopped", mark=str(mark))
    async with underway(process_pool, run, mark) as task:
        process_pool.cancel(run)
        assert await task == (Cancelled(), False)
    assert mark.read_text() == "tidied"


async def test_cancelled_isolated_async_handler_may_clean_up_before_it_ends(process_pool, tmp_path):
    mark = tmp_path / "mark"
    run = a_task("wait_until_stopped", mark=str(mark))
    async with underway(process_pool, run, mark) as task:
        process_pool.cancel(run)
        outcome, _ = await task
        assert outcome == Cancelled()
    assert mark.read_text() == "tidied"


async def test_a_handler_that_does_not_heed_is_killed_after_its_grace(process_pool, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "STOP_GRACE_SECONDS", 0.3)
    mark = tmp_path / "pid"
    run = a_task("sleep_whatever_comes", mark=str(mark))
    async with underway(process_pool, run, mark) as task:
        process_pool.cancel(run)
        assert await task == (Cancelled(), True)
    await until(lambda: is_gone(mark.read_text()))


@pytest.mark.parametrize("handler", ["sleep_until_stopped", "wait_until_stopped", "sleep_whatever_comes"])
async def test_a_handler_interrupted_by_the_end_of_its_worker_may_be_tried_again(
    process_pool, tmp_path, monkeypatch, handler
):
    monkeypatch.setattr(module, "STOP_GRACE_SECONDS", 0.3)
    mark = tmp_path / "mark"
    run = a_task(handler, mark=str(mark))
    async with underway(process_pool, run, mark) as task:
        process_pool.interrupt(run)
        outcome, _ = await task
        assert outcome == Failed(INTERRUPTED)


async def test_cancel_before_the_child_process_is_ready_starts_nothing(process_pool, tmp_path):
    mark = tmp_path / "mark"
    run = a_task("sleep_until_stopped", mark=str(mark))
    task = asyncio.create_task(served(process_pool, run))
    await until(children)  # It is being started, and has not loaded the app.
    process_pool.cancel(run)
    assert await task == (Cancelled(), False)
    assert not mark.exists()


async def test_a_child_that_was_stopped_is_not_used_again(process_pool, tmp_path):
    mark = tmp_path / "mark"
    run = a_task("sleep_until_stopped", mark=str(mark))
    async with underway(process_pool, run, mark) as task:
        process_pool.cancel(run)
        await task
    await until(lambda: not children())


async def test_process_pool_confirms_checkpoints_and_delivers_messages_in_order(process_pool, heard, tmp_path):
    run = a_task("count_steps", mark=str(tmp_path / "mark"), crash_at=0)
    assert await served(process_pool, run, heard=heard, saved=[1, 2]) == (Succeeded("[1,2,3,4,5]"), True)
    assert [said.kind for said in heard.said if said.kind != "progress"] == ["checkpoint", "log"] * 3
    assert [said.text for said in heard.said if said.kind == "checkpoint"] == ["[1,2,3]", "[1,2,3,4]", "[1,2,3,4,5]"]
    assert [said.progress for said in heard.said if said.kind == "progress"][-1] == Progress(5, 5, "step 5")


async def test_a_checkpoint_after_the_lease_was_lost_ends_the_handler(process_pool, heard, tmp_path):
    heard.answer = False
    run = a_task("count_steps", mark=str(tmp_path / "mark"), crash_at=0)
    outcome, left_behind = await served(process_pool, run, heard=heard)
    assert isinstance(outcome, Failed)
    assert outcome.reason.startswith("LeaseLost")
    assert not left_behind


async def test_log_record_of_any_kind_fails_neither_the_handler_nor_its_child(process_pool, heard):
    assert await served(process_pool, a_task("say"), heard=heard) == (Succeeded(), False)
    assert [(said.level, said.text) for said in heard.said] == [
        ("info", "plain"),
        ("warning", "\ufffd and ?"),
        ("error", "not even text"),
    ]


async def test_oversized_log_record_is_cut_and_fails_neither_handler_nor_child(process_pool, heard):
    assert await served(process_pool, a_task("say_much"), heard=heard) == (Succeeded(), False)
    large, many, *again, dropped = heard.said
    assert (large.text, many.text) == ("large", "many")
    assert large.fields["body"] == '"' + "a" * 262_143 + "…"
    assert next(iter(many.fields)) == "field_0"
    assert many.fields["…"].endswith(" more")
    assert 0 < len(again) < 10, "fields count, too, so it is cut off after about a mebibyte"
    assert (dropped.kind, dropped.count) == ("dropped", 20 - len(again))


async def test_a_child_that_could_not_be_started_leaves_no_socket_open(monkeypatch):
    async def scarce(*_: Any, **__: Any) -> Process:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    opened: list[socket.socket] = []
    real = socket.socketpair

    def recorded() -> tuple[socket.socket, socket.socket]:
        opened.extend(pair := real())
        return pair

    monkeypatch.setattr(asyncio, "create_subprocess_exec", scarce)
    monkeypatch.setattr(socket, "socketpair", recorded)
    with pytest.raises(NoChild, match="Resource temporarily unavailable"):
        await served(ProcessPool(ChildProcesses(app.PATH)), a_task("add", a=1, b=1))

    assert [one.fileno() for one in opened] == [-1, -1]


@pytest.mark.parametrize(
    ("module", "words"),
    [
        ("import nothing_of_that_name", "status 1: ModuleNotFoundError: No module named 'nothing_of_that_name'"),
        ("app = None", "status 1: Refused: module 'broken' has no app named 'app'; write app = duly.App() there"),
        ("import sys; sys.exit(3)", "status 3: SystemExit: 3"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "status -11"),
    ],
)
async def test_app_that_cannot_be_loaded_fails_the_run_and_states_why(tmp_path, monkeypatch, module, words):
    """Handed back, it would go round for ever without a word."""
    (tmp_path / "broken.py").write_text(module)
    monkeypatch.setenv("PYTHONPATH", f"{os.environ['PYTHONPATH']}{os.pathsep}{tmp_path}")
    process_pool = ProcessPool(ChildProcesses("broken:app"))
    outcome, left_behind = await served(process_pool, a_task("add", a=1, b=1))
    process_pool.close()

    assert isinstance(outcome, Failed)
    assert outcome.reason == f"broken:app could not be loaded in a child process, which ended with {words}"
    assert (outcome.retryable, left_behind) == (True, False)
    assert outcome.detail is None or words.split()[2].rstrip(":") in outcome.detail


async def test_a_child_that_hangs_while_it_loads_the_app_is_killed_and_its_run_has_failed(tmp_path, monkeypatch):
    (tmp_path / "broken.py").write_text("import time; time.sleep(600)")
    monkeypatch.setenv("PYTHONPATH", f"{os.environ['PYTHONPATH']}{os.pathsep}{tmp_path}")
    monkeypatch.setattr(pool, "LOADING_SECONDS_MAX", 1.0)
    process_pool = ProcessPool(ChildProcesses("broken:app"))

    outcome, _ = await served(process_pool, a_task("add", a=1, b=1))

    assert outcome == Failed("broken:app could not be loaded in a child process within 1 s")
    assert not children()


async def test_children_that_die_before_they_take_a_run_over_are_a_failure_of_it(process_pool, monkeypatch):
    real = ChildProcesses._spawn

    async def dead(self: ChildProcesses) -> ChildProcess:
        child = await real(self)
        child._signal(signal.SIGKILL)
        await child.process.wait()
        return child

    monkeypatch.setattr(ChildProcesses, "_spawn", dead)
    outcome, _ = await served(process_pool, a_task("add", a=1, b=1))

    assert isinstance(outcome, Failed)
    assert "died before they took it over" in outcome.reason


async def test_cancel_ends_a_run_that_waits_for_an_unloadable_app():
    process_pool, run = ProcessPool(ChildProcesses("tests.worker.app:nothing")), a_task("add", a=1, b=1)
    task = asyncio.create_task(served(process_pool, run))
    await until(children)
    process_pool.cancel(run)
    assert await task == (Cancelled(), False)
    process_pool.close()


async def test_closed_process_pool_ends_every_child_process(process_pool, tmp_path):
    mark = tmp_path / "pids"
    run = a_task("sleep_with_child", mark=str(mark))
    async with underway(process_pool, run, mark):
        process_pool.close()
        pids = mark.read_text().split()
        await until(lambda: all(is_gone(pid) for pid in pids))


async def test_a_child_does_not_outlive_a_worker_that_was_killed(tmp_path):
    """What it does from there on would be done again by whoever takes over."""
    mark = tmp_path / "pids"
    worker = await asyncio.create_subprocess_exec(sys.executable, "-c", _WORKER, str(mark))
    await until(mark.exists)
    worker.send_signal(signal.SIGKILL)
    await worker.wait()
    pids = mark.read_text().split()
    await until(lambda: all(is_gone(pid) for pid in pids))


_WORKER = """
import asyncio, sys
from tests.worker.test_process_pool import *

async def main():
    task = a_task("sleep_with_child", mark=sys.argv[1])
    await ProcessPool(ChildProcesses(app.PATH)).run(task, None, None, Heard().on_message, lambda: True, lambda: STARTED)

asyncio.run(main())
"""
