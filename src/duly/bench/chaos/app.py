"""The app of the storm: each handler leaves one line in the sink, the target's own record of what happened."""

from __future__ import annotations

import asyncio
import os
import time

from duly import App, Run
from duly.bench.chaos.evidence import SINK, Sink, arrival_of

STEADY_SECONDS = 0.3

app = App()


def _note(run: Run) -> None:
    Sink(os.environ[SINK]).append(arrival_of(run))


@app.handler
async def quick(run: Run) -> None:
    """Take no time, as most runs do."""
    _note(run)


@app.handler
async def steady(run: Run) -> None:
    """Take long enough to be under way when a worker dies."""
    _note(run)
    await asyncio.sleep(STEADY_SECONDS)


@app.handler
def plain(run: Run) -> None:
    """Run in a thread."""
    _note(run)
    time.sleep(0.01)


@app.handler
def guarded(run: Run) -> None:
    """Run with a timeout, so in a child process."""
    _note(run)
