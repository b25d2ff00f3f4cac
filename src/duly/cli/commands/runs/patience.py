"""Patience: waiting for a run or a workflow goes on while the server does not answer, because the work goes on too."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import TypeVar
from uuid import UUID

from duly.cli.render.say import say
from duly.client.errors import ApiError, Unavailable
from duly.clock import SystemClock

T = TypeVar("T")
_PAUSE_SECONDS = 0.5
_SILENCE_SECONDS_MAX = 60.0


def say_waiting(error: ApiError) -> None:
    """Print why it waits."""
    why = re.sub(r"; given up after \d+ (try|tries)\.?$", "", error.detail)
    say(f"{why.rstrip('.')}; waiting", err=True)


class Patience:
    """Repeats a request while the server does not answer; `look_again` is the command for later."""

    def __init__(self, what: str, look_again: str) -> None:
        self._goes_on = f"The {what} goes on without us; to look again: {look_again}"
        self._clock = SystemClock()

    async def until_answered(self, request: Callable[[], Awaitable[T]]) -> T:
        """Return the response. Raises Unavailable, with where to look again, after a minute without one."""
        silent_since: float | None = None
        while True:
            try:
                return await request()
            except Unavailable as error:
                now = self._clock.monotonic()
                if silent_since is None:
                    say_waiting(error)
                    silent_since = now
                if now - silent_since >= _SILENCE_SECONDS_MAX:
                    raise Unavailable(f"{error.detail}, for {now - silent_since:.0f} s. {self._goes_on}") from error
            await self._clock.sleep(_PAUSE_SECONDS)


def about_run(run_id: UUID) -> Patience:
    """Wait patiently for a run."""
    return Patience("run", f"duly logs {run_id} -f")


def about_workflow(workflow_id: UUID) -> Patience:
    """Wait patiently for a workflow."""
    return Patience("workflow", f"duly workflows show {workflow_id} --watch")
