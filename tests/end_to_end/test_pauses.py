"""The emergency stop, on real processes: a flood of due runs, and a person who says stop."""

import subprocess
import sys
import time

import pytest

from duly.bench.chaos.evidence import Sink
from tests.cli.processes import environment
from tests.end_to_end.house import ROOT, House, a_house, sleep_until, wait_until

RUNS = 12_000
STOP_SECONDS = 1.0
HELD_SECONDS = 4.0

# A third is due at once, the rest falls due while they run; handlers of every kind are among them.
FLOOD = f"""
select duly.submit(handler => handler, key => 'flood ' || n, delay => make_interval(secs => n % 3 * 4),
                   options => case when handler = 'guarded' then '{{"timeout_seconds": 60}}'::jsonb end)
  from (select n, case when n % 100 = 0 then 'guarded' when n % 20 = 1 then 'steady' when n % 20 = 2 then 'plain'
                       else 'quick' end as handler from generate_series(1, {RUNS}) as n) as made
"""


def duly(house: House, *arguments: str) -> float:
    """Run one command as a person would. Gives the moment at which it had answered."""
    done = subprocess.run(
        [sys.executable, "-m", "duly", *arguments, "--database-url", house.url],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done
    return time.time()


@pytest.mark.timeout(240)
def test_nothing_starts_later_than_a_second_after_the_stop_and_nothing_is_lost_by_it(tmp_path):
    with a_house(tmp_path) as house:
        house.start_scheduler("scheduler0")
        for name in ("worker0", "worker1"):
            house.start_worker(name)
        wait_until(lambda: house.ask("select count(*) from duly.workers")[0][0] == 2, 30, what="workers")
        house.execute(FLOOD)
        wait_until(lambda: started(house) > 200, 30, what="a flood under way")

        stopped_at = duly(house, "pause", "--all", "--reason", "the provider is down")
        sleep_until(stopped_at + HELD_SECONDS)
        arrivals = list(Sink(house.sink).read())
        assert len(arrivals) < RUNS, "there was something left to stop"
        late = [arrival.at - stopped_at for arrival in arrivals if arrival.at > stopped_at + STOP_SECONDS]
        assert late == []
        wait_until(lambda: house.ask("select count(*) from duly.leased")[0][0] == 0, 30, what="what ran to end")
        assert house.ask("select outcome::text from duly.attempts where outcome <> 'succeeded'") == []

        duly(house, "resume", "--all")
        wait_until(lambda: settled(house) >= RUNS, 150, what="the rest", pause=0.2)
        assert house.ask("select outcome::text, attempt, count(*)::int from duly.attempts group by 1, 2") == [
            ("succeeded", 1, RUNS)
        ], "each ran once, at its first attempt"
        assert len({arrival.run_id for arrival in Sink(house.sink).read()}) == RUNS == started(house)


def started(house: House) -> int:
    return sum(1 for _ in Sink(house.sink).read())


def settled(house: House) -> int:
    number: int = house.ask("select count(*) from duly.attempts")[0][0]
    return number
