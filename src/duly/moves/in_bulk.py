"""Jobs and runs in bulk: what a filter chooses, or what is named, up to a cap, in transactions of bounded size.

They are taken in the order of their list, from a position on, and each is looked at once. Each job, and each batch of runs, is
a transaction of its own: what was done stays done when a later one is refused. A dry run counts, and changes nothing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol
from uuid import UUID

import msgspec

from duly.domain.errors import Refused, Unsettled
from duly.store.database import Database
from duly.store.lists import Row

JOBS_MAX = 500  # changed by one call; each is a transaction
OPEN = ("active", "paused")  # the states of jobs of which something can be ended
LIVE = ("scheduled", "blocked", "ready", "running", "retrying")  # and of runs that can be cancelled
_BATCH = 500
_LOOKS = 10_000
_SAMPLE_MAX = 10

OpenSession = Callable[[], AbstractAsyncContextManager[Database]]
ChangeJob = Callable[[Database, UUID], Awaitable[bool]]
"""Change one job. Gives whether it stood otherwise before."""
ChangeRuns = Callable[[Database, Sequence[UUID], int], Awaitable[int]]
"""Change some runs, when so many were taken before. Gives how many were changed."""


class Page(Protocol):
    """A page of a list whose positions are ids."""

    @property
    def rows(self) -> list[Row]:
        """What fits."""
        ...

    @property
    def after(self) -> UUID | None:
        """Behind which more may follow."""
        ...


Read = Callable[[Database, int, "UUID | None", int], Awaitable[Page]]
"""Read a page: so many, behind a position, after so many looks at most."""


class Place(msgspec.Struct, frozen=True):
    """Where to go on, and how many were taken before."""

    after: UUID
    passed: int = 0


class NotDone(msgspec.Struct, frozen=True):
    """One that was left as it was, and why."""

    id: UUID
    why: str


class Done(msgspec.Struct, frozen=True):
    """How many were chosen, up to the cap, how many of them were changed, and a few that were refused.

    `after` is where to go on when more than the cap fit; none: these were all.
    """

    matched: int
    changed: int
    sample: list[UUID]
    refused: list[NotDone] = []
    after: Any = None


async def change_jobs(open_session: OpenSession, job_ids: Sequence[UUID], change: ChangeJob) -> Done:
    """Change each of these jobs, one after the other."""
    changed, refused = 0, list[NotDone]()
    for job_id in job_ids:
        try:
            async with open_session() as session:
                changed += await change(session, job_id)
        except (Refused, Unsettled) as error:
            refused.append(NotDone(job_id, str(error)))
    return Done(len(job_ids), changed, list(job_ids[:_SAMPLE_MAX]), refused[:_SAMPLE_MAX])


async def change_jobs_matching(
    open_session: OpenSession, read: Read, change: ChangeJob, limit: int, place: Place | None
) -> Done:
    """Change the jobs that a list gives."""
    done = Done(0, 0, [])
    last = place
    async for job_ids, last in _batches(open_session, read, "job_id", min(limit, JOBS_MAX), place):  # noqa: B007
        done = together(done, await change_jobs(open_session, job_ids, change))
    return await _with_place(open_session, read, done, last, place)


async def change_runs_matching(
    open_session: OpenSession, read: Read, change: ChangeRuns, limit: int, place: Place | None
) -> Done:
    """Change the runs that a list gives, batch by batch."""
    done, before = Done(0, 0, []), 0 if place is None else place.passed
    last = place
    async for run_ids, last in _batches(open_session, read, "run_id", limit, place):  # noqa: B007
        async with open_session() as session:
            changed = await change(session, run_ids, before + done.matched)
        done = together(done, Done(len(run_ids), changed, run_ids[:_SAMPLE_MAX]))
    return await _with_place(open_session, read, done, last, place)


async def count_matching(open_session: OpenSession, read: Read, key: str, limit: int, place: Place | None) -> Done:
    """Count what a list gives, and change nothing."""
    done = Done(0, 0, [])
    last = place
    async for ids, last in _batches(open_session, read, key, limit, place):  # noqa: B007
        done = together(done, Done(len(ids), 0, ids[:_SAMPLE_MAX]))
    return await _with_place(open_session, read, done, last, place)


async def _batches(
    open_session: OpenSession, read: Read, key: str, limit: int, place: Place | None
) -> AsyncIterator[tuple[list[UUID], Place | None]]:
    """Give what fits, up to the limit, batch by batch, each with the position behind it."""
    after = None if place is None else place.after
    while limit > 0:
        async with open_session() as session:
            page = await read(session, min(limit, _BATCH), after, _LOOKS)
        limit -= len(page.rows)
        after = page.after
        yield [row[key] for row in page.rows], None if after is None else Place(after)
        if after is None:
            return


async def _with_place(
    open_session: OpenSession, read: Read, done: Done, last: Place | None, first: Place | None
) -> Done:
    """Say where to go on: nowhere, when nothing behind the last position fits."""
    at = None if last is None else last.after
    while at is not None:
        async with open_session() as session:
            page = await read(session, 1, at, _LOOKS)
        if page.rows:
            passed = done.matched + (0 if first is None else first.passed)
            return msgspec.structs.replace(done, after=Place(at, passed))
        at = page.after
    return done


def together(one: Done, other: Done) -> Done:
    """Add what was done after it to what was done; where to go on is not told."""
    return Done(
        one.matched + other.matched,
        one.changed + other.changed,
        [*one.sample, *other.sample][:_SAMPLE_MAX],
        [*one.refused, *other.refused][:_SAMPLE_MAX],
    )
