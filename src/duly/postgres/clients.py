"""PostgreSQL's client programs: those of this machine and those of the embedded server, and how each receives an address.

Where the database is, and its password, go into the environment of the program alone: nothing of it is on a command line,
which every account of the machine can read.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

from duly.postgres.binaries import wheel_binaries
from duly.postgres.errors import BinariesMissing

_VARIABLES = {
    "host": "PGHOST",
    "port": "PGPORT",
    "user": "PGUSER",
    "password": "PGPASSWORD",
    "dbname": "PGDATABASE",
    "database": "PGDATABASE",
    "passfile": "PGPASSFILE",
    "options": "PGOPTIONS",
    "application_name": "PGAPPNAME",
    "connect_timeout": "PGCONNECT_TIMEOUT",
    "target_session_attrs": "PGTARGETSESSIONATTRS",
    "channel_binding": "PGCHANNELBINDING",
    "gssencmode": "PGGSSENCMODE",
    "krbsrvname": "PGKRBSRVNAME",
    "require_auth": "PGREQUIREAUTH",
    "sslmode": "PGSSLMODE",
    "sslcert": "PGSSLCERT",
    "sslkey": "PGSSLKEY",
    "sslrootcert": "PGSSLROOTCERT",
    "sslcrl": "PGSSLCRL",
    "sslnegotiation": "PGSSLNEGOTIATION",
    "ssl_min_protocol_version": "PGSSLMINPROTOCOLVERSION",
    "ssl_max_protocol_version": "PGSSLMAXPROTOCOLVERSION",
}
_LEADING_ELSEWHERE = ("PGSERVICE", "PGHOSTADDR")  # these take precedence over the host, wherever it is named
_PROMPTED = "sslpassword"  # no variable holds it: psql asks
_DEBIAN = Path("/usr/lib/postgresql")
_VERSION = re.compile(r"\(PostgreSQL\) ((\d+)[0-9.]*)")
_FOR_BACKUPS = ("pg_dump", "pg_restore", "psql")


@dataclass(frozen=True, slots=True)
class Clients:
    """The client programs of one install."""

    folder: Path
    version: str
    major: int

    def command(self, program: str, *arguments: str) -> list[str]:
        """Return the command that runs a program."""
        return [str(self.folder / program), *arguments]


def find_clients(least: int) -> Clients:
    """Find the programs that read and write backups, of the major version `least` or the nearest above it.

    Raises BinariesMissing, saying what was found.
    """
    found = list(_installs())
    fit = [clients for clients in found if clients.major >= least]
    if fit:
        return min(fit, key=lambda clients: clients.major)
    seen = ", ".join(f"{clients.version} in {clients.folder}" for clients in found) or "none"
    raise BinariesMissing(
        f"no {', '.join(_FOR_BACKUPS[:-1])} and {_FOR_BACKUPS[-1]} of PostgreSQL {least} or newer are found ({seen});"
        f" install PostgreSQL's client programs, such as the package postgresql-client-{least}"
    )


def _installs() -> Iterator[Clients]:
    """Look in the path, where Debian keeps each version, and in the wheel of the embedded server."""
    named = shutil.which("pg_dump")
    folders = [Path(named).parent] if named else []
    folders += sorted(_DEBIAN.glob("*/bin"))
    with suppress(BinariesMissing):
        folders.append(wheel_binaries())
    for folder in folders:
        if all(os.access(folder / program, os.X_OK) for program in _FOR_BACKUPS):
            printed = subprocess.run(
                [folder / "pg_dump", "--version"], capture_output=True, encoding="utf-8", errors="replace", check=False
            )
            if version := _VERSION.search(printed.stdout):
                yield Clients(folder, version[1], int(version[2]))


def find_psql() -> str | None:
    """Find the psql of this machine, or else the one that comes with the embedded PostgreSQL."""
    if (found := shutil.which("psql")) is not None:
        return found
    try:
        shipped = wheel_binaries() / "psql"
    except BinariesMissing:
        return None
    return str(shipped) if os.access(shipped, os.X_OK) else None


def environment_for(url: str) -> dict[str, str]:
    """Return the environment of a client program that is to use the database at `url`: ours, and the address."""
    inherited = {name: value for name, value in os.environ.items() if name not in _LEADING_ELSEWHERE}
    return inherited | variables(url, os.environ)


def variables(url: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Write a database's address as the variables that psql reads; a parameter of the server goes into its options."""
    parts = urlsplit(url)
    login, _, addresses = parts.netloc.rpartition("@")
    user, _, password = login.partition(":")
    named = {"user": unquote(user), "password": unquote(password), "dbname": unquote(parts.path.lstrip("/"))}
    named |= _hosts(addresses)
    given = dict(parse_qsl(parts.query))
    given.pop(_PROMPTED, None)
    settings = {name: value for name, value in given.items() if name not in _VARIABLES}
    if "," in named["host"]:  # as for Duly itself
        named["target_session_attrs"] = "read-write"
    named = {name: value for name, value in named.items() if value} | {
        name: value for name, value in given.items() if name in _VARIABLES
    }
    found = {_VARIABLES[name]: value for name, value in named.items()}
    if settings:
        before = found.get("PGOPTIONS", environ.get("PGOPTIONS", ""))
        found["PGOPTIONS"] = " ".join([before, *(f"-c {name}={_escaped(value)}" for name, value in settings.items())])
    return found


def _hosts(addresses: str) -> dict[str, str]:
    """Take hosts and ports apart: `one:5432,[::1]:5433`."""
    hosts: list[str] = []
    ports: list[str] = []
    for address in addresses.split(","):
        host, colon, port = address.rpartition(":")
        is_port = bool(colon) and not port.endswith("]")
        hosts.append(unquote(host if is_port else address).strip("[]"))
        ports.append(port if is_port else "")
    return {"host": ",".join(hosts) if any(hosts) else "", "port": ",".join(ports) if any(ports) else ""}


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace(" ", "\\ ")
