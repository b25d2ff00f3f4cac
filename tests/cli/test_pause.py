"""`duly pause` and `duly resume`: what they stop, say and refuse."""

import json
import urllib.request

import pytest

from tests.cli.processes import wait_for
from tests.cli.test_commands import id_in

TENANT = "1"


@pytest.fixture
def going_on(up):
    """Take every pause back, whatever a test left."""
    yield up
    for flags in (["--all"], ["--queue", "mail"], ["--tenant", TENANT], ["--queue", "mail", "--tenant", TENANT]):
        up.duly("resume", *flags)


def state_of(up, run_id):
    return json.loads(up.duly("runs", "show", run_id, "--json").stdout)["state"]


@pytest.mark.parametrize("flags", [["--all"], ["--queue", "mail"]], ids=" ".join)
def test_paused_queue_starts_nothing_until_it_is_resumed(going_on, flags):
    up = going_on
    said = up.duly("pause", *flags, "--reason", "the provider is down")
    assert said.returncode == 0, said
    assert "to resume: duly resume" in said.stdout
    assert f"duly resume {' '.join(flags)}" in said.stdout
    run_id = id_in(up.duly("submit", "send", "to=ada").stdout)

    shown = json.loads(up.duly("queues", "--json").stdout)
    [mail] = [row for row in shown if row["queue"] == "mail"]
    assert (mail["state"], mail["ready"]) == ("paused", 1)
    assert mail["paused"][0]["reason"] == "the provider is down"
    assert f"duly resume {' '.join(flags)}" in mail["attention"]
    assert state_of(up, run_id) == "ready"

    assert "resumed" in up.duly("resume", *flags).stdout
    assert wait_for(lambda: state_of(up, run_id) == "succeeded")


def test_a_queue_is_paused_and_resumed_by_its_name(going_on):
    up = going_on
    assert up.duly("queues", "pause", "mail").stdout.startswith("queue mail: paused; ")
    assert "already paused" in up.duly("pause", "--queue", "mail").stdout
    run_id = id_in(up.duly("run", "greet", "name=Ada", "--wait").stderr)
    assert state_of(up, run_id) == "succeeded", "the others go on"
    assert "paused on request" in up.duly("queues").stdout

    assert up.duly("queues", "resume", "mail").stdout == "queue mail: resumed\n"
    assert up.duly("queues", "resume", "mail").stdout.startswith("queue mail: was not paused")


def test_resume_names_remaining_pauses_with_their_resume_commands(going_on):
    up = going_on
    up.duly("pause", "--queue", "mail", "--tenant", TENANT, "--reason", "it floods")
    up.duly("pause", "--queue", "mail")

    lines = up.duly("resume", "--queue", "mail").stdout.splitlines()

    assert lines[0] == "queue mail: resumed"
    assert lines[1].startswith("  also paused: queue mail of tenant 1, since ")
    assert lines[1].endswith("(it floods): duly resume --queue mail --tenant 1")
    [mail] = [row for row in json.loads(up.duly("queues", "--json").stdout) if row["queue"] == "mail"]
    assert mail["state"] == "paused for some"


def test_a_program_gets_the_answer_as_json(going_on):
    said = json.loads(going_on.duly("pause", "--tenant", TENANT, "--json").stdout)

    assert (said["scope"], said["answer"]) == ({"tenant": int(TENANT), "queue": None}, "paused")
    assert [hold["reason"] for hold in said["paused"]] == ["paused on request"]
    assert json.loads(going_on.duly("resume", "--tenant", TENANT, "--json").stdout)["answer"] == "resumed"


def test_readiness_lists_pauses_and_stays_ready(going_on):
    going_on.duly("pause", "--queue", "mail")

    with urllib.request.urlopen(going_on.asking("/readyz?verbose")) as answer:
        checks = {check["name"]: check for check in json.load(answer)["checks"]}

    assert checks["pauses"]["says"] == "paused until resumed: queue mail"


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ([], "--all, --queue NAME, --tenant TENANT"),
        (["--all", "--queue", "mail"], "--all"),
        (["--all", "--tenant", "1"], "--all"),
        (["--tenant", "0"], "no tenant '0'"),
        (["--queue", ""], "queue '' is not a name"),
    ],
)
@pytest.mark.parametrize("verb", ["pause", "resume"])
def test_scope_is_refused_if_missing_ambiguous_or_invalid(up, verb, flags, words):
    said = up.duly(verb, *flags)

    assert said.returncode != 0
    assert words in said.stderr
    assert "paused" not in said.stdout


def test_a_reason_is_one_line(up):
    said = up.duly("pause", "--all", "--reason", "a\nb")

    assert said.returncode != 0
    assert "reason" in said.stderr
    assert "was not paused" in up.duly("resume", "--all").stdout


def test_worker_can_be_drained_and_resumed(going_on):
    up = going_on
    [worker] = json.loads(up.duly("workers", "--json").stdout)
    said = up.duly("workers", "drain", worker["worker_id"])
    assert said.returncode == 0, said
    assert f"worker {worker['worker_id']} claims no more runs" in said.stdout, said
    assert wait_for(lambda: json.loads(up.duly("workers", "--json").stdout)[0]["is_draining"])
    assert "draining" in up.duly("workers").stdout
    run_id = id_in(up.duly("submit", "send", "to=ada").stdout)
    assert state_of(up, run_id) == "ready"

    assert "claims runs again" in up.duly("workers", "drain", worker["worker_id"], "--undo").stdout
    assert wait_for(lambda: state_of(up, run_id) == "succeeded")


def test_a_worker_that_is_not_there_cannot_be_drained(going_on):
    said = going_on.duly("workers", "drain", "00000000-0000-4000-8000-000000000000")

    assert said.returncode != 0
    assert "no live worker 00000000-0000-4000-8000-000000000000" in said.stderr
