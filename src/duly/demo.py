"""The app that `duly up` runs by default: one handler, fired every ten seconds, so that the screen is never empty."""

from __future__ import annotations

from datetime import timedelta

from duly import App, Run

NAME = "hello"
EVERY = timedelta(seconds=10)

app = App()


@app.handler
async def hello(run: Run, name: str = "world") -> str:
    """Say hello."""
    run.log.info("hello", name=name, scheduled_at=run.scheduled_at.isoformat())
    return f"Hello, {name}!"
