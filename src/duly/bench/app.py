"""The handlers that are measured: one that does nothing, and one that records when it was called by the host's own clock."""

from __future__ import annotations

from datetime import datetime
from time import time

from duly import App, Run
from duly.bench.stamps import Stamps
from duly.domain.jobs.job import Submission
from duly.domain.runs.options import NO_OPTIONS, RunOptions
from duly.domain.runs.run import PRIORITY_DEFAULT, QUEUE_DEFAULT

NOOP, NUMBERED, STAMPED = "noop", "numbered", "stamped"

stamps = Stamps()


def make_app(url: str | None = None) -> App:
    """Register the handlers on an app for the database at `url`."""
    created = App(url)
    created.handler(name=NOOP)(noop)
    created.handler(name=NUMBERED)(numbered)
    created.handler(name=STAMPED)(stamped)
    return created


def one_shot(
    handler: str, *, queue: str = QUEUE_DEFAULT, at: datetime | None = None, options: RunOptions = NO_OPTIONS
) -> Submission:
    """Give a run without a payload, to be submitted."""
    return Submission(handler, "{}", queue, PRIORITY_DEFAULT, at=at, options=options)


async def noop() -> None:
    """Do nothing."""


async def numbered(number: int) -> None:
    """Do nothing with an argument."""


async def stamped(run: Run) -> None:
    """Note the moment of the call, not as the engine sees it but as the host does."""
    stamps.add(run.id.bytes, run.due_at.timestamp(), time())


app = make_app()
