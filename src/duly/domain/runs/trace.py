"""The trace of a run: every process computes the same ids from the run and its caller's `traceparent`, so none is stored.

A one-shot and a node of a workflow continue the trace of the request that created them. Each run of a schedule has a
trace of its own, with a link to that request: otherwise all its fires, for years, would be one trace.
"""

from __future__ import annotations

from hashlib import blake2b
from uuid import UUID

import msgspec

SUBMIT, STAGE, CLAIM, ATTEMPT, WEBHOOK = "submit", "stage", "claim", "attempt", "webhook"


class Caller(msgspec.Struct, frozen=True):
    """The caller's `traceparent`, read."""

    trace_id: int
    span_id: int
    is_sampled: bool


class Trace(msgspec.Struct, frozen=True):
    """The trace of a run: its id, the caller whose trace it continues, or the caller that it is linked to."""

    run_id: UUID
    trace_id: int
    root: int  # the span to which those of scheduler and worker belong
    parent: Caller | None = None
    link: Caller | None = None

    def span_id(self, kind: str, fence: int = 0) -> int:
        """Return the id of one of its spans; of claims, attempts and webhooks each fence has its own."""
        return _number(f"{self.run_id}/{kind}/{fence}", 8)

    def is_sampled(self, ratio: float) -> bool:
        """Return whether it is exported: as the caller decided, or else a part of all traces."""
        if self.parent is not None:
            return self.parent.is_sampled
        return (self.trace_id & (2**63 - 1)) < ratio * 2**63

    def traceparent(self, span_id: int, ratio: float) -> str:
        """Return the `traceparent` that a receiver gets: it continues one of our spans."""
        return f"00-{self.trace_id:032x}-{span_id:016x}-{int(self.is_sampled(ratio)):02x}"


def trace_of(run_id: UUID, *, is_one_shot: bool, traceparent: str | None = None) -> Trace:
    """Return the trace of a run; `is_one_shot` also of a node, which belongs to its workflow's request."""
    caller = None if traceparent is None else read_traceparent(traceparent)
    if not is_one_shot:
        return Trace(run_id, _number(f"{run_id}", 16), _number(f"{run_id}/{STAGE}/0", 8), link=caller)
    trace_id = _number(f"{run_id}", 16) if caller is None else caller.trace_id
    return Trace(run_id, trace_id, _number(f"{run_id}/{SUBMIT}/0", 8), parent=caller)


def read_traceparent(text: str) -> Caller | None:
    """Read a W3C `traceparent`; None for one that cannot be read."""
    try:
        _, trace_id, span_id, flags, *_ = text.split("-")
        caller = Caller(int(trace_id, 16), int(span_id, 16), bool(int(flags, 16) & 1))
    except ValueError:
        return None
    return caller if 0 < caller.trace_id < 2**128 and 0 < caller.span_id < 2**64 else None


def _number(text: str, size: int) -> int:
    """Return an id of so many bytes, which is not zero."""
    return int.from_bytes(blake2b(text.encode(), digest_size=size).digest(), "big") or 1
