"""The commands beside a running `duly up`: what they accept, show and refuse."""

import json
import re
from datetime import datetime, timedelta
from itertools import pairwise

import pytest

from tests.cli.processes import running, wait_for

UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def id_in(text):
    found = UUID.search(text)
    assert found, text
    return found[0]


def test_run_and_wait_shows_the_log_and_the_result(up):
    said = up.duly("run", "greet", "name=Ada", "--wait")

    assert said.returncode == 0, said
    assert json.loads(said.stdout) == "Hello, Ada!"
    assert "greeting" in said.stderr
    assert "name=Ada" in said.stderr
    assert "succeeded in" in said.stderr


def test_submit_with_json_output_prints_a_single_object(up):
    later = json.loads(up.duly("submit", "greet", "name=Ada", "--delay", "PT1H", "--output", "json").stdout)
    again = json.loads(up.duly("submit", "greet", "--every", "PT1H", "--name", "said", "--output", "json").stdout)
    waited = up.duly("run", "greet", "name=Ada", "--wait", "--output", "json")
    failed = up.duly("run", "fail", "reason=because", "--wait", "--output", "json")

    assert later["run_id"] == later["job_id"]
    assert not later["replayed"]
    assert later["says"][0] == "Once: greet on queue default"
    assert "run_id" not in again, "a schedule has no run of its own"
    assert again["description"].startswith("Every hour")
    fires = [datetime.fromisoformat(fire["scheduled_at"]) for fire in again["next_fires"]]
    assert [later - sooner for sooner, later in pairwise(fires)] == [timedelta(hours=1)] * 2
    assert all(fire.utcoffset() == timedelta() for fire in fires)
    ended = json.loads(waited.stdout)
    assert (ended["state"], ended["result"], ended["attempts"]) == ("succeeded", "Hello, Ada!", 1)
    assert failed.returncode == 1
    assert (json.loads(failed.stdout)["state"], json.loads(failed.stdout)["reason"]) == (
        "dead",
        "NonRetryable: because",
    )
    assert up.duly("submit", "greet", "-q", "--output", "json").returncode == 2
    up.duly("jobs", "cancel", "said")


def test_a_program_reads_a_log_line_by_line(up):
    run_id = json.loads(up.duly("run", "greet", "name=Ada", "--wait", "--output", "json").stdout)["run_id"]

    for flags in ((), ("-f",)):
        [line] = [json.loads(text) for text in up.duly("logs", run_id, "--json", *flags).stdout.splitlines()]
        assert line.keys() == {"attempt", "number", "logged_at", "level", "message", "fields"}
        assert (line["attempt"], line["message"], line["fields"]) == (1, "greeting", {"name": "Ada", "attempt": 1})


def test_a_run_that_fails_ends_with_an_error_that_names_the_next_step(up):
    said = up.duly("run", "fail", "reason=because", "--wait")
    run_id = id_in(said.stderr)

    assert said.returncode == 1
    assert "dead" in said.stderr
    assert f"duly runs show {run_id}" in said.stderr
    shown = up.duly("runs", "show", run_id).stdout
    assert "because" in shown
    assert 'payload {"reason": "because"}' in shown


def test_dead_runs_are_listed_replayed_and_discarded(up):
    run_id = id_in(up.duly("run", "fail", "reason=again", "--wait").stderr)

    listed = json.loads(up.duly("dead", "--json", "--limit", "1000").stdout)
    assert run_id in [row["run_id"] for row in listed]
    assert up.duly("dead", "replay", run_id).returncode == 0
    assert up.duly("logs", run_id, "-f").returncode == 0  # Stays until it is dead again.
    assert json.loads(up.duly("runs", "show", run_id, "--json").stdout)["attempt"] == 2
    assert "discarded" in up.duly("dead", "discard", run_id).stdout
    assert up.duly("dead", "replay", run_id).returncode == 4


def test_a_schedule_is_answered_with_a_sentence_and_its_next_three_fires(up):
    said = up.duly("submit", "add", "a=2", "b=3", "--every", "PT1H", "--name", "hourly")

    assert said.returncode == 0, said
    lines = said.stdout.splitlines()
    assert lines[1] == "Every hour: add on queue default"
    assert [line.split()[0] for line in lines[2:5]] == ["next", "then", "then"]
    assert all(" UTC   " in line and line.endswith(" here") for line in lines[2:5])
    shown = up.duly("jobs", "show", "hourly").stdout
    assert "Every hour: add on queue default" in shown
    assert shown.count(" here") == 3
    assert up.duly("submit", "add", "a=2", "b=3", "--every", "PT1H", "--name", "hourly").returncode == 1
    assert "cancelled" in up.duly("jobs", "cancel", "hourly").stdout
    assert up.duly("jobs", "show", "hourly").returncode == 4


def test_a_schedule_is_run_now_and_waited_for(up):
    up.duly("submit", "add", "a=2", "b=3", "--cron", "0 0 1 1 *", "--name", "yearly")

    said = up.duly("jobs", "trigger", "yearly", "--payload", '{"a": 20, "b": 3}', "--wait")

    assert (said.returncode, said.stdout) == (0, "23\n"), said
    assert "succeeded in" in said.stderr
    assert up.duly("jobs", "edit", "yearly", "b=two").returncode == 1, "the app checks the arguments"
    assert "cancelled" in up.duly("jobs", "cancel", "yearly").stdout


def test_the_same_key_submits_once(up):
    first = up.duly("submit", "add", "a=1", "b=1", "--key", "once", "--delay", "PT1H")
    again = up.duly("submit", "add", "a=1", "b=1", "--key", "once", "--delay", "PT1H")
    other = up.duly("submit", "add", "a=1", "b=2", "--key", "once", "--delay", "PT1H")

    assert id_in(first.stdout) == id_in(again.stdout)
    assert "nothing new" in again.stdout
    assert other.returncode == 1
    assert "Use a new key" in other.stderr
    assert "cancelled" in up.duly("runs", "cancel", id_in(first.stdout)).stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["gret"], "did you mean 'greet'?"),
        (["add", "a=1", "b=two"], "expected `int`"),
        (["add", "a=1"], "missing a required argument"),
        (["greet", "--at", "2020-01-01T00:00:00Z"], "is in the past: the database's clock says"),
        (["greet", "--at", "2020-01-01T00:00:00Z"], "AT_PAST"),
        (["greet", "--when", "2020-01-01 at noon"], "AT_PAST"),
        (["greet", "--delay", "-1"], "negative"),
        (["greet", "--queue", ""], "queue ''"),
        (["greet", "--queue", "  "], "queue '  ' is not a name: it is blank"),
        (["greet", "--every", "60", "--name", " "], "name ' ' is not a name: it is blank"),
        (["greet", "--key", " "], "key ' ' is not a key"),
        (["greet", "--tag", " "], "tag ' ' is not a name: it is blank"),
    ],
)
def test_submit_refuses_requests_that_the_app_would_refuse(up, arguments, words):
    said = up.duly("submit", *arguments)

    assert (said.returncode, said.stdout) == (1, "")
    assert words in said.stderr
    assert len(said.stderr.splitlines()) == 1


def test_submit_without_an_app_accepts_an_unknown_handler_with_a_warning(up):
    said = up.duly("submit", "nobody", "--app", "")

    assert said.returncode == 0
    assert "handler 'nobody', so it waits" in said.stdout
    assert "duly worker module:app" in said.stdout
    assert "handler nobody (1 run)" in up.duly("queues").stdout
    assert "cancelled" in up.duly("runs", "cancel", id_in(said.stdout)).stdout


def test_queue_without_workers_is_named_with_the_command_to_start_a_worker(up):
    said = up.duly("submit", "greet", "--queue", "night")

    assert said.returncode == 0
    assert "duly worker app:app --queue night" in said.stdout
    assert "duly worker module:app --queue night" in up.duly("queues").stdout
    assert up.duly("runs", "cancel", id_in(said.stdout)).returncode == 0


def test_a_worker_serves_the_queues_of_its_handlers(up):
    said = up.duly("run", "send", "to=me", "--wait")
    assert said.stdout == '"me"\n', said.stderr
    [worker] = json.loads(up.duly("workers", "--json").stdout)
    assert worker["queues"] == ["default", "mail", "@notifications"]
    assert worker["pools"][""] + worker["pools"]["@webhook"] <= worker["slots"]
    assert 0 < worker["pools"][""] < worker["slots"], "slots of functions are told apart from those of webhooks"
    assert set(worker["handlers"]) == {"@webhook", "@workflow", "@notification", "add", "greet", "fail", "send", "wait"}


def test_lists_are_tables_for_people_and_json_for_programs(up):
    up.duly("run", "greet", "--wait")

    assert {"run_id", "state", "queue", "due_at"} <= json.loads(up.duly("runs", "--json", "--limit", "1").stdout)[
        0
    ].keys()
    assert up.duly("runs", "list", "--limit", "1").stdout.splitlines()[0].split() == [
        "id", "state", "handler", "queue", "attempt", "due", "reason",
    ]  # fmt: skip
    assert [
        row["state"] for row in json.loads(up.duly("runs", "--state", "succeeded", "--json", "--limit", "2").stdout)
    ]


@pytest.mark.parametrize(
    "command", [["runs", "show"], ["runs", "cancel"], ["jobs", "show"], ["jobs", "cancel"], ["dead", "show"], ["logs"]]
)
def test_resource_that_does_not_exist_is_not_found(up, command):
    said = up.duly(*command, "00000000-0000-8000-8000-000000000000")

    assert said.returncode == 4, said
    assert len(said.stderr.splitlines()) == 1


def test_a_name_is_found_for_a_schedule_only(up):
    assert up.duly("jobs", "show", "x").returncode == 4
    assert up.duly("runs", "show", "x").returncode == 2


def test_every_promise_holds(up):
    said = up.duly("verify")

    assert (said.returncode, said.stdout) == (0, "every promise holds\n")


def test_queues_watch_runs_until_ctrl_c(up):
    with running("queues", "--watch", "--json", "--interval", "0.1", cwd=up.folder) as process:
        wait_for(lambda: len(process.lines) >= 2)
        process.interrupt()
    assert process.process.returncode == 130
    assert all("default" in {row["queue"] for row in json.loads(line)} for line in process.lines if line)


def test_leaving_a_run_does_not_end_it(up):
    with running("run", "wait", "seconds=30", "--wait", cwd=up.folder) as process:
        run_id = id_in(process.wait_for_line("job "))
        wait_for(lambda: json.loads(up.duly("runs", "show", run_id, "--json").stdout)["state"] == "running")
        shown = up.duly("runs", "show", run_id).stdout
        assert re.search(r"attempt 1.* running on worker .* since ", shown)
        assert "no attempts yet" not in shown
        process.interrupt()
    assert process.process.returncode == 130
    assert f"the run goes on without us; to end it: duly runs cancel {run_id}" in process.lines

    assert "requested: its worker has been asked" in up.duly("runs", "cancel", run_id).stdout
    assert up.duly("logs", "-f", run_id).returncode == 0
    late = up.duly("runs", "cancel", run_id)
    assert "too late" in late.stdout
    assert late.returncode == 1, "what was asked for has not happened"
