"""Recovery and the limits of queues on the command line."""

import asyncio
import io
import json
from datetime import timedelta

import pytest

from duly.clock import Rng
from duly.log import Log
from duly.scheduler.service import Scheduler
from duly.store.connection.database import Database
from tests.builders import a_ready_run
from tests.cli.processes import inside
from tests.clock import ManualClock
from tests.schedules.stories import a_cron

HOUR = timedelta(hours=1)


@pytest.fixture
def duly(database_url, tmp_path):
    """Run one command on a database that holds nothing, on Monday, 2026-11-02 at 09:00 UTC."""
    return lambda *arguments: inside(*arguments, "--database-url", database_url, cwd=tmp_path)


@pytest.fixture
def story(database_url):
    """Let something happen in the database."""

    async def on_database(part):
        clock = ManualClock()
        async with Database(database_url, clock=clock) as database:
            clock.moves(database)
            return await part(database, clock)

    return lambda part: asyncio.run(on_database(part))


async def three_hours_down(database, clock):
    for name in ("nightly", "hourly"):
        await a_cron(database, name=name)
    for number in (1, 2):
        scheduler = Scheduler(database, name="one", rng=Rng(number), log=Log("test"), recovery_after=HOUR)
        await scheduler.renew()
        await scheduler.step()
        await scheduler._release_shards()
        await clock.advance((2 - number) * 3 * HOUR)


def test_recovery_is_shown_approved_and_dismissed(duly, story):
    assert "no recovery waits for approval" in duly("recover").stdout
    story(three_hours_down)

    shown = duly("recover").stdout
    assert "it waits for approval" in shown
    assert "tenant 1: 2 schedules missed 360 occurrences, which makes 2" in shown
    assert "nightly" in shown
    assert json.loads(duly("recover", "--json").stdout)["recovery"]["state"] == "open"

    for wrong, said in (("--tenant", "=skip"), ("--schedule", "nightly=often"), ("--schedule", "skip")):
        refused = duly("recover", "approve", "--yes", wrong, said)
        assert refused.returncode == 1
        assert said in refused.stderr or "often" in refused.stderr
    assert "no tenant 'x'" in duly("recover", "approve", "--yes", "--tenant", "x=skip").stderr
    approved = duly("recover", "approve", "--yes", "--all", "skip", "--schedule", "nightly=fire_once", "--rate", "5")
    assert "is approved by local:" in approved.stdout
    assert "fire_once (chosen)" in approved.stdout
    assert "1 run left to make, at 5 a second" in approved.stdout

    assert "is being dismissed" in duly("recover", "dismiss", "--yes").stdout
    refused = duly("recover", "dismiss", "--yes")
    assert refused.returncode == 1
    assert "is being dismissed; `duly recover` shows" in refused.stderr


def test_approve_shows_the_plan_with_the_flags_given_before_it_asks(duly, story, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    story(three_hours_down)
    flags = ("--all", "skip", "--schedule", "nightly=fire_all", "--rate", "4")

    shown = duly("recover", "approve", *flags)

    assert shown.returncode == 1, "nobody was there to confirm"
    assert "180 runs left to make, at 4 a second" in shown.stdout
    assert "tenant 1: 2 schedules missed 360 occurrences, which makes 180" in shown.stdout
    assert "fire_all (chosen)" in shown.stdout
    assert "skip (chosen)" in shown.stdout
    assert json.loads(duly("recover", "--json").stdout)["recovery"]["state"] == "open"
    assert json.loads(duly("recover", "--json").stdout)["recovery"]["rules"] == []
    refused = duly("recover", "approve", "--rate", "9000")
    assert "9000" in refused.stderr
    assert "Approve this plan" not in refused.stdout


def test_approve_refuses_before_it_asks_where_there_is_nothing_to_approve(duly, story):
    refused = duly("recover", "approve", "--rate", "4")

    assert refused.returncode == 1
    assert "no recovery is open; `duly recover` shows" in refused.stderr
    assert "Approve this plan" not in refused.stdout


async def three_hours_down_without_schedules(database, clock):
    for number in (1, 2):
        scheduler = Scheduler(database, name="one", rng=Rng(number), log=Log("test"), recovery_after=HOUR)
        await scheduler.renew()
        await scheduler.step()
        await scheduler._release_shards()
        await clock.advance((2 - number) * 3 * HOUR)


def test_recovery_without_missed_occurrences_needs_no_approval(duly, story):
    story(three_hours_down_without_schedules)

    shown = duly("recover").stdout

    assert "open since" in shown
    assert "nothing was missed" in shown
    assert "approv" not in shown


def test_choice_is_the_name_of_a_misfire_policy(duly, story):
    story(three_hours_down)

    refused = duly("recover", "approve", "--yes", "--all", "once")
    approved = duly("recover", "approve", "--yes", "--all", "skip", "--tenant", "default=fire_once")

    assert refused.returncode == 1
    assert "fire_once" in refused.stderr
    assert approved.returncode == 0, approved.stderr
    assert "fire_once (chosen)" in approved.stdout


def test_a_queue_that_is_overloaded_needs_attention(duly, story):
    noted = "insert into duly.overloads (tenant, queue, oldest_due_at, recorded_at) values (1, 'mail', '2020-01-01', 'infinity')"
    story(lambda database, _: a_ready_run(database, queue="mail"))
    story(lambda database, _: database.execute(noted))

    [mail] = json.loads(duly("queues", "--json").stdout)

    assert (mail["state"], mail["is_overloaded"]) == ("overloaded", True)
    assert "tenant 1 overloaded: its oldest run has waited for" in mail["attention"]
    assert "overloaded: its oldest run" in duly("queues").stdout


def test_queues_set_changes_the_age_limit_of_a_queue(duly, story):
    story(lambda database, _: a_ready_run(database, queue="mail"))

    assert duly("queues", "set", "mail", "--age-limit", "PT5S").stdout == "queue mail: its oldest run may be 5 s old\n"
    [mail] = json.loads(duly("queues", "--json").stdout)
    assert (mail["age_limit_seconds"], mail["is_overloaded"], mail["desired_workers"]) == (5.0, False, 1)
    assert len(mail["upcoming"]) == 15
    assert duly("queues", "set", "mail", "--age-limit", "P9D").returncode == 1
    assert duly("queues", "set", "mail").returncode == 2
    assert "as old as by default" in duly("queues", "set", "mail", "--age-limit", "default").stdout
    assert json.loads(duly("queues", "--json").stdout)[0]["age_limit_seconds"] == 60.0
