"""The role of the API: made with the data folder, for an older folder at its next start, elsewhere by the migration."""

import asyncio
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from duly.domain.errors import DatabaseUnusable
from duly.postgres.account import account_for
from duly.postgres.binaries import find_binaries
from duly.postgres.folder import API_ROLE, Folder
from duly.store.connection.database import Database
from duly.store.connection.session import Sessions
from duly.store.schema.migrate import migrate
from tests.postgres import Postgres, scratch_server

MARK = "duly-roles"


def as_superuser(data: Path, statements: str) -> None:
    """Run statements on a data folder on which no server runs."""
    pgdata = Folder(data).pgdata
    programs = find_binaries(None, account_for(pgdata))
    programs.run("postgres", "--single", "-F", "-c", "exit_on_error=on", "postgres", pgdata=pgdata, stdin=statements)


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """A data folder without the role."""
    data = Path(tmp_path_factory.mktemp("older")) / "data"
    with scratch_server(data):
        pass
    as_superuser(data, f"drop role {API_ROLE};\n")
    return data


@pytest.fixture
def older(made, tmp_path: Path) -> Path:
    """A data folder as an older version has made it: without the role."""
    subprocess.run(["cp", "-a", str(made), str(tmp_path / "data")], check=True)
    return Path(tmp_path) / "data"


@contextmanager
def without_roles(data: Path) -> Iterator[Postgres]:
    """Run a server on which nobody has made the role."""
    assert (Folder(data).pgdata / MARK).exists()
    with scratch_server(data) as server:
        yield server


async def migrated(url: str) -> bool:
    """Migrate a database, and see that a session can be opened on it."""
    async with Database(url) as database:
        await migrate(database)
        async with Sessions(database) as sessions, sessions.open(1) as session:
            return bool(await session.fetchval("select current_user = 'duly_api'"))


def test_an_older_data_folder_gets_the_role_at_its_next_start(older):
    (Folder(older).pgdata / MARK).unlink()

    with scratch_server(older) as server:
        assert asyncio.run(migrated(server.url()))
    assert (Folder(older).pgdata / MARK).exists()


def test_migrate_shows_the_statements_that_create_the_api_role(older):
    with without_roles(older) as server, pytest.raises(DatabaseUnusable) as refused:
        asyncio.run(migrated(server.url()))

    said = str(refused.value)
    assert said.startswith("role duly may not make the role duly_api")
    assert " create role duly_api nologin; grant duly_api to duly; " in said
    assert said.endswith("migrate again")


def test_migration_reports_a_role_that_may_not_become_the_api_role(older):
    as_superuser(older, f"create role {API_ROLE};\n")

    with without_roles(older) as server, pytest.raises(DatabaseUnusable, match="grant duly_api to duly"):
        asyncio.run(migrated(server.url()))


def test_databases_of_one_cluster_may_be_migrated_at_once(older):
    as_superuser(older, "alter role duly createrole;\n")

    async def at_once(server: Postgres) -> list[bool]:
        return await asyncio.gather(*(migrated(server.url(name)) for name in names))

    with without_roles(older) as server:
        names = [server.create() for _ in range(4)]
        assert asyncio.run(at_once(server)) == [True] * 4
