"""Things a story needs, saying only what matters to it."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from itertools import count
from typing import Any
from uuid import UUID

import pytest

from duly.clock import Rng
from duly.domain.jobs import filter as filters
from duly.domain.jobs.job import Recurring, Submission
from duly.domain.runs.callbacks import Callbacks
from duly.domain.runs.options import NO_OPTIONS, RunOptions, options_of
from duly.domain.runs.outcome import Awaited, Failed, Outcome, Succeeded
from duly.domain.runs.retry import Retry
from duly.domain.runs.run import Run
from duly.domain.triggers.schedule.timing import every_shape
from duly.moves.claim import claim
from duly.moves.defer import Deferred, defer
from duly.moves.settle import Settled, settle
from duly.moves.stage import stage
from duly.moves.submit import submit, submit_recurring
from duly.scheduler.service import LEASE as SHARD_LEASE
from duly.store.boxes import runs
from duly.store.boxes.timers import Staged
from duly.store.connection.database import Database
from duly.store.reads import lists
from duly.store.tables import shards, workers
from duly.store.tables.jobs import Submitted
from duly.store.tables.workers import Identity
from tests.clock import START

HANDLER = "greet"
QUEUE = "default"
LEASE = timedelta(seconds=15)
RNG = Rng(7)
BOXES = ("timers", "blocked", "ready", "leased", "dead")

_numbers = count(1)


def a_key() -> str:
    """Give a key that nobody has used."""
    return f"key-{next(_numbers)}"


def seconds(number: float) -> timedelta:
    """Give a span."""
    return timedelta(seconds=number)


def a_submission(
    *,
    handler: str = HANDLER,
    payload: str = "{}",
    queue: str = QUEUE,
    priority: int = 5,
    at: datetime | None = None,
    delay: float | None = None,
    retry: Retry | None = None,
    concurrency: tuple[str, int] | None = None,
    fifo: str | None = None,
    rate: tuple[str, float, int] | None = None,
    tags: Sequence[str] = (),
    parent: UUID | None = None,
    depends_on: Sequence[UUID | tuple[UUID, str]] = (),
    callbacks: Callbacks | None = None,
    expires_at: datetime | None = None,
    expires_after: float | None = None,
    redact: Sequence[str] = (),
) -> Submission:
    """Give a one-shot, due now unless told otherwise."""
    asked = {
        "retry": retry,
        "concurrency": concurrency if fifo is None else (fifo, 1),
        "fifo": fifo is not None or None,
        "rate": rate,
        "tags": tuple(tags) or None,
        "parent": parent,
        "callbacks": callbacks,
        "expires_at": None if expires_at is None else expires_at.timestamp(),
        "expires_seconds": expires_after,
        "redact": tuple(redact) or None,
        "depends_on": tuple(
            (str(one), "success") if isinstance(one, UUID) else (str(one[0]), one[1]) for one in depends_on
        ),
    }
    options = options_of(**{name: value for name, value in asked.items() if value})
    return Submission(handler, payload, queue, priority, at, None if delay is None else seconds(delay), options)


def a_schedule(
    *,
    every: int = 60,
    anchor: datetime | None = None,
    name: str | None = None,
    payload: str = "{}",
    queue: str = QUEUE,
    priority: int = 5,
    options: RunOptions = NO_OPTIONS,
    **schedule: Any,
) -> Recurring:
    """Give a recurring job, each minute and beside itself, unless its schedule says otherwise."""
    is_delay = schedule.get("trigger", {}).get("mode") == "fixed_delay"  # which cannot overlap itself
    shape = every_shape(every, anchor) | ({} if is_delay else {"overlap": {"policy": "allow"}}) | schedule
    return Recurring(HANDLER, payload, queue, priority, shape, name, options)


def a_run(*, attempt: int = 1, losses: int = 0, suspect: bool = False, **more: Any) -> Run:
    """Give a leased run as a worker holds it, known to no database."""
    name = UUID(int=1)
    place, fence, generation, tenant = (0, 1), 1, 1, 1
    moments = (START, START, None)
    return Run(
        place,
        fence,
        name,
        name,
        *moments,
        generation,
        tenant,
        attempt,
        5,
        losses,
        suspect,
        False,
        QUEUE,
        HANDLER,
        None,
        **more,
    )


async def a_waiting_run(database: Database, *, delay: float = 60, **more: Any) -> UUID:
    """Submit a one-shot that is not due for a while, so it stands in timers."""
    return (await submit(database, a_submission(delay=delay, **more), key=a_key())).job_id


async def a_ready_run(database: Database, **more: Any) -> UUID:
    """Submit a one-shot that is due now."""
    return (await submit(database, a_submission(**more), key=a_key())).job_id


async def an_active_schedule(database: Database, **more: Any) -> Submitted:
    """Submit a recurring job."""
    return await submit_recurring(database, a_schedule(**more), key=a_key())


async def a_worker(
    database: Database,
    *,
    queues: Sequence[str] = (QUEUE,),
    handlers: Sequence[str] = (HANDLER,),
    lease: timedelta = LEASE,
    declares: Sequence[str] = (),
) -> UUID:
    """Register a worker process."""
    worker_id = RNG.uuid()
    await workers.register(database, Identity(worker_id, "worker", "0", queues, handlers, 10, lease, declares))
    return worker_id


async def claimed(
    database: Database,
    worker_id: UUID,
    *,
    limit: int = 100,
    queues: Sequence[str] = (QUEUE,),
    weights: Sequence[int] = (),
) -> list[Run]:
    """Claim what a worker can get."""
    return await claim(database, worker_id, queues, [HANDLER], limit, weights)


BOTH_CLAIMS = pytest.mark.parametrize("way_to_claim", ["claim", "claim_all"], indirect=True)


@contextmanager
def all_started() -> Iterator[None]:
    """Answer each recall as a worker does that has started the run."""

    async def answered(*_: object) -> list[UUID]:
        return []

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(runs, "unanswered", answered)
        yield


async def by_rank_alone(database: Database) -> None:
    """Let chance have it that the next twenty claims of one run of the first tenant are not those of the floor."""
    await database.execute(
        "select setval('duly.fences', (select n from generate_series(1, 10000) as n where not exists ("
        " select from generate_series(n + 1, n + 20) as fence where duly.chance(fence * 8 + 1, 1) >= 0.9) limit 1))"
    )


async def many_ready_runs(
    database: Database,
    number: int,
    *,
    tenant: int = 1,
    queue: str = QUEUE,
    priority: int = 5,
    late: float = 0.0,
    apart: float = 1e-6,
    handler: str = HANDLER,
    payload: str = "{}",
) -> None:
    """Put many runs into ready at once; the last has been due for `late` seconds, each one before it a little longer."""
    await database.execute(
        "insert into duly.tenants (tenant, name, created_at)"
        " values ($1::int, 'tenant-' || $1::int, now()) on conflict do nothing",
        tenant,
    )
    await database.execute(
        "insert into duly.ready select id, id, at, at, null, 1, $2, 0, $4::smallint, 0, false, false, $3, $7,"
        "                              $8::text::jsonb, null"
        "  from (select gen_random_uuid() as id,"
        "               duly.clock_now() - (($1::int - 1 - n) * $6::float8 + $5::float8) * interval '1 second' as at"
        "          from generate_series(0, $1::int - 1) as n) as made",
        number,
        tenant,
        queue,
        priority,
        late,
        apart,
        handler,
        payload,
    )


async def many_blocked_runs(
    database: Database,
    number: int,
    *,
    key: str,
    waits_for: str = "concurrency",
    handler: str = HANDLER,
    options: str | None = None,
) -> None:
    """Put runs into `blocked` straight away. A %s in `key` is their number."""
    await database.execute(
        "insert into duly.blocked (run_id, job_id, scheduled_at, due_at, generation, tenant, attempt, priority, losses, suspect,"
        "                          payload_stored, queue, handler, options, waits_for, key, blocked_at)"
        " select gen_random_uuid(), gen_random_uuid(), at, at, 1, 1, 0, 5, 0, false, false, $1, $2, $3, $6::text::duly.wait,"
        "        format($4::text, n), at"
        "   from (select n, duly.clock_now() as at from generate_series(1, $5) as n) as made",
        QUEUE,
        handler,
        options,
        key,
        number,
        waits_for,
    )
    await database.execute("analyze duly.blocked")


async def blocks_read(database: Database, query: str, *arguments: object) -> int:
    """Run a statement and count the blocks it has looked at."""
    [answer] = json.loads(await database.fetchval(f"explain (analyze, buffers, format json) {query}", *arguments))
    return int(answer["Plan"]["Shared Hit Blocks"])


async def a_leased_run(database: Database, worker_id: UUID | None = None, **more: Any) -> tuple[UUID, Run]:
    """Put one run into a worker's hands. Gives the worker and the run."""
    worker_id = worker_id or await a_worker(database)
    run_id = await a_ready_run(database, **more)
    [run] = [run for run in await claimed(database, worker_id) if run.run_id == run_id]
    return worker_id, run


async def taken_on(database: Database, worker_id: UUID, run: Run, within: float = 3_600) -> None:
    """Let the receiver of a run answer that it has taken it on."""
    await defer(database, worker_id, [Deferred(run, await database.read_clock(), Awaited(within))])


async def an_awaited_run(database: Database, **more: Any) -> Run:
    """Put one run into its receiver's hands."""
    worker_id, run = await a_leased_run(database, **more)
    await taken_on(database, worker_id, run)
    return run


async def a_dead_run(database: Database, worker_id: UUID | None = None, **more: Any) -> UUID:
    """Let a run fail for good."""
    worker_id, run = await a_leased_run(database, worker_id, **more)
    await settled(database, worker_id, run, Failed("broken", retryable=False))
    return run.run_id


async def a_retrying_run(database: Database, worker_id: UUID | None = None, *, after: float = 60) -> UUID:
    """Let a run fail once, so that it waits for its second attempt."""
    worker_id, run = await a_leased_run(database, worker_id)
    await settled(database, worker_id, run, Failed("broken", retry_after=seconds(after)))
    return run.run_id


def ended(database: Database, run: Run, outcome: Outcome) -> Settled:
    """Say that an attempt has ended at this moment."""
    at = database.clock.at  # type: ignore[attr-defined]
    return Settled(run, at, at, outcome)


async def settled(database: Database, worker_id: UUID, run: Run, outcome: Outcome | None = None) -> list[Run]:
    """Settle one run. Gives those that were refused."""
    return await settle(database, worker_id, [ended(database, run, outcome or Succeeded())], RNG)


async def a_scheduler(database: Database) -> tuple[UUID, dict[int, int]]:
    """Let a scheduler hold its fair share. Gives it and the epochs of its shards."""
    scheduler_id = RNG.uuid()
    return scheduler_id, await hold(database, scheduler_id)


async def hold(database: Database, scheduler_id: UUID) -> dict[int, int]:
    """Renew a scheduler's lease. Gives the epochs of its shards."""
    return await shards.lease(database, scheduler_id, "scheduler", "0", SHARD_LEASE)


async def staged(database: Database, **more: Any) -> Staged:
    """Stage what is due within the horizon, by a scheduler that holds every shard."""
    scheduler_id, epochs = await a_scheduler(database)
    assert len(epochs) == shards.SHARDS
    try:
        return await stage(database, scheduler_id, epochs, **more)
    finally:
        await shards.release(database, scheduler_id)


async def boxes_of(database: Database, run_id: UUID) -> list[str]:
    """Name the boxes a run stands in: one, or none when it has ended."""
    rows = await database.fetch(
        " union all ".join(f"select '{box}' from duly.{box} where run_id = $1" for box in BOXES),
        run_id,
    )
    return [row[0] for row in rows]


async def counts(database: Database) -> dict[str, int]:
    """Count the rows in each box that is not empty."""
    rows = await database.fetch(" union all ".join(f"select '{box}', count(*) from duly.{box}" for box in BOXES))
    return {box: number for box, number in rows if number}


async def history_of(database: Database, run_id: UUID) -> list[tuple[int, str, str]]:
    """Tell what was recorded of a run: the attempt, its outcome and what the run became, in order."""
    rows = await database.fetch(
        "select attempt, outcome::text, became::text from duly.attempts where run_id = $1 order by attempt, finished_at, outcome",
        run_id,
    )
    return [tuple(row) for row in rows]


async def found_run(database: Database, run_id: UUID) -> dict[str, Any]:
    """Read a run that is there."""
    found = await runs.find(database, run_id)
    assert found is not None
    return found


async def a_row(database: Database, box: str, run_id: UUID) -> dict[str, Any]:
    """Read the row of a run in a box."""
    [row] = await database.fetch(f"select * from duly.{box} where run_id = $1", run_id)
    return dict(row)


async def jobs_listed(database: Database, text: str = "", size: int = 100, *, tenant: int = 1) -> list[dict[str, Any]]:
    """Read the first page of jobs that fit."""
    return (await lists.jobs(database, tenant, filters.parse(text, filters.JOBS), size)).rows


async def runs_listed(database: Database, text: str = "", size: int = 100, *, tenant: int = 1) -> list[dict[str, Any]]:
    """Read the first page of runs that fit."""
    return (await lists.runs(database, tenant, filters.parse(text, filters.RUNS), size)).rows


async def dead_listed(database: Database, text: str = "", size: int = 100, *, tenant: int = 1) -> list[dict[str, Any]]:
    """Read the first page of dead letters that fit."""
    return (await lists.dead(database, tenant, filters.parse(text, filters.DEAD), size)).rows
