"""The storm: two schedulers and three workers under load, while workers, schedulers and PostgreSQL are killed in turn."""

import asyncio
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from math import inf
from pathlib import Path
from statistics import median
from typing import NamedTuple

import pytest

from duly.bench.chaos import checker
from duly.bench.chaos.evidence import Evidence, Sink
from duly.domain.runs.run import HORIZON
from tests.end_to_end import figures
from tests.end_to_end.aftermath import calm_down, gathered, verified
from tests.end_to_end.app import LASTING_SECONDS, STEADY_SECONDS
from tests.end_to_end.client import SCHEDULES, read_ledger, submit_lasting
from tests.end_to_end.house import (
    LEASE_SECONDS,
    ROOT,
    SCHEDULERS,
    WORKERS,
    House,
    a_house,
    anyone,
    sleep_until,
    wait_until,
)
from tests.end_to_end.role import THREADS

ROUND_SECONDS = 9.0
START_AGAIN_SECONDS = LEASE_SECONDS + 2.0
HANDED_ON_SECONDS = LEASE_SECONDS + 0.75
TAKE_OVER_SECONDS = 3.0
# What falls due so long after a scheduler's death had not been staged by it; a statement may still have been under way.
UNSTAGED_SECONDS = HORIZON.total_seconds() + 0.25
LOADING_SECONDS = 0.5  # A child process that takes no longer is within what a start may take.
JUDGED_SECONDS = 1.25  # Of a schedule that fires each second, one moment at the least.
IN_HAND = 9  # runs that take a while, submitted before a worker is killed
SHARE = 20  # shards at the least, of 64 that are shared by two


class Span(NamedTuple):
    """A stretch of time, in seconds since 1970."""

    begin: float
    end: float


class Blow(NamedTuple):
    """A worker and a scheduler killed at once."""

    killed_at: float
    loading_seconds: float
    span: Span | None  # of what only another scheduler could have staged, if the first one stayed dead


@pytest.mark.timeout(200)
def test_a_storm_of_kills_loses_nothing_and_doubles_nothing(tmp_path):
    storm(tmp_path, rounds=3, runs=3_000, seed=1)


def test_storm_report_counts_the_starts_beyond_the_bound():
    assert _beyond([3.0, 4.0], 4.0) == "0 of 2 took longer than lease + 2 s, 4 s"
    assert _beyond([4.001, 6.25, 3.0], 4.0) == "2 of 3 took longer than lease + 2 s, 4 s, the largest 6.250 s"


@pytest.mark.chaos
@pytest.mark.proof
@pytest.mark.timeout(1200)
def test_a_long_storm_of_kills_loses_nothing_and_doubles_nothing(tmp_path):
    storm(tmp_path, rounds=20, runs=20_000, seed=2)


def storm(folder: Path, *, rounds: int, runs: int, seed: int) -> None:
    """Let it blow, and judge what is left."""
    chance = random.Random(seed)
    with a_house(folder) as house:
        for number in range(SCHEDULERS):
            house.start_scheduler(f"scheduler{number}")
        for number in range(WORKERS):
            house.start_worker(f"worker{number}")
        client = house.start("client", "client", house.ledger, runs, rounds * ROUND_SECONDS)
        wait_until(lambda: sum(1 for _ in Sink(house.sink).read()) > 50, 30, what="the first runs")
        blows = [strike_all(house, chance, stays_dead=number % 2 == 0) for number in range(rounds)]
        assert client.wait(60) == 0, house.last_words("client")
        calm_down(house)
        evidence, broken = gathered(house), verified(house)
    report(evidence, blows)
    assert checker.findings(evidence) == []
    assert broken == []
    assert len([asked for asked in evidence.acknowledged if not asked.is_schedule]) == runs + rounds * IN_HAND
    judge_restarts(evidence, blows)
    judge_take_overs(evidence, [blow.span for blow in blows if blow.span])


def strike_all(house: House, chance: random.Random, *, stays_dead: bool) -> Blow:
    """Kill a worker, a scheduler and PostgreSQL, the last when it is seen what came of the others.

    The scheduler is started again at once, or stays dead until another must have taken over: then there is a span to be judged.
    Nothing of that span had been staged when they died, so none of it was in the hands of the worker.
    """
    scheduler = anyone("scheduler", SCHEDULERS, chance)
    if house.strikes:
        sleep_until(house.strikes[-1].back_at + figures.GRACE_SECONDS)
    wait_until(lambda: is_calm(house), 20, what="nothing is late", pause=0.1)
    wait_until(lambda: shards_of(house, scheduler) >= SHARE, 10, what=f"{scheduler} has its share")
    killed = house.kill(a_busy_worker(house, chance))
    died_at = house.kill(scheduler, stays_dead=stays_dead).at
    span = Span(died_at + UNSTAGED_SECONDS, died_at + UNSTAGED_SECONDS + JUDGED_SECONDS) if stays_dead else None
    sleep_until(killed.at + LEASE_SECONDS)
    loading = seconds_to_load()
    if span:
        sleep_until(span.end)
        wait_until(lambda: has_fired(house, span), TAKE_OVER_SECONDS + 1, what="fires after a take-over", pause=0.1)
        house.start_scheduler(scheduler)
    # Before that its lease may not have ended: a last beat may have been on its way.
    sleep_until(killed.at + HANDED_ON_SECONDS)
    wait_until(lambda: is_made_good(house), START_AGAIN_SECONDS * 3, what="what died with its worker", pause=0.1)
    house.kill_postgresql()
    arrivals = sum(1 for _ in Sink(house.sink).read())
    wait_until(
        lambda: sum(1 for _ in Sink(house.sink).read()) > arrivals, 30, what="work after a restart of PostgreSQL"
    )
    return Blow(killed.at, loading, span)


def seconds_to_load() -> float:
    """Tell how long a child process of a worker takes to load, on this machine and at this moment."""
    began = time.monotonic()
    subprocess.run(
        [sys.executable, "-c", "import duly.worker.execute.child, tests.end_to_end.app"], cwd=ROOT, check=True
    )
    return time.monotonic() - began


def is_calm(house: House) -> bool:
    """Say whether nothing waits that should have ended: not the other blow is to be judged, that of PostgreSQL's absence."""
    rows = house.ask(
        "select from (select due_at from duly.timers union all select due_at from duly.ready"
        "              union all select due_at from duly.leased) as boxes"
        " where due_at < clock_timestamp() - interval '1 second' limit 1"
    )
    return not rows


def is_made_good(house: House) -> bool:
    """Say whether nothing hangs on a worker that is dead, and what did has been done by others: no run is under suspicion."""
    rows = house.ask(
        "select from duly.leased left join duly.workers using (worker_id)"
        " where suspect or not coalesce(until > clock_timestamp(), false)"
        " union all select from duly.timers where suspect union all select from duly.ready where suspect limit 1"
    )
    return not rows


def shards_of(house: House, scheduler: str) -> int:
    """Count what a scheduler that lives holds."""
    rows = house.ask(
        "select count(shard) from duly.schedulers join duly.shards on holder = scheduler_id"
        " where name = %s and until > clock_timestamp()",
        scheduler,
    )
    return int(rows[0][0])


def a_busy_worker(house: House, chance: random.Random) -> str:
    """Name a worker that has just begun something that takes a while."""
    asyncio.run(submit_lasting(house.url, house.ledger, IN_HAND, f"in-hand-{len(house.strikes)}"))
    busy: list[str] = []

    def look() -> list[str]:
        busy[:] = busy_workers(house)
        return busy

    wait_until(look, 10, what="somebody who does it")
    return chance.choice(busy)


def busy_workers(house: House) -> list[str]:
    """Name those who have just begun such a thing."""
    since = time.time() - LASTING_SECONDS / 2
    begun = {call.run_id: call.pids[0] for call in Sink(house.sink).read() if call.at > since}
    held = house.ask(
        "select run_id::text from duly.leased where run_id = any (%s::uuid[]) and handler = 'lasting'", list(begun)
    )
    pids = {begun[run_id] for (run_id,) in held}
    return [name for name, process in house.processes.items() if name.startswith("worker") and process.pid in pids]


def has_fired(house: House, span: Span) -> bool:
    """Say whether every schedule has fired since its last moment in a span."""
    seen = Evidence(read_ledger(house.ledger), list(Sink(house.sink).read()), [], [], [])
    return inf not in figures.fire_delays(seen, *span)


def judge_restarts(evidence: Evidence, blows: Sequence[Blow]) -> None:
    """What died with its worker is handed on in time, all of it; it starts in time, or when those before it in line have ended.

    All that the worker may have started is under suspicion, which is what fell due up to its last safe moment: many more than it
    had begun. Each runs in a child process of those who live, and there are only so many; they may have to be loaded first, which
    takes long where the machine has other things to do.
    """
    delays = figures.restart_delays(evidence, LEASE_SECONDS)
    assert len(delays) == len(blows), "each had something in hand"
    assert max(figures.hand_on_delays(evidence, LEASE_SECONDS)) <= HANDED_ON_SECONDS
    for blow in blows:
        after = delays.get(blow.killed_at, [0.0])
        line = figures.lost_after(evidence, blow.killed_at, START_AGAIN_SECONDS)
        in_line = line * STEADY_SECONDS / (THREADS * (WORKERS - 1))
        loading = max(0.0, blow.loading_seconds - LOADING_SECONDS)
        assert min(after) <= START_AGAIN_SECONDS + loading, blow
        assert max(after) <= START_AGAIN_SECONDS + loading + in_line, blow


def judge_take_overs(evidence: Evidence, spans: Sequence[Span]) -> None:
    """A dead scheduler delays nothing for long: neither its own schedules, of which it had half, nor the others."""
    assert spans
    for span in spans:
        delays = figures.fire_delays(evidence, *span)
        assert len(delays) >= SCHEDULES
        assert max(delays) <= TAKE_OVER_SECONDS


def report(evidence: Evidence, blows: Sequence[Blow]) -> None:
    """Print the figures."""
    restarts = figures.restart_delays(evidence, LEASE_SECONDS)
    delays = [delay for after in restarts.values() for delay in after]
    late = [delay for blow in blows if blow.span for delay in figures.fire_delays(evidence, *blow.span)]
    all_late = figures.latenesses(evidence, 0, float("inf"))
    outcomes = Counter(record.outcome for record in evidence.records)
    calls_by_moment = sorted(call.at for call in evidence.arrivals)
    after = [
        next((at - strike.back_at for at in calls_by_moment if at > strike.back_at), float("inf"))
        for strike in evidence.strikes
        if strike.what == "postgresql"
    ]
    down = [strike.back_at - strike.at for strike in evidence.strikes if strike.what == "postgresql"]
    repeated_requests = sum(one.requests > 1 for one in evidence.acknowledged)
    print(
        f"\nacknowledged {len(evidence.acknowledged)}, of them after repeated requests {repeated_requests};"
        f" calls {len(evidence.arrivals)}"
    )
    print(f"calls beyond the first {checker.duplicates(evidence)}; outcomes {dict(outcomes)}")
    print(
        f"start again after a worker's death: {_figures(delays)}, of {len(restarts)} kills;"
        f" a child loads in {_figures([blow.loading_seconds for blow in blows])}"
    )
    print(f"of these {_beyond(delays, START_AGAIN_SECONDS)}: no child's loading and no line allowed for")
    print(f"fires that only a take-over could stage: {_figures(late)} late; all first calls: {_figures(all_late)}")
    print(f"PostgreSQL down for {_figures(down)}; first call after it was back {_figures(after)}")


def _beyond(delays: Sequence[float], bound: float) -> str:
    late = [delay for delay in delays if delay > bound]
    largest = f", the largest {max(late):.3f} s" if late else ""
    return f"{len(late)} of {len(delays)} took longer than lease + 2 s, {bound:g} s{largest}"


def _figures(values: list[float]) -> str:
    if not values:
        return "none"
    ordered = sorted(values)
    p99 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
    return f"n {len(values)}, median {median(values):.3f} s, p99 {p99:.3f} s, max {ordered[-1]:.3f} s"
