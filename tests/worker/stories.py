"""Helpers of tests of workers: handlers, a worker in this process, and waiting for what must come."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from itertools import count, pairwise
from typing import Any
from uuid import UUID

import msgspec

from duly.clock import Rng
from duly.domain.jobs.declaration import Declarations
from duly.domain.jobs.job import Submission
from duly.domain.runs.options import options_of
from duly.domain.runs.retry import Retry
from duly.domain.runs.run import FINAL_STATES, Run
from duly.domain.targets.target import Target
from duly.log import Log
from duly.maintenance.reaper import Reaper
from duly.moves.claim import claim
from duly.moves.submit import submit
from duly.store.boxes import runs
from duly.store.connection.database import Database, Unavailable
from duly.store.tables import workers
from duly.store.tables.workers import Identity
from duly.worker import claim as claiming
from duly.worker.engine import Engine
from duly.worker.handlers import Handler, Registry
from duly.worker.service import Worker, WorkerOptions
from duly.worker.targets import Targets

LEASE_SHORT = timedelta(seconds=1.5)
AT_ONCE = Retry(max_attempts=5, base_seconds=0.001)
# On a busy machine anything may take long; what never comes is told apart by this alone.
PATIENCE_SECONDS = 20.0

_numbers = count(1)


def registry_of(*functions: Callable[..., Any]) -> Registry:
    """Register functions as handlers under their own names."""
    registry = Registry()
    for function in functions:
        registry.add(Handler(function))
    return registry


def a_run(handler: str = "work", **changes: Any) -> Run:
    """Give a run as a worker would hold it."""
    now = datetime(2026, 11, 2, 9, tzinfo=UTC)
    run_id = UUID(int=next(_numbers), version=4)
    run = Run((0, 1), 1, run_id, run_id, now, now, None, 1, 1, 1, 5, 0, False, False, "default", handler, "{}")
    return msgspec.structs.replace(run, **changes)


async def submitted(
    store: Database,
    handler: str,
    *,
    payload: Any = None,
    queue: str = "default",
    priority: int = 5,
    delay: float | None = None,
    retry: Retry = AT_ONCE,
    timeout: float | None = None,
    target: Target | None = None,
    expires_after: float | None = None,
    rate: tuple[str, float, int] | None = None,
) -> UUID:
    """Submit a one-shot, due now unless told otherwise, and tried again at once should it fail."""
    options = options_of(retry=retry, timeout_seconds=timeout, target=target, expires_seconds=expires_after, rate=rate)
    text = msgspec.json.encode(payload or {}).decode()
    span = None if delay is None else timedelta(seconds=delay)
    job = Submission(handler, text, queue, priority, None, span, options)
    return (await submit(store, job, key=f"story-{next(_numbers)}")).job_id


@asynccontextmanager
async def working(
    url: str,
    registry: Registry,
    *,
    declarations: Declarations | None = None,
    targets: Targets | None = None,
    **options: Any,
) -> AsyncIterator[Worker]:
    """Let a worker live in this process; at the end it is stopped in good order."""
    chosen: dict[str, Any] = {"name": "worker", "grace_seconds": 5.0} | options
    worker = Worker(
        url,
        registry,
        WorkerOptions(**chosen),
        rng=Rng(),
        log=Log("worker"),
        declarations=declarations,
        targets=targets,
    )
    living = asyncio.create_task(worker.run())
    try:
        await until(lambda: worker.health.safe or living.done())
        yield worker
    finally:
        worker.stop()
        await asyncio.wait_for(living, PATIENCE_SECONDS)


async def until(condition: Callable[[], Any] | Callable[[], Awaitable[Any]], seconds: float = PATIENCE_SECONDS) -> Any:
    """Wait for a condition to hold, and give what it gave. Fails when it does not within `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        answer = condition()
        if isinstance(answer, Awaitable):
            answer = await answer
        if answer:
            return answer
        assert time.monotonic() < deadline, f"waited {seconds} s in vain"
        await asyncio.sleep(0.01)


def is_regular(moments: list[float]) -> bool:
    """Say whether moments follow each other at a fixed pace, as far as a busy machine lets one tell."""
    gaps = [after - before for before, after in pairwise(moments)]
    return max(gaps) - min(gaps) < 0.1


def engine_of(worker: Worker) -> Engine:
    """The engine of a worker that lives."""
    assert worker._engine is not None
    return worker._engine


async def in_box(store: Database, box: str) -> int:
    """How many runs stand in a box."""
    number: int = await store.fetchval(f"select count(*) from duly.{box}")
    return number


async def state_of(store: Database, run_id: UUID) -> str:
    """Tell the state of a run as people see it."""
    found = await runs.find(store, run_id)
    assert found is not None, run_id
    state: str = found["state"]
    return state


async def ended(store: Database, run_id: UUID, seconds: float = PATIENCE_SECONDS) -> str:
    """Wait until a run is in a final state, and give that state."""

    async def final() -> str | None:
        state = await state_of(store, run_id)
        return state if state in FINAL_STATES else None

    state: str = await until(final, seconds)
    return state


async def attempts_of(store: Database, run_id: UUID) -> list[tuple[int, str]]:
    """Tell the number and the outcome of each attempt on record, in this order."""
    found = await runs.find(store, run_id)
    assert found is not None, run_id
    return sorted((attempt["attempt"], attempt["outcome"]) for attempt in found["attempts"])


@asynccontextmanager
async def reaping(store: Database) -> AsyncIterator[Reaper]:
    """Let the dead be found, more often than in earnest."""
    reaper = Reaper(store, rng=Rng(1), log=Log("reaper"))

    async def reap() -> None:
        while True:
            await reaper.step()
            await asyncio.sleep(0.1)

    task = asyncio.create_task(reap())
    try:
        yield reaper
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def a_registered_worker(store: Database, *, lease: timedelta = timedelta(seconds=60)) -> UUID:
    """Put a worker among the living that exists on paper only."""
    worker_id = Rng().uuid()
    await workers.register(store, Identity(worker_id, "paper", "0", ["default"], ["work"], 10, lease))
    return worker_id


async def leased_runs(store: Database, worker_id: UUID, number: int) -> list[Run]:
    """Put runs into the hands of a worker."""
    for _ in range(number):
        await submitted(store, "work")
    return await claim(store, worker_id, ["default"], ["work"], number)


class Faulty(Database):
    """A database whose connection fails as often as it is told: before a statement, or after it with the answer lost."""

    def __init__(self, url: str) -> None:
        super().__init__(url, size_max=4)
        self.fail_before = 0
        self.lose_answers = 0

    async def fetch(self, query: str, *args: Any) -> Any:
        """Run a statement, or not."""
        if self.fail_before:
            self.fail_before -= 1
            raise Unavailable("the connection failed before the statement")
        answer = await super().fetch(query, *args)
        if self.lose_answers:
            self.lose_answers -= 1
            raise Unavailable("the answer was lost")
        return answer


def claim_by(monkeypatch, claim: Callable[..., Awaitable[list[Run]]]) -> None:
    """Let the workers claim by another function, busy or idle."""
    monkeypatch.setattr(claiming, "claim", claim)
    monkeypatch.setattr(claiming, "claim_all", claim)
