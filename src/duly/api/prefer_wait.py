"""Waiting for the end of a run, as `Prefer: wait=n` asks for; nothing is held between two looks."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial

import msgspec

from duly.api.request import watched_connection
from duly.api.response import Response
from duly.api.views.runs import shown_run, status_of_one_shot
from duly.clock import Clock
from duly.domain.errors import NotFound
from duly.domain.runs.run import FINAL_STATES
from duly.store.connection.database import Database
from duly.wire.jobs.jobs import CreatedJob
from duly.wire.runs import Run

WAIT_SECONDS_MAX = 60
HTTP_ACCEPTED = 202
_LOOK_SECONDS_MIN, _LOOK_SECONDS_MAX = 0.02, 0.25
_WAIT = re.compile(r"(?:^|[,;\s])wait\s*=\s*(\d{1,6})\s*(?:$|[,;\s])", re.ASCII | re.IGNORECASE)


def requested_seconds(prefer: str | None) -> int | None:
    """Parse how long to wait, at most a minute; None without the header."""
    found = _WAIT.search(prefer or "")
    return min(int(found[1]), WAIT_SECONDS_MAX) if found else None


class Waiter(msgspec.Struct, frozen=True):
    """A caller that waits: the tenant, the clock, and how to open a session."""

    tenant: int
    clock: Clock
    open: Callable[[], AbstractAsyncContextManager[Database]]


def unless_ended(waiter: Waiter, prefer: str | None, answer: Response) -> Response:
    """Delay the response to an accepted one-shot until it ends, if requested; a repeat waits again."""
    seconds = requested_seconds(prefer)
    if seconds is None or answer.status != HTTP_ACCEPTED:
        return answer
    body = answer.body
    created = msgspec.json.decode(body, type=CreatedJob) if isinstance(body, bytes) else body
    if created.run_id is None:
        return answer
    return msgspec.structs.replace(answer, then=partial(for_the_end, waiter, created, seconds, answer))


async def for_the_end(waiter: Waiter, created: CreatedJob, seconds: int, otherwise: Response) -> Response:
    """Wait until a one-shot has ended: then 200 with its run, else the usual response."""
    deadline, pause = waiter.clock.monotonic() + seconds, _LOOK_SECONDS_MIN
    applied = {**otherwise.headers, "Preference-Applied": f"wait={seconds}"}
    async with watched_connection() as hung_up:
        wake = asyncio.Event()
        hung_up.add_done_callback(lambda _: wake.set())
        while True:
            async with waiter.open() as session:
                run = await _look(session, waiter.tenant, created)
            if run is not None and run.state in FINAL_STATES:
                ended = msgspec.structs.replace(
                    created, run=run, status=status_of_one_shot(run.state), next_run_at=None
                )
                return Response(200, ended, applied)
            left = deadline - waiter.clock.monotonic()
            if left <= 0 or hung_up.done():
                return Response(HTTP_ACCEPTED, created, applied)
            await waiter.clock.wait(wake, min(pause, left))
            pause = min(_LOOK_SECONDS_MAX, pause * 1.5)


async def _look(session: Database, tenant: int, created: CreatedJob) -> Run | None:
    """Read the run of a one-shot; one with a definition of its own has none before it is staged."""
    assert created.run_id is not None
    try:
        return await shown_run(session, tenant, created.run_id)
    except NotFound:
        if created.run_id == created.job_id:
            raise
        return None
