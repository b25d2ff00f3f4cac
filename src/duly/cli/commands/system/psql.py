"""`duly psql`: PostgreSQL's own client on the database of this folder's `duly up`, or of DULY_DATABASE_URL.

Where the database is, and its password, go into the environment of psql alone: nothing of it is on a command line, which
every account of the machine can read, and nothing is printed.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from urllib.parse import parse_qsl, unquote, urlsplit

import click

from duly.cli.connect import database_url
from duly.cli.flags.settings import with_settings
from duly.domain.errors import Refused
from duly.postgres.binaries import wheel_binaries
from duly.postgres.errors import BinariesMissing
from duly.settings import Settings, redacted

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


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[ARGS]…")
@with_settings()
def psql(settings: Settings, arguments: Sequence[str]) -> None:
    """Open the database in psql; ARGS are psql's own, as in `duly psql -c "select * from duly.workers"`.

    It is the database of the `duly up` of this folder, or of DULY_DATABASE_URL. The password is handed on in the environment
    of psql, never on its command line.
    """
    url = database_url(settings)
    program = find_psql()
    if program is None:
        raise Refused(
            "no psql is found: install PostgreSQL's client, often the package postgresql-client, and try again;"
            f" the database is at {redacted(url)}"
        )
    inherited = {name: value for name, value in os.environ.items() if name not in _LEADING_ELSEWHERE}
    os.execve(program, [program, *arguments], inherited | variables(url, os.environ))  # noqa: S606 - that is the command


def find_psql() -> str | None:
    """Find the psql of this machine, or else the one that comes with the embedded PostgreSQL."""
    if (found := shutil.which("psql")) is not None:
        return found
    try:
        shipped = wheel_binaries() / "psql"
    except BinariesMissing:
        return None
    return str(shipped) if os.access(shipped, os.X_OK) else None


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
