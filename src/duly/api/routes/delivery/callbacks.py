"""Callbacks: reports of webhook receivers after they have answered 202.

No key is needed: the token in the path, which only the receiver of that attempt was given, is the right to report its
outcome. docs/how-to/completion-callbacks.md says how a receiver is written.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from duly.api.operations import OPEN, Call, Routes
from duly.api.problems import Refusal
from duly.api.request import read_duration
from duly.api.response import Response
from duly.domain.errors import InvalidOption, NotFound
from duly.domain.jobs.job import DELAY_MAX
from duly.domain.runs import payload as payloads
from duly.domain.runs.outcome import Failed, Succeeded
from duly.domain.runs.progress import progress_of
from duly.moves.workers.receive import EXTENSION_MAX, extend, receive, report
from duly.store.boxes.leased import Handle
from duly.wire.callbacks import CallbackExtended, CallbackExtension, CallbackOutcome, CallbackProgress, CallbackSettled
from duly.wire.schema.shapes import Nothing

_IN_ATTEMPTS = "The report of a receiver is recorded with the run's attempts."
routes = Routes("callbacks", scope=OPEN, in_session=False, takes_key=False, unaudited=_IN_ATTEMPTS)
_REASON_CHARACTERS_MAX = 2_000
_REMEDY = "Use the whole X-Callback-Token of the run's last request."


@routes.add(
    "POST /v1/callbacks/{token}",
    responses={200: CallbackSettled},
    refuses=("attempt_over", "conflict", "invalid_option", "rate_limited"),
)
async def settle_callback(call: Call[Nothing, CallbackOutcome]) -> Response:
    """Report the outcome of a webhook that was answered 202. Repeated with the same outcome, it answers the same.

    The token is valid for one attempt. A failure is retried as any other, and the next attempt has another token.
    """
    with _answered_alike():
        received = await receive(call.database, await _handle(call), _outcome(call.body), call.services.rng)
    if received.queue is not None:
        call.wake(received.queue)
    return Response(200, CallbackSettled.of(received))


@routes.add(
    "POST /v1/callbacks/{token}/extend",
    responses={200: CallbackExtended},
    refuses=("attempt_over", "conflict", "invalid_option", "rate_limited"),
)
async def extend_callback(call: Call[Nothing, CallbackExtension]) -> Response:
    """Extend the deadline of an attempt. Past its deadline the attempt times out, and is retried or buried."""
    with _answered_alike():
        handle = await _handle(call)
        span = read_duration(call.body.within, "within", timedelta(seconds=1), EXTENSION_MAX)
        deadline_at = await extend(call.database, handle, span)
    return Response(200, CallbackExtended(run_id=handle[0], deadline_at=deadline_at))


@routes.add(
    "POST /v1/callbacks/{token}/progress", responses={204: None}, refuses=("attempt_over", "conflict", "rate_limited")
)
async def report_callback(call: Call[Nothing, CallbackProgress]) -> Response:
    """Report the progress of a run. Once a second suffices; the deadline stays as it is."""
    with _answered_alike():
        handle, said = await _handle(call), call.body
        await report(call.database, handle, progress_of(said.done, said.total, said.note))
    return Response(204)


@contextmanager
def _answered_alike() -> Iterator[None]:
    """Answer every invalid token alike, with a remedy for receivers, who see no lists."""
    try:
        yield
    except NotFound as error:
        raise Refusal("not_found", str(error), remedy=_REMEDY) from None


async def _handle(call: Call[Any, Any]) -> Handle:
    """Parse the token; an invalid one never reaches the database. Raises NotFound, Refusal."""
    handle = None if call.callbacks is None else call.callbacks.read(call.path["token"])
    if handle is None:
        raise NotFound(
            "no such callback; a token is valid for one attempt, while it runs and while its history is kept"
        )
    await call.admit(1)
    return handle


def _outcome(requested: CallbackOutcome) -> Succeeded | Failed:
    if requested.outcome == "succeeded":
        if requested.reason is not None or not requested.retry or requested.retry_after is not None:
            raise InvalidOption(
                "outcome is succeeded, but reason, retry and retry_after are for failures; leave them out"
            )
        result, not_kept = (None, None) if requested.result is None else payloads.encode_result(requested.result)
        return Succeeded(result, reason=not_kept)
    if requested.result is not None:
        raise InvalidOption("outcome is failed, but a result is for successes; leave it out, or use reason")
    if not requested.retry and requested.retry_after is not None:
        raise InvalidOption("retry is false, but retry_after is given; leave one of them out")
    after = requested.retry_after
    delay = None if after is None else read_duration(after, "retry_after", timedelta(), DELAY_MAX)
    reason = payloads.storable(requested.reason or "the receiver reported a failure", _REASON_CHARACTERS_MAX)
    return Failed(reason, requested.retry, retry_after=delay)
