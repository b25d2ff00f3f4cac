"""`duly psql`: PostgreSQL's own client on our database."""

import shlex

import pytest

from duly.postgres import clients
from duly.postgres.binaries import wheel_binaries
from duly.postgres.errors import BinariesMissing
from tests.cli.processes import Up, duly, inside, running

SECRET = "open sesame/7"


def with_password(url: str) -> str:
    """Name a password in the address of a server that asks for none."""
    return f"{url}{'&' if '?' in url else '?'}password=open%20sesame%2F7"


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        (
            "postgresql://ann:p%40ss@db.example:6432/duly?sslmode=require",
            {
                "PGUSER": "ann", "PGPASSWORD": "p@ss", "PGHOST": "db.example", "PGPORT": "6432", "PGDATABASE": "duly",
                "PGSSLMODE": "require",
            },
        ),
        (
            "postgresql:///duly?host=/run/a%20b&port=5432&user=engine",
            {"PGDATABASE": "duly", "PGHOST": "/run/a b", "PGPORT": "5432", "PGUSER": "engine"},
        ),
        (
            "postgres://one:5432,[::1]:5433/duly?target_session_attrs=read-write",
            {
                "PGHOST": "one,::1", "PGPORT": "5432,5433", "PGDATABASE": "duly", "PGTARGETSESSIONATTRS": "read-write",
            },
        ),
        (
            "postgres://one,two/duly",
            {"PGHOST": "one,two", "PGDATABASE": "duly", "PGTARGETSESSIONATTRS": "read-write"},
        ),
        (
            "postgres://one,two/duly?target_session_attrs=prefer-standby",
            {"PGHOST": "one,two", "PGDATABASE": "duly", "PGTARGETSESSIONATTRS": "prefer-standby"},
        ),
        ("postgresql://db", {"PGHOST": "db"}),
        (
            "postgresql://db/duly?search_path=a%20b&sslpassword=secret",
            {"PGHOST": "db", "PGDATABASE": "duly", "PGOPTIONS": "-c before=1 -c search_path=a\\ b"},
        ),
    ],
)  # fmt: skip
def test_an_address_is_handed_on_in_the_environment(url, expected):
    assert clients.variables(url, {"PGOPTIONS": "-c before=1"}) == expected


def test_its_exit_code_and_its_input_are_those_of_psql(database_url, tmp_path):
    wrong = duly("psql", "-Xc", "select nothing", cwd=tmp_path, DULY_DATABASE_URL=database_url)
    told = duly("psql", "-XAt", cwd=tmp_path, stdin="select 1 + 1;", DULY_DATABASE_URL=database_url)

    assert wrong.returncode == 1
    assert told.stdout == "2\n"


def test_psql_command_reports_a_missing_psql_without_the_password(database_url, tmp_path, monkeypatch):
    def missing():
        raise BinariesMissing("not installed")

    monkeypatch.setattr(clients, "wheel_binaries", missing)
    refused = inside("psql", cwd=tmp_path, DULY_DATABASE_URL=with_password(database_url), PATH="/nonexistent")

    assert refused.returncode == 1
    assert "psql" in refused.stderr
    assert "sesame" not in refused.stderr + refused.stdout


def test_psql_command_without_a_server_explains_how_to_start_it(tmp_path):
    assert "duly up" in inside("psql", cwd=tmp_path).stderr


def test_duly_up_prints_the_psql_command_for_its_database(tmp_path):
    assert (wheel_binaries() / "psql").exists(), "it is shipped"
    with running("up", "--port", "0", "--ephemeral", "--no-demo", "--workers", "0", cwd=tmp_path) as process:
        Up(process, tmp_path)
        command = process.wait_for_line("duly psql").split("duly ")[1].split("   ")[0]

        told = duly(*shlex.split(command), "-XAtc", "select current_user", cwd=tmp_path)

    assert told.stdout == "duly\n", told.stderr
