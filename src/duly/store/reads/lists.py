"""Pages of jobs, runs, workflows and dead letters: a tenant's own, chosen by a filter, in the order of a key, from a
position on.

A page costs the same at any depth, because it is read from its position and stops when it is full, or after so many
rows. Where few rows match it may therefore be short, or even empty, while more may follow: see `after`. Nothing is
counted. Jobs and workflows come by falling id, or jobs by name; runs by falling id, which begins with their scheduled
moment; dead letters by when they were buried.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Generic, TypeVar
from uuid import UUID

import msgspec

from duly.domain.jobs.filter import Filter, Span
from duly.domain.runs.options import NO_OPTIONS
from duly.domain.runs.run_id import least_id_at
from duly.store.boxes.options import decoded
from duly.store.connection.database import Database
from duly.store.connection.statements import load

SQL = load("reads/lists")
LOOKS = 2_000  # rows read for one page, at most
ORDERED_MAX = 5_000  # jobs of a tenant that are read to be sorted without an index
GROUPED_MAX = 10_000  # dead letters that are counted by their reasons
_LOOKS_BESIDE = 500  # where each row needs another read: of the next fire, or of a run in any box

_FIRST, _LAST = UUID(int=0), UUID(int=(1 << 128) - 1)
# Not infinity, which drivers return as a moment without a zone.
_EARLIEST, _LATEST = datetime(1, 1, 2, tzinfo=UTC), datetime(9999, 12, 30, tzinfo=UTC)
# A job's id is made when its submit begins, and its row when that ends.
_SUBMIT_MAX = timedelta(hours=1)
_LAST_CHARACTER = "\U0010ffff"
_NEXT_ID = timedelta(milliseconds=1)  # ids begin with a moment to the millisecond

_BESIDE = frozenset({"subtasks", "workflow_runs"})

# The boxes in which a run can be in a state.
_BOXES = {
    "scheduled": ("timers",),
    "retrying": ("timers", "ready"),
    "blocked": ("blocked",),
    "ready": ("ready", "leased"),
    "running": ("leased",),
    "dead": ("dead",),
    "succeeded": ("succeeded",),
    "cancelled": ("ended",),
    "expired": ("ended",),
    "skipped": ("ended",),
}
_BOXES_ALL = sorted({box for boxes in _BOXES.values() for box in boxes})
# The state of a one-shot's job, by the state of its run.
_STATES_OF_ONE_SHOTS = {
    "active": ("scheduled", "blocked", "ready", "running", "retrying"),
    "completed": ("succeeded", "dead", "expired", "skipped"),
    "cancelled": ("cancelled",),
}
_UNKNOWN_OF_ONE_SHOTS = (
    *(
        "name",
        "every_seconds",
        "anchor_at",
        "source",
        "pause_reason",
        "paused_at",
        "removed_at",
        "created_at",
    ),
)
# Fields with an index to jobs, the most selective first.
_LEADS = ("name", "tag", "handler", "queue", "state")

Row = dict[str, Any]
At = TypeVar("At")


class DeadAt(msgspec.Struct, frozen=True):
    """A position among the dead letters; `passed` is how many were taken before it, if they are taken at a rate."""

    buried_at: datetime
    run_id: UUID
    passed: int = 0


class NamedAt(msgspec.Struct, frozen=True):
    """A position among jobs in the order of their names."""

    name: str
    job_id: UUID


class NextAt(msgspec.Struct, frozen=True):
    """A position among jobs in the order in which they fire."""

    next_run_at: datetime
    job_id: UUID


class Page(msgspec.Struct, Generic[At], frozen=True):
    """Rows of a list, and the position after which more may follow; None: this was all."""

    rows: list[Row]
    after: At | None


async def jobs(
    database: Database, tenant: int, chosen: Filter, size: int, after: UUID | None = None, looks: int = LOOKS
) -> Page[UUID]:
    """Read recurring jobs, the newest first."""
    looks = _looks_at_jobs(chosen, looks)
    bounds = _between(after, chosen, "created_at")
    found = await database.fetch(SQL["jobs"], tenant, *bounds, *_lead(chosen), *_of_jobs(chosen), size, looks)
    rows, last = _fitting(found, size, looks)
    return Page([*map(decoded, rows)], last["job_id"] if last else None)


async def jobs_by_name(
    database: Database, tenant: int, chosen: Filter, size: int, after: NamedAt | None = None, looks: int = LOOKS
) -> Page[NamedAt]:
    """Read recurring jobs that have a name, by name."""
    looks = _looks_at_jobs(chosen, looks)
    beginning = chosen.beginnings.get("name", "")
    first = after or NamedAt(beginning, _FIRST)
    bounds = first.name, first.job_id, beginning + _LAST_CHARACTER
    found = await database.fetch(SQL["jobs_by_name"], tenant, *bounds, *_of_jobs(chosen), size, looks)
    rows, last = _fitting(found, size, looks)
    return Page([*map(decoded, rows)], NamedAt(last["name"], last["job_id"]) if last else None)


async def jobs_by_next(
    database: Database, tenant: int, chosen: Filter, size: int, after: NextAt | None = None, most: int = ORDERED_MAX
) -> Page[NextAt]:
    """Read recurring jobs that will fire, by their next fire. Raises InvalidOption where there are more than `most` jobs."""
    first = after or NextAt(_EARLIEST, _FIRST)
    bounds = first.next_run_at, first.job_id
    found = await database.fetch(SQL["jobs_by_next"], tenant, *bounds, *_of_jobs(chosen), size, most)
    rows, last = _fitting(found, size, max(size, most) + 1)
    return Page([*map(decoded, rows)], NextAt(last["next_run_at"], last["job_id"]) if last else None)


def _looks_at_jobs(chosen: Filter, looks: int) -> int:
    return min(looks, _LOOKS_BESIDE) if chosen.moments.get("next_run_at", Span()) != Span() else looks


def _of_jobs(chosen: Filter) -> list[Any]:
    """Return the arguments that every list of jobs filters by."""
    return [
        *(_any_of(chosen, field) for field in ("state", "queue", "handler", "owner", "name")),
        chosen.beginnings.get("name"),
        *_tags(chosen),
        *_ends(chosen, "created_at", "next_run_at"),
    ]


async def runs(
    database: Database, tenant: int, chosen: Filter, size: int, after: UUID | None = None, looks: int = LOOKS
) -> Page[UUID]:
    """Read runs in any box, the last scheduled first; each once."""
    job_ids = _ids(chosen)
    statement, lead = _runs_led(chosen, job_ids)
    if statement in _BESIDE:
        looks = max(size, min(looks, _LOOKS_BESIDE))
    found = await database.fetch(
        SQL[statement],
        tenant,
        *bounds_of_runs(after, chosen),
        *lead,
        _boxes(chosen),
        *(_any_of(chosen, field) for field in ("state", "queue", "handler")),
        job_ids,
        *_tags(chosen),
        *_ends(chosen, "scheduled_at", "due_at", "finished_at"),
        size,
        looks,
    )
    rows, last = _fitting(found, size, looks)
    return Page(_distinct(rows), last["run_id"] if last else None)


async def jobs_and_one_shots(
    database: Database, tenant: int, chosen: Filter, size: int, after: UUID | None = None, looks: int = LOOKS
) -> Page[UUID]:
    """Read jobs and, among them, one-shots without a name, each a row like a job's, by falling id.

    Both lists are read from the same position, and returned as far as both were read. A one-shot has no creation
    moment, so filters by `created_at` do not match it.
    """
    defined = await jobs(database, tenant, chosen, size, after, looks)
    shots = await _one_shots(database, tenant, chosen, size, after, looks)
    reached = max((page.after for page in (defined, shots) if page.after is not None), default=_FIRST)
    rows = sorted((*defined.rows, *shots.rows), key=lambda row: row["job_id"], reverse=True)
    reported = [row for row in rows if row["job_id"] >= reached]
    if len(reported) > size:
        return Page(reported[:size], reported[size - 1]["job_id"])
    return Page(reported, None if reached == _FIRST else reached)


async def _one_shots(
    database: Database, tenant: int, chosen: Filter, size: int, after: UUID | None, looks: int
) -> Page[UUID]:
    wanted = _one_shots_wanted(chosen)
    if wanted is None:
        return Page([], None)
    page = await runs(database, tenant, wanted, size, after, looks)
    rows = [_as_job(row) for row in page.rows if row["run_id"] == row["job_id"] and row["workflow_id"] is None]
    return Page(rows, page.after)


def _one_shots_wanted(chosen: Filter) -> Filter | None:
    """Return the filter of runs for the one-shots that a filter of jobs matches; None: it matches none."""
    words = dict(chosen.words)
    if words.pop("name", None) is not None or chosen.beginnings or "created_at" in chosen.moments:
        return None
    if "api" not in words.pop("owner", ("api",)):
        return None
    if (states := words.get("state")) is not None:
        words["state"] = tuple(state for one in states for state in _STATES_OF_ONE_SHOTS.get(one, ()))
        if not words["state"]:
            return None
    moments = {}
    if (fires := chosen.moments.get("next_run_at")) is not None:
        moments["due_at"] = fires
        live = _STATES_OF_ONE_SHOTS["active"]
        words["state"] = tuple(state for state in words.get("state", live) if state in live and state != "running")
    return Filter(words, {}, chosen.tags, chosen.any_tags, moments)


def _as_job(row: Row) -> Row:
    """Return the row of a run that is its own job as that of a job."""
    state = next(name for name, states in _STATES_OF_ONE_SHOTS.items() if row["state"] in states)
    at = row["scheduled_at"].astimezone(UTC).isoformat()
    return {
        **{name: row[name] for name in ("job_id", "run_id", "tenant", "queue", "handler", "tags")},
        "priority": 5 if row["priority"] is None else row["priority"],
        "state": state,
        "next_run_at": row["due_at"] if state == "active" and row["state"] != "running" else None,
        "schedule": msgspec.json.encode({"trigger": {"type": "at", "at": at}}).decode(),
        "description": f"Once, at {at}",
        "generation": 1,
        "owner": "api",
        "options": NO_OPTIONS,
        **dict.fromkeys(_UNKNOWN_OF_ONE_SHOTS),
    }


async def workflows(
    database: Database, tenant: int, chosen: Filter, size: int, after: UUID | None = None, looks: int = LOOKS
) -> Page[UUID]:
    """Read workflows, the newest first."""
    found = await database.fetch(
        SQL["workflows"],
        tenant,
        *_between(after, chosen, "submitted_at"),
        *(_any_of(chosen, field) for field in ("state", "name")),
        chosen.beginnings.get("name"),
        *_tags(chosen),
        *_ends(chosen, "submitted_at"),
        size,
        size if chosen.is_empty else looks,
    )
    rows, last = _fitting(found, size, looks)
    return Page(rows, last["workflow_id"] if last else None)


async def dead(
    database: Database, tenant: int, chosen: Filter, size: int, after: DeadAt | None = None, looks: int = LOOKS
) -> Page[DeadAt]:
    """Read dead letters, the last buried first."""
    found = await database.fetch(SQL["dead"], *_dead_arguments(tenant, chosen, after), size, looks)
    rows, last = _fitting(found, size, looks)
    return Page(rows, DeadAt(last["buried_at"], last["run_id"]) if last else None)


async def dead_groups(database: Database, tenant: int, chosen: Filter, size: int, looks: int) -> list[Row]:
    """Count dead letters by normalized reason, the most frequent first; no more than so many are read."""
    found = await database.fetch(SQL["dead_groups"], *_dead_arguments(tenant, chosen, None), size, looks)
    return [dict(row) for row in found]


def _dead_arguments(tenant: int, chosen: Filter, after: DeadAt | None) -> list[Any]:
    buried = chosen.moments.get("buried_at", Span())
    bounds = [at for at in (after, DeadAt(buried.before, _FIRST) if buried.before else None) if at is not None]
    before = min(bounds, key=lambda at: (at.buried_at, at.run_id), default=DeadAt(_LATEST, _LAST))
    return [
        tenant,
        before.buried_at,
        before.run_id,
        buried.since or _EARLIEST,
        *(_any_of(chosen, field) for field in ("queue", "handler", "reason")),
        chosen.beginnings.get("reason"),
        _any_of(chosen, "error"),
        _ids(chosen),
        *_tags(chosen),
    ]


def _fitting(found: Sequence[Any], size: int, looks: int) -> tuple[list[Row], Row | None]:
    """Return the rows that match, and the last one read if more may follow it."""
    assert 1 <= size <= looks
    rows = [dict(row) for row in found]
    more = bool(rows) and (len(rows) == size or rows[-1]["number"] == looks)
    last = rows[-1] if more else None
    return [_plain(row) for row in rows if row["fits"]], last


def _plain(row: Row) -> Row:
    return {name: value for name, value in row.items() if name not in ("fits", "number")}


def _distinct(rows: Sequence[Row]) -> list[Row]:
    """Keep the latest state of a run that is in history twice, skipped and later backfilled."""
    kept: dict[UUID, Row] = {}
    for row in rows:
        known = kept.get(row["run_id"])
        if known is None or (known["state"] == "skipped" and row["state"] != "skipped"):
            kept[row["run_id"]] = row
    return list(kept.values())


def _lead(chosen: Filter) -> tuple[str, str | None]:
    """Choose the index to the matching jobs: the field with one value that selects most."""
    for field in _LEADS:
        values = chosen.tags if field == "tag" else chosen.words.get(field, ())
        if values and (field == "tag" or len(values) == 1):
            return field, values[0]
    return "tenant", None


def _boxes(chosen: Filter) -> list[str]:
    states = chosen.words.get("state")
    if states is None:
        return _BOXES_ALL
    return sorted({box for state in states for box in _BOXES.get(state, ())})


def bounds_of_runs(after: UUID | None, chosen: Filter) -> tuple[UUID, UUID]:
    """Return the ids between which the runs of a page lie: before the first, and from the second on."""
    scheduled = chosen.moments.get("scheduled_at", Span())
    return _before(after, scheduled.before), _from(scheduled.since)


def _before(after: UUID | None, moment: datetime | None) -> UUID:
    """Return the id before which all matches lie: of a position, and of a moment."""
    bounds = [after or _LAST, _LAST if moment is None else least_id_at(min(moment, _LATEST) + _NEXT_ID)]
    return min(bounds)


def _between(after: UUID | None, chosen: Filter, field: str) -> tuple[UUID, UUID]:
    """Return the ids between which all rows created within a span lie, after a position."""
    created = chosen.moments.get(field, Span())
    return _before(after, created.before), _from(created.since and max(created.since, _EARLIEST) - _SUBMIT_MAX)


def _from(moment: datetime | None) -> UUID:
    return _FIRST if moment is None else least_id_at(moment)


def _any_of(chosen: Filter, field: str) -> list[str] | None:
    values = chosen.words.get(field)
    return None if values is None else list(values)


def _ids(chosen: Filter) -> list[UUID] | None:
    values = chosen.words.get("job_id")
    return None if values is None else [UUID(value) for value in values]


def _runs_led(chosen: Filter, job_ids: Sequence[UUID] | None) -> tuple[str, tuple[UUID, ...]]:
    """Choose the index to the matching runs: their workflow, their parent, their one job, or none."""
    for field, statement in (("workflow", "workflow_runs"), ("parent", "subtasks")):
        of = chosen.words.get(field)
        if of is not None:  # two at once match nothing; nor does a node that is a subtask
            is_one = bool(of) and not (field == "workflow" and "parent" in chosen.words)
            return statement, (UUID(of[0]) if is_one else _FIRST,)
    job = _job(job_ids)
    return ("runs_of_job" if job else "runs"), job


def _job(job_ids: Sequence[UUID] | None) -> tuple[UUID, ...]:
    """Return the one job whose runs are requested, and the id after it."""
    if job_ids is None or len(job_ids) != 1:
        return ()
    return job_ids[0], UUID(int=min(job_ids[0].int + 1, _LAST.int))


def _tags(chosen: Filter) -> tuple[list[str] | None, list[str] | None]:
    return list(chosen.tags) or None, list(chosen.any_tags) or None


def _ends(chosen: Filter, *fields: str) -> list[datetime | None]:
    spans = [chosen.moments.get(field, Span()) for field in fields]
    return [end for span in spans for end in (span.since, span.before)]
