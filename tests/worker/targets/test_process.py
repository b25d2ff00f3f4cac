"""A process of a run: whoever waits for it may be cancelled at any moment, and nothing is left of it."""

import asyncio
import os
import select
import subprocess
import sys
from pathlib import Path

import pytest

from duly.worker.targets import process as module
from duly.worker.targets.process import Exit, Launch, Process, output_of, run
from duly.worker.targets.wires import Wires
from tests.worker.stories import until
from tests.worker.targets.scene import SHELL, a_mark, marked

SLEEP = "/bin/sleep"


def heard(stream: str, said: bytes) -> None:
    """Nobody listens."""


async def test_cancelled_again_in_the_moment_of_its_start_it_is_killed(monkeypatch):
    mark, start = a_mark(), Process.start

    async def started(*arguments) -> Process:
        process = await start(*arguments)
        await until(lambda: marked(mark))
        running.cancel()  # for the second time
        return process

    monkeypatch.setattr(Process, "start", started)
    running = asyncio.create_task(run(Launch((SLEEP, mark)), b"", heard, lambda: 0.0))
    await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    await until(lambda: not marked(mark))


async def test_a_worker_that_dies_before_it_has_heard_all_leaves_nothing_behind():
    """Then the kernel does not only hang up: what the launcher reads first is that the line was torn."""
    mark = a_mark()
    speak = f"import os, sys, time; os.write({module.STATUS_FD}, b'{{}}'); time.sleep(int(sys.argv[1]))"
    launch = Launch((sys.executable, "-I", "-S", "-c", speak, mark), file=b"")
    wires = Wires(b"", {}, (b"", None), -1)
    orders, handed_down = module._orders(launch, wires), (wires.control, *wires.files)
    argv = [sys.executable, "-I", "-S", module._LAUNCHER, *orders]
    with subprocess.Popen(argv, stdin=wires.stdin, env={}, pass_fds=handed_down):
        wires.close_theirs()
        await until(lambda: select.select([wires.socket], [], [], 0)[0])

        wires.close_ours()

        await until(lambda: not marked(mark))


async def test_a_pipe_that_somebody_holds_open_is_let_go_at_its_end(monkeypatch):
    monkeypatch.setattr(module, "_EMPTYING_SECONDS", 0.05)
    mark, before = a_mark(), _pipes()
    holder = Launch((SHELL, "-c", f"{SLEEP} {mark} &"), ends_tree=False)

    assert await run(holder, b"", heard, lambda: 0.0) == Exit(0)
    try:
        await until(lambda: _pipes() <= before)
    finally:
        for pid in marked(mark):
            os.kill(pid, 9)


async def test_query_process_ends_when_its_caller_is_cancelled():
    mark = a_mark()
    asking = asyncio.create_task(output_of((SLEEP, mark), {}, 60.0))
    await until(lambda: marked(mark))
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking

    await until(lambda: not marked(mark))


def _pipes() -> int:
    """Count the pipes that we hold."""
    held = [path.readlink() for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]
    return sum(str(path).startswith("pipe:") for path in held)
