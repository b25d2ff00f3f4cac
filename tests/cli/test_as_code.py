"""Schedules as code from the command line: plan, apply, export and schema."""

import json
import os
import pty
import signal
import subprocess

import psycopg
import pytest

from tests.cli.processes import DULY, duly, environment, inside, running, wait_for

FILE = """\
source: billing
defaults: {queue: mail, tz: Europe/Paris}
calendars:
  holidays: {dates: [2026-12-25]}
jobs:
  nightly:
    target: {type: function, handler: report}
    schedule: {cron: "30 2 * * 1-5", calendars: [holidays]}
    payload: {customer: 7}
  hourly:
    target: sweep
    schedule: {every: PT1H}
"""


@pytest.fixture
def run(database_url, tmp_path):
    """Run one command on a database that holds nothing, on Monday, 2026-11-02 at 09:00 UTC."""
    return lambda *arguments: inside(*arguments, "--database-url", database_url, cwd=tmp_path)


@pytest.fixture
def write(tmp_path):
    """Write duly.yaml."""
    return lambda text: (tmp_path / "duly.yaml").write_text(text)


def jobs_in(database_url):
    with psycopg.connect(database_url) as connection:
        return [
            row[0]
            for row in connection.execute("select name from duly.jobs where state in ('active', 'paused') order by 1")
        ]


def test_a_plan_is_shown_applied_and_then_empty(run, write, database_url):
    write(FILE)

    plan = run("plan")
    assert plan.returncode == 0, plan.stderr
    assert plan.stdout.splitlines()[:6] == [
        "+ calendar holidays",
        "+ hourly   Every hour: sweep on queue mail",
        "+ nightly   At 02:30, Monday to Friday, Europe/Paris time: report on queue mail",
        "billing: 1 calendar to save, 2 to create, 0 as they are",
        "note  no live worker runs sweep on queue mail",
        "note  no live worker runs report on queue mail",
    ]
    assert jobs_in(database_url) == [], "a plan changes nothing"
    assert run("plan", "--check").returncode == 1

    done = run("apply", "--yes")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "billing: 1 calendar kept, 2 created")
    assert jobs_in(database_url) == ["hourly", "nightly"]
    assert run("plan", "--check").returncode == 0
    assert run("plan").stdout.splitlines()[0] == "billing: 2 as they are"
    assert run("apply").stdout.splitlines()[-1] == "billing: nothing was to be changed", "and nobody is asked"


def test_plan_distinguishes_changes_drift_and_orphans(run, write):
    write(FILE)
    run("apply", "--yes")
    run("jobs", "edit", "nightly", "--queue", "slow")
    write(FILE.replace("  hourly:\n    target: sweep\n    schedule: {every: PT1H}\n", ""))

    said = run("plan").stdout.splitlines()

    assert said[:4] == [
        "- hourly   the file no longer has it: it is kept; --prune cancels it",
        "~ nightly   changed since it was applied: version 2, applied 1   (drift)",
        '    queue: "slow" → "mail"',
        "billing: 1 to change, 1 orphaned, 0 as they are",
    ]
    assert run("apply", "--yes").stdout.splitlines()[-1] == "billing: 1 changed"
    assert "it is cancelled" in run("plan", "--prune").stdout
    assert run("apply", "--yes", "--prune").stdout.splitlines()[-1] == "billing: 1 cancelled"
    assert [job["name"] for job in json.loads(run("jobs", "--state", "active", "--json").stdout)] == ["nightly"]


def test_job_created_by_hand_is_refused_until_it_is_adopted(run, write):
    run("submit", "sweep", "--every", "PT1H", "--name", "hourly", "--queue", "mail")
    write(FILE)

    for verb in (("plan",), ("apply", "--yes")):
        refused = run(*verb)
        assert refused.returncode == 1
        assert "duly: job 'hourly' was created by hand; adopt it with --adopt" in refused.stderr
    assert "< hourly   was created by hand; it is adopted" in run("plan", "--adopt").stdout
    assert run("apply", "--yes", "--adopt").returncode == 0
    assert run("plan", "--check").returncode == 0


def test_apply_reports_all_errors_with_their_position(run, write, database_url):
    write(
        "source: billing\njobs:\n  a: {target: x, schedule: {cron: 61 * * * *}}\n  b: {targt: x, schedule: {every: 5m}}\n"
    )

    refused = run("apply", "--yes")

    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.splitlines() == [
        "duly: duly.yaml:3:29: jobs.a.schedule.cron: minute 61 is outside 0–59",
        "duly.yaml:4:3: jobs.b: target is missing; give it",
        "duly.yaml:4:7: jobs.b.targt: 'targt' is not a key here; did you mean target?",
        "duly.yaml:4:28: jobs.b.schedule.every: every '5m' is not a duration; write PT5M",
    ]
    assert jobs_in(database_url) == []


def test_exported_file_produces_an_empty_plan(run, write, tmp_path):
    write(FILE)
    run("apply", "--yes")

    exported = run("export")
    assert exported.returncode == 0, exported.stderr
    (tmp_path / "again.yaml").write_text(exported.stdout)
    (tmp_path / "again.json").write_text(run("export", "--json").stdout)

    for file in ("again.yaml", "again.json"):
        assert run("plan", "-f", file, "--check").stdout.startswith("billing: 2 as they are"), file
    assert "cron: 30 2 * * 1-5" in exported.stdout


def test_export_requires_a_source_when_several_exist(run, write):
    assert (run("export").returncode, run("export", "--source", "x").returncode) == (4, 4)
    run("submit", "sweep", "--every", "PT1H", "--name", "hourly")
    run("submit", "sweep", "--every", "PT1H")
    by_hand = run("export", "--by-hand")
    assert by_hand.stdout.startswith("source: duly\njobs:\n  hourly:\n    target: sweep\n")
    assert "1 schedule without a name is left out" in by_hand.stderr

    for source in ("one", "two"):
        write(f"source: {source}\njobs: {{{source}: {{target: x, schedule: daily}}}}")
        assert run("apply", "--yes").returncode == 0
    several = run("export")
    assert (several.returncode, "name one with source: one, two" in several.stderr) == (1, True)
    assert "two:" in run("export", "--source", "two").stdout


def test_a_plan_that_was_looked_at_is_applied_or_none(run, write):
    write(FILE)
    plan = json.loads(run("plan", "--json").stdout)
    assert [step["kind"] for step in plan["steps"]] == ["create", "create"]

    write(FILE.replace("PT1H", "PT2H"))
    refused = run("apply", "--expect", plan["digest"])
    assert (refused.returncode, "make a new plan" in refused.stderr) == (1, True)

    write(FILE)
    done = json.loads(run("apply", "--json", "--expect", plan["digest"]).stdout)
    assert [(one["name"], one["kind"]) for one in done["done"]] == [("hourly", "create"), ("nightly", "create")]


def test_plan_and_apply_report_wrong_usage(run, write, tmp_path):
    missing = run("plan")
    assert (missing.returncode, "duly.yaml cannot be read" in missing.stderr) == (2, True)
    (tmp_path / "duly.yaml").write_bytes(b"\xff\xfe\x00")
    assert "is not UTF-8" in run("plan").stderr
    write(FILE)
    assert "add --yes" in run("apply", "--json").stderr


def answer(database_url, folder, said):
    """Apply in a terminal where somebody answers."""
    ours, theirs = pty.openpty()
    try:
        os.write(ours, f"{said}\n".encode())
        return subprocess.run(
            [*DULY, "apply", "--database-url", database_url],
            cwd=folder, env=environment(), stdin=theirs, capture_output=True, text=True, timeout=30,
        )  # fmt: skip
    finally:
        os.close(ours)
        os.close(theirs)


def test_apply_requires_confirmation(write, tmp_path, database_url):
    write(FILE)

    nobody = duly("apply", "--database-url", database_url, cwd=tmp_path)
    assert (nobody.returncode, "no terminal to confirm on; add --yes" in nobody.stderr) == (2, True)
    no = answer(database_url, tmp_path, "n")
    assert (no.returncode, "nothing was changed" in no.stderr, jobs_in(database_url)) == (1, True, [])
    yes = answer(database_url, tmp_path, "y")
    assert (yes.returncode, jobs_in(database_url)) == (0, ["hourly", "nightly"]), yes.stderr


def test_an_apply_that_is_killed_has_done_nothing(write, tmp_path, database_url):
    every = "".join(f"  job-{n}: {{target: sweep, schedule: {{cron: '*/5 * * * *'}}}}\n" for n in range(3000))
    write(f"source: big\njobs:\n{every}")

    with running("apply", "--yes", "--database-url", database_url, cwd=tmp_path) as process:
        with psycopg.connect(database_url, autocommit=True) as connection:
            wait_for(
                lambda: connection.execute(
                    "select 1 from pg_stat_activity where backend_xid is not null and datname = current_database()"
                ).fetchone(),
                30,
            )
        process.process.send_signal(signal.SIGKILL)
        process.process.wait(30)

    with psycopg.connect(database_url, autocommit=True) as connection:
        gone = "select 1 from pg_stat_activity where backend_xid is not null and datname = current_database()"
        wait_for(lambda: connection.execute(gone).fetchone() is None, 30)
        counts = [
            connection.execute(f"select count(*) from duly.{table}").fetchone()
            for table in ("jobs", "timers", "idempotency_keys")
        ]
    assert counts == [(0,), (0,), (0,)]


def test_the_schema_is_printed_without_a_database(tmp_path):
    said = duly("schema", cwd=tmp_path)
    assert json.loads(said.stdout)["title"] == "Duly schedules"


FLOW = """\
source: shop
jobs:
  nightly:
    schedule: {cron: "0 2 * * *"}
    target:
      type: workflow
      nodes:
        extract: {target: report}
        load: {target: sweep, depends_on: [extract], queue: mail}
"""


def test_schedule_with_workflow_target_is_planned_applied_changed_and_exported(run, write):
    write(FLOW)
    assert "+ nightly   At 02:00: workflow nightly on queue default" in run("plan").stdout
    assert run("apply", "--yes").returncode == 0
    assert "1 as they are" in run("plan").stdout

    write(FLOW.replace("queue: mail", "queue: big"))
    changed = run("plan").stdout
    assert "target.nodes.load" in changed
    assert "target.nodes.extract" not in changed
    assert run("apply", "--yes").returncode == 0

    written = run("export").stdout
    write(written)
    assert "queue: big" in written
    assert "1 as they are" in run("plan").stdout
    assert "workflow nightly" in run("jobs", "show", "nightly").stdout


def test_a_job_that_waits_for_events_is_planned_applied_and_exported(run, write):
    write("source: shop\njobs:\n  paid: {target: report, on_event: {type: order.paid}, queue: mail}\n")
    assert "+ paid   On each event order.paid: report on queue mail" in run("plan").stdout
    assert run("apply", "--yes").returncode == 0
    assert "1 as they are" in run("plan").stdout

    write(run("export").stdout.replace("order.paid", "order.sent"))
    assert '    on_event: {"type":"order.paid"} → {"type":"order.sent"}' in run("plan").stdout.splitlines()
    assert run("apply", "--yes").stdout.splitlines()[-1] == "shop: 1 changed"


def test_rules_of_notifications_are_shown_applied_and_deleted_with_the_file(database_url, tmp_path, write):
    (tmp_path / "keys").write_text(inside("secrets", "new-key", cwd=tmp_path).stdout)

    def run(*arguments):
        more = {"DULY_SECRETS_KEY": str(tmp_path / "keys")}
        return inside(*arguments, "--database-url", database_url, cwd=tmp_path, **more)

    run("notify", "put-channel", "ops", "--webhook", "https://hooks.example/in")
    write("source: billing\nnotification_rules:\n  all: {events: [dead], channels: [ops]}\n")

    plan, done = run("plan"), run("apply", "--yes")
    assert plan.stdout.splitlines()[:2] == ["+ rule all", "billing: 1 rule to create, 0 as they are"]
    assert done.stdout.splitlines()[-1] == "billing: 1 rule stored"
    run("notify", "put-rule", "all", "--on", "dead", "--channel", "ops", "--mode", "digest")
    assert "billing, changed since" in run("notify", "rules").stdout
    assert run("plan").stdout.splitlines()[:3] == [
        "~ rule all   changed since it was applied   (drift)",
        '    mode: "digest" → "every"',
        "billing: 1 rule to change, 0 as they are",
    ]
    assert run("plan", "--check").returncode == 1
    write("source: billing\n")
    kept = run("plan").stdout.splitlines()
    assert kept[0].endswith("it is kept; --prune deletes it   (drift)")
    assert kept[1] == "billing: 1 rule orphaned, 0 as they are"
    assert run("apply", "--yes", "--prune").stdout.splitlines()[-1] == "billing: 1 rule deleted"
