"""`make compare`: what needs no installed peer. Duly and bare SQL are measured for real, in the smallest sizes."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from benchmarks.peers import install, table
from benchmarks.peers.__main__ import NotMeasured, Place, measured
from benchmarks.peers.registry import SYSTEMS, Home
from benchmarks.peers.scenarios import SCENARIOS, Sizes, percentiles

COMPARE = [sys.executable, "-m", "benchmarks.peers"]
FIGURES = {
    "bulk": {"per_second"},
    "one_by_one": {"per_second", "sync_per_second"},
    "drain": {"per_second"},
    "pick_up": {"p50", "p95", "p99", "max"},
    "burst": {"p50", "p95", "p99", "max"},
}
FAILED, USAGE = 1, 2
PATIENCE_SECONDS = 60


def compare(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [*COMPARE, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=110, check=False, env=os.environ | variables)


@pytest.fixture
def folder(tmp_path):
    """A folder for the temporary server."""
    created = tmp_path / "server"
    created.mkdir()
    return created


def results(**systems: dict) -> dict:
    """Results of a few systems; each has only its scenarios' figures."""
    return {
        "at": "1 May 2026",
        "machine": {"cores": 2, "postgres": "18.4", "python": "3.11.7", "node": ""},
        "sizes": Sizes()._asdict(),
        "systems": {
            name: {
                "title": SYSTEMS[name].title,
                "version": "1",
                "scenarios": {scenario: {"busy_percent": 0.0} | figures for scenario, figures in scenarios.items()},
            }
            for name, scenarios in systems.items()
        },
    }


def cells(markdown: str, scenario: str) -> list[str]:
    """Return the cells of a scenario's first row, without its title."""
    number = [row.scenario for row in table.ROWS].index(scenario)
    return [cell.strip() for cell in markdown.splitlines()[2 + number].strip("|").split("|")[1:]]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_each_scenario_measures_duly_and_bare_sql(scenario, tmp_path, folder):
    output = tmp_path / "results.json"

    done = compare(
        *("--systems", "duly,bare_sql", "--scenarios", scenario, "--scale", "0.002"),
        *("--output", str(output), "--folder", str(folder)),
    )

    assert done.returncode == 0, done.stderr
    found = json.loads(output.read_text())
    assert found["settings"] == {"shared_buffers": "1GB", "max_wal_size": "4GB"}
    duly, bare = (found["systems"][name]["scenarios"][scenario] for name in ("duly", "bare_sql"))
    assert duly.keys() >= FIGURES[scenario]
    assert bare.keys() >= FIGURES[scenario] - {"sync_per_second"}
    for figures in (duly, bare):
        assert all(figures[name] > 0 for name in FIGURES[scenario] & figures.keys())
        assert (figures.get("early", 0), figures.get("run_twice", 0)) == (0, 0)
    assert list(folder.iterdir()) == []


def test_duly_is_compared_with_the_best_peer_figure_by_figure():
    markdown = table.table(
        results(
            duly={"bulk": {"per_second": 3_000.0}, "pick_up": {"p50": 2.0, "p95": 4.0, "p99": 8.0}},
            pgqueuer={"bulk": {"per_second": 2_000.0}, "pick_up": {"p50": 4.0, "p95": 40.0, "p99": 400.0}},
            procrastinate={"bulk": {"per_second": 1_000.0}, "pick_up": {"p50": 5.0, "p95": 6.0, "p99": 4.0}},
            bare_sql={"bulk": {"per_second": 9_000.0}, "pick_up": {"p50": 1.0, "p95": 1.0, "p99": 1.0}},
        )
    )

    assert cells(markdown, "bulk") == ["3,000", "2,000", "1,000", "9,000", "1.50"]
    assert cells(markdown, "pick_up")[-1] == "2.00 / 1.50 / 0.50"


def test_a_cell_shows_failures_broken_promises_and_a_busy_machine():
    markdown = table.table(
        results(
            duly={"bulk": {"per_second": 3_000.0, "busy_percent": 40.0}},
            pgqueuer={"bulk": {"error": "no memory"}},
            procrastinate={"bulk": {"per_second": 10.0}, "burst": {"p50": 1.0, "p95": 1.0, "max": 2.0, "early": 3.0}},
        )
    )

    duly, pgqueuer, procrastinate, ratio = cells(markdown, "bulk")
    assert duly == "3,000~"
    assert pgqueuer == "failed"
    assert (procrastinate, ratio) == ("10.0", "300.00")
    assert "3 early" in cells(markdown, "burst")[2]


def test_the_table_replaces_what_is_between_the_marks_of_a_page(tmp_path):
    page, measured_ = tmp_path / "README.md", results(duly={"bulk": {"per_second": 3_000.0}})
    page.write_text(f"before\n{table.BEGIN}\nold\n{table.END}\nafter\n")

    for _ in range(2):
        table.write(page, measured_)

    written = page.read_text()
    assert table.table(measured_) in written
    assert written.startswith(f"before\n{table.BEGIN}\n")
    assert written.endswith(f"\n{table.END}\nafter\n")
    assert "old" not in written


def test_a_page_without_the_marks_is_left_as_it_is(tmp_path):
    page = tmp_path / "README.md"
    page.write_text(f"before\n{table.BEGIN}\n")

    with pytest.raises(ValueError, match="README"):
        table.write(page, results(duly={}))

    assert page.read_text() == f"before\n{table.BEGIN}\n"


def test_the_readme_has_a_place_for_the_table(tmp_path):
    page = tmp_path / "README.md"
    page.write_text((Path(__file__).parents[2] / "README.md").read_text())
    measured_ = results(duly={"bulk": {"per_second": 3_000.0}})

    table.write(page, measured_)

    assert table.table(measured_) in page.read_text()


@pytest.mark.parametrize("arguments", [["--scale", "0.1"], ["--systems", "duly"], ["--scenarios", "bulk"]])
def test_only_a_whole_comparison_is_written_into_the_readme(arguments):
    assert compare("--write", *arguments).returncode == USAGE


def test_without_node_its_peer_is_left_out_with_a_sentence(tmp_path):
    output = tmp_path / "results.json"

    done = compare(
        *("--systems", "graphile_worker,bare_sql", "--scenarios", "bulk", "--scale", "0.001"),
        *("--output", str(output)),
        PATH=str(tmp_path),
    )

    assert done.returncode == 0, done.stderr
    assert "graphile-worker" in done.stderr
    assert "npm" in done.stderr
    assert json.loads(output.read_text())["systems"].keys() == {"bare_sql"}


def test_a_system_that_cannot_be_measured_is_named_with_its_last_words():
    """Its packages are not where Duly's are."""
    here = Place(Path(sys.executable), None, "1")

    with pytest.raises(NotMeasured, match="pgqueuer"):
        measured("pgqueuer", here, "bulk", 0.001, "postgresql://nowhere")


def test_percentiles_are_delays_that_were_measured():
    found = percentiles([number / 1000 for number in range(100, 0, -1)])

    assert found == {"p50": 50.0, "p95": 95.0, "p99": 99.0, "max": 100.0}


def test_every_peer_is_locked_with_hashes():
    requirements = install.REQUIREMENTS.read_text()
    packages = json.loads(install.NODE_FILES[1].read_text())["packages"]
    pinned = [block for block in requirements.split("\n") if "==" in block]

    assert requirements.count("--hash=sha256:") >= len(pinned) > 0
    for entry in SYSTEMS.values():
        if entry.home is Home.PYTHON:
            assert f"\n{entry.package}==" in requirements
        if entry.home is Home.NODE:
            assert packages[""]["dependencies"][entry.package] == packages[f"node_modules/{entry.package}"]["version"]
    assert all("integrity" in package for path, package in packages.items() if path)


@pytest.mark.parametrize("request_", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_comparison_leaves_no_process_and_no_data_behind(request_, tmp_path, folder):
    process = subprocess.Popen(
        [
            *(*COMPARE, "--systems", "duly", "--scenarios", "drain"),
            *("--output", str(tmp_path / "results.json"), "--folder", str(folder)),
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        family = until_workers_run(process.pid)

        process.send_signal(request_)

        assert process.wait(PATIENCE_SECONDS) == FAILED
        _, alive = psutil.wait_procs(family, timeout=20)
        assert alive == []
        assert list(folder.iterdir()) == []
    finally:
        process.kill()


def until_workers_run(pid):
    """Return all processes below one, once Duly's workers are among them."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        family = psutil.Process(pid).children(recursive=True)
        if sum(is_worker(process) for process in family) >= 2:
            return family
        time.sleep(0.05)
    raise AssertionError("no workers")


def is_worker(process):
    """Return whether a process is a worker; one that has ended is none."""
    try:
        return "worker" in process.cmdline()
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return False
