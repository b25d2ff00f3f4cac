"""`duly chaos`: the verdict of a storm, on an installation of its own of which nothing is left."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from uuid import UUID

import psutil
import pytest

from duly.bench.chaos.evidence import Acknowledged, Arrival, Evidence, Strike
from duly.bench.chaos.storm import Plan, Storm
from tests.bench.processes import until_below

CHAOS = [sys.executable, "-m", "duly", "chaos"]
RUN = UUID(int=1)
NOON = 1_790_000_000.0


def environment(folder: Path) -> dict[str, str]:
    return os.environ | {"TMPDIR": str(folder), "DULY_DATABASE_URL": "postgresql://nowhere.invalid/production"}


def test_a_short_storm_breaks_no_promise(tmp_path):
    command = [*CHAOS, "--minutes", "0.1", "--seed", "7", "--rate", "60", "--schedules", "3", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False, env=environment(tmp_path))

    assert done.returncode == 0, done.stdout + done.stderr
    verdict = json.loads(done.stdout)
    assert verdict["is_good"], verdict
    assert (verdict["seed"], verdict["broken"], verdict["findings"]) == (7, [], [])
    assert sum(verdict["strikes"].values()) > 0
    assert verdict["acknowledged"] > 100
    assert verdict["calls"] >= verdict["acknowledged"] - 3
    assert list(tmp_path.iterdir()) == []
    assert "--seed 7" in done.stderr


@pytest.mark.proof
@pytest.mark.timeout(900)
def test_a_long_storm_breaks_no_promise(tmp_path):
    command = [*CHAOS, "--minutes", "5", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=800, check=False, env=environment(tmp_path))

    assert done.returncode == 0, done.stdout + done.stderr


def test_an_ended_storm_leaves_no_process_and_no_folder(tmp_path):
    process = subprocess.Popen(
        [*CHAOS, "--minutes", "1", "--folder", str(tmp_path)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(tmp_path),
    )
    try:
        family = until_below(process.pid, lambda commands: sum("role_process" in one for one in commands) >= 5)

        process.send_signal(signal.SIGTERM)

        assert process.wait(60) == 130, process.stderr and process.stderr.read()
        _, alive = psutil.wait_procs(family, timeout=10)
        assert alive == []
        assert list(tmp_path.iterdir()) == []
    finally:
        process.kill()


@pytest.mark.parametrize(
    "arguments", [["--database-url", "postgresql:///duly"], ["--minutes", "61"], ["--minutes", "0"]]
)
def test_another_database_and_a_storm_without_bounds_are_refused(arguments):
    done = subprocess.run([*CHAOS, *arguments], capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == 2
    assert re.search(r"--database-url|--minutes", done.stderr)


def test_verdict_names_what_was_lost_or_early(tmp_path):
    storm = Storm("", tmp_path, Plan(1.0, 1, 1, 0))
    lost = Evidence([Acknowledged(RUN, NOON, False, 2)], [], [], [], [], [Strike("worker", 1, NOON, NOON)])
    early = Arrival(str(RUN), str(RUN), 1, 1, NOON - 0.001, (1, 1), NOON, NOON)

    for evidence, word in ((lost, "lost"), (lost._replace(arrivals=[early]), "early")):
        verdict = storm.judge(evidence, [])
        assert not verdict.is_good
        assert any(one.startswith(word) for one in verdict.findings)
    assert not storm.judge(Evidence([], [], [], [], []), ["run in two boxes"]).is_good
