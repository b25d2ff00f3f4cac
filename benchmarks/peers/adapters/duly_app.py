"""The handler that Duly's workers run."""

from __future__ import annotations

from benchmarks.peers.hits import hit
from duly import App

app = App()


@app.handler
async def noop(ref: float) -> None:
    """Record the start."""
    hit(ref)
