"""The same commands, spoken to a Duly over HTTP: from a folder in which nothing runs."""

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import msgspec
import pytest

from duly.cli import client as connecting
from duly.cli.commands.jobs.edit import amend
from duly.client import AsyncClient, Client
from duly.domain.jobs.spec import EventMatch
from tests.cli.processes import inside, wait_for


class Remote:
    """Somebody elsewhere, who has an address and a key."""

    def __init__(self, folder, address, key):
        self.folder = folder
        self.address = address
        self.key = key

    def duly(self, *arguments, **more):
        return inside(*arguments, cwd=self.folder, **{"DULY_URL": self.address, "DULY_API_KEY": self.key, **more})

    def says(self, *arguments):
        done = self.duly(*arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def reads(self, *arguments):
        return json.loads(self.says(*arguments, "--json"))


@pytest.fixture
def remote(up, tmp_path):
    key = (up.folder / ".duly" / "api-key").read_text().strip()
    return Remote(tmp_path, up.address, key)


def a_name() -> str:
    return f"job-{uuid4()}"


class TestWork:
    def test_a_run_is_submitted_waited_for_shown_and_its_log_read(self, remote):
        done = remote.duly("run", "greet", "name=world", "--wait", "--tag", "new")
        run_id = done.stderr.split()[1]
        shown = remote.says("runs", "show", run_id)

        assert done.returncode == 0, done.stderr
        assert "succeeded" in done.stderr
        assert f"run {run_id} is succeeded" in shown
        assert "tags new" in shown
        assert remote.duly("logs", run_id, "-f").returncode == 0
        assert remote.reads("runs", "show", run_id)["attempts"][0]["outcome"] == "succeeded"

    def test_a_job_later_is_listed_and_cancelled(self, remote):
        tag = a_name()
        run_id = remote.says(
            "submit", "greet", "name=x", "--at", "2040-01-01T00:00Z", "--tag", tag, "--key", tag, "-q"
        ).strip()
        again = remote.says("submit", "greet", "name=x", "--at", "2040-01-01T00:00Z", "--tag", tag, "--key", tag, "-q")
        listed = remote.reads("runs", "--filter", f"tag:{tag}", "--state", "scheduled")
        cancelled = remote.says("runs", "cancel", run_id)

        assert [row["run_id"] for row in listed] == [run_id]
        assert cancelled == f"run {run_id}: cancelled\n"
        assert again.strip() == run_id

    def test_many_are_counted_paused_resumed_and_cancelled(self, remote):
        tag = a_name()
        for _ in range(3):
            remote.says("submit", "greet", "name=x", "--cron", "0 0 1 1 *", "--name", a_name(), "--tag", tag)
        which = ("--filter", f"tag:{tag}")

        assert remote.says("jobs", "pause", *which, "--dry-run").startswith("3 jobs would be paused")
        assert remote.says("jobs", "pause", *which, "--yes") == "3 jobs paused\n"
        assert remote.says("jobs", "resume", *which, "--limit", "2", "--yes").startswith("2 jobs resumed; more fit")
        assert {job["state"] for job in remote.reads("jobs", *which)} == {"active", "paused"}
        assert remote.says("jobs", "cancel", *which, "--yes") == "3 jobs cancelled\n"

        for _ in range(2):
            remote.says("submit", "greet", "name=x", "--at", "2040-01-01T00:00Z", "--tag", tag)
        assert remote.says("runs", "cancel", *which, "--yes") == "2 runs cancelled, or asked to stop\n"

    def test_a_delay_counts_from_the_servers_clock_and_is_found_again_under_its_key(self, remote):
        delayed = ("submit", "greet", "name=x", "--delay", "PT1H", "--key", a_name(), "-q")
        made, again = remote.says(*delayed).strip(), remote.says(*delayed).strip()

        assert again == made
        assert remote.reads("runs", "show", made)["state"] == "scheduled"

    def test_a_moment_in_the_past_is_refused_with_its_code(self, remote):
        refused = remote.duly("submit", "greet", "name=x", "--at", "2020-01-01T00:00:00Z")

        assert refused.returncode == 1
        assert "at 2020-01-01 00:00:00+00 is in the past" in refused.stderr
        assert "AT_PAST" in refused.stderr

    def test_options_cross_the_wire(self, remote):
        name = a_name()
        remote.says("submit", "greet", "name=x", "--cron", "0 8 * * MON", "--tz", "Europe/Paris", "--name", name,
                    "--max-attempts", "2", "--timeout", "PT30S", "--priority", "3", "--tag", "a", "--tag", "b")  # fmt: skip

        job = remote.reads("jobs", "show", name)

        assert (job["retry"]["max_attempts"], job["timeout"], job["priority"]) == (2, "PT30S", 3)
        assert (job["tags"], job["payload"]) == (["a", "b"], {"name": "x"})


class TestJobs:
    def test_a_schedule_lives_from_its_submit_to_its_end(self, remote, up):
        name = a_name()
        said = remote.says(
            "submit", "greet", "name=x", "--when", "every day at 9am", "--tz", "Europe/Paris", "--name", name
        )
        shown = remote.says("jobs", "show", name)
        assert "At 09:00, Europe/Paris time" in said
        assert "Europe/Paris" in said
        assert "greet on queue default" in shown

        assert "already" in remote.says("jobs", "resume", name)
        assert ": paused" in remote.says("jobs", "pause", name, "--reason", "tea")
        assert ": tea\n" in remote.says("jobs", "show", name)
        assert name in remote.says("jobs", "list", "--state", "paused", "--limit", "1000")
        assert ": active" in remote.says("jobs", "resume", name)
        assert "leaves out" in remote.says("jobs", "skip-next", name)

        run = remote.reads("jobs", "trigger", name, "--payload", '{"name": "y"}')
        ended = wait_for(lambda: remote.reads("runs", "show", run["run_id"])["state"] == "succeeded")
        listed = remote.reads("runs", "--job", name)
        assert ended
        assert run["run_id"] in [row["run_id"] for row in listed]
        assert ": cancelled" in remote.says("jobs", "cancel", name)
        assert "is cancelled" in up.duly("jobs", "show", listed[0]["job_id"]).stdout
        assert remote.duly("jobs", "show", name).returncode == 4

    def test_both_desks_say_the_same_of_a_job(self, remote, up):
        name = a_name()
        remote.says("submit", "greet", "name=x", "--cron", "0 8 * * MON", "--name", name, "--tag", "a")

        here, there = (where.duly("jobs", "show", name).stdout.splitlines() for where in (up, remote))

        assert there == here
        here, there = (json.loads(where.duly("jobs", "show", name, "--json").stdout) for where in (up, remote))
        assert [there[told] for told in ("description", "next_fires")] == [
            here[told] for told in ("description", "next_fires")
        ]

    def test_both_desks_say_the_same_of_a_submit(self, remote, up):
        schedule = ("submit", "greet", "name=x", "--cron", "0 8 * * MON", "--tz", "Europe/Paris", "--output", "json")

        here, there = (json.loads(where.duly(*schedule).stdout) for where in (up, remote))

        assert len(here["next_fires"]) == 3
        for told in ("says", "description", "next_fires"):
            assert there[told] == here[told]

    def test_edit_over_http_changes_only_the_given_options(self, remote, up):
        name, other = a_name(), a_name()
        remote.says("submit", "greet", "name=x", "--cron", "0 8 * * MON", "--tz", "Europe/Paris", "--name", name,
                    "--timeout", "PT30S", "--tag", "a", "--jitter", "PT1M")  # fmt: skip

        said = remote.says("jobs", "edit", name, "name=y", "--cron", "0 9 * * MON", "--max-attempts", "2")
        job = remote.reads("jobs", "show", name)
        assert ": version 2" in said
        assert "At 09:00" in said
        assert (job["payload"], job["retry"]["max_attempts"], job["timeout"]) == ({"name": "y"}, 2, "PT30S")
        assert job["schedule"]["trigger"]["tz"] == "Europe/Paris"
        assert (job["tags"], "jitter" in job["schedule"]) == (["a"], True)

        remote.says("jobs", "edit", name, "--name", other, "--jitter", "none", "--timeout", "none")
        here = json.loads(up.duly("jobs", "show", other, "--json").stdout)
        assert ("jitter" in here["schedule"], here["timeout"]) == (False, None)
        assert here["retry"]["max_attempts"] == 2
        for versions in (
            remote.reads("jobs", "versions", other),
            json.loads(up.duly("jobs", "versions", other, "--json").stdout),
        ):
            assert [(one["version"], one["name"], one["payload"]["name"]) for one in versions] == [
                (3, other, "y"),
                (2, name, "y"),
                (1, name, "x"),
            ]
        assert '"expr":"0 8 * * MON"' in remote.says("jobs", "versions", other)
        assert remote.says("jobs", "versions", other) == up.duly("jobs", "versions", other).stdout
        assert remote.duly("jobs", "edit", name, "--queue", "mail").returncode == 4
        assert "priority" in remote.duly("jobs", "edit", other, "--priority", "12").stderr

    def test_a_job_that_waits_for_events_is_edited(self, remote):
        name = a_name()
        with Client(remote.address, remote.key) as client:
            client.jobs.create("greet", name=name, on_event={"type": "paid", "source": "shop"})

            remote.says("jobs", "edit", name, "--queue", "mail")
            job = client.jobs.get_by_name(name)

        assert (job.queue, job.schedule, job.retry) == ("mail", None, None)
        assert job.on_event == EventMatch(type="paid", source="shop")

    def test_edit_is_retried_on_conflict_with_the_current_definition(self, remote):
        name, seen = a_name(), []
        remote.says("submit", "greet", "name=x", "--cron", "0 8 * * MON", "--name", name)

        def change(before):
            seen.append(before.priority)
            if len(seen) == 1:
                with Client(remote.address, remote.key) as other:
                    other.jobs.change(job_id, {"priority": 3}, version=None)
            return msgspec.structs.replace(before, queue="mail")

        async def edit():
            async with AsyncClient(remote.address, remote.key) as client:
                return await amend(client, job_id, change)

        job_id = remote.reads("jobs", "show", name)["job_id"]
        assert (asyncio.run(edit()), seen) == (3, [5, 3])
        job = remote.reads("jobs", "show", name)
        assert (job["queue"], job["priority"]) == ("mail", 3)

    def test_backfill_is_counted_created_listed_and_cancelled_over_http(self, remote):
        name = a_name()
        remote.says("submit", "greet", "name=x", "--cron", "0 8 * * *", "--name", name, "--queue", a_name())
        stretch = ("--from", "2026-01-01T00:00Z", "--to", "2026-01-11T00:00Z")

        assert "10 occurrences" in remote.says("jobs", "backfill", name, *stretch, "--dry-run")
        assert remote.reads("jobs", "backfills", name) == []
        made = remote.reads("jobs", "backfill", name, *stretch, "--rate", "0.01")
        [listed] = remote.reads("jobs", "backfills", name)
        assert (listed["backfill_id"], listed["total"], listed["state"]) == (made["backfill_id"], 10, "active")
        assert "cancelled, and " in remote.says("jobs", "cancel-backfill", made["backfill_id"])
        assert [one["state"] for one in remote.reads("jobs", "backfills", name)] == ["cancelled"]
        assert made["backfill_id"] in [one["backfill_id"] for one in remote.reads("jobs", "backfills")]


class TestDead:
    def test_the_dead_are_listed_edited_replayed_and_discarded(self, remote, up):
        first, second = (remote.says("submit", "fail", "reason=no", "--tag", "new", "-q").strip() for _ in range(2))
        wait_for(lambda: {first, second} <= {row["run_id"] for row in remote.reads("dead", "list")})

        assert remote.says("dead", "--limit", "2") == up.duly("dead", "--limit", "2").stdout
        assert "is dead: NonRetryable: no" in remote.says("dead", "show", first)
        assert "edited" in remote.says("dead", "edit", first, "--payload", '{"reason": "still no"}')
        assert "replayed" in remote.says("dead", "replay", first)
        wait_for(lambda: first in {row["run_id"] for row in remote.reads("dead", "list")})
        assert "would be discarded" in remote.says("dead", "discard", "--filter", "handler:fail", "--dry-run")
        assert "discarded" in remote.says("dead", "discard", first)
        assert "run" in remote.says("dead", "discard", "--all", "--queue", "default", "--yes")
        assert remote.duly("dead", "replay", second).returncode == 4


class TestLook:
    def test_workers_and_queues(self, remote):
        [worker] = remote.reads("workers")

        assert "greet" in worker["handlers"]
        assert "default" in [row["queue"] for row in remote.reads("queues")]
        assert "default" in remote.says("queues")
        assert worker["name"] in remote.says("workers")

    def test_why_something_is_where_it_is(self, remote, up):
        name = a_name()
        remote.says("submit", "greet", "name=x", "--cron", "0 8 * * MON", "--name", name)
        run_id = remote.says("submit", "greet", "name=x", "--queue", a_name(), "-q").strip()

        assert remote.says("explain", name) == up.duly("explain", name).stdout
        assert remote.says("explain", run_id).startswith("run")
        assert (
            remote.says("runs", "show", run_id).splitlines()[-1]
            == remote.says("explain", run_id).splitlines()[1].strip()
        )

    def test_client_receives_events_of_finished_runs(self, remote):
        with Client(remote.address, remote.key) as client, ThreadPoolExecutor(1) as pool:
            hearing = pool.submit(next, client.events(types=["duly.run.succeeded.v1"]))
            wait_for(lambda: remote.says("submit", "greet", "name=x", "-q") and hearing.done(), 20)
            event = hearing.result()

        assert (event.type, event.data["queue"]) == ("duly.run.succeeded.v1", "default")
        assert event.cursor

    def test_calendars(self, remote):
        name = a_name()
        file = remote.folder / "calendar.json"
        file.write_text(json.dumps({"name": name, "dates": ["2040-12-25"]}))

        assert f"calendar {name} is kept" in remote.says("calendars", "put", str(file))
        assert name in [row["name"] for row in remote.reads("calendars", "list")]
        assert "dates   2040-12-25" in remote.says("calendars", "show", name)
        assert "is deleted" in remote.says("calendars", "delete", name)
        assert remote.duly("calendars", "show", name).returncode == 4

    def test_the_emergency_stop(self, remote):
        queue = a_name()

        paused = remote.says("pause", "--queue", queue, "--reason", "tea")
        assert paused.startswith(f"queue {queue}: paused; ")
        assert f"duly resume --queue {queue}" in paused
        assert "already paused" in remote.says("queues", "pause", queue)
        assert "resumed" in remote.says("resume", "--queue", queue)


class TestFiles:
    def test_a_file_is_planned_applied_and_exported(self, remote):
        source, name = a_name(), a_name()
        file = remote.folder / "duly.yaml"
        job = {"target": "greet", "schedule": {"cron": "0 8 * * MON"}, "payload": {"name": "x"}}
        file.write_text(json.dumps({"source": source, "jobs": {name: job}}))

        plan = remote.says("plan")
        assert f"+ {name}   At 08:00" in plan
        assert f"{source}: 1 to create, 0 as they are" in plan
        assert "no live worker" not in plan
        assert remote.duly("plan", "--check").returncode == 1

        digest = remote.reads("plan")["digest"]
        assert f"{source}: 1 created" in remote.says("apply", "--expect", digest)
        assert remote.duly("apply", "--expect", digest).returncode == 1
        assert remote.duly("plan", "--check").returncode == 0

        file.write_text(remote.says("export", "--source", source))
        assert remote.duly("plan", "--check").returncode == 0
        file.write_text(json.dumps({"source": source, "jobs": {}}))
        done = remote.reads("apply", "--prune", "--yes")
        assert [(one["name"], one["kind"]) for one in done["done"]] == [(name, "remove")]

    def test_server_refusal_names_its_line_in_the_file(self, remote):
        file = remote.folder / "duly.yaml"
        file.write_text(
            "source: holidays\njobs:\n  x:\n    target: greet\n    schedule:\n      every: PT1H\n"
            "      calendars:\n        - nowhere\n"
        )

        done = remote.duly("plan")

        assert done.returncode == 1
        assert "duly.yaml:8:" in done.stderr
        assert "nowhere" in done.stderr

    def test_job_created_by_hand_is_adopted_only_on_request(self, remote):
        name = a_name()
        remote.says("submit", "greet", "name=x", "--cron", "0 8 * * MON", "--name", name)
        job = {"target": "greet", "schedule": {"cron": "0 9 * * MON"}, "payload": {"name": "x"}}
        (remote.folder / "duly.yaml").write_text(json.dumps({"source": a_name(), "jobs": {name: job}}))

        refused = remote.duly("apply", "--yes")

        assert refused.returncode == 1
        assert f"job '{name}' was created by hand; adopt it with --adopt" in refused.stderr
        assert "1 adopted" in remote.says("apply", "--yes", "--adopt")


class TestPeople:
    def test_key_is_created_used_listed_and_revoked_over_http(self, remote):
        name = a_name()
        made = remote.duly("keys", "create", "--scope", "jobs:read", "--name", name, "--expires", "P1D")
        text = made.stdout.strip()
        key_id = text.split("_")[1]
        assert f"key {key_id} of tenant default, for jobs:read, until " in made.stderr
        assert remote.duly("jobs", DULY_API_KEY=text).returncode == 0

        [listed] = [key for key in remote.reads("keys") if key["name"] == name]
        assert (listed["state"], listed["tenant_name"], listed["scopes"]) == ("active", "default", ["jobs:read"])
        assert "secret" not in " ".join(listed)
        assert f"key {key_id} is revoked" in remote.says("keys", "revoke", text)
        assert [key["state"] for key in remote.reads("keys") if key["name"] == name] == ["revoked"]
        assert remote.duly("keys", "revoke", "nothing").returncode == 4

    def test_tenant_is_created_limited_suspended_and_has_its_own_keys(self, remote):
        name = a_name()
        assert f"tenant {name} created" in remote.says("tenants", "create", name, "--ready-max", "10")
        assert "ready_max 10, submit_rate 2.5" in remote.says("tenants", "limits", name, "--submit-rate", "2.5")
        assert "least_period PT1M30S" in remote.says("tenants", "limits", name, "--least-period", "90")
        assert "ready_max none" in remote.says("tenants", "limits", name, "--ready-max", "none")

        admin = remote.reads("keys", "create", "--tenant", name, "--scope", "admin")
        inside_it = {"DULY_API_KEY": admin["key"]}
        own = remote.duly("keys", "create", "--scope", "worker", "--json", **inside_it)
        assert own.returncode == 0, own.stderr
        assert json.loads(own.stdout)["tenant"] == admin["tenant"]
        assert remote.duly("keys", "list", "--json", **inside_it).stdout.count('"key_id"') == 2
        assert len(remote.reads("keys", "list", "--tenant", name)) == 2
        assert remote.duly("tenants", **inside_it).returncode == 1

        assert f"tenant {name} is suspended" in remote.says("tenants", "suspend", name)
        [seen] = [tenant for tenant in remote.reads("tenants") if tenant["name"] == name]
        assert (seen["state"], seen["submit_rate"]) == ("suspended", 2.5)
        assert f"tenant {name} is active" in remote.says("tenants", "resume", str(seen["tenant"]))
        assert remote.duly("tenants", "create", name).returncode == 1
        assert remote.duly("tenants", "suspend", "nobody").returncode == 4


class TestRefusals:
    def test_command_that_needs_the_database_is_refused_over_http(self, remote):
        done = remote.duly("verify")

        assert done.returncode == 2
        assert "needs the database itself, and DULY_URL names a Duly over HTTP" in done.stderr

    def test_typed_database_takes_precedence_over_a_configured_address(self, remote, up):
        assert remote.duly("verify", "--data", str(up.folder / ".duly")).returncode == 0
        assert remote.duly("jobs", "--data", str(up.folder / ".duly"), DULY_URL="http://127.0.0.1:9").returncode == 0

    def test_unknown_resource_exits_with_code_4(self, remote):
        missing = str(uuid4())

        for arguments in (("runs", "show", missing), ("jobs", "show", "nothing"), ("logs", missing)):
            done = remote.duly(*arguments)
            assert (done.returncode, done.stdout) == (4, "")
            assert done.stderr.startswith("duly: no ")

    def test_a_wrong_key_is_a_sentence_that_does_not_show_it(self, remote):
        done = remote.duly("runs", DULY_API_KEY="duly_wrong_secretsecret")

        assert done.returncode == 1
        assert "key" in done.stderr
        assert "secretsecret" not in done.stderr

    def test_an_address_that_is_none_is_refused(self, remote):
        done = remote.duly("runs", "--url", "ftp://nowhere")

        assert done.returncode == 2
        assert "is not the URL of a Duly" in done.stderr

    def test_unreachable_server_exits_with_code_3(self, remote, unused_tcp_port, monkeypatch):
        monkeypatch.setattr(connecting, "_DEADLINE_SECONDS", 0.5)

        done = remote.duly("runs", DULY_URL=f"http://127.0.0.1:{unused_tcp_port}")

        assert done.returncode == 3
        assert f"No answer from http://127.0.0.1:{unused_tcp_port}" in done.stderr

    def test_the_config_shows_no_key(self, remote):
        said = remote.says("config")

        assert remote.key.rsplit("_", 1)[1] not in said
        assert "DULY_API_KEY" in said
