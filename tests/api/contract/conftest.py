"""The application as tools from outside see it, with something of everything in it; and what it answered, told at the end."""

from collections import Counter
from typing import Any

import pytest

from tests.api.contract.served import Served

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
