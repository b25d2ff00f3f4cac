"""Hold the test suite to its budget of time, and let no test be skipped unnoticed.

At the end the time of each top-level folder of tests is printed against the budget of its area: that of the capability which a
test is about, told by its folder or, where a folder mirrors a package that all of them share, by the name of its file; of a
benchmark by what it measures. With `TEST_TIMES` set it is added to what that file says of earlier calls, and
`python -m tests.plugins.budget FILE` prints the sum; a test that takes what time there is asks what is left. With `CI` set a
skip is a failure: there everything a test needs is meant to be installed.
"""

import json
import os
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any

import pytest

ENGINE = "engine"
# Minutes on two cores.
BUDGET_MINUTES = {ENGINE: 6, "triggers": 2, "api": 3, "targets": 3, "flow": 2, "dashboard": 3, "security": 3, "docs": 4}
# Folders whose area has another name than theirs.
FOLDERS = {"schedules": "triggers", "client": "api", "wire": "api", "outbound": "targets"}
# What the files of the other folders are about, where it is not the engine: `tests/moves/test_workflows.py` is about workflows.
SUBJECTS = {
    "triggers": "calendars declaration declare declared edit firing fixed_delay interval pause registrar runs schedules trigger"
    " when",
    "api": "admit api api_key api_keys apply as_code audit filter keyring list_plans lists manifest manifest_plan"
    " manifest_text pauses remote roles session take_event tenants tenants_and_keys",
    "targets": "callback_token callbacks captured completion_callbacks destinations health listen long programs receive sealing"
    " subtasks target targets webhook_request webhook_url",
    "flow": "concurrency_key concurrency_keys dead dependencies dependency_plans dependents expire hand_out limit limits lines"
    " manifest_workflow order overloads plan_claim pressure queue_weight rate_limit rates recover recovery references retries"
    " retry_options retry_rules rules scaling unroutable unroutable_plans workflow workflow_plans workflow_runs workflows",
    "dashboard": "doctor figures many system system_safe",
}
AREA_OF_SUBJECT = {subject: area for area, subjects in SUBJECTS.items() for subject in subjects.split()}
# What the scenarios of `duly bench` measure, where it is not the engine; all of them are tried by one test.
AREA_OF_SCENARIO = {"outage": "triggers", "lists": "api", "webhooks": "targets"} | dict.fromkeys(
    ("concurrency", "fair", "herd", "unroutable", "workflows"), "flow"
)
SCENARIO = re.compile(r"bench/test_scenarios\.py::\w+\[(\w+)\]$")
# Files that run the tests of others again on another server; the name of each ends with that of its own file.
SUBJECT = "|".join(sorted(AREA_OF_SUBJECT, key=len, reverse=True))
AGAIN = re.compile(rf"store/test_(?:oldest|servers)\.py::(?:test|Test)\w*?_({SUBJECT})(?=\[|::|$)")

in_ci = bool(os.environ.get("CI"))
times_file = os.environ.get("TEST_TIMES")
# By area and folder, as `place_of` names them.
seconds_by_place: dict[str, float] = defaultdict(float)


def place_of(nodeid: str) -> str:
    """Name the area and the top-level folder of the test with this id.

    `tests/store/test_jobs.py::…` is at `engine/store`, `tests/worker/targets/test_command.py::…` at `targets/worker`.
    """
    if scenario := SCENARIO.search(nodeid):
        return f"{AREA_OF_SCENARIO.get(scenario[1], ENGINE)}/bench"
    if subject := AGAIN.search(nodeid):
        return f"{AREA_OF_SUBJECT[subject[1]]}/store"
    *folders, file = nodeid.split("::")[0].removeprefix("tests/").split("/")
    about = file.removeprefix("test_").removesuffix(".py")
    named = (FOLDERS.get(folder, folder) for folder in folders)
    area = next((area for area in named if area in BUDGET_MINUTES), AREA_OF_SUBJECT.get(about, ENGINE))
    return f"{area}/{folders[0] if folders else '.'}"


def refuse_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    """Turn a skip into a failure that shows its reason; an expected failure is not a skip."""
    if report.outcome != "skipped" or hasattr(report, "wasxfail"):
        return
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    report.outcome = "failed"
    report.longrepr = f"{reason}\nWith CI set a skip is a failure: install what this test needs."


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Refuse the skip of a test in CI."""
    report = yield
    if in_ci:
        refuse_skip(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Refuse the skip of a whole module in CI."""
    report = yield
    if in_ci:
        refuse_skip(report)
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Count the time of each phase of a test towards its folder; with several processes only the first is told."""
    seconds_by_place[place_of(report.nodeid)] += report.duration


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Print the time per folder, and per area against its budget; or keep it for the sum."""
    if not seconds_by_place or hasattr(config, "workerinput"):
        return
    processes = config.getoption("numprocesses", None) or 1
    spent = {place: seconds / processes for place, seconds in seconds_by_place.items()}
    if times_file is not None:
        add_times(Path(times_file), spent)
        return
    terminalreporter.section("time per folder" + (f", of {processes} processes" if processes > 1 else ""))
    for line in summary_lines(spent):
        terminalreporter.write_line(line)


def add_times(file: Path, spent: Mapping[str, float]) -> None:
    """Add the times of one call to those of the calls before it."""
    before = json.loads(file.read_text()) if file.exists() else {}
    file.write_text(json.dumps(Counter(before) + Counter(spent)))


def seconds_left(area: str) -> float:
    """Say what the calls before this one have left of the budget of an area."""
    spent: dict[str, float] = (
        json.loads(Path(times_file).read_text()) if times_file and Path(times_file).exists() else {}
    )
    return BUDGET_MINUTES[area] * 60 - sum(seconds for place, seconds in spent.items() if place.startswith(f"{area}/"))


def summary_lines(seconds_by_place: Mapping[str, float]) -> list[str]:
    """Write one line a folder, slowest first, under one line for each area that was tested."""
    lines = []
    slowest_first = sorted(seconds_by_place.items(), key=lambda item: -item[1])
    for area, minutes in BUDGET_MINUTES.items():
        members = [
            (place.partition("/")[2], seconds) for place, seconds in slowest_first if place.startswith(f"{area}/")
        ]
        if members:
            spent = sum(seconds for _, seconds in members)
            verdict = "" if spent <= minutes * 60 else "   OVER BUDGET"
            lines.append(f"{area:<18}{spent:8.1f} s of {minutes * 60} s{verdict}")
            lines += [f"  {folder:<16}{seconds:8.1f} s" for folder, seconds in members]
    return lines


def main(file: str) -> None:
    """Print the sum of several calls."""
    print("time per folder, of all tests", *summary_lines(json.loads(Path(file).read_text())), sep="\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
