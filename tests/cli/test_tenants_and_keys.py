"""Tenants and their keys from the command line."""

import asyncio
import json
import shlex

import pytest

from duly.domain.tenancy.api_key import parse
from duly.store.connection.database import Database
from duly.store.tenancy import api_keys
from tests.cli.processes import inside


@pytest.fixture
def duly(database_url, tmp_path):
    """Run one command on a database that holds nothing, on Monday, 2026-11-02 at 09:00 UTC."""
    return lambda *arguments: inside(*arguments, "--database-url", database_url, cwd=tmp_path)


class TestTenants:
    def test_tenant_is_created_listed_limited_suspended_and_resumed(self, duly):
        made = duly("tenants", "create", "other", "--schedules-max", "10")
        assert made.stdout.startswith("tenant other created, number ")

        assert [line.split() for line in duly("tenants").stdout.splitlines()][1:] == [
            ["1", "default", "active", "none", "none", "none", "none", "1", "none"],
            [made.stdout.split()[-1], "other", "active", "10", "none", "none", "none", "1", "none"],
        ]
        assert duly("tenants", "limits", "other", "--ready-max", "5", "--submit-rate", "2.5").stdout == (
            "tenant other: schedules_max 10, ready_max 5, submit_rate 2.5, running_max none, weight 1, least_period none\n"
        )
        assert duly("tenants", "limits", "other", "--schedules-max", "none").stdout == (
            "tenant other: schedules_max none, ready_max 5, submit_rate 2.5, running_max none, weight 1, least_period none\n"
        )
        assert "tenant other is suspended" in duly("tenants", "suspend", "other").stdout
        assert [row["state"] for row in json.loads(duly("tenants", "--json").stdout)] == ["active", "suspended"]
        assert duly("tenants", "resume", "other").stdout == "tenant other is active\n"

    def test_a_program_gets_json(self, duly):
        made = json.loads(duly("tenants", "create", "other", "--submit-rate", "3", "--json").stdout)
        limits = json.loads(duly("tenants", "limits", "other", "--json").stdout)

        assert made == limits
        assert json.loads(duly("tenants", "suspend", "other", "--json").stdout) == made | {"state": "suspended"}
        assert json.loads(duly("tenants", "resume", "other", "--json").stdout) == made
        assert (made["name"], made["state"], made["submit_rate"], made["ready_max"]) == ("other", "active", 3.0, None)

    def test_invalid_request_is_refused_with_the_remedy(self, duly):
        assert "a tenant named 'default' exists; choose another" in duly("tenants", "create", "default").stderr
        assert "no tenant 'nobody'; `duly tenants` lists them" in duly("tenants", "suspend", "nobody").stderr
        assert duly("tenants", "suspend", "nobody").returncode == 4
        refused = duly("tenants", "limits", "default", "--submit-rate", "0")
        assert "/limits/submit_rate: 0.0 is invalid" in refused.stderr
        refused = duly("tenants", "limits", "default", "--schedules-max", "-1")
        assert refused.returncode == 1
        assert "/limits/schedules_max: -1 is invalid" in refused.stderr
        assert duly("tenants", "limits", "default", "--schedules-max", "many").returncode == 2
        assert "is not a duration" in duly("tenants", "limits", "default", "--least-period", "often").stderr
        assert "from PT1S to P366D" in duly("tenants", "limits", "default", "--least-period", "PT0.5S").stderr

    def test_schedules_denser_than_a_tenant_may_have_are_refused_with_the_remedy(self, duly, tmp_path):
        set_to = duly("tenants", "limits", "default", "--least-period", "PT1M").stdout
        assert set_to.endswith("submit_rate none, running_max none, weight 1, least_period PT1M\n")

        for dense in (["--every", "PT59S"], ["--cron", "*/30 * * * * *"], ["--every", "PT1S", "--mode", "fixed_delay"]):
            said = duly("submit", "report", *dense)
            assert said.returncode == 1, said
            assert "this tenant's limit is PT1M apart" in said.stderr
        assert duly("submit", "report", "--every", "PT1M", "--name", "minutely").returncode == 0
        assert "PT1M apart or more" in duly("jobs", "edit", "minutely", "--every", "PT30S").stderr
        (tmp_path / "duly.yaml").write_text(
            "source: shop\njobs:\n  often:\n    target: report\n    schedule: {every: PT1S}\n"
        )
        for command in ("plan", "apply"):
            assert "PT1M apart or more" in duly(command, "-f", "duly.yaml").stderr
        duly("tenants", "limits", "default", "--least-period", "none")
        assert duly("submit", "report", "--every", "PT1S").returncode == 0


class TestKeys:
    def test_a_key_is_shown_once_listed_without_its_secret_and_revoked(self, duly, database_url):
        made = duly("keys", "create", "--scope", "jobs:read", "--scope", "worker", "--name", "ci", "--expires", "P1D")
        [text] = made.stdout.splitlines()
        parts = parse(text)
        assert parts is not None
        key_id, secret = parts
        assert made.stderr == (
            f"key {key_id} of tenant default, for jobs:read, worker, until 2026-11-03 09:00:00Z;"
            " its text is shown this once and kept nowhere\n"
        )

        async def opens() -> bool:
            async with Database(database_url) as database:
                found = await api_keys.find(database, key_id)
                return found is not None and found.is_opened_by(secret)

        assert asyncio.run(opens())
        listed = duly("keys").stdout
        assert "jobs:read, worker" in listed
        assert secret.reveal() not in listed
        [row] = json.loads(duly("keys", "--json").stdout)
        assert (row["key_id"], row["name"], row["state"], row["scopes"]) == (
            key_id,
            "ci",
            "active",
            ["jobs:read", "worker"],
        )
        assert "secret_hash" not in row

        assert f"key {key_id} is revoked" in duly("keys", "revoke", text).stdout
        assert [row["state"] for row in json.loads(duly("keys", "--json").stdout)] == ["revoked"]

    def test_a_key_belongs_to_a_tenant(self, duly):
        duly("tenants", "create", "other")
        made = json.loads(
            duly("keys", "create", "--tenant", "other", "--scope", "admin", "--rate", "5", "--json").stdout
        )

        assert (made["tenant_name"], made["rate"], made["scopes"]) == ("other", 5.0, ["admin"])
        assert parse(made["key"]) is not None
        assert [row["key_id"] for row in json.loads(duly("keys", "--tenant", "other", "--json").stdout)] == [
            made["key_id"]
        ]
        assert json.loads(duly("keys", "--tenant", "default", "--json").stdout) == []
        gone = json.loads(duly("keys", "revoke", made["key_id"], "--json").stdout)
        assert gone == {"key_id": made["key_id"], "revoked": True}
        made = json.loads(duly("keys", "create", "--tenant", "other", "--scope", "admin", "--json").stdout)
        duly("tenants", "suspend", "other")
        states = {row["key_id"]: row["state"] for row in json.loads(duly("keys", "--json").stdout)}
        assert states[made["key_id"]] == "suspended"

    def test_invalid_request_is_refused_with_the_remedy(self, duly):
        assert "a key needs a scope: one or more of jobs:read" in duly("keys", "create").stderr
        assert "scope 'root' is none of jobs:read" in duly("keys", "create", "--scope", "root").stderr
        assert "no tenant 'x'" in duly("keys", "create", "--scope", "admin", "--tenant", "x").stderr
        assert "no key nobody; `duly keys` lists them" in duly("keys", "revoke", "nobody").stderr
        assert "expires" in duly("keys", "create", "--scope", "admin", "--expires", "soon").stderr
        assert "in the past" in duly("keys", "create", "--scope", "admin", "--expires", "PT0S").stderr
        assert "no keys; make one: duly keys create" in duly("keys").stdout


class TestActingInATenant:
    """The local operator looks after every tenant's jobs and runs, one tenant a command."""

    def test_jobs_and_runs_of_another_tenant_are_listed_shown_and_cancelled(self, duly):
        number = duly("tenants", "create", "other").stdout.split()[-1]
        submitted = duly("submit", "report", "--at", "2027-01-01T00:00:00Z", "--as-tenant", "other")
        run_id = submitted.stdout.split()[1]

        assert duly("runs", "show", run_id).returncode == 4
        assert run_id not in duly("runs", "--json").stdout
        assert json.loads(duly("runs", "show", run_id, "--as-tenant", "other", "--json").stdout)["run_id"] == run_id
        assert run_id in duly("runs", "--as-tenant", number, "--json").stdout
        assert duly("runs", "cancel", run_id, "--as-tenant", "other").returncode == 0

    def test_the_command_that_undoes_a_pause_acts_in_the_same_tenant(self, duly):
        duly("tenants", "create", "other")

        paused = duly("pause", "--queue", "mail", "--as-tenant", "other").stdout
        undone = shlex.split(paused.splitlines()[0].partition("to resume: duly ")[2])

        assert undone[-2:] == ["--as-tenant", "other"]
        assert "nothing was changed" not in duly(*undone).stdout
        assert "nothing was changed" in duly(*undone).stdout

    def test_the_audit_of_the_tenant_names_the_account(self, duly):
        duly("tenants", "create", "other")
        duly("submit", "report", "--every", "PT1H", "--name", "hourly", "--as-tenant", "other")

        entries = json.loads(duly("audit", "--tenant", "other", "--json").stdout)
        assert {entry["actor"]["kind"] for entry in entries} == {"local"}

    def test_operator_command_is_refused_inside_a_tenant(self, duly):
        duly("tenants", "create", "other")
        refused = duly("tenants", "create", "third", "--as-tenant", "other")
        assert refused.returncode == 1
        assert "Leave --as-tenant out" in refused.stderr
        assert len(json.loads(duly("tenants", "--json").stdout)) == 2

    def test_an_unknown_tenant_is_not_found(self, duly):
        assert duly("jobs", "--as-tenant", "nobody").returncode == 4

    def test_a_key_acts_in_its_own_tenant(self, remote):
        refused = remote("jobs", "--as-tenant", "default")
        assert refused.returncode == 2
        assert "a key acts in its own tenant" in refused.stderr
