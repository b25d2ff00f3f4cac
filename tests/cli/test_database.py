"""A database that cannot be used: one clear sentence with the remedy, exit code 3, nothing half-written."""

import json
import subprocess

import psycopg
import pytest

from duly.cli.main import call
from duly.store.connection import database
from tests.cli.processes import duly, running


@pytest.fixture
def empty_url(postgres):
    """The address of an empty database."""
    name = postgres.create()
    yield postgres.url(name)
    postgres.drop_database(name)


def test_migrate_with_json_lists_the_applied_migrations(tmp_path, empty_url):
    def migrates():
        return json.loads(duly("migrate", "--json", cwd=tmp_path, DULY_DATABASE_URL=empty_url).stdout)

    first, again = migrates(), migrates()

    assert first["migrations"][0]["version"] == 1
    assert (first["migrations"][-1]["version"], len(first["files"]) > 10) == (first["schema"], True)
    assert again == {"schema": first["schema"], "migrations": [], "files": []}


def refused(said, *words):
    assert said.returncode == 3, said
    assert said.stderr.startswith("duly: ")
    assert len(said.stderr.splitlines()) == 1
    assert all(word in said.stderr for word in words), said.stderr


@pytest.mark.parametrize("command", [["jobs"], ["submit", "x"], ["migrate"], ["verify"], ["scheduler"]])
def test_nothing_runs_here(tmp_path, command):
    refused(duly(*command, cwd=tmp_path), "nothing runs on", "`duly up`", "DULY_DATABASE_URL")
    assert list(tmp_path.iterdir()) == []


def test_unreachable_database_is_reported_with_a_remedy(tmp_path):
    url = "postgresql://me@127.0.0.1:1/db"

    for command in (["jobs"], ["up", "--port", "0"]):
        said = duly(*command, cwd=tmp_path, DULY_DATABASE_URL=url)
        refused(said, f"no database responds at {url}: ", "Check the address, and that its server runs")
        assert "duly up" not in said.stderr


def test_invalid_database_address_is_a_settings_error(tmp_path):
    said = duly("jobs", cwd=tmp_path, DULY_DATABASE_URL="nonsense://")

    assert said.returncode == 2, "wrong settings, and no database that is down"
    assert "DULY_DATABASE_URL is not the address of a PostgreSQL" in said.stderr


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"DULY_URL": "nonsense"}, "'nonsense' is not the URL of a Duly"),
        ({"DULY_URL": "http://127.0.0.1:1", "DULY_API_KEY": "a b"}, "the key is not one of Duly's"),
        ({"DULY_DATABASE_URL": "postgresql://u@127.0.0.1:99999/x"}, "DULY_DATABASE_URL names a port"),
    ],
)
def test_an_address_that_is_none_is_a_wrong_setting(tmp_path, setting, words):
    said = duly("runs", cwd=tmp_path, **setting)

    assert said.returncode == 2, said
    assert words in said.stderr


def test_the_schema_is_missing(tmp_path, empty_url):
    refused(duly("submit", "x", cwd=tmp_path, DULY_DATABASE_URL=empty_url), "Run `duly migrate`")

    applied = duly("migrate", cwd=tmp_path, DULY_DATABASE_URL=empty_url)
    assert applied.returncode == 0
    assert "applied 0001_tables" in applied.stdout
    assert "up to date" in duly("migrate", cwd=tmp_path, DULY_DATABASE_URL=empty_url).stdout
    assert duly("verify", cwd=tmp_path, DULY_DATABASE_URL=empty_url).returncode == 0


def test_check_of_an_empty_database_is_one_line(tmp_path, empty_url):
    said = duly("migrate", "--check", cwd=tmp_path, DULY_DATABASE_URL=empty_url)

    assert said.returncode == 1, said
    assert said.stdout.startswith("would create the schema in an empty database: 0001_tables and ")
    assert len(said.stdout.splitlines()) == 1


def test_up_without_an_app_and_a_keyring_works_for_workflows(tmp_path, empty_url):
    with running("up", "--no-demo", "--port", "0", cwd=tmp_path, DULY_DATABASE_URL=empty_url) as up:
        up.wait_for_line("ready in")


def test_the_data_is_of_a_development_version(tmp_path, own_database_url):
    with psycopg.connect(own_database_url) as connection:
        connection.execute("update duly.migrations set name = 'baseline' where version = 1")
        connection.execute("insert into duly.migrations (version, name) values (2, 'cheaper_moves')")

    for command in (["jobs"], ["migrate"], ["migrate", "--check"], ["scheduler"], ["up", "--port", "0"]):
        said = duly(*command, cwd=tmp_path, DULY_DATABASE_URL=own_database_url)
        refused(said, "development version", "`duly export`", "new database")


def test_the_data_is_of_a_newer_duly(tmp_path, own_database_url):
    with psycopg.connect(own_database_url) as connection:
        connection.execute("insert into duly.migrations (version, name, finished_at) values (9999, 'later', now())")

    for command in (["submit", "x"], ["migrate"], ["up", "--port", "0"]):
        refused(duly(*command, cwd=tmp_path, DULY_DATABASE_URL=own_database_url), "newer Duly", "Upgrade")


def test_the_database_is_read_only(tmp_path, database_url):
    url = f"{database_url}&default_transaction_read_only=on"

    refused(duly("submit", "x", cwd=tmp_path, DULY_DATABASE_URL=url), "read-only", "primary")


def test_the_database_is_too_old(monkeypatch, capsys, database_url):
    monkeypatch.setattr(database, "VERSION_MIN", 990_000)

    assert call(["jobs", "--database-url", database_url]) == 3
    assert "too old" in capsys.readouterr().err


def test_the_data_folder_holds_something_that_is_not_ours(tmp_path):
    cluster = tmp_path / ".duly" / "postgres"
    cluster.mkdir(parents=True, mode=0o700)
    (cluster / "PG_VERSION").write_text("99\n")
    subprocess.run(["chown", "-R", "nobody", cluster], check=False)

    refused(duly("up", "--port", "0", cwd=tmp_path), "left as it is", "choose another data folder")
    assert [path.name for path in cluster.iterdir()] == ["PG_VERSION"]
