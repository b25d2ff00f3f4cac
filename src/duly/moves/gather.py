"""Gather: one-shots that callers submit at the same moment go into the store together, and each caller is answered when all are
durable.

A submit that comes alone goes alone and at once. While the store is busy with some, others gather, and go together next: the
busier it is, the more share one transaction. Nobody waits for a moment to pass.
"""

from __future__ import annotations

import asyncio
from collections import deque

from duly.clock import Rng
from duly.domain.errors import Refused
from duly.domain.jobs.job import Submission
from duly.domain.runs.run import has_parent
from duly.domain.tenancy.audit import Actor
from duly.moves.admin.seal import sealed
from duly.moves.submit import submit
from duly.store.connection.database import Database
from duly.store.tables.jobs import Submitted
from duly.store.tenancy import audit

AT_ONCE_MAX = 2  # While PostgreSQL commits some, it may insert others.
TOGETHER_MAX = 200

_Waiting = tuple[Submission, Actor, "asyncio.Future[Submitted]"]


class Gatherer:
    """Submits what nobody has named by a key, for any number of callers on one loop."""

    def __init__(self, database: Database, rng: Rng) -> None:
        self._database = database
        self._rng = rng
        self._waiting: dict[int, deque[_Waiting]] = {}
        self._submitting: set[asyncio.Task[None]] = set()

    async def submit(self, job: Submission, tenant: int, actor: Actor) -> Submitted:
        """Submit one, and note who has asked for it. Raises Refused."""
        job = sealed(self._database, tenant, job)
        answer: asyncio.Future[Submitted] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(tenant, deque()).append((job, actor, answer))
        if len(self._submitting) < AT_ONCE_MAX:
            task = asyncio.create_task(self._submit_all(), name="duly-gather")
            self._submitting.add(task)
            task.add_done_callback(self._submitting.discard)
        return await answer

    async def _submit_all(self) -> None:
        """Submit until nobody waits."""
        while self._waiting:
            tenant, waiting = next(iter(self._waiting.items()))
            some = [waiting.popleft() for _ in range(min(TOGETHER_MAX, len(waiting)))]
            del self._waiting[tenant]
            if waiting:
                self._waiting[tenant] = waiting  # Behind the other tenants.
            # Subtasks are stored by other statements, one by one; these are rare.
            has_subtasks = any(has_parent(job.options) for job, _, _ in some)
            for together in [[one] for one in some] if has_subtasks else [some]:
                await self._submit_some(tenant, together)

    async def _submit_some(self, tenant: int, some: list[_Waiting]) -> None:
        try:
            made = await self._make(tenant, [job for job, _, _ in some], [actor for _, actor, _ in some])
        except Refused as error:
            if len(some) == 1:
                _refuse(some, error)
            else:  # One of them cannot be taken, and none was.
                for one in some:
                    await self._submit_some(tenant, [one])
        except BaseException as error:
            _refuse(some, error)
            if not isinstance(error, Exception):
                raise
        else:
            for (_, _, answer), submitted in zip(some, made, strict=True):
                if not answer.done():
                    answer.set_result(submitted)

    async def _make(self, tenant: int, jobs: list[Submission], actors: list[Actor]) -> list[Submitted]:
        if len(jobs) > 1:
            return await audit.create_many(self._database, tenant, self._key(), jobs, actors)
        [job], [actor] = jobs, actors
        if has_parent(job.options):
            return [await submit(self._database.acting_as(actor), job, key=self._key(), tenant=tenant)]
        return [await audit.create_one(self._database, tenant, self._key(), job, actor)]

    def _key(self) -> str:
        return str(self._rng.uuid())


def _refuse(some: list[_Waiting], error: BaseException) -> None:
    for _, _, answer in some:
        if not answer.done():
            answer.set_exception(error)
