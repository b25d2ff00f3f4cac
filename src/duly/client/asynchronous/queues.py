"""Queues, pauses, workers, and recovery after downtime."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from duly.client.asynchronous.transport import AsyncResource
from duly.client.requests import Id, deleting, getting, given, listing, path, posting, putting
from duly.wire.queues import Draining, HeldRuns, HostDraining, Pause, PauseChange, Queue, QueueChanged, Worker
from duly.wire.recovery import RecoveryPlan, RecoveryRule


class AsyncQueues(AsyncResource):
    """Queues, by name. Within a second of a pause nothing new starts; waiting runs are kept."""

    def list(self, *, everyone: bool = False) -> AsyncIterator[Queue]:
        """Return every queue that has work or a worker, or is paused by name; with `everyone`, for the operator, all."""
        return self._transport.pages(listing(path("queues"), Queue, everyone=everyone or None))

    async def change(self, name: str, *, age_limit: str | float | None) -> QueueChanged:
        """Set the maximum age of a queue's oldest due run before work is shed; None restores the default."""
        return await self._transport.send(putting(path("queues", name), QueueChanged, {"age_limit": age_limit}))

    async def pause(self, name: str, *, reason: str | None = None, everyone: bool = False) -> PauseChange:
        """Pause a queue: for one's own runs, or, for the operator, for everyone's."""
        body = given(reason=reason, everyone=everyone)
        return await self._transport.send(posting(path("queues", name, "pause"), PauseChange, body))

    async def resume(self, name: str, *, everyone: bool = False) -> PauseChange:
        """Resume a queue."""
        return await self._transport.send(posting(path("queues", name, "resume"), PauseChange, {"everyone": everyone}))


class AsyncPauses(AsyncResource):
    """Pauses: the emergency stop."""

    def list(self) -> AsyncIterator[Pause]:
        """Return all pauses."""
        return self._transport.pages(listing(path("pauses"), Pause))

    async def pause(
        self,
        *,
        everything: bool = False,
        queue: str | None = None,
        tenant: int | None = None,
        reason: str | None = None,
    ) -> PauseChange:
        """Pause a scope: a queue, a tenant, or everything."""
        body = given(all=everything, queue=queue, tenant=tenant, reason=reason)
        return await self._transport.send(posting(path("pause"), PauseChange, body))

    async def resume(
        self, *, everything: bool = False, queue: str | None = None, tenant: int | None = None
    ) -> PauseChange:
        """Resume a scope."""
        body = given(all=everything, queue=queue, tenant=tenant)
        return await self._transport.send(posting(path("resume"), PauseChange, body))


class AsyncWorkers(AsyncResource):
    """Live workers."""

    def list(self) -> AsyncIterator[Worker]:
        """Return every live worker, for the operator."""
        return self._transport.pages(listing(path("workers"), Worker))

    async def runs(self, worker_id: Id) -> HeldRuns:
        """Return the runs that a worker holds. Raises NotFound."""
        return await self._transport.send(getting(path("workers", worker_id, "runs"), HeldRuns))

    async def drain(self, worker_id: Id) -> Draining:
        """ApiRequest a worker to claim nothing more; it finishes what it runs, and lives on. Raises NotFound."""
        return await self._transport.send(posting(path("workers", worker_id, "drain"), Draining))

    async def resume(self, worker_id: Id) -> Draining:
        """Let a drained worker claim runs again. Raises NotFound."""
        return await self._transport.send(posting(path("workers", worker_id, "resume"), Draining))


class AsyncHosts(AsyncResource):
    """Machines that workers and schedulers run on; for the operator."""

    async def drain(self, host: str) -> HostDraining:
        """Let a host take nothing new. Returns what is still held there. Raises NotFound."""
        return await self._transport.send(posting(path("hosts", host, "drain"), HostDraining))

    async def resume(self, host: str) -> HostDraining:
        """Let a host take work again. Raises NotFound."""
        return await self._transport.send(posting(path("hosts", host, "resume"), HostDraining))


class AsyncRecovery(AsyncResource):
    """Recovery of fires missed while no scheduler was alive; for the operator."""

    async def get(self) -> RecoveryPlan:
        """Return the missed fires, the decision, and its progress."""
        return await self._transport.send(getting(path("recovery"), RecoveryPlan))

    async def approve(
        self, *, rules: Sequence[RecoveryRule] = (), rate: float | None = None, dry_run: bool = False
    ) -> RecoveryPlan:
        """Approve the recovery, by each schedule's policy or by the rules, at a rate; later the rate may be changed.

        With `dry_run` the plan is returned as it would be, and nothing is changed.
        """
        body = given(rules=list(rules), rate=rate, dry_run=dry_run or None)
        return await self._transport.send(posting(path("recovery", "approve"), RecoveryPlan, body))

    async def dismiss(self) -> RecoveryPlan:
        """Dismiss the runs that are not created yet."""
        return await self._transport.send(deleting(path("recovery"), RecoveryPlan))
