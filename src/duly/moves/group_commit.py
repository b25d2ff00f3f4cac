"""Group commit: one-shots submitted at the same moment share a transaction, and each caller is answered at its commit.

A lone submit goes at once. While the store is busy, others queue up and go together next: the busier it is, the more
share one transaction. No submit waits for a timer.
"""

from __future__ import annotations

import asyncio
from collections import deque

from duly.clock import Rng
from duly.domain.errors import Refused
from duly.domain.jobs.job import Submission
from duly.domain.tenancy.audit import Actor
from duly.moves.submit import submit, submit_each
from duly.store.connection.database import Database
from duly.store.tables.jobs import Submitted

AT_ONCE_MAX = 2  # while PostgreSQL commits some, it may insert others
TOGETHER_MAX = 200

_Waiting = tuple[Submission, Actor, "asyncio.Future[Submitted]"]


class GroupCommit:
    """Submits one-shots for any number of callers on one loop."""

    def __init__(self, database: Database, rng: Rng) -> None:
        self._database = database
        self._rng = rng
        self._waiting: dict[int, deque[_Waiting]] = {}
        self._submitting: set[asyncio.Task[None]] = set()

    async def submit(self, database: Database, job: Submission, *, key: str | None, tenant: int) -> Submitted:
        """Submit one for the database's actor: in its transaction, or without one, in a shared transaction.

        Raises Refused.
        """
        if database.in_transaction or key is not None:
            return await submit(database, job, key=key or self._key(), tenant=tenant)
        assert database.actor is not None, "a submit without a transaction needs an actor"
        answer: asyncio.Future[Submitted] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(tenant, deque()).append((job, database.actor, answer))
        if len(self._submitting) < AT_ONCE_MAX:
            task = asyncio.create_task(self._submit_all(), name="duly-group-commit")
            self._submitting.add(task)
            task.add_done_callback(self._submitting.discard)
        return await answer

    async def _submit_all(self) -> None:
        """Submit until no request waits."""
        while self._waiting:
            tenant, waiting = next(iter(self._waiting.items()))
            some = [waiting.popleft() for _ in range(min(TOGETHER_MAX, len(waiting)))]
            del self._waiting[tenant]
            if waiting:
                self._waiting[tenant] = waiting  # behind the other tenants
            await self._submit_some(tenant, some)

    async def _submit_some(self, tenant: int, some: list[_Waiting]) -> None:
        try:
            created = await self._submit_together(tenant, some)
        except Refused as error:
            if len(some) == 1:
                _refuse(some, error)
            else:  # one of them was refused, and none was stored
                for one in some:
                    await self._submit_some(tenant, [one])
        except BaseException as error:
            _refuse(some, error)
            if not isinstance(error, Exception):
                raise
        else:
            for (_, _, answer), submitted in zip(some, created, strict=True):
                if not answer.done():
                    answer.set_result(submitted)

    async def _submit_together(self, tenant: int, some: list[_Waiting]) -> list[Submitted]:
        if len(some) > 1:
            jobs = [(job, actor) for job, actor, _ in some]
            return await submit_each(self._database, jobs, key=self._key(), tenant=tenant)
        [(job, actor, _)] = some
        return [await submit(self._database.acting_as(actor), job, key=self._key(), tenant=tenant)]

    def _key(self) -> str:
        return str(self._rng.uuid())


def _refuse(some: list[_Waiting], error: BaseException) -> None:
    for _, _, answer in some:
        if not answer.done():
            answer.set_exception(error)
