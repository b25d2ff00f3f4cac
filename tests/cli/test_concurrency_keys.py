"""Concurrency keys from the command line: the same words on a database and over HTTP."""

import json

import pytest


@pytest.mark.parametrize("where", ["local", "remote"])
def test_a_key_is_limited_shown_and_lifted(where, request):
    duly = request.getfixturevalue(where)
    key = f"customer-{where}"
    limited = json.loads(
        duly("concurrency", "limit", key, "--slots", "5", "--rate", "10/PT1M", "--burst", "2", "--json").stdout
    )
    assert (limited["limit"], limited["rate_limit"], limited["kind"]) == (5, "10/PT1M, 2 at once", "concurrency")

    assert json.loads(duly("concurrency", "show", key, "--json").stdout) == limited
    assert key in duly("concurrency").stdout
    lifted = json.loads(duly("concurrency", "unlimit", key, "--json").stdout)
    assert lifted == {"key": key, "limit": None, "rate_limit": None}
    gone = duly("concurrency", "show", key)
    assert gone.returncode == 4
    assert f"no concurrency key '{key}'" in gone.stderr


def test_job_is_submitted_with_concurrency_and_rate_limits(local):
    made = local("submit", "greet", "--fifo", "orders", "--rate", "mail=10/PT1M", "--burst", "3", "-q")
    assert made.returncode == 0, made.stderr

    refused = local("submit", "greet", "--fifo", "orders", "--concurrency", "orders=3")
    assert "give --concurrency or --fifo, not both" in refused.stderr
