"""Run pytest, and what failed once more, alone: `python -m tests.plugins.second_look [pytest's arguments]`.

Many tests wait for real processes, on machines that do other work too. One that fails beside others and passes alone is said to
be unsteady, under its failure in full: it is to be mended, but what it is about was shown. One that fails twice has failed. More
than a few files that fail at once are no chance, and are not asked again. Nor is what steps two moves through every order, or
moves its own clock: such a test takes the same way each time, so its failure is a finding, however rare.
"""

import json
import subprocess
import sys
from pathlib import Path

LAST_FAILED = Path(".pytest_cache/v/cache/lastfailed")
FILES_MAX = 3
STEADY = ("tests/interleavings/", "tests/simulation/", "tests/domain/", "tests/triggers/", "tests/moves/")

# What pytest answers with when tests have failed, and nothing else went wrong.
TESTS_FAILED = 1


def main(arguments: list[str]) -> int:
    """Run the tests, and look again at the few that failed. Gives the exit code."""
    LAST_FAILED.unlink(missing_ok=True)
    code = pytest(arguments)
    failed = failed_tests()
    if code != TESTS_FAILED or not may_be_chance(failed):
        return code
    print(f"\nOnce more, alone: {', '.join(failed)}", flush=True)
    code = pytest(failed)
    if code == 0:
        print(f"\nUNSTEADY, passed at the second look: {', '.join(failed)}", flush=True)
    return code


def may_be_chance(failed: list[str]) -> bool:
    """Say whether these failed tests are few, and such as wait for others."""
    files = {test.split("::")[0] for test in failed}
    return 0 < len(files) <= FILES_MAX and not any(file.startswith(STEADY) for file in files)


def pytest(arguments: list[str]) -> int:
    """Run pytest in a process of its own."""
    return subprocess.run([sys.executable, "-m", "pytest", *arguments], check=False).returncode


def failed_tests() -> list[str]:
    """Name the tests that failed in the last run, as pytest has kept them."""
    return list(json.loads(LAST_FAILED.read_text())) if LAST_FAILED.exists() else []


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
