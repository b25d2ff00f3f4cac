"""An app whose handlers do what must be survived. Children load it as `tests.worker.app:app`."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from duly.worker.context import NonRetryable, RunContext, Snooze
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


def write(mark: str, text: str) -> None:
    """Write a file so that a reader sees all of it or nothing."""
    Path(f"{mark}.new").write_text(text)
    Path(f"{mark}.new").rename(mark)
