"""Secrets: kept as a hash or sealed, masked wherever they are shown, and on no command line and in no log."""

import os

import msgspec
import pytest

from duly.domain.errors import DatabaseUnusable
from duly.settings import load, shown
from duly.store.connection.database import Database
from tests.api import test_destinations, test_keys
from tests.cli.processes import duly
from tests.cli.test_psql import SECRET, with_password
from tests.worker.stories import until
from tests.worker.targets.scene import Attempt, a_mark, command_lines, commands, sh, with_and_without_sandbox
from tests.worker.targets.test_webhook import taken


async def test_the_secret_of_a_key_is_kept_nowhere(api, database):
    key = await test_keys.made(api, name="shown once")
    secret = key["key"].rsplit("_", 1)[1]
    tables = await database.fetch(
        "select format('%I.%I', schemaname, tablename) from pg_tables where schemaname = 'duly'"
    )
    for (table,) in tables:
        rows = await database.fetch(f"select row_to_json(t)::text from {table} as t")
        assert not [row for row in rows if secret in row[0] or secret.encode().hex() in row[0]], table
    assert secret not in (await api.get("/v1/keys")).text
    again = await api.post("/v1/keys", json={"name": "x", "scopes": ["admin"]}, headers={"Idempotency-Key": "k"})
    other = await api.post("/v1/keys", json={"name": "x", "scopes": ["admin"]}, headers={"Idempotency-Key": "k"})
    assert again.json()["key"] != other.json()["key"], "an answer that is kept would keep the secret"


async def test_signing_secret_is_denied_to_keys_that_may_only_write_jobs(front, api):
    one = await test_destinations.made(api)
    writer = await front.caller("jobs:write")
    where = f"/v1/destinations/{one['destination_id']}"

    assert (await writer.get(where)).status_code == 200
    assert (await writer.get(f"{where}/secrets")).status_code == 403
    assert (await writer.post(f"{where}/rotate")).status_code == 403


async def test_signing_secret_is_stored_nowhere_in_plain_text(api, database):
    one = await test_destinations.made(api)
    [first] = (await api.get(f"/v1/destinations/{one['destination_id']}/secrets")).json()["items"]
    secret = first["secret"].removeprefix("whsec_")
    tables = await database.fetch("select format('duly.%I', tablename) from pg_tables where schemaname = 'duly'")
    for (table,) in tables:
        for (row,) in await database.fetch(f"select row_to_json(t)::text from {table} as t"):
            assert secret not in row, table
            assert secret.encode().hex() not in row, table


async def test_settings_are_shown_without_their_secrets(front, api):
    environ = {
        "DULY_DATABASE_URL": "postgresql://duly:canary@db.example/duly",
        "DULY_API_KEY": "duly_canary_canary",
        "DULY_CONTAINER_OPTIONS": "--env TOKEN=canary",
        "DULY_SLOTS": "7",
    }
    front.door.services = msgspec.structs.replace(front.door.services, settings=shown(load(environ=environ)))
    answer = await api.get("/v1/system")

    settings = {one["name"]: one for one in answer.json()["settings"]}
    assert "canary" not in answer.text
    assert settings["database_url"]["value"] == "postgresql://duly:***@db.example/duly"
    assert (settings["slots"]["value"], settings["slots"]["source"]) == (7, "DULY_SLOTS")


def test_config_shows_each_value_and_its_source_but_no_password(tmp_path):
    said = duly(
        "config", "--json", "--port", "7301", cwd=tmp_path, DULY_DATABASE_URL="postgresql://me:swordfish@host/db"
    )

    assert said.returncode == 0
    assert '"source": "--port"' in said.stdout
    assert "postgresql://me:***@host/db" in said.stdout
    assert (
        "swordfish"
        not in said.stdout + duly("config", cwd=tmp_path, DULY_DATABASE_URL="postgresql://me:swordfish@h/d").stdout
    )


@pytest.mark.parametrize("path", [os.environ["PATH"], "/nonexistent"], ids=["of the machine", "shipped"])
def test_duly_psql_has_the_password_on_no_command_line(database_url, tmp_path, path):
    look = r"\! /usr/bin/tr '\0' ' ' < /proc/$PPID/cmdline; echo; /usr/bin/printenv PGPASSWORD"
    url = with_password(database_url)

    told = duly("psql", "-XAtc", look, cwd=tmp_path, DULY_DATABASE_URL=url, PATH=path, PGSERVICE="elsewhere")
    rows = duly("psql", "-XAtc", "select count(*) from duly.shards", cwd=tmp_path, DULY_DATABASE_URL=url, PATH=path)

    command, secret = told.stdout.splitlines()
    assert "-XAtc" in command
    assert not any(word in command for word in ("sesame", "postgresql://", "password="))
    assert secret == SECRET
    assert (rows.stdout, rows.stderr, rows.returncode) == ("64\n", "", 0)


async def test_a_database_that_is_down_is_named_with_the_remedy_and_without_its_password():
    with pytest.raises(DatabaseUnusable) as refused:
        await Database("postgresql://me:secret@127.0.0.1:1/db").open()

    said = str(refused.value)
    assert said.startswith("no database responds at postgresql://me:***@127.0.0.1:1/db: ")
    assert "Errno 111" in said
    assert said.endswith(". Check the address, and that its server runs")
    assert "duly up" not in said, "who says where the database is does not want another"


async def test_the_log_of_a_webhook_has_no_query():
    _, attempt, _ = await taken(200, b"12345")
    [(level, message, fields)] = attempt.services.lines
    assert (level, message, fields["status"], fields["bytes"]) == ("info", "webhook answered", 200, 5)
    assert fields["ms"] >= 0
    assert "geheim" not in repr(attempt.services.lines)


@with_and_without_sandbox
async def test_a_secret_in_a_variable_of_a_command_does_not_show_on_any_command_line(required):
    mark = f"secret-{a_mark()}"
    runner = commands(required=required, variables=("TOKEN",))
    one = Attempt(runner, sh("echo started; sleep 30", environment={"TOKEN": mark}))
    await until(lambda: one.lines.of("stdout"))

    assert [line for line in command_lines().values() if mark in line] == []

    one.cancel()
    await one.outcome()
