"""`duly doctor` and `duly files`: the same words on a database and over HTTP."""

import json

import pytest

from duly.cli.up.programs import limits_in_words
from duly.domain.diagnosis.doctor import Finding, is_well
from duly.store.connection.local import this_account
from duly.worker.targets import cgroup
from tests.cli.processes import inside

FILE = """
source: shop
jobs:
  report: {target: "app:report", schedule: every day at 3am}
  clean: {target: "app:clean", schedule: every day at 4am}
"""


@pytest.fixture
def local(database_url, tmp_path):
    """Run one command on a database."""
    return lambda *arguments: inside(*arguments, "--database-url", database_url, cwd=tmp_path)


def test_doctor_reports_findings_and_exits_with_code_1(local):
    told = local("doctor")
    found = {one["code"]: one for one in json.loads(local("doctor", "--json").stdout)}

    assert told.returncode == 1
    assert found["fsync_off"]["severity"] == "error"
    assert f"error    fsync_off: {found['fsync_off']['message']}" in told.stdout
    assert found["fsync_off"]["remedy"] in told.stdout


def test_doctor_reports_which_command_limits_the_host_enforces(database_url, tmp_path):
    ground = cgroup.look()

    told = inside("doctor", "--json", "--database-url", database_url, cwd=tmp_path, DULY_COMMANDS="/bin/sh")

    found = [one["message"] for one in json.loads(told.stdout) if one["code"] == "commands_not_grouped"]
    assert found == (
        [] if ground.missing is None else [f"limits of commands: {limits_in_words(ground)}; {ground.missing}"]
    )


def test_doctor_reports_the_findings_of_the_server_over_http(remote):
    told = remote("doctor", "--json")
    found = [Finding(**one) for one in json.loads(told.stdout)]

    assert told.returncode == (0 if is_well(found) else 1), told.stdout
    assert "fsync_off" not in {one.code for one in found}, "what `duly up` starts is safe"


@pytest.mark.parametrize("where", ["local", "remote"])
def test_files_show_jobs_that_were_changed_by_hand(where, request, tmp_path):
    duly = request.getfixturevalue(where)
    (tmp_path / f"{where}.yaml").write_text(FILE.replace("shop", where).replace("report:", f"{where}-report:"))
    applied = duly("apply", "-f", str(tmp_path / f"{where}.yaml"), "--yes", "--adopt")
    assert applied.returncode == 0, applied.stderr
    assert duly("files", "show", where, "--drifted", "--check").stdout == "every job is as it was applied\n"

    assert duly("jobs", "edit", f"{where}-report", "--priority", "1").returncode == 0
    shown = duly("files", "show", where, "--drifted", "--check")
    assert shown.returncode == 1
    assert "priority: 5 → 1" in shown.stdout
    [row] = [row for row in json.loads(duly("files", "--json").stdout) if row["source"] == where]
    assert (row["jobs"], row["drifted"]) == (2, 1)
    assert row["applied_by"] == (this_account().id if where == "local" else row["applied_by"])
    missing = duly("files", "show", "nothing")
    assert missing.returncode == 4
    assert "no file 'nothing' was applied" in missing.stderr
