"""`duly runs` on occurrences that did not run, and of runs that stand for missed ones."""

import asyncio
import json
from datetime import timedelta
from uuid import UUID

import pytest

from duly.domain.runs.outcome import Failed, Succeeded
from duly.domain.runs.progress import Progress
from duly.moves.submit import submit
from duly.store.boxes import runs as store
from duly.store.connection.database import Database
from tests.builders import HANDLER, a_submission, a_worker, claimed, settled, staged
from tests.cli.processes import inside
from tests.clock import ManualClock


@pytest.fixture
def duly(database_url, tmp_path):
    """Run one command on a database that holds nothing, on Monday, 2026-11-02 at 09:00 UTC."""
    return lambda *arguments: inside(*arguments, "--database-url", database_url, cwd=tmp_path)


@pytest.fixture
def story(database_url):
    """Let something happen in the database, under a clock that begins at 09:00."""

    async def on_database(part):
        clock = ManualClock()
        async with Database(database_url, clock=clock) as database:
            clock.moves(database)
            await part(database, clock)

    return lambda part: asyncio.run(on_database(part))


async def six_hours_of_outage(database, clock):
    await clock.advance(timedelta(hours=6, minutes=30))
    await staged(database)


def runs(duly, *more):
    return json.loads(duly("runs", "--json", *more).stdout)


def test_a_stretch_of_skips_is_one_line_with_its_reason_its_ends_and_how_many(duly, story):
    duly("submit", HANDLER, "--cron", "0 * * * *", "--name", "hourly")
    story(six_hours_of_outage)

    listed = duly("runs", "--state", "skipped", "--job", "hourly").stdout
    assert "skipped_misfire: 6 occurrences, 2026-11-02 09:00:00Z to 2026-11-02 14:00:00Z" in listed
    [row] = runs(duly, "--state", "skipped")
    assert row["skipped"] == {"first": "2026-11-02T09:00:00Z", "last": "2026-11-02T14:00:00Z", "count": 6}
    shown = duly("runs", "show", row["run_id"]).stdout
    assert "is skipped: skipped_misfire: 6 occurrences" in shown
    assert "it is skipped: skipped_misfire: 6 occurrences" in duly("logs", row["run_id"]).stderr


def test_run_shows_its_missed_occurrences_while_it_waits_and_after_it_ends(duly, story):
    duly("submit", HANDLER, "--cron", "0 * * * *", "--name", "hourly")
    story(six_hours_of_outage)
    [run] = runs(duly, "--state", "ready", "--job", "hourly")
    words = "it stands for 7 occurrences that came too late, itself included"
    assert words in duly("runs", "show", run["run_id"]).stdout

    async def finish(database, clock):
        await clock.step(timedelta(hours=6, minutes=30))
        worker = await a_worker(database)
        [held] = await claimed(database, worker)
        await settled(database, worker, held)

    story(finish)

    assert words in duly("runs", "show", run["run_id"]).stdout
    assert "7 missed" in duly("runs", "--state", "succeeded").stdout


def test_failed_run_shows_its_traceback_and_its_missed_count(duly, story):
    duly("submit", HANDLER, "--every", "PT1H", "--max-attempts", "1", "--name", "hourly")
    story(six_hours_of_outage)

    async def fail(database, clock):
        await clock.step(timedelta(hours=6, minutes=30))
        worker = await a_worker(database)
        [held] = await claimed(database, worker)
        await settled(database, worker, held, Failed("broken", detail='{"traceback": "line 7"}'))

    story(fail)

    [dead] = json.loads(duly("dead", "--json").stdout)
    shown = duly("runs", "show", dead["run_id"]).stdout
    assert "line 7" in shown
    assert "broken; 7 missed" in shown


def test_a_single_occurrence_that_was_left_out_names_its_moment(duly):
    duly("submit", HANDLER, "--cron", "0 12 * * *", "--name", "noon")
    duly("jobs", "skip-next", "noon")

    assert "skipped_on_request: 1 occurrence, 2026-11-02 12:00:00Z" in duly("runs", "--job", "noon").stdout


def test_overlapping_run_shows_skipped_overlap_as_its_reason(duly):
    duly("submit", HANDLER, "--cron", "0 12 * * *", "--name", "noon")
    duly("jobs", "trigger", "noon")
    duly("jobs", "trigger", "noon")

    assert [run["reason"] for run in runs(duly, "--state", "skipped")] == ["skipped_overlap"]


def test_a_job_that_is_not_there_is_not_found(duly):
    assert duly("runs", "--job", "nobody").returncode == 4


def test_long_run_shows_its_progress_checkpoint_and_subtasks(duly, story):
    parent, child = (UUID(int=0),) * 2

    async def half_way(database, clock):
        nonlocal parent, child
        worker_id = await a_worker(database)
        parent = (await submit(database, a_submission(), key="parent")).job_id
        [run] = await claimed(database, worker_id)
        await store.save_progress(database, run.run_id, run.fence, worker_id, Progress(40, 120, "page 4"))
        await store.save_checkpoint(database, run.run_id, run.fence, worker_id, "[1,2]")
        child = (await submit(database, a_submission(delay=60, parent=parent), key="child")).job_id

    story(half_way)

    shown = duly("runs", "show", str(parent)).stdout
    assert "progress 40 of 120 (33%), page 4, reported 2026-11-02 09:00:00Z" in shown
    assert "checkpoint of 5 bytes, saved 2026-11-02 09:00:00Z" in shown
    assert f"parent {parent}" in duly("runs", "show", str(child)).stdout
    assert [row["run_id"] for row in runs(duly, "--parent", str(parent))] == [str(child)]
    assert "too late: it is running; `duly runs cancel`" in duly("jobs", "cancel", str(parent)).stdout
    asked = duly("runs", "cancel", str(parent), "--children").stdout
    assert "requested: its worker has been asked to stop it; 1 subtask with it" in asked
    assert "too late: it is cancelled" in duly("runs", "cancel", str(child)).stdout


@pytest.mark.parametrize(
    "value", ["[" * 3000 + "]" * 3000, "[" * 950 + "]" * 950, "9" * 5000], ids=["deep", "less", "long"]
)
def test_run_with_undecodable_json_is_still_shown(duly, story, value):
    text = f'{{"a": {value}}}'
    made: list[UUID] = []

    async def two_runs(database, clock):
        worker_id = await a_worker(database)
        made.append((await submit(database, a_submission(payload=text), key="1")).job_id)
        [run] = await claimed(database, worker_id)
        await settled(database, worker_id, run, Succeeded(text))
        made.append((await submit(database, a_submission(payload=text), key="2")).job_id)

    story(two_runs)

    for run_id in made:
        for command in (("runs", "show", str(run_id)), ("runs", "show", str(run_id), "--json")):
            told = duly(*command)
            assert told.returncode == 0, told.stderr
    assert value in duly("runs", "show", str(made[0]), "--json").stdout


def test_ended_run_shows_its_definition_and_can_be_run_again(duly, story):
    typed = ("--priority", "2", "--max-attempts", "3", "--timeout", "PT9S")
    first = duly("submit", HANDLER, "customer=7", *typed, "-q").stdout.strip()
    duly("runs", "cancel", first)

    shown = duly("runs", "show", first).stdout
    assert 'payload {"customer": 7}' in shown
    assert "priority 2   version 1" in shown
    assert '"max_attempts":3' in shown
    assert "timeout PT9S" in shown
    assert "submitted by local:" in shown
    told = json.loads(duly("runs", "show", first, "--json").stdout)
    assert (told["payload"], told["payload_kept"], told["definition"]["timeout"]) == (
        {"customer": 7},
        True,
        "PT9S",
    )

    made = json.loads(duly("runs", "rerun", first, "--payload", '{"customer": 8}', "--json").stdout)
    told = json.loads(duly("runs", "show", made["run_id"], "--json").stdout)
    assert (told["state"], told["payload"], told["priority"]) == ("ready", {"customer": 8}, 2)
    assert made["rerun_of"] == first
    assert f"created from run {first}" in duly("runs", "rerun", first).stdout
    refused = duly("runs", "rerun", made["run_id"])
    assert refused.returncode != 0
    assert "cannot be run again yet" in refused.stderr


def test_jobs_command_lists_one_shots_on_request(duly):
    shot = duly("submit", HANDLER, "-q").stdout.strip()
    duly("submit", HANDLER, "--cron", "0 12 * * *", "--name", "noon")

    assert [job["name"] for job in json.loads(duly("jobs", "--json").stdout)] == ["noon"]
    listed = {job["job_id"]: job for job in json.loads(duly("jobs", "--one-shots", "--json").stdout)}
    assert (len(listed), listed[shot]["state"], listed[shot]["run_id"]) == (2, "active", shot)
    assert "Once, at 2026-11-02" in duly("jobs", "--one-shots").stdout


def test_a_job_is_purged(duly):
    duly("submit", HANDLER, "--cron", "0 12 * * *", "--name", "noon")

    done = duly("jobs", "delete", "noon", "--purge")

    assert (done.returncode, "purged" in done.stdout) == (0, True)
    assert json.loads(duly("jobs", "--json").stdout) == []
