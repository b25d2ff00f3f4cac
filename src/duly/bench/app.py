"""The handlers that are measured: one that does nothing, and one that notes when it was called by the host's own clock."""

from __future__ import annotations

from time import time

from duly import App, Run
from duly.bench.stamps import Stamps

NOOP, STAMPED = "noop", "stamped"

stamps = Stamps()


def make_app(url: str | None = None) -> App:
    """Register the handlers on an app for the database at `url`."""
    made = App(url)
    made.handler(name=NOOP)(noop)
    made.handler(name=STAMPED)(stamped)
    return made


async def noop() -> None:
    """Do nothing."""


async def stamped(run: Run) -> None:
    """Note the moment of the call, not as the engine sees it but as the host does."""
    stamps.add(run.id.bytes, run.due_at.timestamp(), time())


app = make_app()
