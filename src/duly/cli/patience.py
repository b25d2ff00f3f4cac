"""Patience: whoever waits for a run or a workflow goes on waiting while the database is away, because that goes on as well."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar
from uuid import UUID

from duly.cli.say import say
from duly.clock import SystemClock
from duly.sdk.waiting import Silence
from duly.store.connection.database import Unavailable

T = TypeVar("T")
_PAUSE_SECONDS = 0.5


class Patience:
    """Asks about something, again and again while the database is away or has no room; `look_again` is the command for later."""

    def __init__(self, what: str, look_again: str) -> None:
        self._goes_on = f"The {what} goes on without us; to look again: {look_again}"
        self._clock = SystemClock()

    async def ask(self, question: Callable[[], Awaitable[T]]) -> T:
        """Give the answer. Raises Unavailable, with where to look again, after a minute without one."""
        silence: Silence | None = None
        while True:
            try:
                return await question()
            except Unavailable as error:
                if silence is None:
                    say(f"{error}; waiting", err=True)
                    silence = Silence(self._clock, self._goes_on)
                silence.bear(error)
            await self._clock.sleep(_PAUSE_SECONDS)


def about_run(run_id: UUID) -> Patience:
    """Be patient about a run."""
    return Patience("run", f"duly logs {run_id} -f")


def about_workflow(workflow_id: UUID) -> Patience:
    """Be patient about a workflow."""
    return Patience("workflow", f"duly workflows show {workflow_id} --watch")
