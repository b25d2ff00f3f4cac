"""What attacks need of the whole: the API, a worker, a command line, a browser; and what fuzzing was answered, told last."""

from collections import Counter
from typing import Any

import pytest

from tests.api.conftest import api, app, application, archive_files, front, kept_sessions, metrics, parts, sessions
from tests.cli.conftest import local, project, remote, up
from tests.dashboard.conftest import browser, guest, house, stranger, visitor
from tests.security.served import Served
from tests.worker.conftest import real_time, store, url
from tests.worker.targets.conftest import engine

# Fixtures of those folders, for the tests of this one.
__all__ = [
    "api", "app", "application", "archive_files", "browser", "engine", "front", "guest", "house", "kept_sessions", "local",
    "metrics", "parts", "project", "real_time", "remote", "sessions", "store", "stranger", "up", "url", "visitor",
]  # fmt: skip

ANSWERED = "answered"
answered: Counter[str] = Counter()


@pytest.fixture(scope="module")
def served(postgres):
    """The application on a socket, over a database with the real time."""
    postgres.create_database("contract")
    opened = Served(postgres.url("contract"))
    opened.start()
    yield opened
    opened.stop()
    postgres.drop_database("contract")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Add up what a test was answered, as it says when it has ended."""
    if report.when == "teardown":
        for name, value in report.user_properties:
            if name == ANSWERED:
                answered.update(value)  # type: ignore[call-overload]


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say how many cases were sent, and of which class their answers were."""
    if answered:
        classes = ", ".join(f"{number:,} {status}" for status, number in sorted(answered.items()))
        terminalreporter.write_line(f"schemathesis: {answered.total():,} answers: {classes}")
