"""An app whose handlers do what must be survived. ChildProcesses load it as `tests.worker.app:app`."""

import asyncio
import contextlib
import ctypes
import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from duly.worker.context import NonRetryable, RunContext, Snooze
from duly.worker.execute.run_logging import RunLogHandler
from duly.worker.handlers import Handler, Registry

PATH = "tests.worker.app:app"


class App:
    """As much of an app as a worker needs."""

    def __init__(self) -> None:
        self.registry = Registry()

    def handler(self, function: Any) -> Any:
        """Register a function."""
        self.registry.add(Handler(function))
        return function


app = App()


@app.handler
def add(a: int, b: int) -> int:
    return a + b


@app.handler
async def add_on_loop(a: int, b: int) -> int:
    await asyncio.sleep(0)
    return a + b


@app.handler
def pid_of_child() -> int:
    return os.getpid()


@app.handler
def fail(words: str) -> None:
    raise ValueError(words)


@app.handler
def refuse() -> None:
    raise NonRetryable("never")


@app.handler
def snooze() -> None:
    raise Snooze(60)


@app.handler
def crash() -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


@app.handler
async def crash_on_loop() -> None:
    os._exit(3)


@app.handler
def crash_once(run: RunContext, mark: str) -> str:
    """Die at the first attempt only."""
    if not Path(mark).exists():
        Path(mark).touch()
        os._exit(3)
    return f"attempt {run.attempt}"


@app.handler
def sleep_with_child(mark: str) -> None:
    """Start a process, write down both numbers, and stay."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    write(mark, f"{os.getpid()} {child.pid}")
    child.wait()


@app.handler
def sleep_until_stopped(mark: str) -> None:
    """Tidy up when stopped."""
    write(mark, "started")
    try:
        time.sleep(600)
    finally:
        write(mark, "tidied")


@app.handler
def sleep_whatever_comes(mark: str) -> None:
    """Not even cancellation ends this."""
    write(mark, str(os.getpid()))
    while True:
        with contextlib.suppress(BaseException):
            time.sleep(600)


@app.handler
async def wait_until_stopped(mark: str) -> None:
    """Tidy up when stopped, on a loop."""
    write(mark, "started")
    try:
        await asyncio.sleep(600)
    finally:
        write(mark, "tidied")


@app.handler
async def nap(mark: str, seconds: float) -> None:
    """Sleep, on the loop."""
    write(mark, "started")
    await asyncio.sleep(seconds)


@app.handler
def nap_in_thread(mark: str, seconds: float) -> None:
    """Sleep, where nobody can interrupt it."""
    write(mark, "started")
    time.sleep(seconds)


@app.handler
def wait_for_release(mark: str, release: str) -> None:
    """Work until somebody says that it is enough."""
    write(mark, "started")
    while not Path(release).exists():
        time.sleep(0.01)


@app.handler
def count_steps(run: RunContext, mark: str, crash_at: int) -> list[int]:
    """Count to five, one checkpoint a step, and die once on the way."""
    done: list[int] = run.saved or []
    for step in range(len(done) + 1, 6):
        if step == crash_at and not Path(mark).exists():
            Path(mark).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        done.append(step)
        run.checkpoint_sync(done)
        run.progress_sync(step, 5, f"step {step}")
        run.log.info("step", number=step)
    return done


@app.handler
def say(run: RunContext) -> None:
    """Log whatever may come."""
    run.log.info("plain", count=1)
    run.log.warning("\0 and \ud800", odd=object(), nul="\0", deep={"\ud800": [1, float("nan")]})
    run.log.error(ValueError("not even text"))  # type: ignore[arg-type]


@app.handler
def say_much(run: RunContext) -> None:
    """Log a line that is larger than what a child may say at once, and lines without end."""
    run.log.info("large", body="a" * 5_000_000)
    run.log.info("many", **{f"field_{number}": '"' * 5_000 for number in range(1_000)})
    for _ in range(20):
        run.log.info("again", body="b" * 100_000)


def write(mark: str, text: str) -> None:
    """Write a file so that a reader sees all of it or nothing."""
    Path(f"{mark}.new").write_text(text)
    Path(f"{mark}.new").rename(mark)


@app.handler
def speak(run: RunContext) -> None:
    """Write to both streams in every way there is."""
    print("plainly")
    print("half a line", end="", flush=True)
    print(" and its end")
    print("wrong", file=sys.stderr)
    os.write(1, b"past Python\n\xff\xfe\n")
    subprocess.run([sys.executable, "-c", "print('by a child')"], check=True)
    logging.getLogger("mine").warning("by a logger, %s", "formatted")
    run.log.info("by the run")
    print("without an end", end="")


@app.handler
async def speak_on_loop() -> None:
    """Write, on a loop of its own."""
    print("from the loop")


@app.handler
def shout(lines: int, length: int) -> None:
    """Write without end."""
    for _ in range(lines):
        print("x" * length)


@app.handler
def leave_one_behind(mark: str) -> None:
    """Start a process that goes on writing after we have ended."""
    code = "import sys, time, pathlib\nwhile True: print('late', flush=True); time.sleep(0.02)"
    child = subprocess.Popen([sys.executable, "-c", code])
    write(mark, str(child.pid))
    print("ended")


@app.handler
def report_often(run: RunContext, times: int) -> None:
    """Say how far it has come, in a tight loop."""
    for number in range(times + 1):
        run.progress_sync(number, times)


@app.handler
def count_up(run: RunContext, mark: str, stop_at: int) -> list[int]:
    """Save each step; at one of them wait to be killed, once."""
    done: list[int] = run.saved or []
    for step in range(len(done) + 1, 6):
        if step == stop_at and run.attempt == 1:
            write(mark, "here")
            time.sleep(600)
        done.append(step)
        run.checkpoint_sync(done)
    return [run.attempt, *done]


@app.handler
async def count_up_on_loop(run: RunContext, mark: str, stop_at: int) -> list[int]:
    """Save each step; at one of them wait to be killed, once."""
    done: list[int] = run.saved or []
    for step in range(len(done) + 1, 6):
        if step == stop_at and run.attempt == 1:
            write(mark, "here")
            await asyncio.sleep(600)
        done.append(step)
        await run.checkpoint(done)
    return [run.attempt, *done]


@app.handler
async def block_the_loop(mark: str, seconds: float) -> None:
    """Keep the loop from turning, and the interpreter busy."""
    write(mark, "started")
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        sum(range(1_000))


@app.handler
def hold_the_interpreter(mark: str, pipe: str) -> None:
    """Let no other thread of this process run until somebody writes into a pipe, as a computation in C does."""
    descriptor = os.open(pipe, os.O_RDWR)
    write(mark, "started")
    ctypes.PyDLL(None).read(descriptor, ctypes.create_string_buffer(1), 1)
    os.close(descriptor)


@app.handler
async def block_until_told(mark: str, pipe: str) -> None:
    """Keep the loop from turning until somebody writes into a pipe."""
    descriptor = os.open(pipe, os.O_RDWR)
    write(mark, "started")
    os.read(descriptor, 1)
    os.close(descriptor)


@app.handler
async def add_line(path: str) -> None:
    """Write down which process has run it."""
    with Path(path).open("a") as file:
        file.write(f"{os.getpid()}\n")


@app.handler
def add_line_in_thread(path: str) -> None:
    """Write down which process has run it."""
    with Path(path).open("a") as file:
        file.write(f"{os.getpid()}\n")


@app.handler
async def note_start(folder: str, name: str) -> None:
    """Write down when it was called."""
    Path(folder, name).write_text(str(time.time()))


logging.getLogger("mine").addHandler(RunLogHandler())
