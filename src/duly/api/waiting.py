"""Waiting for the end of a run, as `Prefer: wait=n` asks for; between two looks nothing is held."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from duly.api.operations import Answer, Call
from duly.api.routes.runs import shown_run
from duly.store import runs
from duly.wire.jobs import CreatedJob

WAIT_SECONDS_MAX = 60
_LOOK_SECONDS_MIN, _LOOK_SECONDS_MAX = 0.02, 0.25
_WAIT = re.compile(r"(?:^|[,;\s])wait\s*=\s*(\d{1,6})\s*(?:$|[,;\s])", re.ASCII | re.IGNORECASE)


def seconds_asked(prefer: str | None) -> int | None:
    """Read how long to wait, at most a minute; nothing when it is not asked for."""
    found = _WAIT.search(prefer or "")
    return min(int(found[1]), WAIT_SECONDS_MAX) if found else None


async def for_the_end(call: Call[Any, Any], made: CreatedJob, seconds: int, otherwise: Answer) -> Answer:
    """Wait until a one-shot has ended: then 200 with its run, else what is answered otherwise."""
    deadline, pause = call.clock.monotonic() + seconds, _LOOK_SECONDS_MIN
    applied = {**otherwise.headers, "Preference-Applied": f"wait={seconds}"}
    while True:
        async with call.open() as session:
            run = await shown_run(session, call.tenant, made.job_id)
        if run.state in runs.FINAL:
            return Answer(200, msgspec.structs.replace(made, run=run), applied)
        left = deadline - call.clock.monotonic()
        if left <= 0:
            return Answer(202, made, applied)
        await call.clock.sleep(min(pause, left))
        pause = min(_LOOK_SECONDS_MAX, pause * 1.5)
