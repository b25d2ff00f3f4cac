"""Queues, what is held, the workers that serve them, and recovery after downtime."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from duly.client.asynchronous.transport import AsyncResource
from duly.client.requests import Id, deleting, getting, given, listing, path, posting, putting
from duly.wire.queues import Draining, HeldRuns, Hold, HoldChange, Queue, QueueChanged, Worker
from duly.wire.recovery import RecoveryPlan, RecoveryRule


class AsyncQueues(AsyncResource):
    """Queues, by name. Within a second of a pause nothing new starts; what waits is kept."""

    def list(self, *, everyone: bool = False) -> AsyncIterator[Queue]:
        """Give every queue that has work or a worker, or is held by its name; with `everyone`, for the operator, all."""
        return self._line.pages(listing(path("queues"), Queue, everyone=everyone or None))

    async def change(self, name: str, *, age_limit: str | float | None) -> QueueChanged:
        """Say how old the oldest due run of a queue may be before work is shed; None leaves it to the default."""
        return await self._line.ask(putting(path("queues", name), QueueChanged, {"age_limit": age_limit}))

    async def pause(self, name: str, *, reason: str | None = None, everyone: bool = False) -> HoldChange:
        """Let nothing new of a queue start: of one's own, or, for the operator, of everyone's."""
        body = given(reason=reason, everyone=everyone)
        return await self._line.ask(posting(path("queues", name, "pause"), HoldChange, body))

    async def resume(self, name: str, *, everyone: bool = False) -> HoldChange:
        """Let a queue go on."""
        return await self._line.ask(posting(path("queues", name, "resume"), HoldChange, {"everyone": everyone}))


class AsyncHolds(AsyncResource):
    """The emergency stop: what nobody may start."""

    def list(self) -> AsyncIterator[Hold]:
        """Return all that is held."""
        return self._line.pages(listing(path("holds"), Hold))

    async def pause(
        self,
        *,
        everything: bool = False,
        queue: str | None = None,
        tenant: int | None = None,
        reason: str | None = None,
    ) -> HoldChange:
        """Let nothing new of what is named start: a queue, a tenant, or everything."""
        body = given(all=everything, queue=queue, tenant=tenant, reason=reason)
        return await self._line.ask(posting(path("pause"), HoldChange, body))

    async def resume(
        self, *, everything: bool = False, queue: str | None = None, tenant: int | None = None
    ) -> HoldChange:
        """Let go on what was paused."""
        body = given(all=everything, queue=queue, tenant=tenant)
        return await self._line.ask(posting(path("resume"), HoldChange, body))


class AsyncWorkers(AsyncResource):
    """Workers that live."""

    def list(self) -> AsyncIterator[Worker]:
        """Return every worker that lives, for the operator."""
        return self._line.pages(listing(path("workers"), Worker))

    async def runs(self, worker_id: Id) -> HeldRuns:
        """Show what a worker has in its hands. Raises NotFound."""
        return await self._line.ask(getting(path("workers", worker_id, "runs"), HeldRuns))

    async def drain(self, worker_id: Id) -> Draining:
        """Ask a worker to take nothing more; it finishes what it runs, and lives on. Raises NotFound."""
        return await self._line.ask(posting(path("workers", worker_id, "drain"), Draining))

    async def resume(self, worker_id: Id) -> Draining:
        """Let a worker that was drained take runs again. Raises NotFound."""
        return await self._line.ask(posting(path("workers", worker_id, "resume"), Draining))


class AsyncRecovery(AsyncResource):
    """What was missed while no scheduler lived, and what becomes of it; for the operator."""

    async def get(self) -> RecoveryPlan:
        """Show what was missed, what becomes of it, and how far that has come."""
        return await self._line.ask(getting(path("recovery"), RecoveryPlan))

    async def approve(
        self, *, rules: Sequence[RecoveryRule] = (), rate: float | None = None, dry_run: bool = False
    ) -> RecoveryPlan:
        """Let it be made up for, by each schedule's policy or by the rules, at a rate; later the rate may be changed.

        With `dry_run` the plan is shown as it would be, and nothing is changed.
        """
        body = given(rules=list(rules), rate=rate, dry_run=dry_run or None)
        return await self._line.ask(posting(path("recovery", "approve"), RecoveryPlan, body))

    async def dismiss(self) -> RecoveryPlan:
        """Leave out what is not made yet."""
        return await self._line.ask(deleting(path("recovery"), RecoveryPlan))
