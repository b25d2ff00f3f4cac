"""Many jobs and runs at once on the command line: what fits is counted, asked about on a terminal, changed and told."""

import asyncio
import json
import os
import pty
import signal
import subprocess
import time

import pytest

from duly.store.connection.database import Database
from tests.builders import a_dead_run, a_waiting_run, a_worker
from tests.cli.processes import DULY, environment, inside
from tests.clock import ManualClock

NOBODY = "00000000-0000-0000-0000-000000000001"


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
            return await part(database)

    return lambda part: asyncio.run(on_database(part))


@pytest.fixture
def reports(duly):
    """Three jobs, two of them in the queue mail."""
    for name, queue in (("a", "mail"), ("b", "mail"), ("c", "other")):
        assert duly("submit", "report", "--every", "PT1H", "--name", name, "--queue", queue).returncode == 0


def named(duly, state: str) -> set[str]:
    return {job["name"] for job in json.loads(duly("jobs", "--state", state, "--json").stdout)}


def on_terminal(database_url, cwd, answer: str, *arguments: str) -> tuple[int, str]:
    """Run a command on a terminal, and answer what it asks. Gives the exit code, and what was on the screen."""
    ours, theirs = pty.openpty()
    command = [*DULY, *arguments, "--database-url", database_url]
    process = subprocess.Popen(command, cwd=cwd, env=environment(), stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    os.write(ours, answer.encode())
    seen = b""
    while True:
        try:
            seen += (more := os.read(ours, 4096))
        except OSError:  # Nobody is left at the other end.
            break
        if not more:
            break
    os.close(ours)
    return process.wait(60), seen.decode()


def test_ctrl_c_at_a_confirmation_prompt_ends_the_command(duly, reports, database_url, tmp_path):
    ours, theirs = pty.openpty()
    command = [*DULY, "jobs", "pause", "--all", "--database-url", database_url]
    process = subprocess.Popen(command, cwd=tmp_path, env=environment(), stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    seen = b""
    while b"[y/N]" not in seen:
        seen += os.read(ours, 4096)
    time.sleep(0.2)  # It waits for the answer by now.
    process.send_signal(signal.SIGINT)

    try:
        assert process.wait(20) == 1
    finally:
        process.kill()
        os.close(ours)
    assert named(duly, "active") == {"a", "b", "c"}


def test_a_dry_run_counts_and_changes_nothing(duly, reports):
    said = duly("jobs", "pause", "--filter", "queue:mail", "--dry-run")

    assert said.returncode == 0
    first, *sample = said.stdout.splitlines()
    assert first == "2 jobs would be paused; nothing was changed"
    assert len(sample) == 2
    assert named(duly, "active") == {"a", "b", "c"}


def test_matching_jobs_are_paused_resumed_and_cancelled(duly, reports):
    paused = duly("jobs", "pause", "--filter", "queue:mail", "--reason", "the server moves", "--yes")
    again = duly("jobs", "pause", "--all", "--json", "--yes")

    assert (paused.returncode, paused.stdout) == (0, "2 jobs paused\n")
    assert "the server moves" in duly("jobs", "show", "a").stdout
    told = json.loads(again.stdout)
    assert (told["matched"], told["changed"], told["dry_run"], told["refused"]) == (1, 1, False, [])
    assert duly("jobs", "resume", "--filter", "name:a", "--yes").stdout == "1 job resumed\n"
    assert duly("jobs", "cancel", "--filter", "queue:mail", "--yes").stdout == "2 jobs cancelled\n"
    assert (named(duly, "cancelled"), named(duly, "paused")) == ({"a", "b"}, {"c"})


def test_bulk_pause_changes_at_most_the_limit(duly, reports):
    said = duly("jobs", "pause", "--all", "--limit", "2", "--yes")

    assert said.stdout == "2 jobs paused; more fit than the limit, so repeat the command for the rest\n"
    assert len(named(duly, "active")) == 1
    assert duly("jobs", "pause", "--all", "--limit", "2", "--yes").stdout == "1 job paused\n"


def test_refused_job_is_reported_and_does_not_block_the_others(duly, reports, story):
    async def declare(database):
        await database.execute("update duly.jobs set owner = 'code' where name = 'b'")
        await a_worker(database, declares=["1/00/b"])

    story(declare)

    said = duly("jobs", "cancel", "--all", "--yes")

    assert (said.returncode, said.stdout) == (1, "2 jobs cancelled\n")
    assert said.stderr.startswith("job ")
    assert "was left as it is: " in said.stderr
    assert named(duly, "active") == {"b"}


def test_runs_that_wait_are_cancelled_and_dead_ones_replayed(duly, story):
    async def begin(database):
        worker_id = await a_worker(database)
        dead = [str(await a_dead_run(database, worker_id, tags=tags)) for tags in (["new"], [])]
        for delay in (60, 120):
            await a_waiting_run(database, delay=delay, queue="mail")
        return dead

    first, _ = story(begin)

    assert duly("runs", "cancel", "--filter", "queue:mail", "--dry-run").stdout.startswith("2 runs would be cancelled")
    assert duly("runs", "cancel", "--filter", "queue:mail", "--yes").stdout == "2 runs cancelled, or asked to stop\n"
    assert duly("runs", "cancel", "--filter", "queue:mail", "--yes").stdout == "0 runs cancelled, or asked to stop\n"
    assert duly("runs", "replay", "--filter", "tag:new", "--yes").stdout == "1 run replayed\n"
    assert json.loads(duly("runs", "show", first, "--json").stdout)["state"] != "dead"
    assert duly("runs", "replay", "--all", "--rate", "1", "--yes").stdout == "1 run replayed\n"


def test_run_commands_report_outcomes_as_json(duly, story):
    async def begin(database):
        dead = await a_dead_run(database, await a_worker(database))
        waiting = [await a_waiting_run(database, delay=60, queue="mail") for _ in range(3)]
        return [str(run_id) for run_id in (dead, *waiting)]

    dead, first, second, _ = story(begin)

    def reads(*arguments):
        return json.loads(duly("runs", *arguments, "--json").stdout)

    cancelled = {"answer": "cancelled", "state": "cancelled", "children": 0}
    assert reads("cancel", first, second) == [{"run_id": first, **cancelled}, {"run_id": second, **cancelled}]
    late = duly("runs", "cancel", first, "--json")
    assert (late.returncode, json.loads(late.stdout)[0]["answer"]) == (1, "too_late")
    many = reads("cancel", "--filter", "queue:mail", "--yes")
    assert (many["matched"], many["changed"], many["refused"], many["more"]) == (1, 1, [], False)
    assert reads("replay", dead) == [{"run_id": dead, "answer": "replayed"}]
    assert reads("replay", "--all", "--yes")["changed"] == 0


def test_bulk_cancel_reports_cancelled_runs_before_an_unknown_run(duly, story):
    run_id = str(story(lambda database: a_waiting_run(database, delay=60)))

    for as_json in ((), ("--json",)):
        said = duly("runs", "cancel", run_id, NOBODY, *as_json)
        assert said.returncode == 4
        assert run_id in said.stdout
        assert NOBODY in said.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("jobs", "pause"),
        ("jobs", "pause", "a", "--all"),
        ("jobs", "pause", "--all", "--filter", "queue:mail"),
        ("jobs", "pause", "a", "--dry-run"),
        ("jobs", "pause", "--all"),
        ("runs", "cancel"),
        ("runs", "cancel", "--all", "--children"),
        ("runs", "replay", NOBODY, "--rate", "1"),
    ],
)
def test_ambiguous_bulk_command_is_refused_and_changes_nothing(duly, reports, arguments):
    said = duly(*arguments)

    assert (said.returncode, said.stdout) == (2, "")
    assert named(duly, "active") == {"a", "b", "c"}


def test_a_wrong_filter_shows_where(duly, reports):
    said = duly("jobs", "pause", "--filter", "colour:red", "--yes")

    assert (said.returncode, said.stdout) == (1, "")
    assert "colour" in said.stderr
    assert named(duly, "active") == {"a", "b", "c"}


def test_bulk_pause_on_a_terminal_shows_the_count_and_requires_confirmation(duly, reports, database_url, tmp_path):
    asked = ("jobs", "pause", "--filter", "queue:mail")

    code, screen = on_terminal(database_url, tmp_path, "n\n", *asked)
    assert (code, "Pause 2 jobs? [y/N]" in screen, named(duly, "paused")) == (1, True, set())

    code, screen = on_terminal(database_url, tmp_path, "y\n", *asked)
    assert (code, "2 jobs paused" in screen, named(duly, "paused")) == (0, True, {"a", "b"})

    code, screen = on_terminal(database_url, tmp_path, "", "jobs", "resume", "--all", "--yes")
    assert (code, "[y/N]" in screen, named(duly, "paused")) == (0, False, set())
