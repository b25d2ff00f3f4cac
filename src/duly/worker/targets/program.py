"""Programs: what commands and containers share: the environment, the grace period, and the meaning of an exit status.

A program gets its payload as JSON on standard input. Exit status 0 is success, 75 (`EX_TEMPFAIL`) asks for another
attempt, any other is a final failure, unless the job says otherwise; a program that was killed by a signal is retried.
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

# With the lease lost or the worker about to end, the outcome is awaited no longer.
HURRIED_SECONDS = 1.0
_NO_PAYLOAD = "{}"


def environment_of(context: RunContext, given: Mapping[str, str]) -> dict[str, str]:
    """Return a program's environment: the job's variables, and the run's."""
    ours = {
        "RUN_ID": str(context.id),
        "JOB_ID": str(context.job_id),
        "ATTEMPT": str(context.attempt),
        "FENCE": str(context.fence),
        "SCHEDULED_AT": context.scheduled_at.isoformat(),
    }
    return {**given, **{OURS + name: value for name, value in ours.items()}}


def stdin_of(run: Run) -> bytes:
    """Return a program's standard input."""
    return (run.payload or _NO_PAYLOAD).encode()


def patience(context: RunContext, timeout: float | None, grace_seconds: float) -> Callable[[], float]:
    """Return, at the moment of a stop, the program's grace period: less when we are in a hurry."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout if timeout is not None else float("inf")

    def seconds() -> float:
        is_stopped = context.cancelled or loop.time() >= deadline - 0.05
        return grace_seconds if is_stopped else min(HURRIED_SECONDS, grace_seconds)

    return seconds


def outcome_of(ended: Exit, target: Command | Container, output: Output) -> Outcome:
    """Return the outcome of a program's end."""
    if ended.status in target.ok:
        result, reason = output.kept
        detail = None if ended.used is None else msgspec.json.encode({"used": ended.used}).decode()
        return Succeeded(result, detail, reason)
    reason, detail = _reason(ended, output), _detail(ended, output)
    if ended.status in target.retry:
        return Failed(reason, detail=detail, exit=ended.status)
    return Failed(reason, retryable=ended.signal is not None, detail=detail, exit=ended.status)


def check_requested(requested: float | None, what: str, most: float, says: str) -> None:
    """Check a job's limits. Raises Refused when one is nothing, or more than the ceiling."""
    if requested is None:
        return
    if not requested > 0:  # zero or less would mean no limit
        raise Refused(f"the job asks for {requested} {what}; ask for more than 0, or leave it out")
    if requested > most:
        raise Refused(f"the job asks for {requested} {what}; {says} {most}")


def _reason(ended: Exit, output: Output) -> str:
    is_out_of_memory = ended.used is not None and ended.used.out_of_memory
    words = f"out of memory, {ended.words}" if is_out_of_memory else ended.words
    return f"{words}: {output.last_words}" if output.last_words else words


def _detail(ended: Exit, output: Output) -> str:
    detail: dict[str, object] = {"exit_status": ended.status, "signal": ended.signal, "stderr": output.complaint}
    if ended.used is not None:
        detail["used"] = ended.used
    return msgspec.json.encode(detail).decode()
