"""The whole system under as many seeds as fit: every promise holds, every fault strikes, and a seed can be told again."""

from itertools import chain, count

import pytest

from tests.plugins.budget import ENGINE, seconds_left
from tests.simulation.__main__ import tell
from tests.simulation.batch import Report, run_batch
from tests.simulation.fresh import fresh_seeds
from tests.simulation.ledger import Ledger
from tests.simulation.part import Part
from tests.simulation.parts import COUNTED
from tests.simulation.plan import FAULTS
from tests.simulation.server import statement_names
from tests.simulation.simulate import simulate

SECONDS_MAX = 110  # With the seeds that are under way then it is two minutes; `make simulate` runs more.
SECONDS_SPARED = 18  # of what is left of the budget: for those seeds, and the other tests of this file
SEEDS_MIN = 48  # So many see every fault and everything that is counted.
SEEDS_FRESH = 6  # Others with each commit.


@pytest.mark.timeout(600)
def test_no_seed_breaks_a_promise_and_every_fault_strikes(capsys):
    fresh = fresh_seeds(SEEDS_FRESH)
    seconds_max = min(SECONDS_MAX, seconds_left(ENGINE) - SECONDS_SPARED)

    def is_enough(seeds, seconds):
        return seeds >= len(fresh) + SEEDS_MIN and seconds >= seconds_max

    report = run_batch(chain(fresh, count()), is_enough=is_enough)

    with capsys.disabled():
        print(f"\n{report.summary()}\nfresh: {fresh[0]} to {fresh[-1]}")
    assert not report.broken, tell(report.broken[0])
    assert report.absent == []


def test_a_seed_is_the_same_each_time_whatever_came_before_it(simulated_server):
    first, _, second = (simulate(seed, simulated_server, verbose=True) for seed in (4, 2, 4))

    assert first.trace == second.trace
    assert first.executions > 0


def test_report_names_the_faults_that_never_struck():
    report = Report([], 1.0)

    assert {*FAULTS, *COUNTED} == set(report.absent)
    assert all(f"{what} 0 (!)" in report.summary() for what in report.absent)


def test_each_observer_of_a_statement_names_one_that_exists():
    """After a rename it would see nothing, and nothing would say so."""
    watched = {name for kind in (Ledger, *Part.__subclasses__()) for name in dir(kind) if name.startswith("_on_")}

    assert watched - {f"_on_{name.replace('.', '_')}" for name in statement_names().values()} == set()
