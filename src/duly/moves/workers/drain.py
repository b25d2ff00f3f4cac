"""Drain: a worker claims nothing more, finishes what it runs and hands back the rest; undone, it goes on.

Of a drained host every worker does, and every scheduler gives up its shards, also those that start there later.

A worker sees that with its signals, several times a second, and lives on without work until it is stopped.
"""

from __future__ import annotations

from uuid import UUID

from duly.domain.errors import NotFound
from duly.domain.runs.run import TENANT_DEFAULT
from duly.domain.tenancy.audit import Action, Subject
from duly.moves.admin.audit import audited, record
from duly.store.connection import hints
from duly.store.connection.database import Database
from duly.store.tables import hosts, workers


@audited
async def drain(database: Database, worker_id: UUID) -> None:
    """Ask a worker to claim nothing more. Raises NotFound."""
    await _change(database, worker_id, is_draining=True)


@audited
async def undrain(database: Database, worker_id: UUID) -> None:
    """Let a worker claim runs again. Raises NotFound."""
    await _change(database, worker_id, is_draining=False)


async def _change(database: Database, worker_id: UUID, *, is_draining: bool) -> None:
    is_new = await workers.drain(database, worker_id, is_draining=is_draining)
    if is_new is None:
        raise NotFound(f"no live worker {worker_id}; `duly workers` lists them")
    action = Action.WORKER_DRAINED if is_draining else Action.WORKER_RESUMED
    await record(database, TENANT_DEFAULT, action, Subject("worker", str(worker_id)), int(is_new))
    await hints.send_pauses_changed(database)


@audited
async def drain_host(database: Database, host: str) -> None:
    """Ask every process of a host to take nothing new. Raises NotFound."""
    await _changed(database, host, await hosts.drain(database, host), Action.HOST_DRAINED)


@audited
async def resume_host(database: Database, host: str) -> None:
    """Let every process of a host take work again. Raises NotFound."""
    await _changed(database, host, await hosts.resume(database, host), Action.HOST_RESUMED)


async def _changed(database: Database, host: str, is_new: bool | None, action: Action) -> None:
    if is_new is None:
        raise NotFound(
            f"no process has run on host {host!r} within a minute; check the name: it is what `hostname` prints"
        )
    await record(database, TENANT_DEFAULT, action, Subject("host", host), int(is_new))
    await hints.send_pauses_changed(database)
