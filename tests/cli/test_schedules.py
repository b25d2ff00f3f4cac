"""Schedules from the command line: each kind is accepted with its sentence and its fires, or refused with a remedy."""

import io
import json
import re

import psycopg
import pytest

from tests.cli.processes import inside

UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")

REPORT = """\
from duly import App

app = App()


@app.handler
def report(day: int) -> None: ...
"""


@pytest.fixture
def duly(database_url, tmp_path):
    """Run one command on a database that holds nothing, on Monday, 2026-11-02 at 09:00 UTC."""
    return lambda *arguments: inside(*arguments, "--database-url", database_url, cwd=tmp_path)


@pytest.fixture
def nightly(duly):
    """A job each night."""
    said = duly("submit", "report", "day=1", "--cron", "30 2 * * *", "--tz", "Europe/Paris", "--name", "nightly")
    assert said.returncode == 0, said
    found = UUID.search(said.stdout)
    assert found
    return found[0]


def shown(duly, job="nightly"):
    said = duly("jobs", "show", job, "--json")
    assert said.returncode == 0, said
    return json.loads(said.stdout)


def test_cron_is_answered_with_a_sentence_and_its_fires_in_its_zone_and_in_utc(duly):
    said = duly("submit", "report", "--cron", "30 2 * * 1-5", "--tz", "Europe/Paris")

    assert said.stdout.splitlines()[1:5] == [
        "At 02:30, Monday to Friday, Europe/Paris time: report on queue default",
        "next  2026-11-03 01:30:00 UTC   2026-11-03 02:30:00 Europe/Paris (+01:00)",
        "then  2026-11-04 01:30:00 UTC   2026-11-04 02:30:00 Europe/Paris (+01:00)",
        "then  2026-11-05 01:30:00 UTC   2026-11-05 02:30:00 Europe/Paris (+01:00)",
    ]


def test_submit_warns_of_a_local_time_that_a_clock_change_skips(duly):
    said = duly("submit", "report", "--cron", "30 2 * * *", "--tz", "Europe/Paris")

    assert "note  02:30 on 2027-03-28 does not exist, and it fires at 03:00 instead" in said.stdout


@pytest.mark.parametrize("flag", ["--when", "--text"])
def test_english_schedule_shows_the_cron_expression_it_is_saved_as(duly, flag):
    lines = duly("submit", "report", flag, "every weekday at 9:30am").stdout.splitlines()

    assert lines[1:3] == ["At 09:30, Monday to Friday: report on queue default", "saved as cron 30 9 * * 1-5"]
    assert lines[3].startswith("next  2026-11-02 09:30:00 UTC")


def test_english_may_be_a_moment(duly):
    lines = duly("submit", "report", "--when", "tomorrow at noon", "--tz", "Europe/Paris").stdout.splitlines()

    assert lines[1] == "Once, on 2026-11-03 at 12:00, Europe/Paris time: report on queue default"
    assert [line[:6] for line in lines].count("next  ") == 1
    assert not any(line.startswith("then") for line in lines)


def test_a_period_may_count_from_the_end_of_each_run(duly):
    said = duly("submit", "report", "--every", "PT1H", "--mode", "fixed_delay", "--name", "poll")

    assert "1 hour after the end of each run, the first at 2026-11-02 09:00:00 UTC: report" in said.stdout
    assert said.stdout.count("next  ") == 1


def test_a_schedule_is_given_whole_as_json_or_as_a_file(duly, tmp_path):
    shape = {"trigger": {"type": "iso8601", "text": "R3/2026-11-05T09:00:00Z/P1D"}, "overlap": {"policy": "queue"}}
    (tmp_path / "weekly.json").write_text(json.dumps(shape))

    typed = duly("submit", "report", "--schedule", json.dumps(shape))
    read = duly("submit", "report", "--schedule", f"@{tmp_path}/weekly.json", "--max-runs", "2", "--name", "weekly")

    assert typed.stdout.splitlines()[1:3] == read.stdout.splitlines()[1:3]
    assert (typed.stdout.count("then  "), read.stdout.count("then  ")) == (2, 1)
    kept = shown(duly, "weekly")["schedule"]
    assert (kept["trigger"], kept["overlap"], kept["max_runs"]) == (shape["trigger"], shape["overlap"], 2)


def test_every_schedule_option_is_stored_and_shown(duly, tmp_path):
    said = duly(
        "submit", "report", "--cron", "0 12 * * *", "--tz", "Europe/Paris", "--name", "noon", "--key", "noon",
        "--start", "2026-11-05T00:00:00", "--end", "2027-01-01T00:00:00Z", "--max-runs", "30", "--jitter", "PT1H",
        "--misfire", '{"policy": "fire_all", "rate": 2}', "--overlap", "queue", "--pause-on-failure", "3",
    )  # fmt: skip

    assert said.returncode == 0, said
    assert re.search(r"next  2026-11-05 11:00:00 UTC .* \(starts \d+ (s|min) later, by its jitter\)", said.stdout)
    lines = duly("jobs", "show", "noon").stdout.splitlines()
    assert lines[2] == (
        "overlap queue up to 100, misfire fire_all, from 2026-11-04 23:00:00Z, until 2027-01-01 00:00:00Z,"
        " 30 runs in all, 30 left, jitter up to 3600 s per job, pauses after 3 failures"
    )


def test_a_wrong_field_gets_a_caret(duly):
    said = duly("submit", "report", "--cron", "0 25 * * MONDAY")

    assert (said.returncode, said.stdout) == (1, "")
    assert said.stderr.splitlines() == [
        "duly: hour 25 is outside 0–23",
        "  0 25 * * MONDAY",
        "    ^^",
        "duly: MONDAY in day of week: use MON",
        "  0 25 * * MONDAY",
        "           ^^^^^^",
        "  try: MON",
    ]


def test_a_wrong_word_gets_a_caret(duly):
    said = duly("submit", "report", "--when", "every banana")

    assert said.stderr.splitlines()[1:3] == ["  every banana", "        ^^^^^^"]


CRON = ("--cron", "0 2 * * *")


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ([*CRON, "--tz", "EST"], 1, "America/New_York"),
        ([*CRON, "--start", "yesterday"], 1, "start 'yesterday'"),
        ([*CRON, "--end", "2026-11-01T00:00:00Z"], 1, "no occurrence between them"),
        ([*CRON, "--max-runs", "many"], 1, "max_runs 'many' is not a whole number from 1"),
        ([*CRON, "--max-runs", "0"], 1, "max_runs 0 is not a whole number from 1"),
        ([*CRON, "--jitter", "a bit"], 1, "jitter.max 'a bit'"),
        ([*CRON, "--jitter", "{"], 2, "--jitter is not JSON"),
        ([*CRON, "--misfire", "later"], 1, "misfire.policy 'later' is unknown; use fire_once, fire_all, skip"),
        ([*CRON, "--overlap", "never"], 1, "overlap.policy 'never' is unknown"),
        ([*CRON, "--calendar", "holidays"], 1, "calendars[0].name 'holidays' is not a calendar"),
        ([*CRON, "--calendar", "holidays:only"], 1, "mode 'only' is unknown; use exclude, include"),
        ([*CRON, "--calendar", ":include"], 2, "is not NAME, NAME:exclude"),
        ([*CRON, "--pause-on-failure", "-1"], 1, "pause_on_failure -1"),
        ([*CRON, "--name", ""], 1, "name ''"),
        ([*CRON, "--mode", "fixed_delay"], 2, "--mode is for --every"),
        ([*CRON, "--every", "60"], 2, "--every and --cron are both triggers; give one of them"),
        ([*CRON, "--when", "hourly"], 2, "--cron and --when are both triggers"),
        ([*CRON, "--at", "2026-11-05T00:00:00Z"], 2, "with --cron, give --start"),
        ([*CRON, "--delay", "5"], 2, "a schedule takes no --delay"),
        (["--every", "60", "--tz", "Nope/Zone"], 1, "'Nope/Zone' is not a time zone here"),
        (["--every", "99999999999999"], 1, "every 99999999999999 is too long; the longest is 300 years, 9486720000 s"),
        (
            ["--cron", "0 9 * * *", "--tz", "Nope/Zone"],
            1,
            "'Nope/Zone' is not a time zone here; use a tz database name",
        ),
        (["--every", "60", "--mode", "slow"], 1, "mode 'slow' is unknown; use fixed_rate or fixed_delay"),
        (["--schedule", "0 2 * * *"], 2, "--schedule is not JSON"),
        (["--schedule", "7"], 2, "--schedule 7 is not the shape of a schedule"),
        (["--schedule", "@nowhere.json"], 2, "No such file"),
        (["--schedule", '{"trigger": {"type": "crom"}}'], 1, "did you mean cron?"),
        (["--tz", "UTC"], 2, "--tz belongs to a schedule; give --every, --cron, --when or --schedule as well"),
        (["--overlap", "queue"], 2, "--overlap belongs to a schedule"),
        (["--calendar", "x"], 2, "--calendar belongs to a schedule"),
        (["--name", "x"], 2, "--name is for a schedule; add --every, --cron, --when or --schedule"),
        (["--when", "2020-01-01 at noon"], 1, "in the past"),
    ],
)
def test_invalid_schedule_is_refused_and_nothing_is_stored(duly, arguments, code, words):
    said = duly("submit", "report", *arguments)

    assert (said.returncode, said.stdout) == (code, ""), said
    assert words in said.stderr
    assert json.loads(duly("jobs", "--json").stdout) == []


def test_a_job_is_paused_and_resumed_by_name_or_id(duly, nightly):
    assert "paused" in duly("jobs", "pause", "nightly", "--reason", "the printer is out of ink").stdout
    assert "already" in duly("jobs", "pause", nightly).stdout
    assert "is paused\n" in duly("jobs", "show", nightly).stdout
    assert "paused at 2026-11-02 09:00:00Z: the printer is out of ink" in duly("jobs", "show", nightly).stdout
    assert "the printer is out of ink" in duly("jobs", "list", "--state", "paused").stdout
    assert shown(duly)["next_run_at"] is None

    resumed = duly("jobs", "resume", "nightly", "--catch-up")
    assert resumed.stdout.splitlines()[0] == f"job {nightly}: active"
    assert resumed.stdout.splitlines()[1].startswith("next  2026-11-03 01:30:00 UTC")
    assert json.loads(duly("jobs", "resume", nightly, "--json").stdout) == {
        "job_id": nightly,
        "answer": "already",
        "state": "active",
        "next_run_at": "2026-11-03T01:30:00Z",
    }


def test_the_next_occurrence_is_left_out(duly, nightly):
    said = duly("jobs", "skip-next", "nightly")

    assert said.stdout.splitlines()[0] == f"job {nightly}: leaves out 2026-11-03 01:30:00Z"
    assert said.stdout.splitlines()[1].startswith("next  2026-11-04 01:30:00 UTC")


def test_a_job_is_run_now(duly, nightly):
    first = duly("jobs", "trigger", "nightly", "--payload", '{"day": 7}', "--key", "k")
    again = duly("jobs", "trigger", "nightly", "--payload", '{"day": 7}', "--key", "k", "--json")
    another = duly("jobs", "trigger", "nightly", "--key", "k")
    over = duly("jobs", "trigger", "nightly")
    beside = duly("jobs", "trigger", nightly, "--allow-overlap")

    assert re.fullmatch(rf"run {UUID.pattern}: ready\n", first.stdout)
    assert json.loads(again.stdout)["state"] == "replayed"
    assert another.returncode == 1
    assert "The key 'k' was used for another request" in another.stderr
    assert (over.returncode, beside.returncode) == (1, 0)
    assert "--allow-overlap runs it all the same" in over.stdout
    [run] = [
        run for run in json.loads(duly("runs", "--state", "ready", "--json").stdout) if run["run_id"] in first.stdout
    ]
    assert 'payload {"day": 7}' in duly("runs", "show", run["run_id"]).stdout


def test_an_edit_that_changes_nothing_makes_no_version(duly, nightly):
    said = duly("jobs", "edit", "nightly", "--cron", "30 2 * * *", "--tz", "Europe/Paris")

    assert (said.returncode, said.stdout.splitlines()[0]) == (0, f"job {nightly}: version 1")
    assert shown(duly)["version"] == 1


def test_the_zone_of_a_period_is_kept(duly):
    said = duly("submit", "report", "--every", "PT15M", "--tz", "Europe/Paris", "--name", "often")

    assert said.returncode == 0, said
    assert json.loads(duly("jobs", "show", "often", "--json").stdout)["schedule"]["trigger"]["tz"] == "Europe/Paris"


def test_edit_changes_only_the_given_options(duly, nightly):
    said = duly("jobs", "edit", "nightly", "--cron", "0 3 * * *", "--jitter", "PT5M", "--end", "2027-01-01T00:00:00Z")
    more = duly("jobs", "edit", nightly, "day=2", "hour=3", "--priority", "1", "--max-attempts", "2", "--end", "none")

    assert said.stdout.splitlines()[:2] == [
        f"job {nightly}: version 2",
        "At 03:00, Europe/Paris time: report on queue default",
    ]
    assert more.returncode == 0, more
    job = shown(duly)
    assert job["payload"] == {"day": 2, "hour": 3}
    assert (job["priority"], job["name"], job["version"]) == (1, "nightly", 3)
    assert job["retry"]["max_attempts"] == 2
    assert job["schedule"]["trigger"] == {"type": "cron", "expr": "0 3 * * *", "tz": "Europe/Paris"}
    assert job["schedule"]["jitter"] == {"max": "PT5M"}
    assert "end" not in job["schedule"]
    duly("jobs", "edit", nightly, "--payload", "{}", "--name", "none", "--tz", "UTC")
    assert shown(duly, nightly)["description"] == "At 03:00"


@pytest.mark.parametrize("moved", [("--at", "2026-11-02T11:00:00Z"), ("--delay", "PT2H")])
def test_a_named_job_that_runs_once_is_moved(duly, moved):
    once = '{"trigger": {"type": "at", "at": "2026-11-05T00:00:00Z"}}'
    assert duly("submit", "report", "--schedule", once, "--name", "once").returncode == 0

    said = duly("jobs", "edit", "once", *moved)

    assert said.returncode == 0, said
    assert shown(duly, "once")["next_run_at"].startswith("2026-11-02T11:00:0")


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ([], 2, "no change given; add one"),
        (["--cron", "x"], 1, "5 or 6 expected"),
        (["--every", "60", "--cron", "0 2 * * *"], 2, "--every and --cron are both triggers"),
        (["--mode", "fixed_delay"], 2, "this schedule is of type cron"),
        (["--at", "2026-11-05T00:00:00Z"], 2, "--at goes with --every"),
        (["--calendar", "nowhere"], 1, "'nowhere' is not a calendar; create it: duly calendars put"),
        (["--priority", "11"], 1, "priority 11"),
        (["--queue", ""], 1, "queue ''"),
        (["--payload", "7"], 1, "--payload must be an object"),
        (["--payload", "{}", "day=1"], 2, "not both"),
        (["--timeout", "0"], 1, "timeout 0"),
        (["day"], 2, "is not key=value"),
    ],
)
def test_an_edit_that_makes_no_sense_changes_nothing(duly, nightly, arguments, code, words):
    said = duly("jobs", "edit", "nightly", *arguments)

    assert (said.returncode, said.stdout) == (code, ""), said
    assert words in said.stderr
    assert shown(duly)["version"] == 1


WEEK = ("--from", "2026-10-26T00:00:00Z", "--to", "2026-11-02T00:00:00Z")


def test_backfill_is_counted_created_and_cancelled(duly, nightly):
    counted = duly("jobs", "backfill", "nightly", *WEEK, "--dry-run")
    assert counted.stdout.splitlines()[:2] == [
        "7 occurrences, from 2026-10-26 01:30:00Z; nothing was created",
        "      2026-10-26 01:30:00Z",
    ]
    assert "no backfills" in duly("jobs", "backfills").stdout

    made = duly("jobs", "backfill", "nightly", *WEEK, "--rate", "2")
    assert "7 occurrences, from 2026-10-26 01:30:00Z, 2 a second" in made.stdout
    [row] = json.loads(duly("jobs", "backfills", nightly, "--json").stdout)
    assert (row["job_id"], row["total"], row["state"], row["rate"]) == (nightly, 7, "active", 2.0)
    assert "0 of 7" in duly("jobs", "backfills").stdout

    stopped = duly("jobs", "cancel-backfill", row["backfill_id"])
    assert "cancelled, and 0 runs taken back" in stopped.stdout
    assert duly("jobs", "cancel-backfill", row["backfill_id"]).returncode == 4


def test_large_backfill_requires_confirmation(duly, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("no\n"))
    duly("submit", "report", "--cron", "* * * * *", "--name", "minutely")

    asked = duly("jobs", "backfill", "minutely", *WEEK)
    made = duly("jobs", "backfill", "minutely", *WEEK, "--yes", "--json")

    assert asked.returncode == 1
    assert "10,080 occurrences" in asked.stderr
    assert json.loads(made.stdout)["count"] == 10_080


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--from", "2026-10-26T00:00:00Z"], 2, "--to"),
        (["--from", "x", "--to", "y"], 1, "from 'x' is not a moment"),
        (["--from", "2026-10-26T00:00:00", "--to", "2026-10-27T00:00:00Z"], 1, "has no time zone"),
        (["--from", "2026-10-27T00:00:00Z", "--to", "2026-10-26T00:00:00Z"], 1, "is not after from"),
        ([*WEEK, "--rate", "0"], 1, "/rate: 0.0 is invalid: expected `float` > 0.0; give a number above 0"),
        ([*WEEK, "--rate", "x"], 2, "not a valid float"),
    ],
)
def test_a_stretch_that_makes_no_sense_is_refused(duly, nightly, arguments, code, words):
    said = duly("jobs", "backfill", "nightly", *arguments)

    assert (said.returncode, said.stdout) == (code, ""), said
    assert words in said.stderr


@pytest.mark.parametrize("command", [["submit", "report"], ["run", "report"], ["jobs", "trigger", "nightly"]])
@pytest.mark.parametrize("key", ["", "k" * 8000, "a\nb"])
def test_a_key_that_is_none_is_refused(duly, nightly, command, key):
    said = duly(*command, "--key", key)

    assert (said.returncode, said.stdout) == (1, "")
    assert "is not a key: 1 to 200 printable characters; leave it out for none" in said.stderr
    assert len(said.stderr) < 200


def test_the_arguments_of_a_trigger_are_checked_against_the_handler(duly, nightly, tmp_path):
    (tmp_path / "jobs_app.py").write_text(REPORT)

    wrong = duly("jobs", "trigger", "nightly", "--payload", '{"day": "x"}', "--app", "jobs_app:app")
    right = duly("jobs", "trigger", "nightly", "--payload", '{"day": 7}', "--app", "jobs_app:app")
    unknown = duly("jobs", "trigger", "nightly", "--payload", '{"day": "x"}', "--allow-overlap")

    assert (wrong.returncode, wrong.stdout) == (1, "")
    assert "report: argument day is 'x'" in wrong.stderr
    assert (right.returncode, unknown.returncode) == (0, 0), (right, unknown)


def test_a_reason_that_is_too_long_is_refused(duly, nightly):
    said = duly("jobs", "pause", "nightly", "--reason", "x" * 501)

    assert said.returncode == 1
    assert "is not one: 1 to 500 printable characters on one line" in said.stderr
    assert shown(duly)["state"] == "active"


@pytest.mark.parametrize("verb", ["pause", "resume", "skip-next", "trigger", "cancel"])
@pytest.mark.parametrize("job", ["nobody", "00000000-0000-8000-8000-000000000000"])
def test_resource_that_does_not_exist_is_not_found(duly, verb, job):
    said = duly("jobs", verb, job)

    assert (said.returncode, said.stdout) == (4, ""), said
    assert len(said.stderr.splitlines()) == 1


def test_a_job_that_is_over_takes_no_more(duly, nightly):
    assert "cancelled" in duly("jobs", "cancel", "nightly").stdout
    for verb in ("pause", "resume", "skip-next", "trigger"):
        assert duly("jobs", verb, nightly).returncode == 1
    assert "too late" in duly("jobs", "cancel", nightly).stdout


def test_next_fires_that_new_time_zone_data_has_moved_are_listed(duly, nightly, database_url):
    assert "no next fire was moved" in duly("jobs", "moved").stdout
    with psycopg.connect(database_url) as connection:
        connection.execute(
            "insert into duly.zone_moves (job_id, tenant, tzdb, was_at, next_at, moved_at)"
            " select job_id, tenant, '2026b', '2026-11-03T02:00Z', '2026-11-03T01:00Z', '2026-11-02T09:00Z' from duly.jobs"
        )

    [header, row] = duly("jobs", "moved", nightly).stdout.splitlines()

    assert header.lower().split() == ["job", "name", "was", "next", "tzdb", "moved"]
    assert "2026-11-03 02:00:00" in row
    assert "2026-11-03 01:00:00" in row
    assert "2026b" in row
