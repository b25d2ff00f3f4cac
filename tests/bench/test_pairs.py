"""`--pairs` measures two versions with the same options, refuses what it cannot compare, and leaves nothing behind."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from duly.bench.pairs import figures
from tests.bench.processes import until_below

THIS_VERSION = f'exec "{sys.executable}" -m duly "$@"'
BENCH = [sys.executable, "-m", "duly", "bench"]
SMALL = ["--runs", "200", "--batch", "100"]
REFUSED, USAGE, INTERRUPTED = 1, 2, 130
PATIENCE_SECONDS = 60


@pytest.fixture
def checkout(tmp_path):
    """Make a checkout whose installed `duly` is the shell script given, by default this version."""

    def create(script=THIS_VERSION):
        program = tmp_path / "other" / ".venv" / "bin" / "duly"
        package = tmp_path / "other" / "src" / "duly" / "__init__.py"
        for file in (program, package):
            file.parent.mkdir(parents=True)
            file.touch(mode=0o755)
        program.write_text(f"#!/bin/sh\n{script}\n")
        return tmp_path / "other"

    return create


@pytest.fixture
def folder(tmp_path):
    """A folder for temporary databases."""
    created = tmp_path / "databases"
    created.mkdir()
    return created


def compare(scenario: str, *arguments: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [*BENCH, scenario, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=110, check=False, env=os.environ | variables)


def test_both_versions_are_measured_with_the_same_options_and_each_figure_is_compared(checkout, folder):
    other = checkout()

    done = compare("drain", *SMALL, "--folder", folder, "--pairs", other, "--rounds", "2", "--json")

    assert done.returncode == 0, done.stderr
    compared = json.loads(done.stdout)
    assert compared["rounds"] == 2
    for config in (compared["config"], compared["other"]["config"]):
        assert (config["runs"], config["batch"]) == (200, 100)
    assert compared["figures"].keys() >= {"runs_per_second", "latency_ms p99", "baseline drain_per_second"}
    rate = compared["figures"]["runs_per_second"]
    assert 0 < rate["ratio_min"] <= rate["ratio"] <= rate["ratio_max"]
    assert list(folder.iterdir()) == []


def test_the_version_that_goes_first_changes_from_pair_to_pair(checkout, tmp_path):
    order = tmp_path / "order"
    other = checkout(f'case "$*" in *--json) echo other >> {order} ;; esac\n{THIS_VERSION}')
    # Only this version inherits PYTHONPATH.
    noting = f"import sys\nif sys.orig_argv[-1] == '--json': print('this', file=open({str(order)!r}, 'a'))"
    (tmp_path / "sitecustomize.py").write_text(noting)

    done = compare("wheel", "--few", "10", "--many", "100", "--pairs", other, "--rounds", "3", PYTHONPATH=str(tmp_path))

    assert done.returncode == 0, done.stderr
    assert "runs_per_second" in done.stdout
    assert order.read_text().split() == ["this", "other", "other", "this", "this", "other"]


def test_a_ratio_is_taken_within_each_pair_and_figures_that_are_always_zero_are_left_out():
    pairs = [({"rate": 200.0, "lost": 0}, {"rate": 100.0, "lost": 0})]
    pairs += [({"rate": 30.0, "lost": 0}, {"rate": 10.0, "lost": 0})]
    pairs += [({"rate": 40.0, "lost": 0}, {"rate": 10.0, "lost": 0})]

    compared = figures(pairs)

    assert compared.keys() == {"rate"}
    rate = compared["rate"]
    assert (rate.this, rate.other) == (40.0, 10.0)
    assert (rate.ratio, rate.ratio_min, rate.ratio_max) == (3.0, 2.0, 4.0)


@pytest.mark.parametrize("installed", [False, True])
def test_a_folder_without_an_installed_checkout_is_refused(installed, checkout, tmp_path):
    other = tmp_path
    if installed:
        other = checkout()
        (other / ".venv" / "bin" / "duly").unlink()

    done = compare("drain", *SMALL, "--pairs", other)

    assert (done.returncode, done.stdout) == (REFUSED, "")
    assert str(other) in done.stderr
    assert ("make install" in done.stderr) is installed


def test_an_option_that_the_other_version_does_not_know_is_named_before_anything_is_measured(checkout, tmp_path):
    other = checkout(f'case "$*" in *--help*) echo "  --runs INTEGER" ;; *) touch {tmp_path}/measured ;; esac')

    done = compare("drain", "--runs", "200", "--waiting", "10", "--pairs", other)

    assert (done.returncode, done.stdout) == (REFUSED, "")
    assert "--waiting" in done.stderr
    assert "--runs" not in done.stderr
    assert not (tmp_path / "measured").exists()


def test_a_scenario_that_the_other_version_lacks_is_refused_in_its_own_words(checkout):
    other = checkout('echo "No such command: drain" >&2; exit 2')

    done = compare("drain", *SMALL, "--pairs", other)

    assert (done.returncode, done.stdout) == (REFUSED, "")
    assert "No such command: drain" in done.stderr


def test_the_output_of_a_failing_version_is_shown(checkout, folder):
    other = checkout(f'case "$*" in *--help*) {THIS_VERSION} ;; *) echo "disk full" >&2; exit 3 ;; esac')

    done = compare("drain", *SMALL, "--folder", folder, "--pairs", other)

    assert (done.returncode, done.stdout) == (REFUSED, "")
    assert "disk full" in done.stderr
    assert list(folder.iterdir()) == []


def test_versions_with_different_defaults_are_not_compared(checkout, folder):
    other = checkout('case "$*" in *--help*) ;; *) set -- "$@" --batch 50 ;; esac\n' + THIS_VERSION)

    done = compare("drain", "--runs", "200", "--folder", folder, "--pairs", other)

    assert (done.returncode, done.stdout) == (REFUSED, "")
    assert "--batch" in done.stderr


def test_rounds_without_another_version_are_refused():
    done = compare("drain", *SMALL, "--rounds", "2")

    assert (done.returncode, done.stdout) == (USAGE, "")
    assert "--pairs" in done.stderr


@pytest.mark.parametrize("request_", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_comparison_ends_its_child_and_removes_the_temporary_server(request_, checkout, folder):
    interrupt(request_, folder, "--pairs", str(checkout()))


def test_an_ended_measurement_removes_its_processes_and_the_temporary_server(folder):
    interrupt(signal.SIGTERM, folder)


def interrupt(request_, folder, *arguments):
    """Interrupt a measurement, and see that it leaves no process and no folder."""
    process = subprocess.Popen(
        [*BENCH, "drain", "--runs", "1000000", "--folder", str(folder), *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"TMPDIR": str(folder)},
    )
    try:
        family = until_below(process.pid, is_measuring, PATIENCE_SECONDS)

        process.send_signal(request_)

        assert process.wait(PATIENCE_SECONDS) == INTERRUPTED
        _, alive = psutil.wait_procs(family, timeout=10)
        assert alive == []
        assert list(folder.iterdir()) == []
    finally:
        process.kill()


def is_measuring(commands):
    """Return whether a worker and a server run."""
    return any("role_process" in one for one in commands) and any("postgres" in one for one in commands)
