"""A run as a worker holds it: the leased row, with its options decoded."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Literal, get_args
from uuid import UUID

import msgspec

from duly.domain.runs.options import NO_HISTORY, NO_METADATA, PLAIN, RunHistory, RunMetadata, RunPolicy

QUEUE_DEFAULT = "default"
NOTIFICATIONS = "@notifications"  # the queue of deliveries: each worker that delivers serves it beside its own
PRIORITY_DEFAULT = 5
TENANT_DEFAULT = 1
NOT_BLANK = r"\S"  # the pattern of a name in schemas
NAME_CHARACTERS_MAX = 200
HORIZON = timedelta(seconds=5)  # Runs due within it are staged: a worker may hold them ahead of their moment.

RunState = Literal[
    "scheduled", "blocked", "ready", "running", "retrying", "succeeded", "dead", "cancelled", "expired", "skipped"
]
RUN_STATES: tuple[str, ...] = get_args(RunState)
FINAL_STATES = ("succeeded", "dead", "cancelled", "expired", "skipped")  # only a replay takes a run out of one


class Run(msgspec.Struct, frozen=True, gc=False):
    """One leased run. `tid` and `fence` are the holder's handle; `attempt` is the attempt this lease is for."""

    tid: tuple[int, int]
    fence: int
    run_id: UUID
    job_id: UUID
    scheduled_at: datetime
    due_at: datetime
    previous_scheduled_at: datetime | None
    generation: int
    tenant: int
    attempt: int
    priority: int
    losses: int
    suspect: bool
    payload_stored: bool
    queue: str
    handler: str
    payload: str | None
    policy: RunPolicy = PLAIN
    metadata: RunMetadata = NO_METADATA
    history: RunHistory = NO_HISTORY
    parents: str | None = None  # of a node: the results of its parents, by name, as JSON
    refused: str | None = None  # of a node: why its payload could not be built

    @property
    def ids(self) -> dict[str, Any]:
        """The ids with which log lines name it."""
        found: dict[str, Any] = {"run_id": self.run_id, "job_id": self.job_id, "attempt": self.attempt}
        asked = self.metadata.request_id
        return found if asked is None else {**found, "request_id": asked}
