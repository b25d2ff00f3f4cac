"""Bulk changes of jobs and runs: all that a filter matches, or that are named, up to a cap, in bounded transactions.

They are taken in the order of their list, from a position on, and each is visited once. Each job, and each batch of
runs, is a transaction of its own: earlier changes stay when a later one is refused. A change that stops half way
reports how far it came and where to go on. A dry run counts, and changes nothing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from math import inf
from typing import Any
from uuid import UUID

import msgspec

from duly.domain.errors import Refused, Unsettled
from duly.store.connection.database import Database, Unavailable
from duly.store.connection.together import OpenSession
from duly.store.reads.lists import Page

JOBS_MAX = 500  # changed by one call; each is a transaction
OPEN = ("active", "paused")  # the states of jobs that can be ended
LIVE = ("scheduled", "blocked", "ready", "running", "retrying")  # and of runs that can be cancelled
_BATCH = 500
_COUNTED = 2_000  # a page of a count
_LOOKS = 10_000
_SAMPLE_MAX = 10

ChangeJob = Callable[[Database, UUID], Awaitable[bool]]
"""Change one job. Gives whether it stood otherwise before."""
ChangeRuns = Callable[[Database, Sequence[UUID], int], Awaitable[int]]
"""Change some runs, when so many were taken before. Gives how many were changed."""


Read = Callable[[Database, int, "UUID | None", int], Awaitable[Page[UUID]]]
"""Read a page: so many, behind a position, after so many looks at most."""


class Position(msgspec.Struct, frozen=True):
    """The position to go on from, and how many were taken before."""

    after: UUID
    passed: int = 0


class NotDone(msgspec.Struct, frozen=True):
    """One that was left unchanged, and why."""

    id: UUID
    reason: str


class Done(msgspec.Struct, frozen=True):
    """The result: how many matched, up to the cap, how many of them were changed, and a few that were refused.

    `after` is where to go on when more match; None: these were all. `is_partial`: it stopped before the cap, because
    the time was over or the database did not answer.
    """

    matched: int
    changed: int
    sample: list[UUID]
    refused: list[NotDone] = []
    after: Any = None
    is_partial: bool = False


async def _record_nothing(session: Database, done: Done, position: Position | None) -> None:
    pass


class Way(msgspec.Struct, frozen=True, kw_only=True):
    """The extent of a bulk change: up to `limit`, None being all, from `position` on, with the earlier `done`; until time
    `is_over`.

    `keep` is called in the transaction of each part, with the result so far and the position after it.
    """

    limit: int | None
    position: Position | None = None
    done: Done = Done(0, 0, [])
    is_over: Callable[[], bool] = lambda: False
    keep: Callable[[Database, Done, Position | None], Awaitable[None]] = _record_nothing

    @property
    def most(self) -> float:
        """Return how many are taken in all."""
        return inf if self.limit is None else self.limit

    @property
    def left(self) -> float:
        """Return how many more are taken."""
        return self.most - self.done.matched


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


async def change_jobs_matching(open_session: OpenSession, read: Read, change: ChangeJob, way: Way) -> Done:
    """Change the jobs of a list, each in a transaction of its own. Raises Unavailable if none was changed."""

    async def each(
        job_ids: Sequence[UUID], _: Position | None, done: Done
    ) -> AsyncIterator[tuple[Done, Position | None]]:
        for job_id in job_ids:
            try:
                async with open_session() as session:
                    changed = await change(session, job_id)
                    step = together(done, Done(1, int(changed), [job_id]))
                    await way.keep(session, step, Position(job_id))
            except (Refused, Unsettled) as error:
                step = together(done, Done(1, 0, [job_id], [NotDone(job_id, str(error))]))
            done = step
            yield done, Position(job_id)

    most = msgspec.structs.replace(way, limit=min(way.left, JOBS_MAX) + way.done.matched)
    return await _go(open_session, read, "job_id", most, each)


async def change_runs_matching(open_session: OpenSession, read: Read, change: ChangeRuns, way: Way) -> Done:
    """Change the runs of a list, a transaction a batch. Raises Unavailable if none was changed."""
    before = 0 if way.position is None else way.position.passed - way.done.matched

    async def batch(
        run_ids: Sequence[UUID], behind: Position | None, done: Done
    ) -> AsyncIterator[tuple[Done, Position | None]]:
        async with open_session() as session:
            changed = await change(session, run_ids, before + done.matched) if run_ids else 0
            done = together(done, Done(len(run_ids), changed, list(run_ids[:_SAMPLE_MAX])))
            await way.keep(session, done, behind)
        yield done, behind

    return await _go(open_session, read, "run_id", way, batch)


async def count_matching(open_session: OpenSession, read: Read, key: str, way: Way) -> Done:
    """Count a list, and change nothing."""

    async def count(
        ids: Sequence[UUID], behind: Position | None, done: Done
    ) -> AsyncIterator[tuple[Done, Position | None]]:
        yield together(done, Done(len(ids), 0, list(ids[:_SAMPLE_MAX]))), behind

    return await _go(open_session, read, key, way, count, size=_COUNTED)


Part = Callable[[Sequence[UUID], "Position | None", Done], AsyncIterator[tuple[Done, "Position | None"]]]
"""Do something to a page, when so much was done before. Gives what was done then, and where, after each transaction."""


async def _go(
    open_session: OpenSession, read: Read, key: str, way: Way, part: Part, *, size: int | None = None
) -> Done:
    """Go from page to page, and report how far it came, whatever ends it."""
    done, position, passed = (
        way.done,
        way.position,
        0 if way.position is None else way.position.passed - way.done.matched,
    )
    try:
        async for ids, behind in _pages(open_session, read, key, way, size or _BATCH):
            async for step in part(ids, behind, done):
                done, position = step
                if position is not None and done.matched < way.most and way.is_over():
                    return _stopped(done, position, passed)
            position = behind
        return await _with_position(open_session, read, done, position, passed)
    except Unavailable:
        if not done.matched or position is None:
            raise
        return _stopped(done, position, passed)


def _stopped(done: Done, position: Position, passed: int) -> Done:
    return msgspec.structs.replace(done, after=Position(position.after, passed + done.matched), is_partial=True)


async def _pages(
    open_session: OpenSession, read: Read, key: str, way: Way, size: int
) -> AsyncIterator[tuple[list[UUID], Position | None]]:
    """Return the matches, up to the limit, page by page, each with the position after it."""
    after, left = None if way.position is None else way.position.after, way.left
    while left > 0:
        async with open_session() as session:
            page = await read(session, int(min(left, size)), after, _LOOKS)
        left -= len(page.rows)
        after = page.after
        yield [row[key] for row in page.rows], None if after is None else Position(after)
        if after is None:
            return


async def _with_position(open_session: OpenSession, read: Read, done: Done, last: Position | None, passed: int) -> Done:
    """Add where to go on: None, when nothing after the last position matches."""
    at = None if last is None else last.after
    while at is not None:
        async with open_session() as session:
            page = await read(session, 1, at, _LOOKS)
        if page.rows:
            return msgspec.structs.replace(done, after=Position(at, passed + done.matched))
        at = page.after
    return done


def together(one: Done, other: Done) -> Done:
    """Add up two results, without the position."""
    return Done(
        one.matched + other.matched,
        one.changed + other.changed,
        [*one.sample, *other.sample][:_SAMPLE_MAX],
        [*one.refused, *other.refused][:_SAMPLE_MAX],
    )
