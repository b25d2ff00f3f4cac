"""A full disk: what cannot be kept is refused in a sentence, what was accepted is kept, and work goes on when there is room."""

import asyncio
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

import msgspec
import psycopg
import pytest

from duly.bench.chaos import checker
from duly.domain.jobs.job import Submission
from duly.moves.submit import submit, submit_many
from duly.postgres import embedded
from duly.store.connection import callers
from duly.store.connection.database import Database, DiskFull, Unavailable
from duly.store.tables.jobs import Submitted
from tests.cli.processes import duly
from tests.end_to_end import client
from tests.end_to_end.aftermath import calm_down, gathered, verified
from tests.end_to_end.disk import MEBIBYTE, a_small_disk, filled
from tests.end_to_end.house import House, a_house, wait_until

TEXT_BYTES = 100_000
BATCH = 3
BATCHES_MAX = 300
REFUSALS = 5

Asked = dict[str, list[Submitted] | Unavailable]


@pytest.mark.timeout(100)
def test_full_disk_refuses_only_writes_that_cannot_be_stored(tmp_path):
    with a_house_on_a_small_disk(tmp_path, "base", 96) as (house, disk):
        # A server without room may not even greet a new connection.
        with psycopg.connect(house.url, autocommit=True) as connection, filled(disk, leaving=4 * MEBIBYTE):
            asked = asyncio.run(submit_until_refused(house))
            text = a_text(random.Random(1))
            said = duly("submit", "heavy", f"text={text}", cwd=tmp_path, DULY_DATABASE_URL=house.url)
            with pytest.raises(DiskFull, match="free some space"):
                callers.at_once(
                    submit(callers.plain(connection), a_batch("own")[0], key="in a caller's own transaction")
                )
            assert stored(connection) == {answer.job_id for answer in accepted(asked)}, "all of a batch, or nothing"
        judge_what_is_left(house, asked)
    refusals = [answer for answer in asked.values() if isinstance(answer, Unavailable)]
    assert {type(error) for error in refusals} == {DiskFull}
    assert said.returncode == 3
    for sentence in (said.stderr, *map(str, refusals)):
        assert "No space left on device" in sentence
        assert "free some space" in sentence
        assert sentence.strip().count("\n") == 0


@pytest.mark.timeout(100)
def test_no_room_for_the_log_stops_the_server_and_loses_nothing(tmp_path):
    with a_house_on_a_small_disk(tmp_path, "pg_wal", 64) as (house, disk):
        with filled(disk, leaving=4 * MEBIBYTE):
            asked = asyncio.run(submit_until_refused(house))
        judge_what_is_left(house, asked)
    refusals = [answer for answer in asked.values() if isinstance(answer, Unavailable)]
    assert len(refusals) == REFUSALS


def judge_what_is_left(house: House, asked: Asked) -> None:
    """With room again, what was refused is taken under its key, and everything runs, once."""
    wait_until(lambda: answers(house), 30, what="a server with room")
    again = asyncio.run(ask_again(house, [key for key, answer in asked.items() if isinstance(answer, Unavailable)]))
    with house.ledger.open("ab") as file:
        client.write(file, [*accepted(asked), *again])
    calm_down(house)
    evidence, broken = gathered(house), verified(house)
    assert checker.findings(evidence) == []
    assert broken == []
    assert len({asked.job_id for asked in evidence.acknowledged}) == BATCH * len(asked)


@contextmanager
def a_house_on_a_small_disk(folder: Path, part: str, mebibytes: int) -> Iterator[tuple[House, Path]]:
    """Start an installation whose PostgreSQL has a small disk under one of its folders.

    No vacuum makes room on it: where a batch was refused, one job would be taken a little later.
    """
    embedded.start(folder / "postgres").stop()
    small = a_small_disk(folder / "postgres/postgres" / part, mebibytes)
    with small as disk, a_house(folder, autovacuum="off") as house:
        house.start_scheduler("scheduler0")
        house.start_worker("worker0")
        wait_until(lambda: house.ask("select from duly.workers"), 20, what="a worker")
        yield house, disk


async def submit_until_refused(house: House) -> Asked:
    """Submit until it has been refused a few times. Gives what came of each key."""
    asked: Asked = {}
    async with Database(house.url) as database:
        while sum(isinstance(answer, Unavailable) for answer in asked.values()) < REFUSALS:
            assert len(asked) < BATCHES_MAX, "the disk is not full"
            key = f"batch-{len(asked)}"
            try:
                asked[key] = await submit_many(database, a_batch(key), key=key)
            except Unavailable as error:
                asked[key] = error
    return asked


async def ask_again(house: House, keys: list[str]) -> list[Submitted]:
    """Submit what was refused once more, under the keys it had."""
    async with Database(house.url) as database:
        return [answer for key in keys for answer in await submit_many(database, a_batch(key), key=key)]


def a_batch(key: str) -> list[Submission]:
    """Give what is submitted under a key: always the same."""
    chance = random.Random(key)
    payloads = [msgspec.json.encode({"text": a_text(chance)}).decode() for _ in range(BATCH)]
    return [Submission("heavy", payload, "default", 5, None, None, client.PLAIN) for payload in payloads]


def a_text(chance: random.Random) -> str:
    """Give a text that cannot be compressed."""
    return chance.randbytes(TEXT_BYTES // 2).hex()


def accepted(asked: Asked) -> list[Submitted]:
    return [one for answer in asked.values() if not isinstance(answer, Unavailable) for one in answer]


def stored(connection: psycopg.Connection) -> set[UUID]:
    """Name every run of which there is a trace."""
    traces = """select run_id from duly.live_runs union select run_id from duly.attempts
                union select job_id from duly.payloads"""
    return {run_id for (run_id,) in connection.execute(traces)}


def answers(house: House) -> bool:
    """Say whether the server answers, and start it again where it has stopped, as `duly up` does."""
    house.server.revive()
    try:
        return bool(house.ask("select true"))
    except psycopg.OperationalError:
        return False
