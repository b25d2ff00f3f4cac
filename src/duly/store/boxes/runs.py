"""A run's state for people, whichever box it is in; and its signals, checkpoints, progress and logs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec

from duly.domain.limits.limit import StandingLimits
from duly.domain.limits.pause import Pauses, Scope
from duly.domain.runs.progress import Progress, shown
from duly.domain.runs.run import FINAL_STATES, HORIZON
from duly.store.boxes.options import decode
from duly.store.connection.database import Database
from duly.store.connection.statements import columns, load

SQL = load("boxes/runs")
_ENDED = frozenset(FINAL_STATES) - {"dead"}  # dead runs are still in a box


class Signal(msgspec.Struct, frozen=True):
    """A message to a leaseholder."""

    run_id: UUID
    fence: int
    kind: str


class News(msgspec.Struct, frozen=True):
    """The state that a worker must know: its signals, pauses and limits.

    A draining worker starts and claims nothing, as if everything were paused.
    """

    signals: list[Signal]
    pauses: Pauses
    limits: StandingLimits = StandingLimits()
    is_draining: bool = False


class LogLine(msgspec.Struct, frozen=True):
    """One log line of a handler, under a lease; `fields` is JSON text."""

    run_id: UUID
    fence: int
    attempt: int
    number: int
    logged_at: datetime
    level: str
    message: str
    fields: str | None


async def cancel(database: Database, run_ids: Sequence[UUID], reason: str) -> list[UUID]:
    """Remove waiting runs for good. Returns those that were waiting."""
    return [row[0] for row in await database.fetch(SQL["cancel"], run_ids, reason)]


async def signal(database: Database, run_ids: Sequence[UUID], kind: str) -> list[UUID]:
    """Signal the holders of leased runs. Returns the runs that are leased."""
    return [row[0] for row in await database.fetch(SQL["signal"], run_ids, kind)]


async def replay(database: Database, run_ids: Sequence[UUID], delays: Sequence[timedelta]) -> list[UUID]:
    """Replay dead runs, each so long from now. Returns those that were dead."""
    return [row[0] for row in await database.fetch(SQL["replay"], run_ids, delays, HORIZON)]


async def expire(database: Database, limit: int) -> list[UUID]:
    """End waiting runs that have expired, up to a limit in each box. Returns them."""
    return [row[0] for row in await database.fetch(SQL["expire"], limit)]


async def discard(database: Database, run_ids: Sequence[UUID]) -> list[UUID]:
    """Drop dead runs for good, with a record. Returns those that were dead."""
    return [row[0] for row in await database.fetch(SQL["discard"], run_ids)]


async def edit_dead(database: Database, tenant: int, run_ids: Sequence[UUID], payload: str) -> list[UUID]:
    """Change the payload of a tenant's dead runs. Returns those that were dead."""
    return [row[0] for row in await database.fetch(SQL["edit_dead"], tenant, run_ids, payload)]


async def look(database: Database, worker_id: UUID) -> News:
    """Read the database clock, to adjust ours, and the state that a worker must know."""
    rows = await database.fetch(SQL["look"], worker_id)
    database.clock.observe(rows[0]["read_at"])
    signals = [Signal(*row[1:4]) for row in rows if row["run_id"] is not None]
    is_draining = any(row["kind"] == "drain" for row in rows)
    pauses = Pauses(Scope(*row[4:6]) for row in rows if row["kind"] in ("pause", "drain"))
    limits = {Scope(*row[4:6]): row["slots"] for row in rows if row["kind"] == "limit"}
    return News(signals, pauses, StandingLimits(limits), is_draining)


async def drop_signals(database: Database, worker_id: UUID, handled: Sequence[Signal]) -> None:
    """Delete signals that were handled."""
    await database.execute(SQL["drop_signals"], worker_id, *columns(handled, "run_id", "fence", "kind"))


class Recalled(msgspec.Struct, frozen=True):
    """A run that its worker was asked to give back, under this lease and at this moment."""

    run_id: UUID
    fence: int
    sent_at: datetime


async def has_held(database: Database, job_id: UUID) -> bool:
    """Return whether a worker holds first attempts of a schedule, started or not."""
    return bool(await database.fetchval(SQL["has_held"], job_id))


async def may_start(database: Database, run_ids: Sequence[UUID]) -> bool:
    """Return whether a worker holds one of these runs that is not known to have started."""
    return bool(await database.fetchval(SQL["may_start"], list(run_ids)))


async def are_due_after(database: Database, run_ids: Sequence[UUID], moment: datetime) -> bool:
    """Return whether a worker holds one of these runs that was not due at a moment."""
    return bool(await database.fetchval(SQL["are_due_after"], list(run_ids), moment))


async def recall(database: Database, job_ids: Sequence[UUID], run_ids: Sequence[UUID]) -> list[Recalled]:
    """Ask workers to give back runs that they have not started. Returns the runs that were asked for."""
    return [Recalled(*row) for row in await database.fetch(SQL["recall"], list(job_ids), list(run_ids))]


async def unanswered(database: Database, requested: Sequence[Recalled]) -> list[UUID]:
    """Return the recalled runs whose worker has not answered yet."""
    run_ids, fences = [one.run_id for one in requested], [one.fence for one in requested]
    return [row[0] for row in await database.fetch(SQL["unanswered"], run_ids, fences)]


async def put_back(database: Database, requested: Sequence[Recalled] | None, age: timedelta) -> list[tuple[UUID, str]]:
    """Make recalled runs ready again: these, or all recalled longer ago than `age`. Returns each with its queue."""
    ours = (
        (None, None) if requested is None else ([one.run_id for one in requested], [one.sent_at for one in requested])
    )
    return [tuple(row) for row in await database.fetch(SQL["put_back"], *ours, age)]


async def carry_out(database: Database) -> dict[UUID, str]:
    """Carry out signals whose run is no longer leased. Returns what became of each run."""
    return {row[0]: row[1] for row in await database.fetch(SQL["carry_out"])}


async def find(database: Database, run_id: UUID) -> dict[str, Any] | None:
    """Read one run: its box and its attempts so far; None when it is unknown."""
    live = await database.fetchrow(SQL["find_live"], run_id)
    attempts = [dict(row) for row in await database.fetch(SQL["find_attempts"], run_id)]
    return None if live is None and not attempts else assembled(dict(live) if live else None, attempts)


def assembled(live: Mapping[str, Any] | None, attempts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return one run from its row in a box, if it is in one, and its attempts, in order."""
    accepted = [attempt for attempt in attempts if attempt["outcome"] != "fenced"] or attempts
    # The record of a run's end may be earlier than the one before it, if the clock was set back in between.
    last = ([attempt for attempt in accepted if attempt["became"] in _ENDED] or accepted)[-1] if not live else {}
    run = dict(live) if live else {**{name: last[name] for name in _SHARED}, "state": last["became"]}
    metadata = decode(run.pop("metadata")).metadata
    return {
        **run,
        "tags": list(metadata.tags),
        "request_id": metadata.request_id,
        "traceparent": metadata.traceparent,
        "parent": metadata.parent,
        "workflow_id": None if metadata.node is None else metadata.node[0],
        "node": None if metadata.node is None else metadata.node[1],
        "depends_on": metadata.depends_on,
        "attempts": [{name: attempt[name] for name in attempt if name not in _OF_RUN} for attempt in attempts],
    }


async def find_lease(database: Database, run_id: UUID) -> dict[str, Any] | None:
    """Read the lease of a run; None: it is not leased."""
    return await database.fetch_row_with(dict, SQL["find_lease"], run_id)


_SHARED = (
    "run_id",
    "job_id",
    "tenant",
    "queue",
    "handler",
    "priority",
    "attempt",
    "scheduled_at",
    "due_at",
    "worker_id",
    "fence",
    "reason",
    "metadata",
)
_OF_RUN = ("metadata", "priority")  # stored with an attempt, and not shown with it


async def payloads(database: Database, keys: Sequence[tuple[UUID, int]]) -> dict[tuple[UUID, int], str]:
    """Read payloads that are stored outside their rows, by job and generation."""
    rows = await database.fetch(SQL["payloads"], [key[0] for key in keys], [key[1] for key in keys])
    return {(row[0], row[1]): row[2] for row in rows}


async def redacted_by(database: Database, run_id: UUID) -> tuple[str | None, str | None]:
    """Return the rules of redaction of a run that a worker holds, and its payload, as JSON text; none where it has no rules."""
    row = await database.fetchrow(SQL["redacted_by"], run_id)
    return (None, None) if row is None else (row[0], row[1])


async def checkpoints(database: Database, run_ids: Sequence[UUID]) -> dict[UUID, str]:
    """Read the checkpoints of earlier attempts."""
    return {row[0]: row[1] for row in await database.fetch(SQL["checkpoints"], run_ids)}


async def save_checkpoint(database: Database, run_id: UUID, fence: int, worker_id: UUID, body: str) -> bool:
    """Save a checkpoint for the holder of a lease. False: the lease is lost."""
    return bool(await database.fetch(SQL["save_checkpoint"], run_id, fence, worker_id, body))


async def checkpoint_size(database: Database, run_id: UUID) -> dict[str, Any] | None:
    """Read the size of a run's checkpoint, and when and under which fence it was saved; None when there is none."""
    return await database.fetch_row_with(dict, SQL["checkpoint_size"], run_id)


async def read_checkpoint(database: Database, run_id: UUID) -> dict[str, Any] | None:
    """Read the checkpoint of a run, with the fields of `checkpoint_size`; `body` is JSON text."""
    return await database.fetch_row_with(dict, SQL["read_checkpoint"], run_id)


async def save_progress(database: Database, run_id: UUID, fence: int, worker_id: UUID, progress: Progress) -> bool:
    """Save the progress of a run. False: the lease is lost."""
    values = (progress.done, progress.total, progress.note)
    return bool(await database.fetch(SQL["save_progress"], run_id, fence, worker_id, *values))


async def save_progresses(database: Database, worker_id: UUID, values: Sequence[tuple[UUID, int, Progress]]) -> None:
    """Save the progress of several runs of a worker, without those whose lease is lost."""
    reported = columns([progress for _, _, progress in values], "done", "total", "note")
    leases = ([run_id for run_id, _, _ in values], [fence for _, fence, _ in values])
    await database.execute(SQL["save_progresses"], worker_id, *leases, *reported)


async def read_progress(database: Database, run_id: UUID) -> dict[str, Any] | None:
    """Read the progress of a run: done, total, fraction and note."""
    row = await database.fetchrow(SQL["read_progress"], run_id)
    return shown(dict(row)) if row else None


async def append_logs(
    database: Database, worker_id: UUID, lines: Sequence[LogLine], *, may_repeat: bool = False
) -> None:
    """Append log lines of the leases that a worker holds, and no others; `may_repeat`: some may be stored already."""
    values = columns(lines, "run_id", "fence", "attempt", "number", "logged_at", "level", "message", "fields")
    await database.execute(SQL["append_logs"], worker_id, *values, may_repeat)


async def is_over(database: Database, run_id: UUID) -> bool:
    """Return whether a known run will make no more attempts by itself."""
    return bool(await database.fetchval(SQL["is_over"], run_id))


async def live_subtasks(database: Database, run_id: UUID, after: UUID, limit: int) -> list[UUID]:
    """Return subtasks of a run that have not ended, by rising id behind one, up to a limit."""
    return [row[0] for row in await database.fetch(SQL["live_subtasks"], run_id, after, limit)]


async def read_logs(database: Database, run_id: UUID, after: tuple[int, int]) -> list[dict[str, Any]]:
    """Read a run's log after (attempt, number), in order."""
    return [dict(row) for row in await database.fetch(SQL["read_logs"], run_id, *after)]
