"""The suite's own rules: a skip is seen, and the time of each folder is told."""

from collections import defaultdict

import pytest

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
    monkeypatch.setattr(budget, "seconds_by_folder", defaultdict(float))
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


def test_a_folder_counts_towards_its_area():
    lines = budget.summary_lines({"store": 300.0, "moves": 90.0, "triggers": 10.0, "schedules": 5.0})

    assert [line.split() for line in lines] == [
        ["engine", "390.0", "s", "of", "360", "s", "OVER", "BUDGET"],
        ["store", "300.0", "s"],
        ["moves", "90.0", "s"],
        ["triggers", "15.0", "s", "of", "120", "s"],
        ["schedules", "5.0", "s"],
    ]


def test_the_times_of_several_calls_are_added_up(tmp_path, capsys):
    times = tmp_path / "times"
    budget.add_times(times, {"simulation": 60.0, "store": 10.0})
    budget.add_times(times, {"simulation": 30.0})

    budget.main(str(times))

    assert [line.split()[:2] for line in capsys.readouterr().out.splitlines()] == [
        ["time", "per"],
        ["engine", "100.0"],
        ["simulation", "90.0"],
        ["store", "10.0"],
    ]


def test_a_call_whose_times_are_added_up_prints_none(suite, monkeypatch, tmp_path):
    times = tmp_path / "times"
    monkeypatch.setattr(budget, "times_file", str(times))

    result = suite.runpytest_inprocess("-p", "no:asyncio", plugins=[budget])

    assert times.exists()
    assert "time per folder" not in result.stdout.str()


def test_a_test_belongs_to_its_top_level_folder():
    assert budget.folder_of("tests/store/plans/test_claim.py::test_uses_the_index[15]") == "store"
    assert budget.folder_of("tests/test_layers.py::test_layers") == "."
