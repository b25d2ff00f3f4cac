"""Cut off: a worker that cannot reach the database any more, and does not know why, while others can."""

import asyncio
import time
from collections import Counter
from datetime import timedelta

import pytest

from duly.bench.chaos import checker
from duly.bench.chaos.evidence import Arrival, Evidence, Sink
from duly.domain.jobs.job import Submission
from duly.moves.submit import submit_many
from duly.store.connection import hints
from duly.store.connection.database import Database
from duly.store.tables.jobs import Submitted
from tests.end_to_end import client
from tests.end_to_end.aftermath import calm_down, gathered, verified
from tests.end_to_end.house import LEASE_SECONDS, House, a_house, wait_until
from tests.end_to_end.wire import a_wire

SLOTS = 4  # All of them are taken by long runs.
HELD_RUNS = 3
# In its wheel when it is cut off. The first come to wait for a slot, while the lease stands; the others are due too late.
HELD_SECONDS = (LEASE_SECONDS / 3 + 0.2, LEASE_SECONDS - 0.5, LEASE_SECONDS + 1)
RUNS = SLOTS + HELD_RUNS * len(HELD_SECONDS)


@pytest.mark.timeout(100)
def test_worker_cut_off_stops_itself_and_its_later_reports_change_nothing(tmp_path):
    with a_house(tmp_path) as house, a_wire(house.url, tmp_path / "wire") as (address, wire):
        house.start_scheduler("scheduler0")
        house.start_worker("worker0", slots=SLOTS, url=address)
        long = submitted(house, "long", SLOTS)
        wait_until(lambda: calls(house) == dict.fromkeys(long, 1), 20, what="the long runs, under way")
        for seconds in HELD_SECONDS:
            submitted(house, "quick", HELD_RUNS, seconds)
        wait_until(lambda: in_hands(house) == RUNS, 30, what="all runs in its hands")
        wire.cut()
        house.start_worker("worker1")
        wait_until(lambda: "self_fenced" in house.last_words("worker0"), 30, what="a worker that stops itself")
        stopped_at = time.time()
        wait_until(lambda: all(calls(house)[run_id] > 1 for run_id in long), 20, what="its runs, begun by another")
        mended_at = time.time()
        wire.mend()
        wait_until(lambda: refused(house) >= set(long), 20, what="its late outcomes, refused")
        wait_until(lambda: lives(house, "worker0"), 20, what="a new life")
        calm_down(house)
        evidence, broken = gathered(house), verified(house)
        pid = house.processes["worker0"].pid
    assert checker.findings(evidence) == []
    assert broken == []
    assert stopped_at < evidence.departures[0].lapsed_at.timestamp(), "before its lease had ended"
    judge(evidence, [call for call in evidence.arrivals if pid in call.pids and call.at < mended_at])


def judge(evidence: Evidence, first_life: list[Arrival]) -> None:
    """It began nothing once its lease was in doubt; what was due by then counts as an attempt that was lost, the rest as none."""
    [departure] = evidence.departures
    assert max(call.at for call in first_life) < departure.lapsed_at.timestamp() - LEASE_SECONDS / 3
    begun = {call.run_id for call in first_life}
    lost = {record.run_id for record in evidence.records if record.outcome == "lost"}
    attempts = {run_id: [call.attempt for call in calls] for run_id, calls in checker.by_run(evidence.arrivals).items()}
    assert begun <= lost
    assert attempts == {
        run_id: [1, 2] if run_id in begun else [2] if run_id in lost else [1] for run_id in sorted(attempts)
    }
    assert len(begun) >= SLOTS
    assert len(lost) <= RUNS - HELD_RUNS
    accepted = Counter(record.outcome for record in evidence.records if record.outcome != "fenced")
    assert accepted == {"lost": len(lost), "succeeded": RUNS}


def submitted(house: House, handler: str, runs: int, seconds: float = 0.0) -> list[str]:
    """Submit runs of one kind, and keep account of them."""

    async def submit() -> list[Submitted]:
        job = Submission(handler, "{}", "default", 5, None, timedelta(seconds=seconds), client.PLAIN)
        async with Database(house.url) as database:
            answers = await submit_many(database, [job] * runs, key=f"{handler} in {seconds}")
            await hints.send(database, [job.queue])
            return answers

    answers = asyncio.run(submit())
    with house.ledger.open("ab") as file:
        client.write(file, answers)
    return [str(answer.job_id) for answer in answers]


def calls(house: House) -> Counter[str]:
    return Counter(call.run_id for call in Sink(house.sink).read())


def in_hands(house: House) -> int:
    return int(house.ask("select count(*) from duly.leased")[0][0])


def refused(house: House) -> set[str]:
    return {run_id for (run_id,) in house.ask("select run_id::text from duly.attempts where outcome = 'fenced'")}


def lives(house: House, name: str) -> list[tuple]:
    return house.ask("select from duly.workers where name = %s and until > clock_timestamp()", name)
