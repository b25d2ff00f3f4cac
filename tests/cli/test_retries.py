"""Retries, expiry and dead letters on the command line."""

import asyncio
import json
from itertools import pairwise

import click
import pytest
import yaml

from duly.cli.flags.submission import read
from duly.domain.errors import InvalidOption
from duly.domain.runs.outcome import Failed
from duly.domain.runs.retry_rules import Rule
from duly.store.connection.database import Database
from tests.builders import HANDLER, a_leased_run, a_worker, settled
from tests.cli.processes import inside
from tests.clock import ManualClock


def options(**typed):
    return read(dict(words=("greet",), json_text=None, **typed), None).options.policy


def test_retry_options_become_a_policy():
    told = options(
        max_attempts=7,
        retry_delays=("PT1S", "60"),
        retry_jitter="0.25",
        max_age="P1D",
        on_error=("*Timeout=retry", "5xx=snooze:PT5M", "exit:75=dead", "404=dead"),
    )

    assert (told.retry.max_attempts, told.retry.policy, told.retry.delays) == (7, "list", (1.0, 60.0))
    assert (told.retry.jitter, told.retry.max_age_seconds) == (0.25, 86_400.0)
    assert told.retry.rules == (
        Rule("retry", error="*Timeout"),
        Rule("snooze", status="5xx", delay_seconds=300.0),
        Rule("dead", exit="75"),
        Rule("dead", status="404"),
    )


def test_an_expiry_is_read_and_checked_against_the_moment():
    assert options(expires_after="PT1H").expires_seconds == 3600
    with pytest.raises(InvalidOption, match="its due time; choose a later one"):
        options(at="2026-11-02T10:00:00Z", expires_at="2026-11-02T09:00:00Z")
    with pytest.raises(click.UsageError, match="give --expires-after"):
        options(every="60", expires_at="2026-11-02T09:00:00Z")


@pytest.mark.parametrize("rule", ["ValueError", "=dead", "ValueError=drop", "5xx=snooze"])
def test_unclear_retry_rule_is_refused(rule):
    with pytest.raises((click.UsageError, InvalidOption)):
        options(on_error=(rule,))


@pytest.fixture
def duly(database_url, tmp_path):
    """Run one command on a database that holds nothing."""
    return lambda *arguments: inside(*arguments, "--database-url", database_url, cwd=tmp_path)


@pytest.fixture
def four_dead(database_url):
    """Let four runs give up, three of them for about the same reason."""

    async def bury():
        clock = ManualClock()
        async with Database(database_url, clock=clock) as database:
            clock.moves(database)
            worker_id = await a_worker(database)
            for reason in ("customer 7 is gone", "customer 8 is gone", "customer 9 is gone", "smtp down"):
                _, run = await a_leased_run(database, worker_id)
                await settled(database, worker_id, run, Failed(reason, retryable=False))

    asyncio.run(bury())


def test_edit_changes_only_the_given_options(duly):
    policy = ("--retry-policy", "linear", "--retry-base", "PT5S")
    made = duly("submit", HANDLER, "--every", "60", "--name", "minutely", *policy)
    assert made.returncode == 0, made.stderr
    more = ("--max-age", "PT1H", "--on-error", "ValueError=dead", "--expires-after", "PT5M")
    edited = duly("jobs", "edit", "minutely", *more)
    assert edited.returncode == 0, edited.stderr

    exported = yaml.safe_load(duly("export", "--by-hand", "--source", "s").stdout)["jobs"]["minutely"]

    assert exported["retry"] == {
        "policy": "linear",
        "max_attempts": 5,
        "base": "PT5S",
        "max_age": "PT1H",
        "rules": [{"error": "ValueError", "action": "dead"}],
    }
    assert exported["expires_after"] == "PT5M"


def test_the_dead_are_grouped_and_replayed_at_a_pace(duly, four_dead, database_url):
    groups = json.loads(duly("dead", "list", "--group", "error", "--json").stdout)
    assert [(group["error"], group["count"]) for group in groups] == [("customer … is gone", 3), ("smtp down", 1)]
    assert "customer … is gone" in duly("dead", "list", "--group", "error").stdout

    dry = duly("dead", "replay", "--all", "--rate", "0.1", "--dry-run")
    assert "4 runs would be replayed" in dry.stdout
    replayed = duly("dead", "replay", "--all", "--rate", "0.1", "--yes")
    assert "4 runs replayed" in replayed.stdout, replayed.stderr

    async def gaps():
        due = "select due_at from duly.ready union all select due_at from duly.timers order by 1"
        async with Database(database_url) as database:
            moments = [row[0] for row in await database.fetch(due)]
        return [round((after - before).total_seconds()) for before, after in pairwise(moments)]

    assert asyncio.run(gaps()) == [10, 10, 10]


def test_a_pace_is_for_many(duly):
    refused = duly("dead", "replay", "00000000-0000-4000-8000-000000000000", "--rate", "5")

    assert refused.returncode == 2
    assert "--rate goes with --filter or --all" in refused.stderr
