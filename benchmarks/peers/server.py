"""The PostgreSQL of all measurements: the programs that Duly ships, on a new data folder, on loopback.

Durable as PostgreSQL is by default. Only what `SETTINGS` says is not its default, so that it suits no system in particular.
"""

from __future__ import annotations

import secrets
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import asyncpg

from duly.postgres import embedded
from duly.postgres.account import account_for
from duly.postgres.binaries import Binaries, find_binaries
from duly.postgres.folder import Folder, replace

SETTINGS = {"shared_buffers": "1GB", "max_wal_size": "4GB"}
_ROLE = "peers"
_HOST = "127.0.0.1"
_CALLERS = f"host all {_ROLE} {_HOST}/32 scram-sha-256\n"


class Server(NamedTuple):
    """A running server."""

    version: str
    port: int
    password: str

    def url(self, database: str) -> str:
        """Return the address of a database, for a superuser."""
        return f"postgresql://{_ROLE}:{self.password}@{_HOST}:{self.port}/{database}"

    async def renew(self, database: str) -> None:
        """Create a database anew and take a checkpoint, so that nobody pays for what another has written."""
        connection = await asyncpg.connect(self.url("postgres"))
        try:
            await connection.execute(f"drop database if exists {database} with (force)")
            await connection.execute(f"create database {database}")
            await connection.execute("checkpoint")
        finally:
            await connection.close()


@contextmanager
def running(parent: Path) -> Iterator[Server]:
    """Run a server in a folder below `parent`, removed at the end."""
    data = Path(tempfile.mkdtemp(prefix="postgres-", dir=parent))
    try:
        folder = Folder(data)
        programs, password = find_binaries(None, account_for(folder.pgdata)), secrets.token_hex(16)
        _create(folder, programs, password)
        port = _free_port()
        settings = SETTINGS | {"listen_addresses": _HOST, "port": str(port), "unix_socket_directories": ""}
        server = embedded.serve(folder, programs, settings, None)
        try:
            yield Server(programs.version, port, password)
        finally:
            embedded.end(server)
    finally:
        shutil.rmtree(data, ignore_errors=True)


def _create(folder: Folder, programs: Binaries, password: str) -> None:
    """Create a cluster whose superuser can log in over loopback, and nobody else."""
    folder.pgdata.mkdir(mode=0o700)
    shutil.chown(folder.pgdata, programs.account.uid, programs.account.gid)
    options = ("--no-sync", "--locale=C", "--encoding=UTF8", "--auth=reject")
    programs.run("initdb", "--username", _ROLE, *options, pgdata=folder.pgdata)
    replace(folder.pgdata / "pg_hba.conf", _CALLERS, programs.account)
    programs.run(
        *("postgres", "--single", "-c", "exit_on_error=on", "postgres"),
        pgdata=folder.pgdata,
        stdin=f"alter role {_ROLE} password '{password}';\n",
    )


def _free_port() -> int:
    with socket.socket() as found:
        found.bind((_HOST, 0))
        return int(found.getsockname()[1])
