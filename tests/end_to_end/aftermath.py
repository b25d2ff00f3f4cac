"""The state after the end: no schedule, empty boxes, and the evidence to judge by."""

import asyncio
from collections.abc import Iterable
from typing import Any
from uuid import UUID

from duly.bench.chaos.evidence import Departure, Evidence, Record, Sink
from duly.moves.cancel import cancel_job
from duly.store.boxes import history
from duly.store.connection.database import Database
from tests.end_to_end.client import read_ledger
from tests.end_to_end.house import House, wait_until

DRAIN_SECONDS = 60.0


def calm_down(house: House) -> None:
    """End the schedules and let everything else come to its end."""
    schedules = [asked.job_id for asked in read_ledger(house.ledger) if asked.is_schedule]
    asyncio.run(_cancel_all(house.url, schedules))
    try:
        wait_until(lambda: not left_in_boxes(house), DRAIN_SECONDS, what="empty boxes", pause=0.2)
    except AssertionError as error:
        words = {name: house.last_words(name) for name in house.processes}
        raise AssertionError(f"{error}; left: {left_in_boxes(house)}; {words}") from None
    for name, process in house.processes.items():
        assert process.poll() is None or name == "client", f"{name} ended by itself: {house.last_words(name)}"


async def _cancel_all(url: str, job_ids: Iterable[UUID]) -> None:
    async with Database(url) as database:
        for job_id in job_ids:
            await cancel_job(database, job_id)


def left_in_boxes(house: House) -> list[str]:
    """Name runs that have not ended."""
    rows = house.ask("select state::text, run_id::text, attempt from duly.live_runs where state <> 'dead' limit 20")
    return [" ".join(map(str, row)) for row in rows]


def verified(house: House) -> list[Any]:
    """Give what `duly verify` finds."""

    async def verify() -> list[Any]:
        async with Database(house.url) as database:
            return await history.verify(database)

    return asyncio.run(verify())


def gathered(house: House) -> Evidence:
    """Gather what clients, targets and the database know."""
    records = house.ask(
        "select run_id::text, job_id::text, attempt, outcome::text, became::text, fence, worker_id::text, scheduled_at,"
        " started_at, finished_at from duly.attempts"
    )
    departures = house.ask(
        f"select worker_id::text, safe_until + interval '{house.lease_seconds / 3} s' from duly.expired_workers"
    )
    return Evidence(
        read_ledger(house.ledger),
        list(Sink(house.sink).read()),
        [Record(*record) for record in records],
        [Departure(*departure) for departure in departures],
        left_in_boxes(house),
        house.strikes,
    )
