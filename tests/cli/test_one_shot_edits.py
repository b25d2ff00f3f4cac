"""`duly jobs edit` changes a one-shot without a name while it waits: on a database and over HTTP alike."""

import json
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import psycopg
import pytest

from tests.cli import processes

LATER = "2040-01-01T00:00:00Z"
SECRET = ("--header", "Authorization: Bearer s3cret")


@pytest.fixture(params=["local", "remote"])
def duly(request):
    return request.getfixturevalue(request.param)


@pytest.fixture
def shot(duly):
    """A one-shot that waits, on a queue that nobody serves."""
    said = duly("submit", "greet", "name=x", "--at", LATER, "--queue", "unserved", "--tag", "kept", "-q")
    assert said.returncode == 0, said
    return said.stdout.strip()


def shown(duly, job_id):
    return json.loads(duly("jobs", "show", job_id, "--json").stdout)


def targets_of(database_url):
    with psycopg.connect(database_url) as connection:
        return str(connection.execute("select options->'target' from duly.timers").fetchall())


def moment(run):
    return datetime.fromisoformat(run["due_at"])


def test_edit_of_a_one_shot_changes_only_the_given_options(duly, shot):
    said = duly("jobs", "edit", shot, "name=y", "--queue", "idle", "--priority", "2", "--timeout", "PT9S")

    assert said.returncode == 0, said
    assert said.stdout.splitlines()[:2] == [f"job {shot}: version 2", f"run {shot} is scheduled"]
    run = shown(duly, shot)
    assert run["payload"] == {"name": "y"}
    assert (run["queue"], run["priority"], run["tags"]) == ("idle", 2, ["kept"])
    assert moment(run) == datetime.fromisoformat(LATER)
    assert run["definition"]["timeout"] == "PT9S"


def test_due_time_of_a_one_shot_moves_to_a_moment_or_by_a_delay(duly, shot):
    at = duly("jobs", "edit", shot, "--at", "2041-02-03T04:05:06.250Z", "--json")
    assert at.returncode == 0, at
    assert moment(json.loads(at.stdout)) == datetime(2041, 2, 3, 4, 5, 6, 250_000, UTC)

    before = moment(
        submitted := shown(duly, duly("submit", "greet", "name=x", "--queue", "unserved", "-q").stdout.strip())
    )
    by_delay = duly("jobs", "edit", shot, "--delay", "PT2H")

    assert by_delay.returncode == 0, by_delay
    assert submitted["state"] in ("ready", "scheduled")
    assert timedelta(hours=2) <= moment(shown(duly, shot)) - before < timedelta(hours=2, minutes=1)


def test_due_run_that_waits_for_a_worker_can_be_edited(duly):
    job_id = duly("submit", "greet", "name=x", "--queue", "unserved", "-q").stdout.strip()
    due_at = moment(shown(duly, job_id))

    said = duly("jobs", "edit", job_id, "--payload", '{"name": "z"}')

    assert said.returncode == 0, said
    run = shown(duly, job_id)
    assert (run["payload"], moment(run)) == ({"name": "z"}, due_at)


def test_a_change_of_nothing_makes_no_version(duly, shot):
    said = duly("jobs", "edit", shot, "name=x", "--at", LATER)

    assert (said.returncode, said.stdout.splitlines()[0]) == (0, f"job {shot}: version 1"), said


def test_the_secrets_of_its_target_stay_sealed_as_they_are(local, database_url, tmp_path):
    keyring = tmp_path / "secrets-key"
    keyring.write_text(processes.inside("secrets", "new-key", cwd=tmp_path).stdout)
    hook = ("submit", "--webhook", "https://x.example/hook?token=s3cret", *SECRET, "--at", LATER, "-q")
    job_id = local(*hook, DULY_SECRETS_KEY=str(keyring)).stdout.strip()
    before = targets_of(database_url)

    # What stays sealed needs no key; and in a process of its own, nothing has been imported for it before.
    said = processes.duly("jobs", "edit", job_id, "--priority", "1", "--database-url", database_url, cwd=tmp_path)

    assert said.returncode == 0, said
    assert "sealed_url" in before
    assert targets_of(database_url) == before
    assert "s3cret" not in said.stdout + before


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ([], 2, "no change given; add one"),
        (["--name", "once"], 1, "a one-shot takes no name"),
        (["--cron", "0 3 * * *"], 1, "no schedule but a time; create a new job"),
        (["--at", LATER, "--delay", "PT1H"], 2, "not both"),
        (["--at", "2020-01-01T00:00:00Z"], 1, "past"),
        (["--priority", "11"], 1, "priority 11"),
    ],
)
def test_an_edit_that_makes_no_sense_changes_nothing(duly, shot, arguments, code, words):
    before = shown(duly, shot)

    said = duly("jobs", "edit", shot, *arguments)

    assert (said.returncode, said.stdout) == (code, ""), said
    assert words in said.stderr
    assert shown(duly, shot) == before


def test_edit_of_an_ended_or_unknown_job_is_refused(duly, shot):
    assert duly("runs", "cancel", shot).returncode == 0

    ended, unknown = (duly("jobs", "edit", job_id, "--priority", "1") for job_id in (shot, str(uuid4())))

    assert (ended.returncode, unknown.returncode) == (1, 4), (ended, unknown)
    assert f"job {shot} " in ended.stderr
    assert "it is cancelled" in ended.stderr
    assert "no job" in unknown.stderr
