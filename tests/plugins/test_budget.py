"""The suite's own rules: a skip is seen, and the time of each folder is told."""

from collections import defaultdict
from pathlib import Path

import pytest

from tests.bench import test_scenarios
from tests.plugins import budget

pytest_plugins = ["pytester"]

SKIPPING = """
import pytest

def test_needs_a_server():
    pytest.skip("pgbouncer is not installed")

@pytest.mark.xfail
def test_known_gap():
    assert False
"""


@pytest.fixture
def suite(pytester, monkeypatch):
    """A small suite under our plugin, which is told nothing of the real one's times."""
    monkeypatch.setattr(budget, "seconds_by_place", defaultdict(float))
    monkeypatch.setattr(budget, "times_file", None)
    pytester.makepyfile(SKIPPING)
    return pytester


def test_in_ci_a_skip_is_a_failure_that_shows_its_reason(suite, monkeypatch):
    monkeypatch.setattr(budget, "in_ci", True)

    result = suite.inline_run("-p", "no:asyncio", plugins=[budget])

    [failure] = result.getfailures()
    assert "pgbouncer is not installed" in failure.longreprtext
    result.assertoutcome(failed=1, skipped=1)


def test_elsewhere_a_skip_stays_a_skip(suite, monkeypatch):
    monkeypatch.setattr(budget, "in_ci", False)

    result = suite.inline_run("-p", "no:asyncio", plugins=[budget])

    result.assertoutcome(skipped=2)


def test_budget_of_an_area_subtracts_the_time_of_earlier_calls(monkeypatch, tmp_path):
    times = tmp_path / "times"
    monkeypatch.setattr(budget, "times_file", str(times))
    assert budget.seconds_left("engine") == 360

    budget.add_times(times, {"engine/store": 100.0, "triggers/moves": 50.0})
    budget.add_times(times, {"engine/store": 20.0, "engine/cli": 30.0})

    assert budget.seconds_left("engine") == 210


def test_a_folder_counts_towards_its_area():
    lines = budget.summary_lines(
        {"engine/store": 300.0, "engine/moves": 90.0, "triggers/triggers": 10.0, "triggers/moves": 5.0}
    )

    assert [line.split() for line in lines] == [
        ["engine", "390.0", "s", "of", "360", "s", "OVER", "BUDGET"],
        ["store", "300.0", "s"],
        ["moves", "90.0", "s"],
        ["triggers", "15.0", "s", "of", "120", "s"],
        ["triggers", "10.0", "s"],
        ["moves", "5.0", "s"],
    ]


def test_the_times_of_several_calls_are_added_up(tmp_path, capsys):
    times = tmp_path / "times"
    budget.add_times(times, {"engine/simulation": 60.0, "engine/store": 10.0})
    budget.add_times(times, {"engine/simulation": 30.0})

    budget.main(str(times))

    assert [line.split()[:2] for line in capsys.readouterr().out.splitlines()] == [
        ["time", "per"],
        ["engine", "100.0"],
        ["simulation", "90.0"],
        ["store", "10.0"],
    ]


def test_suite_prints_no_times_when_they_are_written_to_a_file(suite, monkeypatch, tmp_path):
    times = tmp_path / "times"
    monkeypatch.setattr(budget, "times_file", str(times))

    result = suite.runpytest_inprocess("-p", "no:asyncio", plugins=[budget])

    assert times.exists()
    assert "time per folder" not in result.stdout.str()


@pytest.mark.parametrize(
    ("nodeid", "place"),
    [
        ("tests/store/plans/test_claim.py::test_uses_the_index[15]", "engine/store"),
        ("tests/test_layers.py::test_layers", "engine/."),
        ("tests/schedules/test_zones.py::test_it", "triggers/schedules"),
        ("tests/end_to_end/targets/test_callbacks.py::test_it", "targets/end_to_end"),
        ("tests/moves/test_workflows.py::TestStart::test_it", "flow/moves"),
        ("tests/api/test_workflows.py::test_it", "api/api"),
        ("tests/bench/test_scenarios.py::test_it[concurrency]", "flow/bench"),
        ("tests/bench/test_scenarios.py::test_it[drain]", "engine/bench"),
        ("tests/bench/test_scenarios.py::test_it", "engine/bench"),
        ("tests/store/test_oldest.py::test_it_rates[3]", "flow/store"),
        ("tests/store/test_oldest.py::test_lists_are_planned_list_plans", "api/store"),
        ("tests/store/test_oldest.py::test_gates_are_planned_plans[rates]", "engine/store"),
        ("tests/store/test_servers.py::TestNextFire_fixed_delay::test_concurrency_keys[pgbouncer]", "triggers/store"),
        ("tests/store/test_servers.py::TestKey_submit::test_it_gates", "engine/store"),
    ],
)
def test_area_of_a_test_follows_from_its_folder_and_subject(nodeid, place):
    assert budget.place_of(nodeid) == place


def test_each_subject_is_one_of_a_file():
    """A file that was renamed would count towards the engine unnoticed."""
    files = {path.stem.removeprefix("test_") for path in Path(__file__).parents[1].rglob("test_*.py")}

    assert sum(len(subjects.split()) for subjects in budget.SUBJECTS.values()) == len(budget.AREA_OF_SUBJECT)
    assert budget.AREA_OF_SUBJECT.keys() - files == set()


def test_each_scenario_is_one_that_is_tried():
    assert budget.AREA_OF_SCENARIO.keys() - test_scenarios.SMALL.keys() == set()
