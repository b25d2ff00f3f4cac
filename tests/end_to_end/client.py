"""A client: submits, asks again with the same key when no answer came, and writes down what was acknowledged."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import BinaryIO, TypeVar

import msgspec

from duly.bench.chaos.evidence import Acknowledged
from duly.domain.errors import KeyBusy
from duly.domain.jobs.job import Recurring, Submission
from duly.domain.runs.options import options_of
from duly.domain.runs.retry import Retry
from duly.domain.triggers.schedule.timing import every_shape
from duly.moves.submit import submit, submit_many, submit_recurring
from duly.store.connection.database import Database, Unavailable
from duly.store.tables.jobs import Submitted

# Tried again at once, and often: what the storm does to a run is not the run's fault.
RETRY = Retry(max_attempts=100, base_seconds=0.01, cap_seconds=0.05)
SCHEDULES = 50
BATCH = 25
PLAIN = options_of(retry=RETRY)
GUARDED = options_of(retry=RETRY, timeout_seconds=60)
HANDLERS = ("quick",) * 14 + ("steady",) * 4 + ("plain",) * 5

_Answer = TypeVar("_Answer")


def read_ledger(path: Path) -> list[Acknowledged]:
    """Read what was acknowledged."""
    return (
        [msgspec.json.decode(line, type=Acknowledged) for line in path.read_bytes().splitlines()]
        if path.exists()
        else []
    )


async def submit_load(url: str, name: str, ledger: Path, runs: int, seconds: float, schedules: int = SCHEDULES) -> None:
    """Submit schedules first, then one-shots at an even pace: some due now, some soon, some beyond the horizon."""
    async with Database(url) as database:
        with ledger.open("ab", buffering=0) as file:
            await _submit_schedules(database, name, file, schedules)
            await _submit_runs(database, name, file, runs, seconds)


async def submit_lasting(url: str, ledger: Path, number: int, key: str) -> None:
    """Submit runs that are due now and take a while."""
    jobs = [Submission("lasting", "{}", "default", 5, None, None, PLAIN)] * number
    async with Database(url) as database:
        answers, asked = await _until_answered(partial(submit_many, database, jobs, key=key))
    with ledger.open("ab", buffering=0) as file:
        write(file, answers, asked)


async def submit_staged(url: str, ledger: Path, number: int, begin: float, end: float, key: str) -> list[str]:
    """Submit runs that fall due evenly from `begin` to `end` seconds from now. Gives their ids."""
    delays = (timedelta(seconds=begin + (end - begin) * turn / number) for turn in range(number))
    jobs = [Submission("quick", "{}", "default", 5, None, delay, PLAIN) for delay in delays]
    async with Database(url) as database:
        answers, asked = await _until_answered(partial(submit_many, database, jobs, key=key))
    with ledger.open("ab", buffering=0) as file:
        write(file, answers, asked)
    return [str(answer.job_id) for answer in answers]


async def _submit_schedules(database: Database, name: str, file: BinaryIO, schedules: int) -> None:
    for number in range(schedules):
        schedule = Recurring("quick", "{}", "default", 5, every_shape(1), f"{name}-{number}", PLAIN)
        key = f"{name}-schedule-{number}"
        answer, asked = await _until_answered(partial(submit_recurring, database, schedule, key=key))
        write(file, [answer], asked, is_schedule=True)


async def _submit_runs(database: Database, name: str, file: BinaryIO, runs: int, seconds: float) -> None:
    chance = random.Random(name)
    began, left = time.monotonic(), runs
    while left:
        number = min(left, chance.choice((1, 1, BATCH)))
        jobs = [_a_job(chance) for _ in range(number)]
        answers, asked = await _until_answered(partial(_submit, database, jobs, f"{name}-{left}"))
        write(file, answers, asked, is_schedule=False)
        left -= number
        await asyncio.sleep(max(0.0, began + seconds * (1 - left / runs) - time.monotonic()))


def _a_job(chance: random.Random) -> Submission:
    delay = timedelta(seconds=chance.choice((0.0, 0.0, chance.uniform(0, 4), chance.uniform(4, 9))))
    if chance.random() < 0.01:
        return Submission("guarded", "{}", "default", 5, None, delay, GUARDED)
    return Submission(chance.choice(HANDLERS), "{}", "default", 5, None, delay, PLAIN)


async def _submit(database: Database, jobs: list[Submission], key: str) -> list[Submitted]:
    if len(jobs) == 1:
        return [await submit(database, jobs[0], key=key)]
    return await submit_many(database, jobs, key=key)


async def _until_answered(ask: Callable[[], Awaitable[_Answer]]) -> tuple[_Answer, int]:
    asked = 0
    while True:
        asked += 1
        try:
            return await ask(), asked
        except (Unavailable, KeyBusy):
            await asyncio.sleep(0.1)


def write(file: BinaryIO, answers: list[Submitted], asked: int = 1, *, is_schedule: bool = False) -> None:
    """Write down what was acknowledged."""
    lines = [
        msgspec.json.encode(Acknowledged(answer.job_id, answer.scheduled_at.timestamp(), is_schedule, asked))
        for answer in answers
    ]
    file.write(b"".join(line + b"\n" for line in lines))
