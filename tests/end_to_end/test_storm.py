"""The storm: two schedulers and three workers under load, while workers, schedulers and PostgreSQL are killed in turn."""

import random
import time
from collections import Counter
from pathlib import Path
from statistics import median

import pytest

from tests.end_to_end import checker
from tests.end_to_end.aftermath import calm_down, gathered, verified
from tests.end_to_end.app import STEADY_SECONDS
from tests.end_to_end.checker import Evidence
from tests.end_to_end.house import LEASE_SECONDS, SCHEDULERS, WORKERS, House, a_house, anyone, wait_until
from tests.end_to_end.role import THREADS
from tests.end_to_end.sink import Sink

ROUND_SECONDS = 11.0
START_AGAIN_SECONDS = LEASE_SECONDS + 2.0
SCHEDULER_DELAY_SECONDS = 3.0


@pytest.mark.timeout(200)
def test_a_storm_of_kills_loses_nothing_and_doubles_nothing(tmp_path):
    storm(tmp_path, rounds=5, runs=6_000, seed=1)


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
        spans = [strike_all(house, chance) for _ in range(rounds)]
        assert client.wait(60) == 0, house.last_words("client")
        calm_down(house)
        evidence, broken = gathered(house), verified(house)
    report(evidence, spans)
    assert checker.findings(evidence) == []
    assert broken == []
    assert len([asked for asked in evidence.acknowledged if not asked.is_schedule]) == runs
    judge_delays(evidence, spans)


def strike_all(house: House, chance: random.Random) -> tuple[float, float]:
    """Kill a worker, a scheduler and PostgreSQL, each with time to show what comes of it. Gives the scheduler's span."""
    killed = house.kill(anyone("worker", WORKERS, chance))
    wait_until(lambda: time.time() > killed.at + START_AGAIN_SECONDS + 0.5, 30)
    begin = house.kill(anyone("scheduler", SCHEDULERS, chance)).at
    wait_until(lambda: time.time() > begin + SCHEDULER_DELAY_SECONDS - 1, 30)
    end = house.kill_postgresql().at
    arrivals = sum(1 for _ in Sink(house.sink).read())
    wait_until(
        lambda: sum(1 for _ in Sink(house.sink).read()) > arrivals, 30, what="work after a restart of PostgreSQL"
    )
    wait_until(lambda: time.time() > end + 3, 30)
    return begin, end


def judge_delays(evidence: Evidence, spans) -> None:
    """What died with its worker starts again in time; a dead scheduler delays nothing for long.

    All that was lost with a worker is under suspicion, and runs in the few child processes of those who live: so the first are to
    start in time, and those in line behind them when these have ended.
    """
    delays = checker.restart_delays(evidence)
    assert delays
    for killed_at, after in delays.items():
        line = checker.lost_after(evidence, killed_at, START_AGAIN_SECONDS)
        assert min(after) <= START_AGAIN_SECONDS
        assert max(after) <= START_AGAIN_SECONDS + line * STEADY_SECONDS / (THREADS * (WORKERS - 1))
    for begin, end in spans:
        late = checker.latenesses(evidence, begin, end - SCHEDULER_DELAY_SECONDS / 2)
        assert max(late, default=0.0) <= SCHEDULER_DELAY_SECONDS


def report(evidence: Evidence, spans) -> None:
    """Print the figures."""
    delays = [delay for after in checker.restart_delays(evidence).values() for delay in after]
    late = [
        value
        for begin, end in spans
        for value in checker.latenesses(evidence, begin, end - SCHEDULER_DELAY_SECONDS / 2)
    ]
    all_late = checker.latenesses(evidence, 0, float("inf"))
    outcomes = Counter(record.outcome for record in evidence.records)
    calls_by_moment = sorted(call.at for call in evidence.arrivals)
    after = [
        next((at - strike.back_at for at in calls_by_moment if at > strike.back_at), float("inf"))
        for strike in evidence.strikes
        if strike.what == "postgresql"
    ]
    down = [strike.back_at - strike.at for strike in evidence.strikes if strike.what == "postgresql"]
    asked_again = sum(asked.asked > 1 for asked in evidence.acknowledged)
    print(
        f"\nacknowledged {len(evidence.acknowledged)}, of them asked again {asked_again}; calls {len(evidence.arrivals)}"
    )
    print(f"calls beyond the first {checker.duplicates(evidence)}; outcomes {dict(outcomes)}")
    print(f"start again after a worker's death: {_figures(delays)}")
    print(f"lateness while a scheduler was dead: {_figures(late)}; of all first calls: {_figures(all_late)}")
    print(f"PostgreSQL down for {_figures(down)}; first call after it was back {_figures(after)}")


def _figures(values: list[float]) -> str:
    if not values:
        return "none"
    ordered = sorted(values)
    p99 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
    return f"n {len(values)}, median {median(values):.3f} s, p99 {p99:.3f} s, max {ordered[-1]:.3f} s"
