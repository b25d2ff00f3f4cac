"""The whole system under as many seeds as fit: every promise holds, every fault strikes, and a seed can be told again."""

from itertools import count

import pytest

from tests.simulation.__main__ import tell
from tests.simulation.batch import run_batch
from tests.simulation.parts import COUNTED
from tests.simulation.plan import FAULTS
from tests.simulation.simulate import simulate

SECONDS = 40
SEEDS_MIN = 48  # So many see every fault and everything that is counted.
SEEDS_MAX = 110  # The same on every machine that is fast enough; `make simulate` runs more.


@pytest.mark.timeout(600)
def test_no_seed_breaks_a_promise_and_every_fault_strikes(capsys):
    report = run_batch(
        count(), is_enough=lambda seeds, seconds: seeds >= SEEDS_MIN and (seconds >= SECONDS or seeds >= SEEDS_MAX)
    )

    with capsys.disabled():
        print(f"\n{report.summary()}")
    assert not report.broken, tell(report.broken[0])
    assert [what for what in (*FAULTS, *COUNTED) if not report.struck[what]] == []


def test_a_seed_is_the_same_each_time(simulated_server):
    first, second = (simulate(12, simulated_server, verbose=True) for _ in range(2))

    assert first.trace == second.trace
    assert first.executions > 0
