"""Tests that fail beside others are run once more; those that fail twice, or too often, are red."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.plugins.second_look import may_be_chance

ROOT = Path(__file__).parents[2]

# Fails as long as there is no file of its name, and leaves one behind.
UNSTEADY = """
from pathlib import Path

def test_unsteady():
    seen = Path("seen").exists()
    Path("seen").touch()
    assert seen
"""


def test_second_look_passes_an_unsteady_test_and_names_it(tmp_path):
    code, said = looked_at(tmp_path, UNSTEADY)
    assert code == 0
    assert "assert seen" in said, "the first failure is shown in full"
    assert "UNSTEADY, passed at the second look: test_0.py::test_unsteady" in said


def test_second_look_fails_the_suite_when_a_test_fails_twice(tmp_path):
    code, said = looked_at(tmp_path, "def test_broken():\n    assert False\n")
    assert code == 1
    assert "Once more, alone: test_0.py::test_broken" in said
    assert "UNSTEADY" not in said


def test_second_look_runs_all_failures_of_a_single_file_again(tmp_path):
    tests = [UNSTEADY.replace("unsteady", f"unsteady_{n}").replace('"seen"', f'"seen_{n}"') for n in range(9)]
    code, said = looked_at(tmp_path, "".join(tests))
    assert code == 0
    assert "9 passed" in said


def test_second_look_reruns_nothing_when_many_files_fail(tmp_path):
    code, said = looked_at(tmp_path, *[UNSTEADY.replace('"seen"', f'"seen_{n}"') for n in range(4)])
    assert code == 1
    assert "Once more" not in said


@pytest.mark.parametrize(
    ("failed", "chance"),
    [
        (["tests/cli/test_runs.py::test_it", "tests/worker/test_leases.py::test_it"], True),
        (["tests/cli/test_runs.py::test_it", "tests/interleavings/test_pairs.py::test_it[ClaimAndClaim]"], False),
        (["tests/moves/test_settle.py::test_it"], False),
        ([], False),
    ],
)
def test_second_look_ignores_deterministic_failures(failed, chance):
    assert may_be_chance(failed) is chance


def test_second_look_does_not_rerun_an_unreadable_file(tmp_path):
    code, said = looked_at(tmp_path, "import nothing_of_this_name\n")
    assert code == 2
    assert "Once more" not in said


def test_second_look_runs_a_passing_test_a_single_time(tmp_path):
    code, said = looked_at(tmp_path, "def test_fine():\n    pass\n")
    assert code == 0
    assert said.count("1 passed") == 1


def looked_at(folder: Path, *files: str) -> tuple[int, str]:
    """Run the tests in a folder of their own. Gives the exit code and all that was printed."""
    for number, tests in enumerate(files):
        (folder / f"test_{number}.py").write_text(tests)
    (folder / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, str(ROOT / "tests/plugins/second_look.py")]
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr
