"""`duly limits`, weights of tenants and weights of queues, as a person types them."""

import json

import pytest

from tests.cli.processes import running
from tests.end_to_end.house import wait_until


@pytest.fixture
def unlimited(up):
    """Take every limit away, whatever a test left."""
    yield up
    for flags in (["--all"], ["--queue", "mail"], ["--tenant", "1"]):
        up.duly("limits", "remove", *flags)


def test_limits_are_set_shown_and_removed(unlimited):
    up = unlimited
    assert up.duly("limits").stdout.startswith("no limits")

    said = up.duly("limits", "set", "3", "--queue", "mail")

    assert said.stdout == "queue mail: at most 3 at once, from the next claim on; 0 are under way\n", said
    up.duly("limits", "set", "9", "--all")
    shown = json.loads(up.duly("limits", "--json").stdout)
    assert [(row["of"], row["slots"], row["running"]) for row in shown] == [("everything", 9, 0), ("queue mail", 3, 0)]
    assert up.duly("run", "greet", "name=Ada", "--wait").returncode == 0, "under a limit work goes on"
    assert up.duly("limits", "remove", "--queue", "mail").stdout == "queue mail: no limit of its own any more\n"
    removed = json.loads(up.duly("limits", "remove", "--all", "--json").stdout)
    assert removed == {"of": "everything", "tenant": None, "queue": None, "slots": None}
    gone = up.duly("limits", "remove", "--queue", "mail")
    assert gone.returncode != 0
    assert "no limit of queue mail; `duly limits` lists them" in gone.stderr


def test_a_tenant_is_named_by_its_name_or_its_number(local):
    number = json.loads(local("tenants", "create", "acme", "--json").stdout)["tenant"]

    assert local("limits", "set", "5", "--tenant", "acme").stdout.startswith(f"tenant {number}: at most 5")
    assert local("pause", "--tenant", "acme").stdout.startswith(f"tenant {number}: paused")
    assert local("resume", "--tenant", str(number)).stdout.startswith(f"tenant {number}: resumed")
    assert local("audit", "--tenant", str(number)).returncode == 0
    assert "no tenant 'nobody'" in local("pause", "--tenant", "nobody").stderr


def test_limit_with_a_missing_scope_invalid_value_or_unknown_tenant_is_refused(up):
    assert "--all" in up.duly("limits", "set", "3").stderr
    assert "0 is not in the range" in up.duly("limits", "set", "0", "--all").stderr
    assert "no tenant 999" in up.duly("limits", "set", "1", "--tenant", "999").stderr


def test_a_tenants_weight_and_its_quota_of_running(unlimited):
    up = unlimited
    said = up.duly("tenants", "limits", "default", "--weight", "4", "--running-max", "50")
    assert "running_max 50, weight 4" in said.stdout, said
    assert json.loads(up.duly("limits", "--json").stdout)[0]["of"] == "tenant 1"
    refused = up.duly("tenants", "limits", "default", "--weight", "0")
    assert "/limits/weight: 0 is invalid: expected `int` >= 1; give a whole number from 1 to 1000" in refused.stderr
    freed = up.duly("tenants", "limits", "default", "--weight", "1", "--running-max", "none")
    assert "running_max none, weight 1" in freed.stdout


def test_a_worker_serves_its_queues_by_their_weights(up):
    with running("worker", "app:app", "--queue", "critical=5", "--queue", "bulk", cwd=up.folder) as process:
        assert "serves critical (weight 5), bulk with " in process.wait_for_line("worker ")
        wait_until(lambda: "bulk" in up.duly("workers").stdout, 20, what="a worker of bulk")
        rows = json.loads(up.duly("workers", "--json").stdout)
        [row] = [row for row in rows if "bulk" in row["queues"]]
        weights = dict(zip(row["queues"], row["weights"], strict=True))
        assert (weights["critical"], weights["bulk"]) == (5, 1)
        assert "critical=5" in up.duly("workers").stdout
        assert process.interrupt() < 10
    refused = up.duly("worker", "app:app", "--queue", "critical=0")
    assert refused.returncode == 1
    assert "queue 'critical=0'" in refused.stderr
    assert "a weight from 1 to 100" in refused.stderr
