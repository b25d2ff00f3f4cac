"""What commands and containers have in common: the environment a program gets, the time it has to end, and what its end means.

A program gets its payload as JSON on standard input. Exit status 0 is success, 75 (`EX_TEMPFAIL`) asks for another attempt, any
other is a failure for good, unless the job says otherwise; a program that was killed by a signal is tried again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import msgspec

from duly.domain.errors import Refused
from duly.domain.runs.outcome import Failed, Outcome, Succeeded
from duly.domain.runs.run import Run
from duly.domain.targets.program_environment import OURS
from duly.domain.targets.target import Command, Container
from duly.worker.context import RunContext
from duly.worker.targets.output import Output
from duly.worker.targets.process import Exit

# With the lease gone or the worker about to end, nobody waits longer for the outcome.
HURRIED_SECONDS = 1.0
_NO_PAYLOAD = "{}"


def environment_of(context: RunContext, given: Mapping[str, str]) -> dict[str, str]:
    """Give a program's environment: what its job names, and who it is."""
    ours = {
        "RUN_ID": str(context.id),
        "JOB_ID": str(context.job_id),
        "ATTEMPT": str(context.attempt),
        "FENCE": str(context.fence),
        "SCHEDULED_AT": context.scheduled_at.isoformat(),
    }
    return {**given, **{OURS + name: value for name, value in ours.items()}}


def stdin_of(run: Run) -> bytes:
    """Return what a program reads."""
    return (run.payload or _NO_PAYLOAD).encode()


def patience(context: RunContext, timeout: float | None, grace_seconds: float) -> Callable[[], float]:
    """Say, at the moment of a stop, how long the program has: less when we are the ones in a hurry."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout if timeout is not None else float("inf")

    def seconds() -> float:
        asked = context.cancelled or loop.time() >= deadline - 0.05
        return grace_seconds if asked else min(HURRIED_SECONDS, grace_seconds)

    return seconds


def outcome_of(ended: Exit, target: Command | Container, output: Output) -> Outcome:
    """Say what the end of a program means."""
    if ended.status in target.ok:
        result, reason = output.kept
        detail = None if ended.used is None else msgspec.json.encode({"used": ended.used}).decode()
        return Succeeded(result, detail, reason)
    reason, detail = _reason(ended, output), _detail(ended, output)
    if ended.status in target.retry:
        return Failed(reason, detail=detail, exit=ended.status)
    return Failed(reason, retryable=ended.signal is not None, detail=detail, exit=ended.status)


def check_asked(asked: float | None, what: str, most: float, says: str) -> None:
    """Check what a job asks for. Raises Refused when that is nothing, or more than there is for it."""
    if asked is None:
        return
    if not asked > 0:  # Less than nothing means without limit, to those who set it.
        raise Refused(f"the job asks for {asked} {what}; ask for more than 0, or leave it out")
    if asked > most:
        raise Refused(f"the job asks for {asked} {what}; {says} {most}")


def _reason(ended: Exit, output: Output) -> str:
    is_out_of_memory = ended.used is not None and ended.used.out_of_memory
    words = f"out of memory, {ended.words}" if is_out_of_memory else ended.words
    return f"{words}: {output.last_words}" if output.last_words else words


def _detail(ended: Exit, output: Output) -> str:
    told: dict[str, object] = {"exit_status": ended.status, "signal": ended.signal, "stderr": output.complaint}
    if ended.used is not None:
        told["used"] = ended.used
    return msgspec.json.encode(told).decode()
