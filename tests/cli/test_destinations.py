"""Destinations from the command line: the same words on a database and over HTTP."""

import json

import psycopg
import pytest

from duly.clock import Rng
from duly.domain.tenancy.sealing import new_key_line
from tests.cli.processes import inside

ORIGIN = "https://hooks.example"


@pytest.fixture
def local(database_url, tmp_path):
    """Run one command on a database, with a keyring."""
    (tmp_path / "keys").write_text(new_key_line(Rng().secret).reveal())
    return lambda *arguments: inside(
        *arguments, "--database-url", database_url, cwd=tmp_path, DULY_SECRETS_KEY=str(tmp_path / "keys")
    )


@pytest.mark.parametrize("where", ["local", "remote"])
def test_destination_is_created_limited_and_its_secret_is_shown_and_rotated(where, request):
    duly = request.getfixturevalue(where)
    url = f"https://{where}.example/in"
    made = json.loads(duly("destinations", "create", url, "--json").stdout)
    assert (made["origin"], made["state"], made["slots"]) == (f"https://{where}.example", "closed", 100)

    limited = json.loads(duly("destinations", "limit", url, "--slots", "7", "--rate", "2.5", "--json").stdout)
    assert (limited["slots"], limited["rate_per_second"]) == (7, 2.5)
    again = json.loads(duly("destinations", "create", url, "--json").stdout)
    assert (again["destination_id"], again["slots"]) == (made["destination_id"], 7)
    kept = json.loads(duly("destinations", "limit", made["destination_id"], "--slots", "8", "--json").stdout)
    assert (kept["slots"], kept["rate_per_second"]) == (8, 2.5)
    freed = json.loads(duly("destinations", "limit", url, "--rate", "none", "--json").stdout)
    assert freed["rate_per_second"] is None

    [first] = duly("destinations", "secret", url).stdout.splitlines()
    rotated = duly("destinations", "rotate", url)
    assert rotated.stdout.strip() != first
    assert "for 24 hours, with the one before" in rotated.stderr
    assert duly("destinations", "secret", url).stdout.splitlines() == [rotated.stdout.strip(), first]
    assert first not in duly("destinations", "--json").stdout

    opened = json.loads(duly("destinations", "open", url, "--for", "PT30M", "--json").stdout)
    assert (opened["state"], opened["wait_until"] is None) == ("open", False)
    assert json.loads(duly("destinations", "close", url, "--json").stdout)["state"] == "closed"
    assert f"https://{where}.example" in duly("destinations").stdout
    assert "closed" in duly("destinations", "show", url).stdout
    assert json.loads(duly("destinations", "show", url, "--json").stdout)["last_failures"] == []


def test_invalid_request_is_refused_with_the_remedy(local):
    assert "no destination https://hooks.example; `duly destinations` lists them" in (
        local("destinations", "show", ORIGIN).stderr
    )
    assert local("destinations", "show", ORIGIN).returncode == 4
    local("destinations", "create", ORIGIN)
    assert "give a whole number from 1 to 100000" in local("destinations", "limit", ORIGIN, "--slots", "0").stderr
    assert "/rate_per_second: 0.0 is invalid" in local("destinations", "limit", ORIGIN, "--rate", "0").stderr
    assert local("destinations", "limit", ORIGIN, "--rate", "fast").returncode == 2


def test_without_a_keyring_there_is_a_way_to_one(database_url, tmp_path):
    refused = inside("destinations", "create", ORIGIN, "--database-url", database_url, cwd=tmp_path)

    assert refused.returncode != 0
    assert "duly secrets new-key" in refused.stderr
    assert "nothing" not in inside("destinations", "--database-url", database_url, cwd=tmp_path).stderr


def test_destination_shows_its_recent_failures(local, database_url):
    local("destinations", "create", ORIGIN)
    with psycopg.connect(database_url, autocommit=True) as connection:
        [(run_id,)] = connection.execute(
            "insert into duly.attempts (run_id, job_id, scheduled_at, due_at, finished_at, fence, tenant, attempt, outcome,"
            " became, queue, handler, reason, detail) select gen_random_uuid(), gen_random_uuid(), now(), now(), now(), 1, 1,"
            " 2, 'failed', 'dead', 'default', '@webhook', 'it answered 503', %s::jsonb returning run_id",
            ('{"to": "https://hooks.example/in", "status": 503}',),
        )

    shown = local("destinations", "show", ORIGIN)
    [last] = json.loads(local("destinations", "show", ORIGIN, "--json").stdout)["last_failures"]

    assert "last failures" in shown.stdout
    assert f"{run_id}" in shown.stdout
    assert (last["run_id"], last["attempt"], last["status"], last["reason"]) == (str(run_id), 2, 503, "it answered 503")
