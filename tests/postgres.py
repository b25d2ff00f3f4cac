"""A PostgreSQL for tests: one scratch server for the session, as many databases as tests want."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from duly.postgres import embedded
from duly.postgres.embedded import Embedded

DEBIAN_BINARIES = Path("/usr/lib/postgresql/15/bin")


class Postgres:
    """A running scratch server."""

    def __init__(self, server: Embedded) -> None:
        self.server = server
        self.version = server.version
        self._numbers = count(1)

    def url(self, database: str = "duly") -> str:
        """Give the address of one database."""
        return self.server.url.replace("postgresql:///duly?", f"postgresql:///{database}?")

    def create(self, template: str | None = None) -> str:
        """Create a database with a name of its own, and give that name."""
        name = f"test_{next(self._numbers)}"
        self.create_database(name, template)
        return name

    def create_database(self, name: str, template: str | None = None) -> None:
        """Create the database `name`, empty or as a copy of `template`, to which nobody may be connected."""
        statement = sql.SQL("create database {} template {}")
        self.execute(statement.format(sql.Identifier(name), sql.Identifier(template or "template1")))

    def drop_database(self, name: str) -> None:
        """Drop the database `name`, whoever is connected."""
        self.execute(sql.SQL("drop database if exists {} with (force)").format(sql.Identifier(name)))

    def execute(self, statement: sql.Composed) -> None:
        """Run one statement outside any transaction."""
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(statement)


@contextmanager
def scratch_server(data: Path, binaries: Path | None = None) -> Iterator[Postgres]:
    """Run a server that is fast because it forgets everything in a crash, and vacuums nothing by itself.

    A database that autovacuum is in cannot be dropped by a role that is no superuser.
    """
    with embedded.start(
        data, binaries=binaries, durable=False, settings={"shared_buffers": "128MB", "autovacuum": "off"}
    ) as server:
        yield Postgres(server)


@pytest.fixture(scope="session")
def postgres(tmp_path_factory) -> Iterator[Postgres]:
    """The embedded PostgreSQL of the version we ship; with several test processes, one for each."""
    with scratch_server(tmp_path_factory.mktemp("postgres")) as server:
        yield server


@pytest.fixture(scope="session")
def postgres_15(tmp_path_factory) -> Iterator[Postgres]:
    """The oldest PostgreSQL we support, from Debian's package."""
    if not (DEBIAN_BINARIES / "postgres").exists():
        pytest.skip("needs the Debian package postgresql-15")
    with scratch_server(tmp_path_factory.mktemp("postgres_15"), DEBIAN_BINARIES) as server:
        yield server
