"""Long jobs in a real worker process: leases that outlast them, checkpoints that outlive it, and cancels that are kept."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from duly.domain.errors import InvalidPayload
from duly.domain.runs.payload import CHECKPOINT_BYTES_MAX
from duly.moves.cancel import CancelAnswer, cancel_run
from duly.store.boxes import runs
from duly.worker.context import RunContext
from tests.worker.stories import attempts_of, ended, reaping, registry_of, submitted, until, working

LEASE_SECONDS = 1.5
PATIENCE_SECONDS = 40.0


@asynccontextmanager
async def a_process(url) -> AsyncIterator[asyncio.subprocess.Process]:
    """Let a worker live in a process of its own."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.worker.process", url, str(LEASE_SECONDS), start_new_session=True
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        await asyncio.wait_for(process.wait(), PATIENCE_SECONDS)


@pytest.mark.parametrize(
    ("handler", "timeout"),
    [("block_the_loop", None), ("nap_in_thread", None), ("nap_in_thread", 60), ("nap", None)],
    ids=["a loop that is blocked", "a thread", "a child", "a loop"],
)
async def test_run_that_outlasts_several_lease_periods_keeps_its_lease(url, store, tmp_path, handler, timeout):
    payload = {"mark": str(tmp_path / "mark"), "seconds": 3.4 * LEASE_SECONDS}
    async with reaping(store), a_process(url):
        run_id = await submitted(store, handler, payload=payload, timeout=timeout)
        assert await ended(store, run_id, PATIENCE_SECONDS) == "succeeded"

    assert await attempts_of(store, run_id) == [(1, "succeeded")]


@pytest.mark.parametrize(
    ("handler", "timeout"),
    [("count_up", None), ("count_up", 60), ("count_up_on_loop", None)],
    ids=["in a thread", "in a child", "on the loop"],
)
async def test_a_checkpoint_outlives_its_worker_killed_without_a_word(url, store, tmp_path, handler, timeout):
    mark = tmp_path / "mark"
    run_id = await submitted(store, handler, payload={"mark": str(mark), "stop_at": 4}, timeout=timeout)
    async with reaping(store):
        async with a_process(url) as process:
            await until(mark.exists, PATIENCE_SECONDS)
            os.kill(process.pid, signal.SIGKILL)
        assert await runs.checkpoints(store, [run_id]) == {run_id: "[1, 2, 3]"}
        async with a_process(url):
            assert await ended(store, run_id, PATIENCE_SECONDS) == "succeeded"

    found = await runs.find(store, run_id)
    assert found
    assert found["attempts"][-1]["result"] == "[2, 1, 2, 3, 4, 5]"
    assert await runs.checkpoint_size(store, run_id) is None, "it has gone with its run"


async def test_a_checkpoint_is_taken_up_to_the_last_byte_of_its_limit(url, store):
    just = "x" * (CHECKPOINT_BYTES_MAX - 2)  # and two quotes

    async def work(run: RunContext) -> str:
        if run.attempt == 1:
            with pytest.raises(InvalidPayload, match=f"has {CHECKPOINT_BYTES_MAX + 1} bytes"):
                await run.checkpoint(just + "x")
            await run.checkpoint(just)
            raise ValueError("half-way")
        return "handed on" if run.saved == just else "lost"

    def work_in_thread(run: RunContext) -> str:
        if run.attempt == 1:
            run.checkpoint_sync(just)
            raise ValueError("half-way")
        return "handed on" if run.saved == just else "lost"

    async with working(url, registry_of(work, work_in_thread)):
        for handler in ("work", "work_in_thread"):
            run_id = await submitted(store, handler)
            assert await ended(store, run_id) == "succeeded"
            found = await runs.find(store, run_id)
            assert found
            assert found["attempts"][-1]["result"] == '"handed on"'


async def test_no_attempt_starts_more_than_a_second_after_its_cancel_was_acknowledged(url, store, tmp_path):
    """Hundreds of runs in the wheel and in line of a real worker, cancelled one by one while they fall due."""
    number, acknowledged, answers = 400, {}, {}
    async with a_process(url):
        ids = [
            await submitted(store, "note_start", payload={"folder": str(tmp_path), "name": str(n)}, delay=1 + n / 50)
            for n in range(number)
        ]
        await until(lambda: store.fetchval("select exists (select from duly.leased)"))
        for n in reversed(range(number)):
            answers[n] = await cancel_run(store, ids[n])
            acknowledged[n] = time.time()
        states = [await ended(store, run_id, PATIENCE_SECONDS) for run_id in ids]

    started = {int(path.name): float(path.read_text()) for path in tmp_path.iterdir()}
    late = {n: at - acknowledged[n] for n, at in started.items() if at - acknowledged[n] > 1}
    assert late == {}
    assert {n for n, answer in answers.items() if answer is CancelAnswer.CANCELLED} & started.keys() == set()
    assert {n for n, state in enumerate(states) if state == "cancelled"} & started.keys() == set()
    assert states.count("cancelled") > number / 4
    assert {n for n, state in enumerate(states) if state == "succeeded"} == started.keys(), "one of the two counts"


async def test_a_child_that_does_not_stop_is_killed_when_its_grace_is_over(url, store, tmp_path):
    mark = tmp_path / "mark"
    async with a_process(url):
        run_id = await submitted(store, "sleep_whatever_comes", payload={"mark": str(mark)}, timeout=600)
        await until(mark.exists, PATIENCE_SECONDS)
        assert await cancel_run(store, run_id) is CancelAnswer.REQUESTED
        assert await ended(store, run_id, PATIENCE_SECONDS) == "cancelled"
        assert not Path(f"/proc/{mark.read_text()}/cmdline").exists()
