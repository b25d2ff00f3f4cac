"""`duly workers`: list live workers, and drain them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from itertools import zip_longest
from uuid import UUID

import click

from duly.cli.client import lists, with_client
from duly.cli.lazy import ListingGroup
from duly.cli.render.output import Columns, answer
from duly.client.asynchronous.client import AsyncClient
from duly.clock import host_now
from duly.domain.diagnosis.explain.words import spoken
from duly.wire.queues import Worker


def _weighed(queues: Sequence[str], weights: Sequence[int]) -> list[str]:
    """Write queues as they are given to a worker: with their weight where it is not 1."""
    pairs = zip_longest(queues, weights[: len(queues)], fillvalue=1)
    return [f"{queue}" if weight == 1 else f"{queue}={weight}" for queue, weight in pairs]


def _state(worker: Worker) -> str:
    """Return the state of a worker; if it is stalled, for how long and in which handlers."""
    if worker.stalled_at is not None:
        where = f" in {', '.join(worker.stalled_in)}" if worker.stalled_in else ""
        return f"stalled{where} for {spoken(host_now() - worker.stalled_at)}"
    return "draining" if worker.is_draining else "serving"


COLUMNS: Columns = {
    "id": "worker_id",
    "name": "name",
    "version": "version",
    "queues": lambda worker: _weighed(worker.queues, worker.weights),
    "handlers": "handlers",
    "slots": "slots",
    "up for": lambda worker: host_now() - worker.started_at,
    "state": _state,
    "lease": lambda worker: timedelta(seconds=worker.lease_seconds_left),
}


@click.group(cls=ListingGroup)
def workers() -> None:
    """List and drain workers. Without a command: list."""


@workers.command("list")
@lists(COLUMNS, "no worker is running; start one: duly worker module:app")
async def list_workers(client: AsyncClient) -> list[Worker]:
    """List the live workers, their queues and how long their lease is still valid."""
    return [worker async for worker in client.workers.list()]


@workers.command("drain")
@click.argument("worker_id", metavar="WORKER", type=click.UUID)
@click.option("--undo", is_flag=True, help="Let it claim runs again.")
@with_client()
async def drain(client: AsyncClient, worker_id: UUID, undo: bool, as_json: bool) -> None:
    """Drain WORKER, given by its id: it claims nothing more, finishes what it runs, and lives on until it is stopped."""
    await (client.workers.resume(worker_id) if undo else client.workers.drain(worker_id))
    words = "claims runs again" if undo else "claims no more runs and finishes those it has"
    answer(as_json, {"worker_id": worker_id, "is_draining": not undo}, f"worker {worker_id} {words}")
