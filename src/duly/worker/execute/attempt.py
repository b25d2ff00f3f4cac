"""One attempt: call the handler and return the outcome. Nothing here raises, and nothing here touches the store."""

from __future__ import annotations

import asyncio
import traceback
from typing import Any

import msgspec

from duly.domain.errors import InvalidArguments, InvalidWorkflow
from duly.domain.runs.outcome import Cancelled, Deferral, Failed, Outcome, Snoozed, Succeeded, TimedOut
from duly.domain.runs.payload import encode_result, storable
from duly.domain.runs.retry_rules import kinds_of
from duly.domain.runs.run import Run
from duly.worker import context as handlers_hand
from duly.worker.context import LeaseLost, NonRetryable, RunContext, Snooze, current
from duly.worker.handlers import Handler
from duly.worker.targets import TargetHandler

_encoder = msgspec.json.Encoder()
_NOTHING = Succeeded()
_TRACEBACK_CHARACTERS_MAX = 16_384
INTERRUPTED = "interrupted: the worker stopped before the handler had ended"


async def attempt_on_loop(handler: Handler, context: RunContext, payload: str | None, timeout: float | None) -> Outcome:
    """Run an `async def` handler."""
    if context.refused is not None:
        return Failed(context.refused, retryable=False)
    token = current.set(context)
    try:
        kwargs = handler.decode(payload)
        if timeout is None:
            return succeeded(await handler.call(context, kwargs))
        return await _within(handler, context, kwargs, timeout)
    except BaseException as error:  # noqa: BLE001 - whatever a handler raises is an outcome, never our end
        return outcome_of(error, context)
    finally:
        current.reset(token)


async def _within(handler: Handler, context: RunContext, kwargs: dict[str, Any], timeout: float) -> Outcome:
    scope = asyncio.timeout(timeout)
    try:
        async with scope:
            return succeeded(await handler.call(context, kwargs))
    except TimeoutError as error:
        if not scope.expired():
            raise
        return TimedOut(timeout, _detail(error))


async def attempt_target(target: TargetHandler, context: RunContext, run: Run) -> Outcome | Deferral:
    """Run a run's target, within the run's timeout unless the target applies it itself."""
    if run.refused is not None:
        return Failed(run.refused, retryable=False)
    seconds = None if target.applies_timeout else run.policy.timeout_seconds
    scope = asyncio.timeout(seconds)
    try:
        async with scope:
            return await target.attempt(context, run)
    except BaseException as error:  # noqa: BLE001 - as above
        if seconds is not None and scope.expired() and isinstance(error, TimeoutError):
            return TimedOut(seconds)
        return outcome_of(error, context)


def attempt_in_thread(handler: Handler, context: RunContext, payload: str | None) -> Outcome:
    """Run a plain function; the caller's thread is the handler's."""
    if context.refused is not None:
        return Failed(context.refused, retryable=False)
    token = current.set(context)
    try:
        return succeeded(handler.call(context, handler.decode(payload)))
    except BaseException as error:  # noqa: BLE001 - as above
        return outcome_of(error, context)
    finally:
        current.reset(token)


def succeeded(value: Any) -> Outcome:
    """Turn a handler's return value into an outcome: stored as JSON when it fits, safe to store whatever it is."""
    if value is None:
        return _NOTHING
    try:
        text, reason = encode_result(value)
    except (TypeError, ValueError) as error:
        return Failed(storable(f"the result is not JSON: {error}"), retryable=False)
    return Succeeded(text, reason=reason)


def outcome_of(error: BaseException, context: RunContext) -> Outcome:
    """Return the outcome of an exception."""
    match error:
        case Snooze():
            return Snoozed(error.delay)
        case asyncio.CancelledError() | handlers_hand.Cancelled() | LeaseLost() if context.cancelled:
            return Cancelled()
        case asyncio.CancelledError() if _is_cancelled():
            return Failed(INTERRUPTED)
        case NonRetryable() | InvalidArguments() | InvalidWorkflow():  # these would fail the next time, too
            return Failed(_reason(error), retryable=False, detail=_detail(error), kinds=kinds_of(type(error)))
    return Failed(_reason(error), detail=_detail(error), kinds=kinds_of(type(error)))


def _is_cancelled() -> bool:
    """Return whether this task itself was cancelled, and not something that its handler waited for."""
    try:
        task = asyncio.current_task()
    except RuntimeError:  # a thread has none
        return False
    return task is not None and task.cancelling() > 0


def unprepared(error: BaseException) -> Failed:
    """Return the outcome of a run whose handler could not even be called, because of an error of ours."""
    return Failed(_reason(error), detail=_detail(error))


def _reason(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - an exception whose text raises is still an outcome
        text = "(its text could not be read)"
    return storable(f"{type(error).__name__}: {text}" if text else type(error).__name__, 2_000)


def _detail(error: BaseException) -> str:
    try:
        lines = "".join(traceback.format_exception(error))
    except Exception:  # noqa: BLE001 - as above
        lines = type(error).__name__
    return _encoder.encode(
        {"type": storable(type(error).__name__), "traceback": storable(lines[-_TRACEBACK_CHARACTERS_MAX:])}
    ).decode()
