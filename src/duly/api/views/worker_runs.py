"""Runs of workers over HTTP: as they are handed out, and the outcomes that workers report."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec

from duly.api.request import read_duration
from duly.domain.duration import to_iso
from duly.domain.errors import InvalidOption
from duly.domain.fields import Duration
from duly.domain.jobs.job import DELAY_MAX
from duly.domain.runs import payload as payloads
from duly.domain.runs.outcome import Cancelled, Failed, Outcome, Snoozed, Succeeded, TimedOut
from duly.moves.workers.lend import Parcel
from duly.moves.workers.take_back import RunReport
from duly.wire.workers import ClaimedRun, RunOutcome

_REASON_CHARACTERS_MAX = 2_000
_TRACEBACK_CHARACTERS_MAX = 16_384


def claimed_run(parcel: Parcel) -> ClaimedRun:
    """Return a run as its worker receives it."""
    run, seconds, metadata = parcel.run, parcel.run.policy.timeout_seconds, parcel.run.metadata
    span, node = None if seconds is None else timedelta(seconds=seconds), metadata.node
    return ClaimedRun.of(
        run,
        payload=_raw(run.payload),
        checkpoint=_raw(parcel.saved),
        timeout=None if span is None else to_iso(span),
        deadline=None if span is None else parcel.claimed_at + span,
        tags=list(metadata.tags),
        request_id=metadata.request_id,
        traceparent=metadata.traceparent,
        parent=metadata.parent,
        workflow_id=None if node is None else node[0],
        node=None if node is None else node[1],
        parents=None if node is None else _raw(run.parents or "{}"),
    )


def _raw(text: str | None) -> Any:
    """Pass JSON on as it was stored."""
    return None if text is None else msgspec.Raw(text.encode())


def reported(item: RunOutcome) -> RunReport:
    """Read the outcome that a worker reports of a run. Raises InvalidOption, InvalidPayload."""
    return RunReport((item.run_id, item.fence), _outcome(item), item.outcome, item.started_at)


def _outcome(item: RunOutcome) -> Outcome:
    _check_agreement(item)
    match item.outcome:
        case "succeeded":
            result, reason = (None, None) if item.result is None else payloads.encode_result(item.result)
            return Succeeded(result, reason=reason)
        case "failed":
            after = _delay(item.retry_after, item, "retry_after")
            return Failed(_reason(item), item.retryable, _detail(item), after, kinds=_kinds(item))
        case "timed_out":
            return TimedOut(0, _detail(item))
        case "cancelled":
            return Cancelled()
        case "snoozed":
            delay = _delay(item.snooze, item, "snooze")
            if delay is None:
                raise InvalidOption(f"run {item.run_id} was snoozed without snooze; give a delay such as PT5M")
            return Snoozed(delay)


def _check_agreement(item: RunOutcome) -> None:
    """Refuse a contradicting outcome. Raises InvalidOption."""
    has_failed = item.error is not None or not item.retryable or item.retry_after is not None
    if item.outcome == "succeeded" and has_failed:
        raise InvalidOption(
            f"run {item.run_id} succeeded, but error, retryable and retry_after are for failures; leave them out"
        )
    if item.outcome != "succeeded" and item.result is not None:
        raise InvalidOption(f"run {item.run_id} {item.outcome}, but a result is for successes; leave it out")
    if item.outcome != "snoozed" and item.snooze is not None:
        raise InvalidOption(f"run {item.run_id} {item.outcome}, but snooze is for snoozed runs; leave it out")


def _kinds(item: RunOutcome) -> tuple[str, ...]:
    return () if item.error is None else tuple(name for name in (item.error.type, *item.error.bases) if name)


def _reason(item: RunOutcome) -> str:
    if item.error is None:
        return "failed"
    words = ": ".join(part for part in (item.error.type, item.error.message) if part)
    return payloads.storable(words or "failed", _REASON_CHARACTERS_MAX)


def _detail(item: RunOutcome) -> str | None:
    if item.error is None:
        return None
    lines = item.error.traceback[-_TRACEBACK_CHARACTERS_MAX:]
    detail = {"type": payloads.storable(item.error.type, 200), "traceback": payloads.storable(lines)}
    return msgspec.json.encode(detail).decode()


def _delay(value: Duration | None, item: RunOutcome, what: str) -> timedelta | None:
    return None if value is None else read_duration(value, f"{what} of run {item.run_id}", timedelta(), DELAY_MAX)
