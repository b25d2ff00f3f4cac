"""`duly psql`: PostgreSQL's own client on the database of this folder's `duly up`, or of DULY_DATABASE_URL."""

from __future__ import annotations

import os
from collections.abc import Sequence

import click

from duly.cli.connect import database_url
from duly.cli.flags.settings import with_settings
from duly.domain.errors import Refused
from duly.postgres.clients import environment_for, find_psql
from duly.settings import Settings, redacted


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
    os.execve(program, [program, *arguments], environment_for(url))  # noqa: S606 - that is the command
