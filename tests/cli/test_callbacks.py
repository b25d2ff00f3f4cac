"""Completion callbacks, set and shown on the command line."""

from tests.cli.test_remote import a_name, remote
from tests.cli.test_targets import duly

__all__ = ["duly", "remote"]
FLAGS = ("--on-end", "follow-up", "--on-failure", "https://hooks.example/dead")


def check(run) -> None:
    """Submit a schedule that tells, and look at it."""
    name = a_name()
    submitted = run("submit", "greet", "--every", "PT1H", "--name", name, *FLAGS)
    assert submitted.returncode == 0, submitted.stderr

    shown = run("jobs", "show", name)

    assert "on_end  job follow-up" in shown.stdout, shown.stdout + shown.stderr
    assert "on_failure  https://hooks.example/dead" in shown.stdout


def test_at_the_database(duly):
    check(duly)


def test_over_http(remote):
    check(remote.duly)


def test_callback_with_an_invalid_receiver_is_refused(duly):
    refused = duly("submit", "greet", "--on-end", "http://user@hooks.example/")

    assert refused.returncode != 0
    assert "Authorization" in refused.stderr
