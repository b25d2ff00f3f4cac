"""The codes of explanations: stable, and never reused with another meaning."""

from __future__ import annotations

from typing import Literal, get_args

# Reasons that hold a run or job back.
BlockerCode = Literal[
    "not_due",
    "paused",
    "dependency",
    "concurrency_limit",
    "rate_limit",
    "limit_reached",
    "fifo_order",
    "circuit_open",
    "queue_paused",
    "no_worker_for_queue",
    "unroutable",
    "workers_stalled",
    "queue_backlog",
    "retry_backoff",
    "calendar",
    "shed",
    "no_scheduler",
]
# Reasons that only inform.
OtherCode = Literal[
    "due",
    "leased_ahead",
    "not_started",
    "workers_busy",
    "running",
    "worker_silent",
    "awaits_recovery",
    "worker_stalled",
    "awaiting_callback",
    "start_delayed",
    "last_error",
    "dead",
    "succeeded",
    "cancelled",
    "expired",
    "completed",
    "skipped",
    "skipped_misfire",
    "skipped_overlap",
    "skipped_paused",
    "skipped_calendar",
    "skipped_edit",
    "skipped_limit",
    "skipped_on_request",
    "skipped_over",
    "skipped_too_large",
    "skipped_duplicate",
    "removed_from_code",
    "failing",
    "last_run",
    "no_run_yet",
]
Code = Literal[BlockerCode, OtherCode]

BLOCKERS: frozenset[str] = frozenset(get_args(BlockerCode))
CODES: frozenset[str] = BLOCKERS | frozenset(get_args(OtherCode))


def code_of(text: str, otherwise: OtherCode) -> Code:
    """Return a text as a code."""
    return text if text in CODES else otherwise  # type: ignore[return-value]
