"""Schedules declared in code, with real workers: they come, change and go with the source."""

import json
import os
import time
from itertools import count

import pytest

from tests.cli.processes import running, wait_for

SOURCE = """
from duly import App

app = App()


@app.handler{schedule}
def nightly() -> str:
    return "done"
"""
NAME = "declared:nightly"


def the_job(up):
    found = [job for job in json.loads(up.duly("jobs", "--json").stdout) if job["name"] == NAME]
    return found[0] if found else None


@pytest.fixture
def source(up):
    """The file of a program, whose schedule a test writes."""

    moments = count(int(time.time()))

    def write(schedule: str) -> None:
        file = up.folder / "declared.py"
        file.write_text(SOURCE.format(schedule=schedule))
        # Python takes compiled code for that of a source of the same size and the same whole second.
        moment = next(moments)
        os.utime(file, (moment, moment))

    return write


def test_declared_schedule_is_created_changed_and_removed_with_its_source(up, source):
    source('(cron="0 2 29 2 *", tz="Europe/Paris")')
    with running("worker", "declared:app", cwd=up.folder) as process:
        assert process.wait_for_line(f"schedule {NAME}: ").endswith(", Europe/Paris time")
        job = wait_for(lambda: the_job(up))
    assert (job["state"], job["owner"], job["source"]) == ("active", "code", "declared:app")
    assert job["next_run_at"].startswith("2028-02-29T01:00:00")

    source('(cron="0 3 29 2 *", tz="Europe/Paris")')
    with running("worker", "declared:app", cwd=up.folder):
        wait_for(lambda: (the_job(up)["next_run_at"] or "").startswith("2028-02-29T02:00:00"))
        assert up.duly("jobs", "cancel", NAME).stderr.strip().endswith("or pause the job")
        refused = up.duly("jobs", "edit", NAME, "--cron", "0 4 29 2 *")
        assert (refused.returncode, "is declared in declared:app; change it there" in refused.stderr) == (1, True)
        assert [up.duly("jobs", verb, NAME).returncode for verb in ("trigger", "pause", "resume")] == [0, 0, 0]
    assert the_job(up)["job_id"] == job["job_id"]

    source("")
    with running("worker", "declared:app", cwd=up.folder) as process:
        assert f"name={NAME}" in process.wait_for_line("schedule_removed")
        assert (the_job(up)["state"], the_job(up)["pause_reason"]) == ("paused", "removed from code")
        assert "paused, removed from code" in up.duly("jobs").stdout
        assert "no worker declares it" in up.duly("jobs", "show", NAME).stdout

    source('(cron="0 3 29 2 *", tz="Europe/Paris")')
    with running("worker", "declared:app", cwd=up.folder):
        wait_for(lambda: the_job(up)["state"] == "active")
    assert up.duly("jobs", "cancel", NAME).returncode == 0


def test_a_schedule_that_cannot_be_read_stops_the_worker_at_its_import(up, source):
    source('(cron="60 2 * * *")')

    said = up.duly("worker", "declared:app")

    assert said.returncode == 1
    assert "the schedule of declared:nightly: " in said.stderr
    assert "minute 60 is outside 0–59" in said.stderr
    assert said.stderr.splitlines()[1:] == ["  60 2 * * *", "  ^^"]
