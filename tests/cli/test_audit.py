"""The audit from the command line: what is done by hand is noted, and shown on a database and over HTTP alike."""

import json
import os
import pwd

import pytest

ACCOUNT = f"local:{pwd.getpwuid(os.geteuid()).pw_name}"


def test_audit_records_local_commands_under_the_local_account(local):
    job = local("submit", "greet", "--name", "hourly", "--every", "PT1H", "-q").stdout.strip()
    local("jobs", "pause", "hourly", "--reason", "holidays")
    local("jobs", "resume", "hourly")
    local("jobs", "trigger", "hourly")
    local("jobs", "cancel", "hourly")
    local("pause", "--queue", "mail")
    local("keys", "create", "--scope", "jobs:read", "--name", "ci")
    local("tenants", "create", "acme")
    local("concurrency", "limit", "k", "--slots", "5")

    rows = json.loads(local("audit", "--json").stdout)

    assert {row["actor"]["name"] for row in rows} == {ACCOUNT}
    assert {row["actor"]["kind"] for row in rows} == {"local"}
    assert sorted(row["action"] for row in rows) == [
        "concurrency_key.limited",
        "job.cancelled",
        "job.created",
        "job.paused",
        "job.resumed",
        "job.triggered",
        "key.created",
        "pause.created",
        "tenant.created",
    ]
    assert [row["action"] for row in json.loads(local("audit", "--action", "job.paused", "--json").stdout)] == [
        "job.paused"
    ]
    assert len(json.loads(local("audit", "--subject", job, "--json").stdout)) == 5
    shown = local("audit", "--action", "job.paused").stdout
    assert "job hourly" in shown
    assert "reason holidays" in shown


@pytest.mark.parametrize("where", ["local", "remote"])
def test_audit_command_prints_the_same_on_a_database_and_over_http(where, request):
    duly = request.getfixturevalue(where)
    name = f"calendar-{where}"
    made = duly("concurrency", "limit", name, "--slots", "5")
    assert made.returncode == 0, made.stderr

    [row] = json.loads(duly("audit", "--subject", name, "--json").stdout)

    assert row.keys() == {"audit_id", "at", "actor", "action", "subject", "count", "request_id", "detail"}
    assert row["subject"] == {"kind": "concurrency_key", "id": name, "name": name}
    assert row["actor"]["kind"] == {"local": "local", "remote": "key"}[where]
    assert "no matching entries" in duly("audit", "--actor", "nobody").stdout
    assert "no offset" in duly("audit", "--since", "2026-11-16").stderr
