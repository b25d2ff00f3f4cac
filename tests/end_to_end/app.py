"""The app of the end-to-end tests: each handler leaves one line in the sink, the target's own record of what happened."""

import asyncio
import os
import time
from typing import Any

import msgspec

from duly.bench.chaos.evidence import SINK, Sink, arrival_of
from duly.worker.context import NonRetryable, RunContext
from duly.worker.handlers import Handler, Registry

PATH = "tests.end_to_end.app:app"
LONG_SECONDS = 3.5
STEADY_SECONDS = 0.5
LASTING_SECONDS = 2.0


class App:
    """As much of an app as a worker needs."""

    def __init__(self) -> None:
        self.registry = Registry()

    def handler(self, function: Any) -> Any:
        """Register a function."""
        self.registry.add(Handler(function))
        return function


app = App()


def note(run: RunContext) -> None:
    """Leave a line."""
    Sink(os.environ[SINK]).append(arrival_of(run))


@app.handler
async def quick(run: RunContext) -> None:
    """What most runs are like."""
    note(run)


@app.handler
async def steady(run: RunContext) -> None:
    """Long enough to be under way when a worker dies."""
    note(run)
    await asyncio.sleep(STEADY_SECONDS)


@app.handler
async def lasting(run: RunContext) -> None:
    """Surely under way when a worker dies that was seen to begin it, and soon over when it is done again."""
    note(run)
    await asyncio.sleep(LASTING_SECONDS if run.attempt == 1 else 0)


@app.handler
def plain(run: RunContext) -> None:
    """In a thread."""
    note(run)
    time.sleep(0.01)


@app.handler
def guarded(run: RunContext) -> None:
    """With a timeout, so in a child process."""
    note(run)


@app.handler
async def heavy(run: RunContext, text: str) -> None:
    """With much to carry, so that a disk is soon full."""
    note(run)


@app.handler
async def long(run: RunContext) -> None:
    """Longer than it takes to lose a lease."""
    note(run)
    await asyncio.sleep(LONG_SECONDS)


@app.handler
async def kept(run: RunContext, key: str, number: int) -> None:
    """Notes when it comes in and when it goes out, under a key."""
    _note_passage(run, key, number, "in")
    await asyncio.sleep(0.2)
    _note_passage(run, key, number, "out")


def _note_passage(run: RunContext, key: str, number: int, way: str) -> None:
    passage = [way, key, number, run.attempt, run.due_at.timestamp(), time.time(), os.getpid()]
    with open(os.environ[SINK] + ".passages", "ab", buffering=0) as file:  # noqa: PTH123 - one write, one line
        file.write(msgspec.json.encode(passage) + b"\n")


@app.handler
async def node(run: RunContext, seconds: float = 0.0, flaps: int = 0, *, fails: bool = False) -> int:
    """A node of a workflow: it may fail for good, or a few times before it succeeds."""
    note(run)
    await asyncio.sleep(seconds)
    if fails:
        raise NonRetryable("broken")
    if run.attempt <= flaps:
        raise RuntimeError("flapping")
    return len(run.parents)
