"""The desk at which commands ask: a database, or a Duly over HTTP. A command is written once, against what both can do.

With DULY_URL or --url the desk is over HTTP; a --database-url or --data that was typed goes before an address from elsewhere.
Commands that need the database itself say so.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, Protocol
from uuid import UUID

import msgspec

from duly.cli.connect import is_remote, opened_by_hand
from duly.cli.screen import some
from duly.cli.target_rows import what_runs
from duly.domain.jobs.job import Recurring, Submission
from duly.domain.limits.limit import Limit
from duly.domain.limits.pause import Hold, Scope
from duly.domain.tenancy.api_key import Scope as KeyScope
from duly.domain.tenancy.api_key import Secret
from duly.settings import Settings

if TYPE_CHECKING:  # Most commands never need them.
    from duly.domain.jobs.manifest import Manifest
    from duly.domain.jobs.manifest_plan import Plan
    from duly.moves.run_again import Changes
    from duly.moves.schedules.apply import Applied
    from duly.moves.schedules.backfill import Asked
    from duly.store.tenancy.tenants import Limits, Tenant

Row = Mapping[str, Any]
_DEADLINE_SECONDS = 20.0  # A person waits.


class JobSeen(msgspec.Struct, frozen=True):
    """A job as it stands: its row, when it fires in words, what else its schedule says, and its next fires on a line each.

    `next_fires` are the same for a program.
    """

    row: Row
    description: str
    policies: str
    fires: list[str]
    notes: list[str] = []
    next_fires: list[dict[str, Any]] = []

    @property
    def lines(self) -> list[str]:
        """Say when it fires: a sentence with what runs, what its words became, the next fires, and what may not be meant."""
        what = f"{self.description}: {what_runs(self.row)} on queue {self.row['queue']}"
        saved = [note for note in self.notes if note.startswith("saved")]
        return [what, *saved, *self.fires, *(note for note in self.notes if note not in saved)]


class Sent(msgspec.Struct, frozen=True):
    """A job that is durable; of a schedule also what it means and when it fires next, for a program."""

    job_id: UUID
    replayed: bool
    lines: list[str]
    description: str | None = None
    next_fires: list[dict[str, Any]] = []
    run_id: UUID | None = None  # of a one-shot


class Stopped(msgspec.Struct, frozen=True):
    """The answer to a cancel: the state of the run or job by now, how many subtasks went with it, and what may still start."""

    answer: str
    state: str
    children: int = 0
    may_start: Sequence[UUID] = ()

    @property
    def is_too_late(self) -> bool:
        """Whether it had ended, or begun, before it was asked to stop: what was asked for has not happened."""
        return self.answer == "too_late"

    @property
    def words(self) -> str:
        """Say it to a person."""
        remedy = "; `duly runs cancel` asks its worker to stop it" if self.state == "running" else ""
        known = {
            "too_late": f"too late: it is {self.state}{remedy}",
            "requested": "requested: its worker has been asked to stop it",
        }
        words = known.get(self.answer, self.answer)
        return f"{words}; {some(self.children, 'subtask')} with it" if self.children else words


class Paused(msgspec.Struct, frozen=True):
    """The answer to a pause, and the runs that may still start."""

    answer: str
    may_start: Sequence[UUID]


class Moved(msgspec.Struct, frozen=True):
    """What a filter chose, how many were moved, a few of them, and where to go on; None: these were all."""

    matched: int
    moved: int
    sample: Sequence[UUID]
    after: Any


class Kept(msgspec.Struct, frozen=True):
    """A calendar that was put, and how many schedules were armed anew by it."""

    name: str
    schedules: int


class Explained(msgspec.Struct, frozen=True):
    """Why something is where it is: in sentences, and as JSON."""

    kind: str
    id: UUID
    state: str
    sentences: list[str]
    document: Any
    frees: str | None = None
    probable_start_at: datetime | None = None


class Living(msgspec.Struct, frozen=True):
    """What a worker that lives serves and knows."""

    queues: Sequence[str]
    handlers: Sequence[str]


class File(msgspec.Struct, frozen=True):
    """A file of schedules: as it was written, and as it was read."""

    document: Any
    manifest: Manifest


class Exported(msgspec.Struct, frozen=True):
    """The schedules of a file as that file, and what a reader would wonder about."""

    document: dict[str, Any]
    notes: list[str]


class Stretch(msgspec.Struct, frozen=True):
    """The occurrences of [start, end), `rate` a second; one after the other, or beside each other."""

    start: datetime
    end: datetime
    rate: float
    overlap: Literal["queue", "allow"]


class KeyWanted(msgspec.Struct, frozen=True):
    """A key to be made; it ends after `expires`, if ever, and submits at `rate` a second, if it is limited."""

    name: str
    scopes: frozenset[KeyScope]
    expires: timedelta | None
    rate: float | None


class Desk(Protocol):
    """What commands ask for. What is not there raises NotFound; what is refused, Refused."""

    async def submit(self, job: Submission | Recurring, key: str) -> Sent:
        """Make a job durable, and say when it fires."""
        ...

    async def living(self) -> list[Living] | None:
        """Name the workers that live; None: this is not for us to know."""
        ...

    async def jobs(
        self, filter_text: str, limit: int, sort: Literal["created", "name", "next_run_at"], *, one_shots: bool = False
    ) -> Sequence[Row]:
        """List jobs, the newest first, by name or by next fire."""
        ...

    async def job_id(self, job: str) -> UUID:
        """Find a job by its id or its name."""
        ...

    async def job(self, job_id: UUID) -> JobSeen | None:
        """Read a job; None when the id is that of a one-shot, or of nothing."""
        ...

    async def amend_job(self, job_id: UUID, change: Callable[[Recurring], Recurring]) -> int:
        """Change something about a job, and give its new version; `change` is asked again when somebody was faster."""
        ...

    async def pause_job(self, job_id: UUID, reason: str) -> Paused:
        """Pause a job, and name the runs that may still start."""
        ...

    async def resume_job(self, job_id: UUID, *, catch_up: bool) -> str:
        """Resume a job, and say what became of that."""
        ...

    async def skip_next(self, job_id: UUID) -> str:
        """Leave the next occurrence out, and say which."""
        ...

    async def cancel_job(self, job_id: UUID, *, purge: bool = False) -> Stopped:
        """End a job: what has not started will not; with `purge`, remove it. Say what became of that."""
        ...

    async def trigger(
        self, job_id: UUID, queue: str, payload: str | None, *, beside: bool, key: str
    ) -> tuple[UUID, str]:
        """Run a job now; give the run and where it stands."""
        ...

    async def backfill(self, job_id: UUID, stretch: Stretch, *, dry_run: bool) -> Asked:
        """Make the occurrences of a stretch again, however many they are; with `dry_run` they are only counted."""
        ...

    async def backfills(self, job_id: UUID | None, limit: int) -> Sequence[Row]:
        """List what was made again, of a job or of all, the newest first."""
        ...

    async def versions(self, job_id: UUID, limit: int) -> Sequence[Row]:
        """Show what a job's definition was, the newest version first."""
        ...

    async def cancel_backfill(self, backfill_id: UUID) -> int:
        """Stop a backfill, and say how many runs that had not begun were taken back."""
        ...

    async def runs(self, filter_text: str, limit: int) -> Sequence[Row]:
        """List runs."""
        ...

    async def run(self, run_id: UUID) -> dict[str, Any]:
        """Read a run, with its attempts."""
        ...

    async def cancel_run(self, run_id: UUID, *, children: bool) -> Stopped:
        """Cancel a run, and with `children` its subtasks; say what became of that."""
        ...

    async def run_again(self, run_id: UUID, changes: Changes, *, key: str) -> UUID:
        """Make a new run of what an ended run was; give its id."""
        ...

    def log(self, run_id: UUID, *, follow: bool) -> AsyncIterator[Row]:
        """Give the lines that a run logged; with `follow`, until it has ended."""
        ...

    async def dead(self, filter_text: str, limit: int) -> Sequence[Row]:
        """List dead runs."""
        ...

    async def replay(self, run_ids: Sequence[UUID]) -> list[UUID]:
        """Give dead runs another set of attempts; give those that were dead."""
        ...

    async def discard(self, run_ids: Sequence[UUID]) -> list[UUID]:
        """Give dead runs up for good; give those that were dead."""
        ...

    async def edit_dead(self, run_ids: Sequence[UUID], payload: dict[str, Any]) -> list[UUID]:
        """Give dead runs other arguments; give those that were dead."""
        ...

    async def dead_groups(self, filter_text: str, limit: int) -> Sequence[Row]:
        """Count dead runs by what is alike in their reasons."""
        ...

    async def replay_matching(
        self, filter_text: str, limit: int, after: Any, *, dry_run: bool, rate: float | None = None
    ) -> Moved:
        """Replay the dead runs that fit."""
        ...

    async def discard_matching(self, filter_text: str, limit: int, after: Any, *, dry_run: bool) -> Moved:
        """Give the dead runs that fit up for good."""
        ...

    async def edit_matching(
        self, filter_text: str, limit: int, after: Any, *, dry_run: bool, payload: dict[str, Any]
    ) -> Moved:
        """Give the dead runs that fit other arguments."""
        ...

    async def calendars(self) -> Sequence[Row]:
        """List calendars, as they were defined."""
        ...

    async def calendar(self, name: str) -> Row:
        """Read a calendar, as it was defined."""
        ...

    async def put_calendar(self, definition: Any) -> Kept:
        """Keep a calendar, new or changed."""
        ...

    async def delete_calendar(self, name: str) -> None:
        """Forget a calendar."""
        ...

    async def users_of_calendar(self, name: str) -> Sequence[Row] | None:
        """List the jobs that use a calendar, with their next moments; None: this desk does not tell."""
        ...

    async def plan(self, file: File) -> Plan:
        """Say what applying a file would do."""
        ...

    async def apply(self, file: File, *, prune: bool, adopt: bool, expected: str | None) -> Applied:
        """Apply a file, all of it or nothing; with `expected`, only if the plan is the one of that digest."""
        ...

    async def export(self, source: str | None, *, by_hand: bool) -> Exported:
        """Write the schedules of a file, or of the only one there is, as that file."""
        ...

    async def explain(self, what: str) -> Explained:
        """Say why a run, given by its id, or a job, by its id or its name, is where it is."""
        ...

    async def workers(self) -> Sequence[Row]:
        """List the workers that live."""
        ...

    async def drain(self, worker_id: UUID, *, is_draining: bool) -> None:
        """Ask a worker to take nothing more, or to take runs again."""
        ...

    async def queues(self) -> Sequence[Row]:
        """List the queues that have work or a worker, or are held by their name."""
        ...

    async def limit_queue(self, queue: str, age_limit: timedelta | None) -> None:
        """Say how old the oldest due run of a queue may be; None leaves it to the default."""
        ...

    async def keys(self, tenant: str | None, limit: int) -> Sequence[Row]:
        """List the keys of a tenant, given by its name or number, or all that are ours to see."""
        ...

    async def create_key(self, tenant: str | None, wanted: KeyWanted) -> tuple[Secret, Row]:
        """Make a key of a tenant, or of our own; give its text, known to nobody else, and what is kept of it."""
        ...

    async def revoke_key(self, key_id: str) -> None:
        """End a key for good."""
        ...

    async def tenants(self, limit: int) -> Sequence[Tenant]:
        """List tenants."""
        ...

    async def tenant(self, name: str) -> Tenant:
        """Find a tenant by its name or its number."""
        ...

    async def create_tenant(self, name: str, limits: Limits) -> Tenant:
        """Make a tenant."""
        ...

    async def suspend_tenant(self, tenant: int) -> None:
        """Let a tenant add nothing, and its keys open nothing, for now."""
        ...

    async def resume_tenant(self, tenant: int) -> None:
        """Let a suspended tenant go on."""
        ...

    async def limit_tenant(self, tenant: int, limits: Limits) -> None:
        """Say what a tenant may have from now on."""
        ...

    async def limits(self) -> Sequence[Limit]:
        """List the limits on what is under way at once."""
        ...

    async def limit(self, scope: Scope, places: int) -> Limit:
        """Let at most so many runs of a scope be under way at once."""
        ...

    async def unlimit(self, scope: Scope) -> None:
        """Take the limit of a scope away."""
        ...

    async def hold(self, scope: Scope, reason: str) -> tuple[str, Sequence[Hold]]:
        """Let nothing new of a scope start; give what became of that, and what is held of it."""
        ...

    async def lift(self, scope: Scope) -> tuple[str, Sequence[Hold]]:
        """Let a scope go on; give what became of that, and what is still held of it."""
        ...


@asynccontextmanager
async def at_desk(settings: Settings) -> AsyncIterator[Desk]:
    """Go to the desk that the settings name."""
    if is_remote(settings):
        from duly.cli.desk_over_http import HttpDesk
        from duly.client.asynchronous.client import AsyncClient

        async with AsyncClient(settings.url, settings.api_key, deadline=_DEADLINE_SECONDS) as client:
            yield HttpDesk(client)
    else:
        from duly.cli.desk_of_database import DatabaseDesk
        from duly.cli.egress import submitted_check

        async with opened_by_hand(settings) as database:
            yield DatabaseDesk(database, submitted_check(settings))
