"""`duly history` and `duly archive`, and what a command says when the archive cannot be used."""

import asyncio
import json
import sys

import pytest

from duly.domain.archive import INSTALL, ArchivePlace
from duly.outbound.archive_files import ArchiveFiles
from duly.store.connection.database import Database
from tests.cli.processes import inside
from tests.clock import ManualClock
from tests.kept import a_keyring
from tests.moves.test_archive import maintenance_of, old_history


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "archive"


@pytest.fixture
def duly(own_database_url, tmp_path, folder):
    """Run one command on a database whose history is archived."""
    settings = {"DULY_ARCHIVE_URL": f"file://{folder}"}
    return lambda *arguments: inside(*arguments, "--database-url", own_database_url, cwd=tmp_path, **settings)


@pytest.fixture
def runs(own_database_url, folder):
    """Three runs that only the archive has."""

    async def story() -> list[str]:
        clock = ManualClock()
        async with Database(own_database_url, clock=clock, keyring=a_keyring) as database:
            clock.moves(database)
            found = await old_history(database, clock)
            await maintenance_of(database, ArchiveFiles(ArchivePlace(False, str(folder)))).archive()
            return sorted(map(str, found), reverse=True)

    return asyncio.run(story())


def test_history_shows_archived_runs_and_a_range_without_any_is_empty(duly, runs):
    found = json.loads(duly("history", "--state", "succeeded", "--json").stdout)
    assert [run["run_id"] for run in found] == runs
    assert all(run["is_archived"] for run in found)
    assert "archive" in duly("history", "--since", "2026-11-02", "--until", "2026-11-03", "--state", "succeeded").stdout
    assert json.loads(duly("history", "--since", "2026-11-03", "--json").stdout) == []
    assert json.loads(duly("runs", "--json", "--filter", "state:succeeded").stdout) == []
    assert json.loads(duly("runs", "show", runs[0], "--json").stdout)["result"] == {"rows": 42}
    refused = duly("history", "--since", "2026-11-02T09:00:00")
    assert refused.returncode == 1
    assert "no offset" in refused.stderr


def test_archives_are_listed_verified_and_held(duly, runs, folder):
    [record] = json.loads(duly("archive", "--json").stdout)
    assert (record["state"], record["rows"], record["error"]) == ("dropped", 3, None)
    assert duly("archive", "verify").returncode == 0
    assert duly("archive", "hold", "1", "--job", runs[0], "--reason", "case 7").returncode == 0
    assert [one["job_id"] for one in json.loads(duly("archive", "holds", "--json").stdout)] == [runs[0]]
    assert duly("archive", "release", "1").returncode == 4, "that is another hold"
    assert duly("archive", "release", "1", "--job", runs[0]).returncode == 0

    [file] = folder.rglob("*.parquet")
    file.write_bytes(file.read_bytes()[:-8])
    damaged = duly("archive", "verify", record["name"])
    assert damaged.returncode == 1
    assert record["name"] in damaged.stderr
    assert "`duly archive list` lists them" in duly("archive", "verify", "nosuch").stderr
    assert "the value is empty; write at least one character" in duly("archive", "hold", "1", "--reason", "").stderr
    assert duly("archive", "stop").returncode == 0


def test_without_what_it_needs_nothing_starts(own_database_url, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "duckdb", None)
    for command in (("scheduler", "--database-url", own_database_url), ("up", "--no-demo", "--port", "0")):
        refused = inside(*command, cwd=tmp_path, DULY_ARCHIVE_URL="file:///archive")

        assert refused.returncode == 2
        assert INSTALL in refused.stderr
        assert "duckdb" in refused.stderr


@pytest.mark.parametrize("url", ["ftp://x/y", "s3://user:word@bucket/x", "file://relative", "/archive"])
def test_a_url_that_cannot_be_is_refused_with_its_source(own_database_url, tmp_path, url):
    refused = inside("scheduler", "--database-url", own_database_url, cwd=tmp_path, DULY_ARCHIVE_URL=url)

    assert refused.returncode == 2
    assert "DULY_ARCHIVE_URL" in refused.stderr
    assert "word" not in refused.stderr


def test_credentials_are_not_shown(tmp_path):
    secrets = {"DULY_ARCHIVE_ACCESS_KEY": "an-access-key", "DULY_ARCHIVE_SECRET_KEY": "a-secret-key"}
    for arguments in (("config",), ("config", "--json")):
        shown = inside(*arguments, cwd=tmp_path, **secrets).stdout

        assert "***" in shown
        assert not any(secret in shown for secret in secrets.values())
